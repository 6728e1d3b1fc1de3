//! A network that has IPv6 only, with a NAT64 and DNS64 (RFC 7050): the device reaches a gateway that has IPv4 only.

use std::fs;
use std::net::UdpSocket;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use linux::netns::Namespace;

use crate::bed::{Bed, SERVER_V4, eventually};
use crate::scenarios::working_paths;

/// Tayga and what it needs; ended with the test.
pub struct Translator(Child);

impl Drop for Translator {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// ```text
/// device wan0 --- 2001:db8:64::/64 --- lan router (tayga, DNS64) up --- 10.1.0.0/24 --- gateway (IPv4 only)
/// ```
pub fn an_ipv6_only_network_carries_through_its_nat64() {
    if Command::new("tayga").arg("--help").output().is_err() {
        println!("skipped: the program tayga is missing (apt install tayga)");
        return;
    }
    let bed = Bed::new(false);
    bed.device.delete_link("wan1").unwrap();
    let router = behind_nat64(&bed);
    let _translator = translate(&bed, &router);
    let stop = Arc::new(AtomicBool::new(false));
    let server = router.run(|| UdpSocket::bind("[2001:db8:64::1]:53")).unwrap().unwrap();
    let told = stop.clone();
    let names = std::thread::spawn(move || answer_names(&server, &told));

    bed.write_config("device", "name = \"van\"\n[device]\ndns = \"off\"\n");
    bed.write_config(
        "gateway",
        "[gateway]\ndns = []\nlisten = \"0.0.0.0:4600\"\npublic_addresses = [\"198.51.100.1\"]\n",
    );
    let gateway = bed.start("gateway");
    bed.join();
    let device = bed.start_with_names("device", "nameserver 2001:db8:64::1\n");
    bed.wait_until_up();
    eventually("the path works", || working_paths(&bed) == 1);
    let remote = bed.status().networks[0].paths[0].remote;
    assert_eq!(remote.ip(), "2001:db8:64:ff::198.51.100.1".parse::<std::net::IpAddr>().unwrap());
    bed.download(SERVER_V4, 2_000_000, || {});
    stop.store(true, Ordering::Relaxed);
    names.join().unwrap();
    drop((device, gateway));
}

/// Makes `wan0` of the device a network that has IPv6 only; its router, which leads on to the gateway.
pub fn behind_nat64(bed: &Bed) -> Namespace {
    bed.device.delete_link("wan0").unwrap();
    let router = Namespace::anonymous().unwrap();
    bed.device.join(&router, "wan0", "lan").unwrap();
    bed.device.add_address("wan0", "2001:db8:64::2/64".parse().unwrap()).unwrap();
    router.add_address("lan", "2001:db8:64::1/64".parse().unwrap()).unwrap();
    let via = "2001:db8:64::1".parse().ok();
    bed.device.add_route("wan0", "::/0".parse().unwrap(), via, None).unwrap();
    router.join(&bed.gateway, "up", "lan0").unwrap();
    router.add_address("up", "10.1.0.2/24".parse().unwrap()).unwrap();
    bed.gateway.add_address("lan0", "10.1.0.1/24".parse().unwrap()).unwrap();
    router.add_route("up", "0.0.0.0/0".parse().unwrap(), "10.1.0.1".parse().ok(), None).unwrap();
    // The way back to what the translator leases.
    bed.gateway.add_route("lan0", "10.64.0.0/24".parse().unwrap(), "10.1.0.2".parse().ok(), None).unwrap();
    router
}

/// A NAT64 on `router` with the prefix 2001:db8:64:ff::/96 and IPv4 addresses of 10.64.0.0/24.
pub fn translate(bed: &Bed, router: &Namespace) -> Translator {
    let directory = bed.directory("tayga");
    fs::create_dir(&directory).unwrap();
    let config = directory.join("tayga.conf");
    let text = format!(
        "tun-device nat64\nipv4-addr 10.64.0.1\nipv6-addr 2001:db8:64:fe::1\nprefix 2001:db8:64:ff::/96\n\
         dynamic-pool 10.64.0.0/24\ndata-dir {}\n",
        directory.display()
    );
    fs::write(&config, text).unwrap();
    let tayga = || {
        let mut command = router.command("tayga").unwrap();
        command.arg("--config").arg(&config);
        command
    };
    assert!(tayga().arg("--mktun").status().unwrap().success());
    router.set_up("nat64", true).unwrap();
    router.add_route("nat64", "10.64.0.0/24".parse().unwrap(), None, None).unwrap();
    router.add_route("nat64", "2001:db8:64:ff::/96".parse().unwrap(), None, None).unwrap();
    router.set_sysctl("net.ipv4.ip_forward", "1").unwrap();
    router.set_sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
    Translator(tayga().arg("--nodetach").spawn().unwrap())
}

/// Answers every question with the AAAA record of `ipv4only.arpa` as a DNS64 makes it (RFC 7050 section 3).
pub fn answer_names(server: &UdpSocket, stop: &AtomicBool) {
    server.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut query = [0; 512];
    while !stop.load(Ordering::Relaxed) {
        let Ok((length, from)) = server.recv_from(&mut query) else { continue };
        let mut answer = query[..length].to_vec();
        answer[2..4].copy_from_slice(&[0x81, 0x80]);
        answer[7] = 1;
        answer.extend([0xc0, 12, 0, 28, 0, 1, 0, 0, 0, 60, 0, 16]);
        answer.extend("2001:db8:64:ff::192.0.0.170".parse::<std::net::Ipv6Addr>().unwrap().octets());
        server.send_to(&answer, from).unwrap();
    }
}
