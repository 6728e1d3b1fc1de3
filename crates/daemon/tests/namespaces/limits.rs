//! A gateway's limits for its clients, and its configuration read anew, while a device is connected.

use std::time::{Duration, Instant};

use anabranch::control::{ClientReport, EventKind, EventSequence, LimitRequest};
use policy::limit::{Limit, NamedLimit};
use units::{BitRate, Bytes};

use crate::bed::{Bed, SERVER_V4, eventually};

const SLOW: BitRate = BitRate(8_000_000);
const LENGTH: usize = 2_000_000;

fn client(bed: &Bed) -> ClientReport {
    bed.client("gateway").gateway_clients().unwrap().clients.remove(0)
}

fn limit(rate: Option<Limit<BitRate>>, quota: Option<Limit<Bytes>>) -> LimitRequest {
    LimitRequest { client: "van".to_owned(), rate, quota }
}

/// How long a download takes.
fn download(bed: &Bed) -> Duration {
    let begun = Instant::now();
    bed.download(SERVER_V4, LENGTH, || {});
    begun.elapsed()
}

/// The least time that the bytes need at `rate`, after a first burst.
fn least(rate: BitRate) -> Duration {
    rate.time_for(Bytes(LENGTH as u64)) - Duration::from_millis(200)
}

pub fn a_client_is_kept_to_its_limit() {
    let bed = Bed::new(false);
    let (_gateway, _device) = bed.connected();
    let gateway = bed.client("gateway");
    assert_eq!(client(&bed).allowance.rate, None);
    let limited = gateway.limit(&limit(Some(Limit::At(SLOW)), None)).unwrap();
    assert_eq!(limited.allowance.rate, Some(SLOW));
    let slow = download(&bed);
    assert!(slow >= least(SLOW), "{slow:?}");
    gateway.limit(&limit(Some(Limit::Named(NamedLimit::None)), None)).unwrap();
    let fast = download(&bed);
    assert!(2 * fast < slow, "{fast:?} without the limit, {slow:?} with it");
    let sent: u64 = client(&bed).outward.iter().map(|path| path.traffic.sent.0).sum();
    assert!(sent > 2 * LENGTH as u64, "what went to the device is told by path: {sent} B");

    // What was carried is counted twice a minute, and whenever the configuration is read.
    gateway.reload().unwrap();
    eventually("what was carried is counted", || client(&bed).allowance.used >= Bytes(2 * LENGTH as u64));
    let nobody = LimitRequest { client: "boat".to_owned(), ..limit(None, None) };
    assert!(gateway.limit(&nobody).unwrap_err().to_string().contains("no client named boat"));
}

pub fn who_has_used_its_quota_is_slowed_down() {
    let bed = Bed::new(false);
    let (gateway_daemon, _device) = bed.connected();
    let gateway = bed.client("gateway");
    download(&bed);
    let quota = Limit::At(Bytes(LENGTH as u64));
    assert!(!gateway.limit(&limit(None, Some(quota))).unwrap().allowance.slowed, "it is not counted yet");
    gateway.reload().unwrap();
    eventually("the quota is used up", || client(&bed).allowance.slowed);
    let told = || {
        let events = gateway.events(EventSequence(0)).unwrap();
        events
            .iter()
            .any(|event| event.kind == EventKind::Warning && event.text.contains("has used its quota"))
    };
    eventually("that is said", told);
    assert_eq!(client(&bed).allowance.rate, Some(BitRate(1_000_000)), "as the configuration has it");

    // Another start does not forget what was used.
    drop(gateway_daemon);
    let _again = bed.start("gateway");
    assert!(client(&bed).allowance.used >= Bytes(LENGTH as u64));
    assert!(client(&bed).allowance.slowed);
}

pub fn another_configuration_holds_and_nobody_is_dropped() {
    let bed = Bed::new(false);
    let (_gateway, _device) = bed.connected();
    let gateway = bed.client("gateway");
    let since = client(&bed).connected_since;
    assert!(since.is_some());
    let config = |rest: &str| {
        bed.write_config(
            "gateway",
            &format!("[gateway]\ndns = []\npublic_addresses = [\"198.51.100.1\"]\n{rest}"),
        );
    };
    config("client_rate = \"8 Mbit/s\"\nlisten = \"0.0.0.0:4700\"\n");
    let report = gateway.reload().unwrap();
    assert_eq!(report.applied, ["gateway.public_addresses", "gateway.client_rate"]);
    assert_eq!(report.after_restart, ["gateway.listen"]);
    assert_eq!(client(&bed).allowance.rate, Some(SLOW));
    let slow = download(&bed);
    assert!(slow >= least(SLOW), "{slow:?}");

    config("client_rate = \"fast\"\n");
    let error = gateway.reload().unwrap_err().to_string();
    assert!(error.contains("line 4") && error.contains("client_rate"), "{error}");
    assert_eq!(client(&bed).allowance.rate, Some(SLOW), "a wrong file changes nothing");
    assert_eq!(client(&bed).connected_since, since, "it was never gone");
}
