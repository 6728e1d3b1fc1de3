//! The definition of every key: its meaning, what it accepts, its default, and how it is set.

use policy::calendar::BillingDay;
use policy::energy::Card;
use policy::rules::{Matcher, Strictness};
use policy::{Priority, Split, Treatment};
use std::num::{NonZeroU8, NonZeroU16};
use wire::hello::{MAX_DNS_SERVERS, MIN_MTU, Name};
use wire::join_link::MAX_ADDRESSES;

use super::rules::Draft;
use super::value::{self, Value};
use super::{
    CarrierChoice, CongestionChoice, DaemonConfig, DeviceConfig, GatewayConfig, NetworkConfig,
    SchedulerChoice, SteeringChoice,
};
use crate::device::may_be_v4;

/// One key of a table that is read into a `T`.
pub(super) struct Key<T: 'static> {
    pub(super) name: &'static str,
    /// Lines of meaning for the example.
    pub(super) meaning: &'static str,
    /// What a value must be, to follow "expected".
    pub(super) accepts: &'static str,
    /// The default in TOML, or how it could look if it stands for something that is found out.
    pub(super) default: &'static str,
    /// What holds when the key is not set, if `default` is only an example.
    pub(super) otherwise: Option<&'static str>,
    /// Sets the key, or returns `None` if the value is not acceptable.
    pub(super) set: fn(&mut T, &Value<'_>) -> Option<()>,
}

const MTU_RANGE: std::ops::RangeInclusive<i64> = MIN_MTU as i64..=65_535;

const SCHEDULERS: &[(&str, SchedulerChoice)] = &[
    ("earliest-arrival", SchedulerChoice::EarliestArrival),
    ("minimum-rtt", SchedulerChoice::MinimumRtt),
    ("inverse-rtt", SchedulerChoice::InverseRtt),
    ("duplicated", SchedulerChoice::Duplicated),
];

const CONGESTION: &[(&str, CongestionChoice)] = &[
    ("model", CongestionChoice::Model),
    ("cubic", CongestionChoice::Cubic),
    ("lia", CongestionChoice::Lia),
    ("olia", CongestionChoice::Olia),
    ("balia", CongestionChoice::Balia),
    ("background", CongestionChoice::Background),
];

const STEERING: &[(&str, SteeringChoice)] =
    &[("limits", SteeringChoice::Limits), ("marks", SteeringChoice::Marks)];

const TREATMENTS: &[(&str, Treatment)] = &[
    ("bonded", Treatment::Bonded),
    ("duplicated", Treatment::Duplicated),
    ("protected", Treatment::Protected),
    ("direct", Treatment::Direct),
];

const SPLITS: &[(&str, Split)] =
    &[("capacity", Split::Capacity), ("inverse-rtt", Split::InverseRtt), ("bandwidth", Split::Bandwidth)];

const CARRIERS: &[(&str, CarrierChoice)] =
    &[("auto", CarrierChoice::Auto), ("udp", CarrierChoice::Udp), ("tcp", CarrierChoice::Tcp)];

pub(super) const DAEMON: &[Key<DaemonConfig>] = &[
    Key {
        name: "name",
        meaning: "What this machine calls itself to the far end.",
        accepts: "a text of 1 to 64 characters",
        default: "\"van\"",
        otherwise: Some("its host name"),
        set: |config, value| Name::new(value::text(value)?).ok().map(|name| config.name = Some(name)),
    },
    Key {
        name: "user",
        meaning: "User that the daemon becomes once it is set up, if it was started as root.\nIf there is no such user, nobody.",
        accepts: "the name of a user",
        default: "\"anabranch\"",
        otherwise: None,
        set: |config, value| value::user(value).map(|user| config.user = user),
    },
    Key {
        name: "web",
        meaning: "Where the web page is served, and metrics for monitoring programs. `anabranch web` shows the page's address.",
        accepts: "\"off\", or an address that only this machine reaches and a port, such as \"127.0.0.1:4680\"",
        default: "\"off\"",
        otherwise: None,
        set: |config, value| value::web(value).map(|web| config.web = web),
    },
    Key {
        name: "dbus",
        meaning: "Be a service on the machine's message bus, for desktops. Who may do what there is up to polkit.\nWhere there is no bus, or no leave to have the name, everything else goes on.",
        accepts: "true or false",
        default: "true",
        otherwise: None,
        set: |config, value| value::boolean(value).map(|dbus| config.dbus = dbus),
    },
];

pub(super) const DEVICE: &[Key<DeviceConfig>] = &[
    Key {
        name: "interface",
        meaning: "Name of the interface that applications see.",
        accepts: "a text of 1 to 15 characters without slash, colon or space",
        default: "\"any0\"",
        otherwise: None,
        set: |config, value| value::interface(value).map(|name| config.interface = name),
    },
    Key {
        name: "mtu",
        meaning: "Its MTU in bytes. What a path cannot carry in one piece is split inside the bond.",
        accepts: "a whole number from 1280 to 65535",
        default: "1440",
        otherwise: Some("what the gateway says"),
        set: |config, value| value::number(value, MTU_RANGE).map(|mtu| config.mtu = Some(mtu as u16)),
    },
    Key {
        name: "gateway",
        meaning: "Use this gateway alone, by the name that `join` gave it; \"none\" for none: every flow goes directly over one network.",
        accepts: "a text of 1 to 64 characters",
        default: "\"gateway\"",
        otherwise: Some("of those that are known the nearest that lives"),
        set: |config, value| {
            Name::new(value::text(value)?).ok().map(|name| config.gateway = Some(name.to_string()))
        },
    },
    Key {
        name: "address_v4",
        meaning: "IPv4 address of the interface where no gateway leases one. Only this machine sees it.",
        accepts: "an IPv4 address",
        default: "\"10.255.86.1\"",
        otherwise: None,
        set: |config, value| value::parsed(value).map(|address| config.address_v4 = address),
    },
    Key {
        name: "address_v6",
        meaning: "The same for IPv6.",
        accepts: "an IPv6 address",
        default: "\"fdab:51ab:51ab::1\"",
        otherwise: None,
        set: |config, value| value::parsed(value).map(|address| config.address_v6 = address),
    },
    Key {
        name: "auto_direct",
        meaning: "Lead new flows to destinations that refuse the gateway's address out directly. They see the address of a network then.",
        accepts: "true or false",
        default: "false",
        otherwise: None,
        set: |config, value| value::boolean(value).map(|on| config.auto_direct = on),
    },
    Key {
        name: "split",
        meaning: "How new flows that go directly are split over equally preferred networks: by what each has left for a further flow,\nby 1/RTT, or by bandwidth.",
        accepts: "\"capacity\", \"inverse-rtt\" or \"bandwidth\"",
        default: "\"capacity\"",
        otherwise: None,
        set: |config, value| value::one_of(value, SPLITS).map(|split| config.split = split),
    },
    Key {
        name: "real_time_on_best",
        meaning: "New direct flows that are calls, games or the like, by their code point (EF, CS3 to CS5, AF41 to AF43) or by what earlier\nflows to the same place were, take the network with the least delay and jitter instead of being split.",
        accepts: "true or false",
        default: "true",
        otherwise: None,
        set: |config, value| value::boolean(value).map(|on| config.real_time_on_best = on),
    },
    Key {
        name: "scheduler",
        meaning: "Which path takes which packet: the one on which it arrives first, the one with the smallest\nround-trip time, each in proportion to 1/RTT, or two at once.",
        accepts: "\"earliest-arrival\", \"minimum-rtt\", \"inverse-rtt\" or \"duplicated\"",
        default: "\"earliest-arrival\"",
        otherwise: None,
        set: |config, value| value::one_of(value, SCHEDULERS).map(|choice| config.scheduler = choice),
    },
    Key {
        name: "congestion",
        meaning: "How each path finds its rate. Three are coupled (lia, olia, balia): paths that share a bottleneck take no\nmore of it than one flow would, where those of model take a third more. With background all other\ntraffic of a network goes first.",
        accepts: "\"model\", \"cubic\", \"lia\", \"olia\", \"balia\" or \"background\"",
        default: "\"model\"",
        otherwise: None,
        set: |config, value| value::one_of(value, CONGESTION).map(|choice| config.congestion = choice),
    },
    Key {
        name: "steering",
        meaning: "How the gateway learns which access points of a shared radio are slow: it is told how much to send by\neach, or packets of slow ones count as marked, which needs \"cubic\", \"lia\", \"olia\" or \"balia\" as the\ngateway's `congestion`.",
        accepts: "\"limits\" or \"marks\"",
        default: "\"limits\"",
        otherwise: None,
        set: |config, value| value::one_of(value, STEERING).map(|choice| config.steering = choice),
    },
    Key {
        name: "default_treatment",
        meaning: "How flows are carried: through the gateway over all networks, the same with every packet twice or with forward\nerror correction, or directly, each flow by one network.",
        accepts: "\"bonded\", \"duplicated\", \"protected\" or \"direct\"",
        default: "\"bonded\"",
        otherwise: None,
        set: |config, value| value::one_of(value, TREATMENTS).map(|choice| config.default_treatment = choice),
    },
    Key {
        name: "kill_switch",
        meaning: "Let nothing out beside the interface, also while the gateway cannot be reached.",
        accepts: "true or false",
        default: "false",
        otherwise: None,
        set: |config, value| value::boolean(value).map(|on| config.kill_switch = on),
    },
    Key {
        name: "dns",
        meaning: "Use the DNS servers that the gateway names.",
        accepts: "\"on\" or \"off\"",
        default: "\"on\"",
        otherwise: None,
        set: |config, value| value::on_off(value).map(|on| config.dns = on),
    },
    Key {
        name: "keep_alive",
        meaning: "Keep idle paths open: only where something on the way would forget them, never, or every so often.",
        accepts: "\"auto\", \"off\", or seconds from \"1s\" to \"3600s\"",
        default: "\"auto\"",
        otherwise: None,
        set: |config, value| value::keep_alive(value).map(|choice| config.keep_alive = choice),
    },
    Key {
        name: "probe",
        meaning: "What is asked for over a network that carries no direct flows, to see whether the Internet or a login page lies\nbeyond it. Each must answer with status 204; one that does is enough.",
        accepts: "\"off\", or 1 to 4 URLs such as \"http://example.org/generate_204\" (not https)",
        default: "[\"http://connectivitycheck.gstatic.com/generate_204\", \"http://cp.cloudflare.com/generate_204\"]",
        otherwise: None,
        set: |config, value| value::probe(value).map(|targets| config.probe = targets),
    },
    Key {
        name: "power_saving_below",
        meaning: "Percent of battery charge below which, off the mains, new direct flows use only the network that needs the least\nenergy. Holds where `card` is set for each network. 0 for never.",
        accepts: "a whole number from 0 to 100",
        default: "10",
        otherwise: None,
        set: |config, value| value::threshold(value).map(|percent| config.power_saving_below = percent),
    },
    Key {
        name: "cheapest_below",
        meaning: "The same for the network whose card draws the least power, whatever its speed.",
        accepts: "a whole number from 0 to 100",
        default: "20",
        otherwise: None,
        set: |config, value| value::threshold(value).map(|percent| config.cheapest_below = percent),
    },
    Key {
        name: "record",
        meaning: "Record networks and flows in this file of the state directory, for `anabranch what-if`: who talked to whom and how\nmuch, readable by root only. At most 128 MB with its predecessor FILE.old.",
        accepts: "\"off\", or the name of a file that ends in .jsonl",
        default: "\"off\"",
        otherwise: None,
        set: |config, value| value::record(value).map(|file| config.record = file),
    },
    Key {
        name: "neighbours",
        meaning: "Look for devices whose keys are known on all links, and let them reach this one: strangers there see that such a device\nis there, not which.",
        accepts: "true or false",
        default: "false",
        otherwise: None,
        set: |config, value| value::boolean(value).map(|on| config.neighbours = on),
    },
    Key {
        name: "peers",
        meaning: "Reach known peers by name (NAME.anabranch.internal) and any0 address wherever they are, over the Internet and over relays too, and\nbe reached by them (UDP port 4615). Names then go through a server of the daemon's. Means neighbours as well.",
        accepts: "true or false",
        default: "false",
        otherwise: None,
        set: |config, value| {
            let on = value::boolean(value)?;
            config.peers = on;
            config.neighbours |= on;
            Some(())
        },
    },
    Key {
        name: "neighbour_address",
        meaning: "IPv4 address of the interface for neighbours. They know its IPv6 address by its key.",
        accepts: "an IPv4 address from 10.254.0.1 to 10.254.255.254",
        default: "\"10.254.86.1\"",
        otherwise: Some("worked out from this machine's key"),
        set: |config, value| {
            let address = value::parsed(value).filter(|address| may_be_v4(*address))?;
            config.neighbour_address = Some(address);
            Some(())
        },
    },
    Key {
        name: "maxdiff",
        meaning: "How much longer ago a neighbour may have been heard over the preferred link than over another before the other is\ntaken. The less, the quicker and the more signs of life; two in this time while something flows.",
        accepts: "a time from \"10ms\" to \"60s\"",
        default: "\"100ms\"",
        otherwise: None,
        set: |config, value| value::time(value).map(|time| config.maxdiff = time),
    },
    Key {
        name: "mark",
        meaning: "Firewall mark of its own packets. Another one for a second device on this machine, or where another program\nuses this one.",
        accepts: "a whole number from 1 to 4294967295",
        default: "43857",
        otherwise: None,
        set: |config, value| value::number(value, 1..=u32::MAX.into()).map(|mark| config.mark = mark as u32),
    },
    Key {
        name: "table",
        meaning: "Routing table that leads to the interface. As for mark.",
        accepts: "a whole number from 256 to 4294967295",
        default: "43857",
        otherwise: None,
        set: |config, value| {
            value::number(value, 256..=u32::MAX.into()).map(|table| config.table = table as u32)
        },
    },
];

pub(super) const NETWORK: &[Key<NetworkConfig>] = &[
    Key {
        name: "priority",
        meaning: "Order of preference: of the networks that are there, those with the lowest number are used, the others wait as\nbackups.",
        accepts: "a whole number from 0 to 255",
        default: "0",
        otherwise: None,
        set: |config, value| {
            value::number(value, 0..=255).map(|number| config.priority = Priority(number as u8))
        },
    },
    Key {
        name: "backup",
        meaning: "Use it only while no other network is left.",
        accepts: "true or false",
        default: "true",
        otherwise: Some("true for a metered network, false for others"),
        set: |config, value| value::boolean(value).map(|on| config.backup = Some(on)),
    },
    Key {
        name: "metered",
        meaning: "It costs by the byte: it is a backup unless backup = false.",
        accepts: "true or false",
        default: "false",
        otherwise: None,
        set: |config, value| value::boolean(value).map(|on| config.metered = on),
    },
    Key {
        name: "off",
        meaning: "Do not use it at all.",
        accepts: "true or false",
        default: "false",
        otherwise: None,
        set: |config, value| value::boolean(value).map(|on| config.off = on),
    },
    Key {
        name: "neighbours",
        meaning: "Look for neighbours on it, if the device does at all.",
        accepts: "true or false",
        default: "true",
        otherwise: None,
        set: |config, value| value::boolean(value).map(|on| config.neighbours = on),
    },
    Key {
        name: "carrier",
        meaning: "What its paths ride on: UDP and, where that does not get through, framed TCP; or one of them only.",
        accepts: "\"auto\", \"udp\" or \"tcp\"",
        default: "\"auto\"",
        otherwise: None,
        set: |config, value| value::one_of(value, CARRIERS).map(|choice| config.carrier = choice),
    },
    Key {
        name: "price",
        meaning: "What a gigabyte costs, in your currency. Of backups the cheaper ones are used first.",
        accepts: "a number from 0 to 1000000, such as 2.5",
        default: "2.5",
        otherwise: Some("nothing"),
        set: |config, value| value::price(value).map(|price| config.price = Some(price)),
    },
    Key {
        name: "cap",
        meaning: "Data allowed in a month, both directions: from 90 % of it the network is a backup for direct flows, from all of it\nit is off.",
        accepts: "a size such as \"500 MB\" or \"20 GB\"",
        default: "\"20 GB\"",
        otherwise: Some("no limit"),
        set: |config, value| value::parsed(value).map(|limit| config.cap = Some(limit)),
    },
    Key {
        name: "billing_day",
        meaning: "The day of the month on which counting begins anew; in shorter months their last day.",
        accepts: "a whole number from 1 to 31",
        default: "1",
        otherwise: None,
        set: |config, value| {
            let day = value::number(value, 1..=31)?;
            BillingDay::try_from(day as u8).ok().map(|day| config.billing_day = day)
        },
    },
    Key {
        name: "card",
        meaning: "Whose published figures of power come nearest to its card; for saving the battery.",
        accepts: "\"lte-2012\", \"3g-2012\", \"wifi-2012\", \"3g-2009\", \"gsm-2009\", \"wifi-2009\", \"bluetooth-2008\", \"bluetooth-2013\", \"wavelan-11\" or \"wavelan-2\"",
        default: "\"lte-2012\"",
        otherwise: Some("unknown, so nothing is saved"),
        set: |config, value| Card::by_name(value::text(value)?).map(|card| config.card = Some(card.name)),
    },
];

pub(super) const RULE: &[Key<Draft>] = &[
    Key {
        name: "name",
        meaning: "What messages call it.",
        accepts: "a text of 1 to 64 characters",
        default: "\"backups\"",
        otherwise: Some("its number"),
        set: |rule, value| Name::new(value::text(value)?).ok().map(|name| rule.name = Some(name.to_string())),
    },
    Key {
        name: "program",
        meaning: "The program's control group.",
        accepts: "a text such as \"cgroup:/system.slice/backup.service\", or a list",
        default: "\"cgroup:/system.slice/backup.service\"",
        otherwise: Some("any"),
        set: |rule, value| rule.matching(value, Matcher::Program),
    },
    Key {
        name: "user",
        meaning: "Who runs the program.",
        accepts: "the name or number of a user, or a list",
        default: "\"nobody\"",
        otherwise: Some("any"),
        set: |rule, value| rule.users(value),
    },
    Key {
        name: "to",
        meaning: "Where the flow goes, by address.",
        accepts: "an address or network such as \"198.51.100.0/24\", or a list",
        default: "\"198.51.100.0/24\"",
        otherwise: Some("anywhere"),
        set: |rule, value| rule.destinations(value),
    },
    Key {
        name: "domain",
        meaning: "The same by name. Learned from what programs look up through this machine's resolver.",
        accepts: "a name such as \"example.org\" or \"*.example.org\", or a list",
        default: "\"*.example.org\"",
        otherwise: Some("anywhere"),
        set: |rule, value| rule.matching(value, Matcher::Domain),
    },
    Key {
        name: "port",
        meaning: "Protocol and destination port.",
        accepts: "a port such as 443, \"tcp/443\", \"udp/5000-6000\" or \"udp\", or a list",
        default: "[\"tcp/443\", \"udp/5000-6000\"]",
        otherwise: Some("any"),
        set: |rule, value| rule.ports(value),
    },
    Key {
        name: "dscp",
        meaning: "The mark that the program puts on its packets.",
        accepts: "a number from 0 to 63 or a name such as \"ef\", or a list",
        default: "\"ef\"",
        otherwise: Some("any"),
        set: |rule, value| rule.code_points(value),
    },
    Key {
        name: "class",
        meaning: "What the flow turned out to be.",
        accepts: "\"bulk\", \"interactive\" or \"real-time\", or a list",
        default: "\"real-time\"",
        otherwise: Some("any"),
        set: |rule, value| rule.classes(value),
    },
    Key {
        name: "treat",
        meaning: "How to carry it.",
        accepts: "\"bonded\", \"duplicated\", \"protected\" or \"direct\"",
        default: "\"direct\"",
        otherwise: Some("directly if networks are named, else as usual"),
        set: |rule, value| value::one_of(value, TREATMENTS).map(|choice| rule.treatment = Some(choice)),
    },
    Key {
        name: "networks",
        meaning: "Which networks a direct flow may take.",
        accepts: "the name of an interface, or a list",
        default: "[\"wwan0\"]",
        otherwise: Some("all"),
        set: |rule, value| value::list(value, 64, value::interface).map(|names| rule.networks = Some(names)),
    },
    Key {
        name: "strict",
        meaning: "Refuse the flow while none of these networks is there, rather than take another.",
        accepts: "true or false",
        default: "true",
        otherwise: None,
        set: |rule, value| {
            value::boolean(value)
                .map(|on| rule.strictness = if on { Strictness::Only } else { Strictness::Prefer })
        },
    },
];

pub(super) const GATEWAY: &[Key<GatewayConfig>] = &[
    Key {
        name: "interface",
        meaning: "Name of the interface towards the clients.",
        accepts: "a text of 1 to 15 characters without slash, colon or space",
        default: "\"any0\"",
        otherwise: None,
        set: |config, value| value::interface(value).map(|name| config.interface = name),
    },
    Key {
        name: "mtu",
        meaning: "MTU of it and of the clients' interfaces, in bytes.",
        accepts: "a whole number from 1280 to 65535",
        default: "1440",
        otherwise: None,
        set: |config, value| value::number(value, MTU_RANGE).map(|mtu| config.mtu = mtu as u16),
    },
    Key {
        name: "listen",
        meaning: "Where UDP datagrams are taken.",
        accepts: "1 to 8 addresses such as \"0.0.0.0:4600\" or \"[::]:4600\"",
        default: "[\"0.0.0.0:4600\", \"[::]:4600\"]",
        otherwise: None,
        set: |config, value| {
            let listen = value::list(value, MAX_ADDRESSES, value::socket_address)?;
            (!listen.is_empty()).then(|| config.listen = listen)
        },
    },
    Key {
        name: "tcp",
        meaning: "Port of the framed-TCP carrier, for networks that block UDP; 443 gets through most of them.",
        accepts: "a port from 1 to 65535, or \"off\"",
        default: "4600",
        otherwise: None,
        set: |config, value| {
            if value::text(value) == Some("off") {
                config.tcp = None;
                return Some(());
            }
            let port = value::number(value, 1..=65_535)?;
            NonZeroU16::new(port as u16).map(|port| config.tcp = Some(port))
        },
    },
    Key {
        name: "threads",
        meaning: "Threads that packets go through. Each client is served by one of them.",
        accepts: "a whole number from 1 to 64",
        default: "2",
        otherwise: Some("one for each processor, at most 8"),
        set: |config, value| {
            let threads = value::number(value, 1..=64)?;
            NonZeroU8::new(threads as u8).map(|threads| config.threads = Some(threads))
        },
    },
    Key {
        name: "public_addresses",
        meaning: "Where devices find this gateway; join links carry them. Set by `gateway init --address`.",
        accepts: "up to 8 addresses or DNS names such as \"gw.example.org\" or \"203.0.113.7:4600\"",
        default: "[]",
        otherwise: None,
        set: |config, value| {
            value::list(value, MAX_ADDRESSES, value::host_port).map(|list| config.public_addresses = list)
        },
    },
    Key {
        name: "pool_v4",
        meaning: "IPv4 network that the clients' addresses are leased from; its first address is the gateway's.",
        accepts: "a network such as \"10.86.0.0/16\", with a prefix from 8 to 30",
        default: "\"10.86.0.0/16\"",
        otherwise: None,
        set: |config, value| value::parsed(value).map(|pool| config.pool_v4 = pool),
    },
    Key {
        name: "pool_v6",
        meaning: "IPv6 network that the clients' addresses are leased from.",
        accepts: "a network such as \"fd12:3456:789a::/64\", with prefix 64",
        default: "\"fd12:3456:789a::/64\"",
        otherwise: Some("the unique local one that `gateway init` drew"),
        set: |config, value| value::parsed(value).map(|pool| config.pool_v6 = Some(pool)),
    },
    Key {
        name: "dns",
        meaning: "DNS servers that the clients are told; [] tells none.",
        accepts: "up to 4 IP addresses such as \"9.9.9.9\"",
        default: "[\"9.9.9.9\", \"2620:fe::9\"]",
        otherwise: Some("those of this machine"),
        set: |config, value| {
            value::list(value, MAX_DNS_SERVERS, value::parsed).map(|servers| config.dns = Some(servers))
        },
    },
    Key {
        name: "client_to_client",
        meaning: "Let clients reach each other.",
        accepts: "true or false",
        default: "false",
        otherwise: None,
        set: |config, value| value::boolean(value).map(|on| config.client_to_client = on),
    },
    Key {
        name: "congestion",
        meaning: "How each path to a client finds its rate, as for a device; what a client sends is its own choice.",
        accepts: "\"model\", \"cubic\", \"lia\", \"olia\", \"balia\" or \"background\"",
        default: "\"model\"",
        otherwise: None,
        set: |config, value| value::one_of(value, CONGESTION).map(|choice| config.congestion = choice),
    },
    Key {
        name: "client_rate",
        meaning: "Most that each client may send, and receive, a second. `anabranch gateway limit` sets another for one client.",
        accepts: "a rate such as \"20 Mbit/s\", or \"off\"",
        default: "\"off\"",
        otherwise: None,
        set: |config, value| value::limit(value).map(|rate| config.limits.rate = rate),
    },
    Key {
        name: "client_quota",
        meaning: "Most that each client may send and receive together in a month before it is slowed down.",
        accepts: "a size such as \"100 GB\", or \"off\"",
        default: "\"off\"",
        otherwise: None,
        set: |config, value| value::limit(value).map(|quota| config.limits.quota = quota),
    },
    Key {
        name: "beyond_quota",
        meaning: "What a client that has used its quota may send, and receive, a second until the month is over.",
        accepts: "a rate such as \"1 Mbit/s\"",
        default: "\"1 Mbit/s\"",
        otherwise: None,
        set: |config, value| value::parsed(value).map(|rate| config.limits.beyond_quota = rate),
    },
    Key {
        name: "billing_day",
        meaning: "Day of the month on which quotas begin anew (UTC).",
        accepts: "a day of the month, 1 to 31",
        default: "1",
        otherwise: None,
        set: |config, value| {
            let day = BillingDay::try_from(value::number(value, 1..=31)? as u8).ok()?;
            config.limits.billing_day = day;
            Some(())
        },
    },
    Key {
        name: "registry",
        meaning: "Where clients and invitations are kept: in a file of the state directory, or in a PostgreSQL database that several gateways\nshare, such as \"postgresql://USER:PASSWORD@HOST/DATABASE\". Keep this file from others then.",
        accepts: "\"file\", or a connection string of PostgreSQL",
        default: "\"file\"",
        otherwise: None,
        set: |config, value| value::registry(value).map(|registry| config.registry = registry),
    },
    Key {
        name: "registry_ca",
        meaning: "Certificate authority (PEM file) of that database's server; needed where it is another machine.",
        accepts: "the path of a file",
        default: "\"/etc/anabranch/registry-ca.pem\"",
        otherwise: Some("nothing is encrypted, and the server must be on this machine"),
        set: |config, value| value::path(value).map(|path| config.registry_ca = Some(path)),
    },
];
