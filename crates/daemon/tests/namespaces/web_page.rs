//! The web page in a browser, of real daemons: what they say is what the page shows. What else it can do is tested in web/test.

use std::fs;
use std::path::Path;

use linux::netns::Namespace;

use crate::bed::{Bed, SERVER_V4, eventually};
use crate::scenarios::working_paths;

const BROWSER: &str = "/usr/bin/chromium";
const ADDRESS: &str = "127.0.0.1:4680";

/// The page's elements after it has asked its daemon a few times.
fn page(bed: &Bed, space: &Namespace, role: &str) -> String {
    let token = fs::read_to_string(bed.directory(role).join("web-token")).unwrap();
    let profile = bed.directory("browser");
    let output = space
        .command(BROWSER)
        .unwrap()
        .env("HOME", &profile)
        .arg(format!("--user-data-dir={}", profile.display()))
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-background-networking",
        ])
        .args(["--disable-component-update", "--disable-sync", "--virtual-time-budget=6000", "--dump-dom"])
        .arg(format!("http://{ADDRESS}/#token={}", token.trim()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub fn the_page_shows_what_real_daemons_say() {
    if !Path::new(BROWSER).exists() {
        assert!(std::env::var_os("CI").is_none(), "{BROWSER} is missing (scripts/setup.sh test installs it)");
        println!("skipped: {BROWSER} is not there");
        return;
    }
    let bed = Bed::new(false);
    for role in ["device", "gateway"] {
        let section = fs::read_to_string(bed.directory(role).join("config.toml")).unwrap();
        bed.write_config(role, &format!("web = \"{ADDRESS}\"\n{section}"));
    }
    let _daemons = bed.connected();
    eventually("both paths work", || working_paths(&bed) == 2);
    bed.download(SERVER_V4, 1_000_000, || {});

    let device = page(&bed, &bed.device, "device");
    for shown in ["wan0", "wan1", "data flows", &bed.status().public_key] {
        assert!(device.contains(shown), "{shown} is missing from\n{device}");
    }
    let gateway = page(&bed, &bed.gateway, "gateway");
    let client = &bed.client("gateway").gateway_clients().unwrap().clients[0];
    assert_eq!(client.name, "van");
    for shown in ["van", &client.addresses[0].to_string()] {
        assert!(gateway.contains(&format!(">{shown}")), "{shown} is missing from\n{gateway}");
    }
}
