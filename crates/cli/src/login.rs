//! `anabranch login NETWORK`: a captive portal's page, over its own network while everything else keeps flowing.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anabranch::control::Hold;
use anyhow::Context;

use crate::arguments::Login;
use crate::output;
use crate::session::Session;

/// Becomes the browser.
pub fn run(session: &Session, arguments: &Login) -> anyhow::Result<()> {
    let client = session.any_client(&arguments.daemon)?;
    // Who may not list networks can still log in: a portal answers in place of every plain web page.
    let networks = client.networks().unwrap_or_default();
    let portal = networks.into_iter().find(|network| network.name == arguments.network);
    let portal = portal.and_then(|network| network.direct?.portal);
    let page = portal.unwrap_or_else(|| PLAIN_PAGE.to_owned());
    client.run(&Hold { networks: vec![arguments.network.clone()], treatment: None })?;
    let browser = arguments.browser.clone().or_else(|| std::env::var_os("BROWSER"));
    let browser = browser.unwrap_or_else(|| OsString::from(DESKTOP));
    output::remark(&format!(
        "{page} over {}; close other windows of the browser first, else one of them opens it over another network",
        arguments.network
    ));
    let error = Command::new(&browser).arg(&page).exec();
    Err(error).with_context(|| {
        format!("cannot run {}; say which browser with --browser, or open {page} by \"anabranch run --network {} -- BROWSER\"", browser.display(), arguments.network)
    })
}

const PLAIN_PAGE: &str = "http://example.com/";
/// What desktops open pages with.
const DESKTOP: &str = "xdg-open";
