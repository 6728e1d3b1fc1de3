//! A radio under our control against access points of unmodified hostapd, in the virtual machine: what the crate `linux` makes of
//! a card. Skipped with a reason where a part of the bed cannot be had, except in CI.

#![expect(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use lab::vm::topology::SERVER_ADDRESS;
use lab::vm::wifi::{AccessPoint, Protection, Security, Wifi, WifiNetwork};
use lab::vm::{Job, Machine, program};
use linux::journal::Journal;
use linux::netlink::Netlink;
use linux::radio::{BackEnd, Block, OpenError, RadioCard, Radios, TransferError, TuneError, take_over};
use radio::radiotap::Captured;
use radio::{Rate, Transmission};
use sim::NetworkSpec;
use units::{Frequency, MacAddress};

const CHANNEL_1: Frequency = Frequency(2412);
const CHANNEL_11: Frequency = Frequency(2462);
const CAFE: MacAddress = MacAddress([2, 0, 0, 0, 0, 0]);
const HOME: MacAddress = MacAddress([2, 0, 0, 0, 1, 0]);
const OURS: MacAddress = MacAddress([2, 0, 0, 0, 2, 0]);
const SECOND: MacAddress = MacAddress([2, 0, 0, 0, 2, 1]);
const STRANGER: MacAddress = MacAddress([2, 0, 0, 0, 9, 9]);

/// What busybox's DHCP client calls with what it was told.
const LEASE: &str = "#!/bin/sh
[ \"$1\" = bound ] || exit 0
ip addr add \"$ip/24\" dev wlan0 && ip route replace default via \"$router\"
";
/// A hidden network, whose management frames must be protected.
const HOME_CONFIGURATION: &str = "network={
    ssid=\"home\"
    scan_ssid=1
    psk=\"correct horse\"
    key_mgmt=WPA-PSK-SHA256
    ieee80211w=2
}
";

/// Says that the test runs in the guest, where it does its work.
const IN_GUEST: &str = "ANABRANCH_TEST_IN_GUEST";

#[test]
fn a_radio_is_taken_over_used_and_given_back() {
    let Some(machine) = Machine::find_or_skip().unwrap() else { return };
    let home = AccessPoint {
        security: Security::Wpa2 { passphrase: "correct horse".into(), protection: Protection::Offered },
        hidden: true,
        ..AccessPoint::open("home", 11)
    };
    let wifi = Wifi::new(vec![
        WifiNetwork {
            link: NetworkSpec::symmetric("cafe", 10.0, 20),
            points: vec![AccessPoint::open("cafe", 1)],
        },
        WifiNetwork { link: NetworkSpec::symmetric("home", 5.0, 10), points: vec![home] },
    ]);
    assert_eq!((wifi.bssid(0, 0), wifi.bssid(1, 0)), (CAFE, HOME));
    assert_eq!(wifi.station_address("device"), Some(OURS));

    let own = std::env::current_exe().unwrap();
    let name = own.file_name().unwrap().to_str().unwrap();
    let mut job = Job::new(format!(
        r#". /job/networks; . /job/wifi; build_networks; build_air
        # First as the kernel's own station, over each network's back-haul.
        at_home() {{ in_namespace device "$@"; }}
        lease() {{ at_home udhcpc -q -n -t 10 -i wlan0 -s /job/lease && at_home ping -c 3 {SERVER_ADDRESS}; }}
        ip -n device link set dev wlan0 up
        at_home iw dev wlan0 connect cafe && sleep 1 && lease || exit 1
        at_home iw dev wlan0 disconnect; ip -n device addr flush dev wlan0
        at_home wpa_supplicant -B -i wlan0 -c /job/home.conf && sleep 8 && lease || exit 1
        at_home iw dev wlan0 link
        kill $(pidof wpa_supplicant) && sleep 1; ip -n device addr flush dev wlan0
        ip -n device link set dev wlan0 up
        {IN_GUEST}=1 in_namespace device {name} --exact in_the_guest --nocapture || exit 1
        cat /results/point-cafe-0.log"#
    ));
    wifi.add_to(&mut job).unwrap();
    job.files.insert("/job/lease".into(), LEASE.into());
    job.files.insert("/job/home.conf".into(), HOME_CONFIGURATION.into());
    job.programs.push(program("wpa_supplicant", "wpasupplicant").unwrap());
    job.programs.push(PathBuf::from(&own));
    job.programs.push(PathBuf::from(env!("CARGO_BIN_EXE_anabranch-lab")));
    let outcome = machine.run(&job).unwrap();
    println!("{}\nwall time {:?}", outcome.output, outcome.wall_time);
    assert_eq!(outcome.exit, 0, "{}", outcome.output);

    // hostapd tells whose card did not acknowledge its answers.
    let said = String::from_utf8_lossy(&outcome.files["point-cafe-0.log"]).into_owned();
    let is_missed = |address: MacAddress| {
        said.contains(&format!("{address} IEEE 802.11: did not acknowledge authentication response"))
    };
    assert!(is_missed(STRANGER), "an address that is nobody's was acknowledged: {said}");
    assert!(!is_missed(OURS) && !is_missed(SECOND), "an answer to us was not acknowledged: {said}");
}

/// The part that runs in the guest, in the device's namespace.
#[test]
fn in_the_guest() {
    if std::env::var_os(IN_GUEST).is_none() {
        return;
    }
    let mut radios = Radios::open().unwrap();
    let radio = radios.find("wlan0").unwrap().unwrap();
    println!("{:?}, country {:?}", BackEnd::choose(&radio), radios.country().unwrap());
    assert_eq!(BackEnd::choose(&radio).back_end, BackEnd::TimeSliced);
    assert_eq!((radio.address, radio.block), (Some(OURS), None));

    let directory = std::path::Path::new("/tmp/state");
    std::fs::create_dir_all(directory).unwrap();
    let mut journal = Journal::open(directory).unwrap();
    journal.apply(&take_over(&radio, "radio0", &[OURS, SECOND])).unwrap();
    assert!(!link("wlan0").unwrap());
    assert!(matches!(RadioCard::open("wlan0"), Err(OpenError::NotMonitor(_))));
    assert!(matches!(RadioCard::open("wlan9"), Err(OpenError::NoInterface(_))));

    let mut card = RadioCard::open("radio0").unwrap();
    assert_eq!(card.address(), Some(OURS));
    each_channel_is_heard_alone(&mut card);
    frames_come_back_with_their_outcome(&mut card);
    answers_are_acknowledged(&mut card);
    what_cannot_be_done_is_told(&mut card);
    channel_changes_are_timed(&mut card);
    drop(card);

    give_back(&mut journal);
    assert_eq!((link("wlan0"), link("radio0"), link("radio0-1")), (Some(true), None, None));

    // Once more, and the card is pulled out.
    journal.apply(&take_over(&radio, "radio0", &[OURS])).unwrap();
    let mut card = RadioCard::open("radio0").unwrap();
    card.tune(CHANNEL_1).unwrap();
    assert!(Command::new("rmmod").arg("mac80211_hwsim").status().unwrap().success());
    assert!(matches!(card.tune(CHANNEL_11), Err(TuneError::Gone)));
    assert!(matches!(card.receive(|_| {}), Err(TransferError::Off | TransferError::Gone)));
    assert!(matches!(card.send(&sent(vec![0; 24], 1)), Err(TransferError::Gone)));
    assert!(matches!(card.reclaim(), Err(TuneError::Gone)));
    give_back(&mut journal);
    assert_eq!((link("wlan0"), link("radio0")), (None, None));
}

fn give_back(journal: &mut Journal) {
    let undone = journal.restore().unwrap();
    assert!(undone.iter().all(|one| one.failure.is_none()), "{undone:?}");
}

/// Whether an interface is on; `None` if there is none.
fn link(name: &str) -> Option<bool> {
    Netlink::open().unwrap().link(name).unwrap().map(|link| link.up)
}

/// Frames of others, with their channel.
type HeardFrames = Vec<(Vec<u8>, Frequency)>;
/// Frames of ours: whether they were acknowledged, and how often they were sent.
type Outcomes = Vec<(Vec<u8>, bool, Option<u8>)>;

/// What is received in `time`.
fn listen(card: &mut RadioCard, time: Duration) -> (HeardFrames, Outcomes) {
    let (mut heard, mut outcomes) = (Vec::new(), Vec::new());
    let start = Instant::now();
    while start.elapsed() < time {
        let count = card
            .receive(|captured| match captured {
                Captured::Heard(frame) => heard.push((frame.frame.to_vec(), frame.frequency)),
                Captured::Outcome(outcome) => {
                    outcomes.push((outcome.frame.to_vec(), outcome.acknowledged, outcome.attempts));
                }
            })
            .unwrap();
        if count == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    (heard, outcomes)
}

/// Frame control, duration, three addresses, number, body.
fn frame(control: [u8; 2], to: MacAddress, from: MacAddress, number: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = control.to_vec();
    bytes.extend([0, 0]);
    [to, from, to].iter().for_each(|address| bytes.extend(address.0));
    bytes.extend((number << 4).to_le_bytes());
    bytes.extend(body);
    bytes
}

fn sent(frame: Vec<u8>, attempts: u8) -> Transmission {
    Transmission { frame, rate: Rate(12), attempts }
}

fn each_channel_is_heard_alone(card: &mut RadioCard) {
    for (frequency, bssid) in [(CHANNEL_1, CAFE), (CHANNEL_11, HOME), (CHANNEL_1, CAFE)] {
        card.tune(frequency).unwrap();
        assert_eq!(card.tuned().unwrap().frequency, frequency);
        let (heard, _) = listen(card, Duration::from_millis(1_050));
        let beacons = heard.iter().filter(|(frame, _)| frame[0] == 0x80);
        let from: Vec<_> = beacons.map(|(frame, channel)| (frame[10..16].to_vec(), *channel)).collect();
        assert!((9..=11).contains(&from.len()), "{} beacons in 1050 ms", from.len());
        assert!(from.iter().all(|(from, channel)| *from == bssid.0 && *channel == frequency), "{from:?}");
    }
}

/// A null frame with PM = 1 to an access point and to nobody.
fn frames_come_back_with_their_outcome(card: &mut RadioCard) {
    for (to, number, acknowledged) in [(CAFE, 17, true), (STRANGER, 18, false)] {
        let null = frame([0x48, 0x11], to, OURS, number, &[]);
        let start = Instant::now();
        card.send(&sent(null.clone(), 4)).unwrap();
        let (_, outcomes) = listen(card, Duration::from_millis(50));
        println!("null frame to {to}: {outcomes:?} after at most {:?}", start.elapsed());
        let own: Vec<_> = outcomes.iter().filter(|(frame, ..)| frame[22..24] == null[22..24]).collect();
        assert_eq!(own.len(), 1, "{outcomes:?}");
        assert_eq!(own[0].1, acknowledged);
        // As it was sent, but for the duration and the bit that says it is repeated.
        assert_eq!(own[0].0[4..], null[4..]);
    }
}

/// An access point answers each of these; only the first two have somebody who acknowledges that.
fn answers_are_acknowledged(card: &mut RadioCard) {
    for from in [OURS, SECOND, STRANGER] {
        let request = frame([0xb0, 0], CAFE, from, 30, &[0, 0, 1, 0, 0, 0]);
        card.send(&sent(request, 4)).unwrap();
        let (heard, _) = listen(card, Duration::from_millis(200));
        let answers: Vec<_> =
            heard.iter().filter(|(frame, _)| frame[0] == 0xb0 && frame[4..10] == from.0).collect();
        assert_eq!(answers.len(), 1, "{from}: {answers:?}");
        assert_eq!(answers[0].0[24..30], [0, 0, 2, 0, 0, 0], "not accepted");
        assert_eq!(answers[0].0[1] & 0x08, 0, "repeated");
    }
}

fn what_cannot_be_done_is_told(card: &mut RadioCard) {
    let absent = Frequency(2411);
    assert!(matches!(card.tune(absent), Err(TuneError::Channel { frequency }) if frequency == absent));
    // Nobody may begin to send there where the country is not known.
    let silent =
        card.channels().iter().find(|channel| channel.no_initiation && channel.may_listen()).copied();
    card.tune(silent.unwrap().frequency).unwrap();
    let null = sent(frame([0x48, 0x11], CAFE, OURS, 19, &[]), 1);
    assert!(matches!(card.send(&null), Err(TransferError::Silent)));

    // The worst place for another program to take the radio and leave it.
    let mut netlink = Netlink::open().unwrap();
    let wlan0 = netlink.link("wlan0").unwrap().unwrap().index;
    netlink.set_link_up(wlan0, true).unwrap();
    assert!(matches!(card.tune(CHANNEL_1), Err(TuneError::Busy)));
    card.reclaim().unwrap();
    works(card, &null);

    let switch = |text: &str| {
        let switches = std::fs::read_dir("/sys/class/rfkill").unwrap();
        let soft = switches.map(|entry| entry.unwrap().path().join("soft"));
        // Those of other namespaces' radios are named but not there.
        let own: Vec<_> = soft.filter(|path| path.exists()).collect();
        assert_eq!(own.len(), 1, "{own:?}");
        std::fs::write(&own[0], text).unwrap();
    };
    switch("1");
    assert!(matches!(card.receive(|_| {}), Err(TransferError::Off)));
    assert!(matches!(card.send(&null), Err(TransferError::Off)));
    assert!(matches!(card.reclaim(), Err(TuneError::Blocked)));
    assert_eq!(Radios::open().unwrap().find("radio0").unwrap().unwrap().block, Some(Block::Soft));
    switch("0");
    card.reclaim().unwrap();
    works(card, &null);
}

fn works(card: &mut RadioCard, null: &Transmission) {
    card.tune(CHANNEL_1).unwrap();
    card.send(null).unwrap();
    let (_, outcomes) = listen(card, Duration::from_millis(50));
    assert!(matches!(outcomes[..], [(_, true, _)]), "{outcomes:?}");
}

fn channel_changes_are_timed(card: &mut RadioCard) {
    let mut times: Vec<Duration> = (0..400)
        .map(|round| {
            let frequency = if round % 2 == 0 { CHANNEL_11 } else { CHANNEL_1 };
            let start = Instant::now();
            card.tune(frequency).unwrap();
            start.elapsed()
        })
        .collect();
    times.sort();
    let (median, late) = (times[200], times[396]);
    println!("channel changes: p50 {median:?}, p99 {late:?}");
    assert!(
        median < Duration::from_micros(500) && late < Duration::from_millis(2),
        "{median:?} and {late:?}"
    );
}
