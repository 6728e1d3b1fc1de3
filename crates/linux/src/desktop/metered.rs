//! Which interfaces NetworkManager holds for metered.

use std::collections::BTreeMap;

use super::{DesktopError, output_of};

/// Whether data over an interface costs money or counts against a cap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metered {
    /// The user or the network said so.
    Yes,
    /// Guessed, for example because it is a phone's.
    GuessedYes,
    /// Guessed.
    GuessedNo,
    /// The user or the network said so.
    No,
}

impl Metered {
    /// Whether to treat it as metered.
    pub fn is_metered(self) -> bool {
        matches!(self, Self::Yes | Self::GuessedYes)
    }
}

/// Asks NetworkManager about all interfaces, by name. Those of which it says nothing are not in the answer.
pub fn metered() -> Result<BTreeMap<String, Metered>, DesktopError> {
    let fields = "GENERAL.DEVICE,GENERAL.METERED";
    output_of("nmcli", &["-t", "-e", "no", "-f", fields, "device", "show"]).map(|output| parse(&output))
}

/// Lines `GENERAL.DEVICE:eth0` and `GENERAL.METERED:no (guessed)` in any order; a device ends at an empty line or
/// where a field comes again.
fn parse(output: &str) -> BTreeMap<String, Metered> {
    let mut found = BTreeMap::new();
    let (mut device, mut metered) = (None, None);
    for line in output.lines().take(MOST_LINES).chain([""]) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let is_new = match name {
            "" => true,
            "GENERAL.DEVICE" => device.is_some(),
            "GENERAL.METERED" => metered.is_some(),
            _ => false,
        };
        if is_new && let (Some(device), Some(Some(metered))) = (device.take(), metered.take()) {
            found.insert(device, metered);
        }
        match name {
            "GENERAL.DEVICE" => device = is_interface_name(value).then(|| value.to_owned()),
            "GENERAL.METERED" => metered = Some(parse_metered(value.trim())),
            _ => {}
        }
    }
    found
}

fn parse_metered(text: &str) -> Option<Metered> {
    Some(match text {
        "yes" => Metered::Yes,
        "yes (guessed)" => Metered::GuessedYes,
        "no (guessed)" => Metered::GuessedNo,
        "no" => Metered::No,
        _ => return None,
    })
}

/// Interface names have at most 15 bytes.
fn is_interface_name(text: &str) -> bool {
    (1..=15).contains(&text.len())
}

const MOST_LINES: usize = 4096;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_device_has_its_own_answer() {
        let output = "GENERAL.DEVICE:wlan0\nGENERAL.METERED:yes (guessed)\n\nGENERAL.METERED:no\nGENERAL.DEVICE:eth0\n\n\
                      GENERAL.DEVICE:lo\nGENERAL.METERED:unknown\n\nGENERAL.DEVICE:wwan0\nGENERAL.METERED:yes\n";
        let found = parse(output);
        let expected = [("eth0", Metered::No), ("wlan0", Metered::GuessedYes), ("wwan0", Metered::Yes)];
        assert_eq!(found, expected.map(|(name, metered)| (name.to_owned(), metered)).into());
        assert!(found["wlan0"].is_metered() && !found["eth0"].is_metered());
        assert!(
            parse("GENERAL.METERED:yes\n\nGENERAL.DEVICE:a-name-that-is-too-long\nGENERAL.METERED:yes")
                .is_empty()
        );
    }

    #[test]
    fn this_machine_answers_or_says_what_is_missing() {
        match metered() {
            Ok(found) => assert!(found.len() <= MOST_LINES),
            Err(error) => assert!(error.to_string().contains("nmcli"), "{error}"),
        }
    }

    proptest! {
        #[test]
        fn random_text_never_panics(text in "(GENERAL\\.(DEVICE|METERED):?|yes|no|\n|.){0,40}") {
            prop_assert!(parse(&text).len() <= 40);
        }
    }
}
