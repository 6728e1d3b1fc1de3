//! Nothing of a made-up machine's secrets survives, wherever it stands.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

fn redacted(text: &str) -> String {
    Redactor::default().text(text)
}

#[test]
fn the_same_thing_has_the_same_placeholder() {
    let mut redactor = Redactor::default();
    redactor.learn(Kind::Host, "Karls-Laptop");
    redactor.learn(Kind::Ssid, "Café \"Blau\"");
    redactor.learn(Kind::User, "karl");
    assert_eq!(
        redactor.text("192.0.2.1:4600 and 198.51.100.7, then 192.0.2.1/32 again; [2001:db8::1]:4600"),
        "[ipv4-1]:4600 and [ipv4-2], then [ipv4-1]/32 again; [[ipv6-1]]:4600"
    );
    assert_eq!(
        redactor.text("karls-laptop anabranch: /home/karl/x, karlsruhe"),
        "[host-1] anabranch: /home/[user-1]/x, karlsruhe"
    );
    assert_eq!(
        redactor.text(r#"joins Café "Blau" {"ssid":"Café \"Blau\""} ssid=Caf\xc3\xa9 \x22Blau\x22"#),
        r#"joins [ssid-1] {"ssid":"[ssid-1]"} ssid=[ssid-1]"#
    );
    assert_eq!(
        redactor.text("02:00:00:AA:bb:01 02-00-00-aa-bb-01 enx020000aabb01"),
        "[mac-1] [mac-1] enx[mac-1]"
    );
    assert_eq!(redactor.taken_out()[&Kind::Ipv4], 2);
}

#[test]
fn what_tells_nothing_stays() {
    for text in [
        "10.86.0.2/16 via 192.168.1.1 dev any0 100.64.0.1 127.0.0.1:4680 169.254.1.1 255.255.240.0 0.0.0.0/0 224.0.0.251",
        "fe80::/64 ::1 ff02::fb 64:ff9b::/96 2000::/3 fd00::/8 ::/0",
        "2026-11-22 18:00:03Z 6.1.0-18-amd64 anabranch 0.1.0 (x86_64) ff:ff:ff:ff:ff:ff 00:00:00:00:00:00",
        "anabranch-gateway.service config.toml /var/lib/anabranch/daemon.log net.ipv4.conf.all.rp_filter = 2",
        "table inet anabranch_direct_any0 { chain postrouting { meta mark set 0x00004600 counter packets 12 bytes 12345678901234567890 } }",
        "rule: tcp, 12.3 Mbit/s, 20.4 ms; http://127.0.0.1:4680/ @anabranch/any0",
        "tcp-segmentation-offload: on [fixed], generic-receive-offload: off [requested on]",
    ] {
        assert_eq!(redacted(text), text);
    }
}

#[test]
fn forms_of_secrets() {
    for (text, shown) in [
        ("password = \"a b c\"", "password = [secret]"),
        ("  \"web_token\": \"x\",", "  \"web_token\": [secret]"),
        ("Authorization: Bearer x y", "Authorization: [secret]"),
        ("paste anabranch://join/AAECAwQF-_ now", "paste [invitation-1] now"),
        ("login at https://wifi.example.com/login?mac=1 please", "login at [url-1] please"),
        ("http://127.0.0.1:4680/#token=abc", "[url-1]"),
        ("ping nas.local and [user-1]@shop.example.sh", "ping [domain-1] and [user-1]@[domain-2]"),
        ("mail karl.x@example.org about gw.example.org.", "mail [email-1] about [domain-1]."),
        ("fe80::200:ff:feaa:bb01%wlan0 dev wlan0", "[ipv6-1]%wlan0 dev wlan0"),
        ("::ffff:192.0.2.9 0200.deaa.bb01", "::ffff:[ipv4-1] [mac-1]"),
        ("64:ff9b::192.0.2.9 2001:db8:0:0:0:0:0:1:4600", "[ipv6-1] [ipv6-2]"),
        ("src=192.0.2.9 dst=10.0.0.1 to:192.0.2.9.", "src=[ipv4-1] dst=10.0.0.1 to:[ipv4-1]."),
        ("id 01234567-89ab-cdef-0123-456789abcdef", "id [key-1]"),
        ("key aaaabbbbccccddddeeeeffff2222", "key [key-1]"),
        ("x\n-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\ny", "x\n[secret-1]\ny"),
        ("-----BEGIN PRIVATE KEY-----\nMII", "[secret-1]\n"),
    ] {
        assert_eq!(redacted(text), shown);
    }
}

#[test]
fn json_is_taken_apart_first() {
    let mut redactor = Redactor::default();
    redactor.learn(Kind::Ssid, "a\"b");
    let value = serde_json::json!({
        "ssid": "a\"b", "list": ["192.0.2.1"], "password": "hunter2", "a\"b": 1, "port": 4600,
    });
    let expected = serde_json::json!({
        "ssid": "[ssid-1]", "list": ["[ipv4-1]"], "password": "[secret]", "[ssid-1]": 1, "port": 4600,
    });
    assert_eq!(redactor.json(&value), expected);
}

#[test]
fn any_text_is_borne() {
    for text in [
        "",
        ".",
        ":",
        "::",
        "...",
        "@",
        "://",
        "-----BEGIN ",
        "=",
        "password=",
        "é.é",
        "1.2.3.",
        "[",
        "a@",
        "-.-",
        "日本.日本",
    ] {
        redacted(text);
    }
}

/// What a machine has that others should not learn.
#[derive(Clone, Debug)]
struct Secrets {
    v4: Ipv4Addr,
    v6: Ipv6Addr,
    mac: [u8; 6],
    ssid: String,
    passphrase: String,
    token: String,
    key: String,
    base64: String,
    link: String,
    user: String,
    host: String,
    domain: String,
    program: String,
}

fn public_v4() -> impl Strategy<Value = Ipv4Addr> {
    (11_u8..100, any::<u8>(), any::<u8>(), 1_u8..255)
        .prop_map(|(first, second, third, fourth)| Ipv4Addr::new(first, second, third, fourth))
}

fn secrets() -> impl Strategy<Value = Secrets> {
    let words = ("[a-z]{8,10}", "[a-z]{8,10}-pc", r"[a-z]{8}\.[a-z]{5,9}\.(org|net|de)", "[a-z]{9,12}");
    let random =
        ("[a-z2-7]{32}", "[a-z2-7]{52}", "[a-z][A-Z][0-9][A-Za-z0-9+/]{40}=", "[A-Za-z0-9_-]{60,90}");
    let wifi = ("[A-Za-z]{4,8} [A-Za-z0-9é\"]{4,8}x", "[!-~]{12,30}");
    let address = (public_v4(), any::<[u16; 7]>(), any::<[u8; 6]>());
    (words, random, wifi, address).prop_map(|(words, random, wifi, (v4, groups, mac))| {
        let [a, b, c, d, e, f, g] = groups;
        let (user, host, domain, program) = words;
        let (token, key, base64, link) = random;
        let v6 = Ipv6Addr::new(0x2000 | (a & 0xfff), b, c, d, e, f, g, 0x1234);
        let link = format!("anabranch://join/{link}");
        Secrets {
            v4,
            v6,
            mac,
            ssid: wifi.0,
            passphrase: wifi.1,
            token,
            key,
            base64,
            link,
            user,
            host,
            domain,
            program,
        }
    })
}

impl Secrets {
    fn mac(&self, separator: &str) -> String {
        self.mac.map(|byte| format!("{byte:02x}")).join(separator)
    }

    fn redactor(&self) -> Redactor {
        let mut redactor = Redactor::default();
        for (kind, word) in [
            (Kind::Secret, &self.passphrase),
            (Kind::Ssid, &self.ssid),
            (Kind::User, &self.user),
            (Kind::Host, &self.host),
            (Kind::Program, &self.program),
        ] {
            redactor.learn(kind, word);
        }
        redactor
    }

    /// Everything as the gathered texts have it.
    fn texts(&self) -> Vec<String> {
        let Self { v4, v6, ssid, passphrase, token, key, base64, link, user, host, domain, program, .. } =
            self;
        let (mac, dashed, bare) = (self.mac(":"), self.mac("-"), self.mac(""));
        let upper = mac.to_uppercase();
        vec![
            format!("Nov 22 18:00:00 {host} anabranch[12]: INFO path to {v4}:4600 over wlan0 ({ssid}), [{v6}]:4600, {mac}"),
            format!("2: enx{bare}: <UP>\n    link/ether {mac} brd ff:ff:ff:ff:ff:ff permaddr {upper}\n    inet {v4}/24 brd {v4}\n    inet6 {v6}/64 scope global"),
            format!("default via {v4} dev wlan0 src {v4}\n{v6}/64 dev wlan0 proto ra via {v6} lladdr {dashed}"),
            format!("ip saddr {v4} ip daddr != {{ {v4}, {v4}-{v4} }} ip6 saddr {v6} ether saddr {mac} dnat to {v4}:22 dnat to [{v6}]:22"),
            format!("web = \"127.0.0.1:4680\"\npublic_addresses = [\"{domain}:4600\", \"{v4}:1\"]\n[network.enx{bare}]\n[[rule]]\nprogram = \"/home/{user}/bin/{program}\"\ndomain = \"*.{domain}\"\npassword = \"{passphrase}\""),
            serde_json::to_string_pretty(&serde_json::json!({
                "ssid": ssid, "public_key": key, "token": token, "x": passphrase, "name": host, "remote": format!("{v4}:1"),
                "bssid": mac, "why": format!("{program} of {user} at {ssid}"), "portal": format!("http://{domain}/{token}"),
            }))
            .unwrap(),
            format!("{ssid:?} {passphrase:?} {program}({user}) {user}@{domain} {user}@{host} http://{user}:{passphrase}@{domain}/"),
            format!("join {link}, key {key}, {base64} token={token} ({token}) {link}\n{key}"),
            format!("search {domain}\nnameserver {v4}\nnameserver {v6}%wlan0\n{v4}.{domain}"),
        ]
    }

    /// In every spelling, so that none is missed for its capitals.
    fn spellings(&self) -> Vec<String> {
        let mut all = vec![
            self.v4.to_string(),
            self.v6.to_string(),
            self.mac(":"),
            self.mac("-"),
            self.mac(""),
            self.ssid.clone(),
            self.passphrase.clone(),
            self.token.clone(),
            self.key.clone(),
            self.base64.clone(),
            self.link.clone(),
            self.user.clone(),
            self.host.clone(),
            self.domain.clone(),
            self.program.clone(),
        ];
        all.extend([&self.ssid, &self.passphrase].map(|text| text.escape_debug().to_string()));
        all.into_iter().map(|text| text.to_lowercase()).collect()
    }
}

proptest! {
    #[test]
    fn no_secret_survives(secrets in secrets()) {
        let harmless_mac = [[0; 6], [0xff; 6]].contains(&secrets.mac) || !secrets.mac("").contains(|letter: char| letter.is_ascii_alphabetic());
        prop_assume!(!harmless_mac);
        let mut redactor = secrets.redactor();
        for text in secrets.texts() {
            let shown = redactor.text(&text).to_lowercase();
            for secret in secrets.spellings() {
                prop_assert!(!shown.contains(&secret), "{secret:?} of\n{text}\nis still in\n{shown}");
            }
        }
        for text in secrets.texts().iter().filter_map(|text| serde_json::from_str(text).ok()) {
            let shown = redactor.json(&text).to_string().to_lowercase();
            for secret in secrets.spellings() {
                prop_assert!(!shown.contains(&secret), "{secret:?} is still in\n{shown}");
            }
        }
    }

    #[test]
    fn anything_can_be_read(text in any::<String>(), other in "[-.:@/=\\[\\]\"0-9a-f ]{0,80}") {
        redacted(&text);
        redacted(&other);
    }
}
