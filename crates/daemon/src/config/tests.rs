use std::num::NonZeroU8;

use super::*;

fn fault(text: &str) -> String {
    Config::parse(text).unwrap_err().message
}

/// The example with its keys switched on.
fn switched_on(example: &str) -> String {
    let on = |line: &str| match line.strip_prefix('#') {
        Some(key) if !key.starts_with(' ') => key.to_owned(),
        _ => line.to_owned(),
    };
    example.lines().map(on).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_committed_example_is_the_generated_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/config.example.toml");
    let committed = std::fs::read_to_string(path).unwrap();
    assert!(
        committed == example(),
        "run: cargo run -p anabranch-daemon --example config > packaging/config.example.toml"
    );
}

/// What people copy from the pages is taken as it stands.
#[test]
fn examples_in_the_pages_are_understood() {
    let pages = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let mut examples = 0;
    for page in ["direct-mode.md", "configuration.md"] {
        let text = std::fs::read_to_string(format!("{pages}/{page}")).unwrap();
        for example in text.split("```toml\n").skip(1) {
            let (example, _) = example.split_once("```").unwrap();
            if let Err(error) = Config::parse(example) {
                panic!("{page}: {}\n{example}", error.message);
            }
            examples += 1;
        }
    }
    assert!(examples >= 8, "{examples}");
}

#[test]
fn the_example_as_it_stands_changes_nothing() {
    let config = Config::parse(&example()).unwrap();
    assert_eq!(config, Config { networks: config.networks.clone(), ..Config::default() });
    assert_eq!(config.network("wwan0"), NetworkConfig::default());
}

#[test]
fn every_default_in_the_example_is_the_real_one() {
    let mut config = Config::parse(&switched_on(&example())).unwrap();
    let all_set = (
        config.daemon.name.take().map(|name| name.to_string()),
        config.device.mtu.take(),
        config.device.gateway.take(),
        config.gateway.pool_v6.take().map(|pool| pool.to_string()),
        config.gateway.dns.take().map(|servers| servers.len()),
    );
    let expected = ("van", DEFAULT_MTU, "gateway", "fd12:3456:789a::/64", 2);
    let expected = (
        Some(expected.0.to_owned()),
        Some(expected.1),
        Some(expected.2.to_owned()),
        Some(expected.3.to_owned()),
        Some(expected.4),
    );
    assert_eq!(all_set, expected);
    assert_eq!(config.gateway.threads.take(), NonZeroU8::new(2));
    assert_eq!(config.gateway.registry_ca.take(), Some("/etc/anabranch/registry-ca.pem".into()));
    assert_eq!(config.device.neighbour_address.take(), "10.254.86.1".parse().ok());
    let backup = NetworkConfig {
        backup: Some(true),
        price: Some(Price(2_500)),
        cap: Some(Bytes(20_000_000_000)),
        card: Some("lte-2012"),
        ..NetworkConfig::default()
    };
    assert_eq!(config.networks.remove("wwan0"), Some(backup));
    assert_eq!(config.rules.drain(..).count(), 1);
    assert_eq!(config, Config::default());
}

#[test]
fn a_new_gateway_starts_with_its_addresses() {
    let address: HostPort = "[2001:db8::1]:99".parse().unwrap();
    let text = example_with_addresses(std::slice::from_ref(&address));
    assert_eq!(Config::parse(&text).unwrap().gateway.public_addresses, [address]);
}

#[test]
fn reads_every_sort_of_value() {
    let config = Config::parse(
        r#"
        user = "nobody"
        [device]
        interface = "tun7"
        mtu = 1_500
        scheduler = "inverse-rtt"
        congestion = "olia"
        steering = "marks"
        default_treatment = "protected"
        kill_switch = true
        dns = false
        keep_alive = "25s"
        [network.wlan0]
        priority = 3
        carrier = "tcp"
        [network."usb0.7"]
        backup = true
        metered = true
        off = true
        [gateway]
        listen = "192.0.2.1"
        tcp = "off"
        public_addresses = ["gw.example.org", "[2001:db8::1]:99"]
        pool_v4 = "192.168.0.0/24"
        dns = []
        client_to_client = true
        congestion = "balia"
        "#,
    )
    .unwrap();
    assert_eq!(config.daemon.user, "nobody");
    assert_eq!((config.device.interface.as_str(), config.device.mtu), ("tun7", Some(1_500)));
    assert_eq!(config.device.scheduler, SchedulerChoice::InverseRtt);
    assert_eq!(config.device.congestion, CongestionChoice::Olia);
    assert_eq!(config.device.steering, SteeringChoice::Marks);
    assert_eq!(config.device.default_treatment, Treatment::Protected);
    assert!(config.device.kill_switch && !config.device.dns);
    assert_eq!(config.device.keep_alive, KeepAlive::Every(Duration::from_secs(25)));
    let wlan = config.network("wlan0");
    assert_eq!((wlan.priority, wlan.carrier, wlan.backup), (Priority(3), CarrierChoice::Tcp, None));
    let usb = config.network("usb0.7");
    assert!(usb.backup == Some(true) && usb.metered && usb.off);
    assert_eq!(config.gateway.listen, ["192.0.2.1:4600".parse().unwrap()]);
    assert_eq!((config.gateway.tcp, config.gateway.dns), (None, Some(vec![])));
    let addresses: Vec<_> = config.gateway.public_addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["gw.example.org:4600", "[2001:db8::1]:99"]);
    assert_eq!(config.gateway.pool_v4.to_string(), "192.168.0.0/24");
    assert!(config.gateway.client_to_client);
    assert_eq!(config.gateway.congestion, CongestionChoice::Balia);
}

#[test]
fn wrong_values_name_key_value_and_what_would_be_right() {
    assert_eq!(
        fault("[device]\nmtu = 90000"),
        "device.mtu = 90000 cannot be: expected a whole number from 1280 to 65535"
    );
    assert_eq!(
        fault("[network.wwan0]\nbackup = \"yes\""),
        "network.wwan0.backup = \"yes\" cannot be: expected true or false"
    );
    assert_eq!(
        fault("[device]\nscheduler = \"fastest\""),
        "device.scheduler = \"fastest\" cannot be: expected \"earliest-arrival\", \"minimum-rtt\", \"inverse-rtt\" or \
         \"duplicated\""
    );
    assert_eq!(
        fault("[gateway]\npool_v4 = \"10.86.0.1/16\""),
        "gateway.pool_v4 = \"10.86.0.1/16\" cannot be: expected a network such as \"10.86.0.0/16\", with a prefix \
         from 8 to 30"
    );
    assert!(
        fault("[device]\ndefault_treatment = \"mptcp\"")
            .ends_with("expected \"bonded\", \"duplicated\", \"protected\" or \"direct\"")
    );
    assert!(fault("user = 7").starts_with("user = 7 cannot be: expected the name of a user"));
    assert!(fault("device = 7").starts_with("device = 7 is no table; write [device]"));
    assert!(fault("[network]\nwlan0 = 7").contains("network.wlan0 is no table"));
    assert!(fault("[network.\"a b\"]").contains("names no interface"));
    for (key, value) in [
        ("interface", "\"sixteen-letters-\""),
        ("interface", "\"a/b\""),
        ("mtu", "1279"),
        ("mtu", "1400.0"),
        ("keep_alive", "\"0s\""),
        ("keep_alive", "25"),
        ("dns", "\"maybe\""),
        ("gateway", "\"\""),
    ] {
        assert!(
            fault(&format!("[device]\n{key} = {value}"))
                .starts_with(&format!("device.{key} = {value} cannot"))
        );
    }
    for (key, value) in [
        ("listen", "[]"),
        ("listen", "[\"0.0.0.0:0\"]"),
        ("tcp", "0"),
        ("public_addresses", "[\"a b\"]"),
        ("dns", "[\"1.1.1.1\", \"dns.example\"]"),
        ("pool_v6", "\"fd00::/48\""),
    ] {
        assert!(
            fault(&format!("[gateway]\n{key} = {value}"))
                .starts_with(&format!("gateway.{key} = {value} cannot"))
        );
    }
}

#[test]
fn unknown_keys_are_named_with_a_near_one() {
    assert_eq!(fault("[device]\nmut = 1"), "there is no key device.mut: did you mean mtu?");
    assert_eq!(fault("[gatway]\n"), "there is no key gatway: did you mean gateway?");
    assert!(fault("[network.a]\ncolour = 1").starts_with(
        "there is no key network.a.colour: expected one of priority, backup, metered, off, neighbours, carrier"
    ));
}

#[test]
fn a_file_error_names_file_and_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.toml");
    let message = |text: &str| {
        std::fs::write(&path, text).unwrap();
        Config::load(None, directory.path()).unwrap_err().to_string()
    };
    let shown = path.display();
    let wrong = message("# one\n\n[device]\ndns = \"on\"\nkill_switch = 1\n");
    assert_eq!(wrong, format!("{shown}, line 5: device.kill_switch = 1 cannot be: expected true or false"));
    assert!(message("[device\n").starts_with(&format!("{shown}, line 1: not TOML: ")));
    assert!(message("mtu =\n").starts_with(&format!("{shown}, line 1: not TOML: ")));
    assert!(message("a = 1\na = 2\n").starts_with(&format!("{shown}, line 2: not TOML: ")));
}

#[test]
fn a_named_file_must_be_there_and_wins() {
    let directory = tempfile::tempdir().unwrap();
    let named = directory.path().join("other.toml");
    let missing = Config::load(Some(&named), directory.path()).unwrap_err();
    assert!(missing.to_string().contains("other.toml"));
    std::fs::write(&named, "user = \"named\"").unwrap();
    std::fs::write(directory.path().join("config.toml"), "user = \"state\"").unwrap();
    let user = |named: Option<&std::path::Path>| Config::load(named, directory.path()).unwrap().0.daemon.user;
    assert_eq!((user(Some(&named)).as_str(), user(None).as_str()), ("named", "state"));
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "[a-z\\[\\]=.\"0-9 \n#é]{0,80}") {
        let _ = Config::parse(&text);
    }

    #[test]
    fn no_value_panics(key in proptest::sample::select(vec!["mtu", "dns", "keep_alive", "scheduler", "interface"]), value in "\\PC{0,30}") {
        let _ = Config::parse(&format!("[device]\n{key} = {value}"));
        let _ = Config::parse(&format!("[device]\n{key} = '{value}'"));
    }
}

#[test]
fn prices_caps_and_thresholds_are_read() {
    let text = "[device]\npower_saving_below = 0\ncheapest_below = 35\nprobe = \"http://[fd00::1]:8080/here\"\n\
                [network.a]\nprice = 3\ncap = \"1.5 GB\"\nbilling_day = 31\ncard = \"wifi-2012\"\n\
                [network.b]\nprice = 0.25\ncap = \"500MB\"\n";
    let config = Config::parse(text).unwrap();
    assert_eq!(config.device.power_saving_below, None);
    assert_eq!(config.device.cheapest_below, Some(Percent::new(35)));
    let [probe] = &config.device.probe[..] else { panic!("{:?}", config.device.probe) };
    assert_eq!((probe.host().as_str(), probe.path.as_str()), ("[fd00::1]", "/here"));
    let (a, b) = (config.network("a"), config.network("b"));
    assert_eq!((a.price, a.cap), (Some(Price(3_000)), Some(Bytes(1_500_000_000))));
    assert_eq!((b.price, b.cap), (Some(Price(250)), Some(Bytes(500_000_000))));
    assert_eq!(a.billing_day, BillingDay::try_from(31).unwrap());
    assert_eq!(Config::parse("[device]\nprobe = \"off\"\n").unwrap().device.probe, []);
    for wrong in [
        "[device]\nprobe = \"https://example.org\"",
        "[device]\nprobe = []",
        "[device]\nprobe = \"http://a b/\"",
        "[device]\npower_saving_below = 101",
        "[network.a]\nprice = -1.0",
        "[network.a]\nprice = nan",
        "[network.a]\ncap = \"20\"",
        "[network.a]\ncap = \"inf GB\"",
        "[network.a]\nbilling_day = 0",
        "[network.a]\ncard = \"teapot\"",
    ] {
        assert!(fault(wrong).contains("expected"), "{wrong}");
    }
    for card in policy::energy::CARDS {
        assert!(fault("[network.a]\ncard = 1").contains(card.name), "{} is not offered", card.name);
    }
}
