//! What wpa_supplicant is told of one known network.

use linux::supplicant::CONTROL_DIRECTORY;

use units::Frequency;

use super::super::{KnownError, KnownNetwork};

/// Longest passphrase that is text; longer ones are keys in hexadecimal digits.
const LONGEST_TEXT: usize = 63;

/// The configuration of a wpa_supplicant that keeps `known` and nothing else, on these frequencies only where there are any. Holds
/// the key.
///
/// # Errors
/// [`KnownError::Value`] for what is no network; what passes has no line of its own to smuggle in.
pub(super) fn configuration(known: &KnownNetwork, frequencies: &[Frequency]) -> Result<String, KnownError> {
    let settings = known.settings()?;
    let name: String = known.ssid.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut common = vec![format!("ssid={name}")];
    if settings.hidden {
        common.push("scan_ssid=1".to_owned());
    }
    if let Some(bssid) = settings.bssid {
        common.push(format!("bssid={bssid}"));
    }
    if !settings.avoided.is_empty() {
        let avoided: Vec<String> = settings.avoided.iter().map(ToString::to_string).collect();
        // Since version 2.10 also called bssid_ignore.
        common.push(format!("bssid_blacklist={}", avoided.join(" ")));
    }
    if !frequencies.is_empty() {
        let list: Vec<String> = frequencies.iter().map(|frequency| frequency.0.to_string()).collect();
        let list = list.join(" ");
        common.extend([format!("scan_freq={list}"), format!("freq_list={list}")]);
    }
    // Management frames are protected where the access point can.
    common.push("ieee80211w=1".to_owned());
    let mut lines = vec![
        format!("ctrl_interface={CONTROL_DIRECTORY}"),
        // No interface of its own for Wi-Fi Direct.
        "p2p_disabled=1".to_owned(),
    ];
    let mut ways = ways(known.passphrase.as_deref());
    if let Some(login) = &known.login {
        let (block, file) = login.lines();
        ways = vec![block];
        lines.extend(file);
    }
    for way in ways {
        lines.push("network={".to_owned());
        lines.extend(common.iter().cloned());
        lines.extend(way);
        lines.push("}".to_owned());
    }
    Ok(lines.iter().map(|line| format!("{line}\n")).collect())
}

/// How to be let in, the best way first.
fn ways(passphrase: Option<&str>) -> Vec<Vec<String>> {
    let pre_shared = "key_mgmt=WPA-PSK WPA-PSK-SHA256";
    match passphrase {
        // Encrypted without a key where the access point can (OWE), or not at all. One block for both asks for neither properly.
        None => vec![
            vec!["key_mgmt=OWE".to_owned(), "owe_only=1".to_owned(), "priority=1".to_owned()],
            vec!["key_mgmt=NONE".to_owned()],
        ],
        Some(text) if text.len() <= LONGEST_TEXT => {
            vec![vec![format!("{pre_shared} SAE"), format!("psk=\"{text}\"")]]
        }
        Some(key) => vec![vec![pre_shared.to_owned(), format!("psk={key}")]],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(text: &str) -> KnownNetwork {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn every_setting_is_told() {
        let home = known(
            "ssid = \"caf\u{e9}\"\npassphrase = \"a \\\"#} b'\"\nhidden = true\nbssid = \"02:00:5e:10:00:01\"\n\
             avoid = [\"02:00:5e:10:00:02\", \"02:00:5e:10:00:03\"]\n",
        );
        let text = configuration(&home, &[Frequency(2412), Frequency(5180)]).unwrap();
        for line in [
            "ssid=636166c3a9",
            "scan_ssid=1",
            "bssid=02:00:5e:10:00:01",
            "bssid_blacklist=02:00:5e:10:00:02 02:00:5e:10:00:03",
            "key_mgmt=WPA-PSK WPA-PSK-SHA256 SAE",
            "psk=\"a \"#} b'\"",
            "ieee80211w=1",
            "freq_list=2412 5180",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn keys_and_open_networks_are_told_apart() {
        let key = "0123456789abcdef".repeat(4);
        let text = configuration(&known(&format!("ssid = \"x\"\npassphrase = \"{key}\"\n")), &[]).unwrap();
        assert!(text.contains(&format!("\npsk={key}\n")) && !text.contains("SAE"), "{text}");
        let text = configuration(&known("ssid = \"x\"\n"), &[]).unwrap();
        assert!(text.contains("\nkey_mgmt=NONE\n") && text.contains("\nkey_mgmt=OWE\n"), "{text}");
        assert!(!text.contains("psk") && text.matches("ssid=78\n").count() == 2, "{text}");
    }

    #[test]
    fn nothing_can_be_smuggled_in() {
        for wrong in [
            "ssid = \"x\"\npassphrase = \"eight888\\nctrl_interface=/tmp\"\n",
            "ssid = \"x\"\nbssid = \"02:00:5e:10:00:01\\n}\"\n",
            "ssid = \"x\"\navoid = [\"any\\n}\"]\n",
        ] {
            assert!(configuration(&known(wrong), &[]).is_err(), "{wrong}");
        }
    }
}
