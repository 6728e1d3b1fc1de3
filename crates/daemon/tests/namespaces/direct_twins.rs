//! Two networks that nobody could tell apart: the same subnet, router, lease and hardware address, of IPv4 and IPv6.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use crate::bed::{SERVER_V4, SERVER_V6, eventually};
use crate::direct::{LivingFlows, bed, behind, calls_by, read_on, started};
use crate::hardship::{behind_a_router, restore_routes};

pub fn twins_work_side_by_side_and_one_may_go() {
    let bed = bed();
    let routers = [0, 1].map(|number| behind_a_router(&bed, number));
    let inside = behind(&bed);
    bed.gateway.set_sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
    for number in 0..2 {
        let back = format!("2001:db8:{number}::/64").parse().unwrap();
        bed.server.add_route("lan", back, "2001:db8:9::1".parse().ok(), None).unwrap();
    }
    bed.write_config("device", "[device]\ndns = \"off\"\nprobe = \"off\"\n");
    let daemon = started(&bed);
    let (mut readers, mut living) = (Vec::new(), Vec::new());
    for server in [SERVER_V4, SERVER_V6] {
        for (host, error) in
            [(&bed.device, ErrorKind::ConnectionAborted), (&inside, ErrorKind::ConnectionReset)]
        {
            let [mut dying, mut other] = LivingFlows::open(&bed, host, server, 8_081).over;
            LivingFlows::talk(&mut dying);
            LivingFlows::talk(&mut other);
            let (call, end) = dying;
            readers.push((read_on(call), end, error));
            living.push(other);
        }
    }
    // Nothing but the kernel's marks tells which flow is whose.
    daemon.kill();
    let _daemon = started(&bed);
    living.iter_mut().for_each(LivingFlows::talk);
    routers[0].set_up("lan", false).unwrap();
    let died = Instant::now();
    for (reader, _end, wanted) in readers {
        let (error, at) = reader.join().unwrap();
        assert_eq!(error.kind(), wanted, "{error}");
        assert!(at - died < Duration::from_secs(10), "{:?}", at - died);
    }
    living.iter_mut().for_each(LivingFlows::talk);
    for server in [SERVER_V4, SERVER_V6] {
        for host in [&bed.device, &inside] {
            assert_eq!(calls_by(&bed, host, server, 8_082, 4), [(1, 4)].into(), "{server}");
        }
    }

    routers[0].set_up("lan", true).unwrap();
    // What the link took with it, on both of its ends.
    routers[0].add_address("lan", "fd01::1/64".parse().unwrap()).unwrap();
    bed.device.add_address("wan0", "fd01::2/64".parse().unwrap()).ok();
    restore_routes(&bed, 0);
    for server in [SERVER_V4, SERVER_V6] {
        for host in [&bed.device, &inside] {
            eventually("the twin is used again", || calls_by(&bed, host, server, 8_083, 4).contains_key(&0));
        }
    }
    living.iter_mut().for_each(LivingFlows::talk);
}
