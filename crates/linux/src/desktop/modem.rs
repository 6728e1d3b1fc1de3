//! What ModemManager knows of modems.

use serde_json::Value;

use super::{DesktopError, output_of};

/// One modem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Modem {
    /// Its network interfaces, such as `wwan0`.
    pub interfaces: Vec<String>,
    /// Signal quality in percent, measured lately.
    pub signal_percent: Option<u8>,
    /// Access technologies in use, such as `lte` or `5gnr`.
    pub technologies: Vec<String>,
    /// The operator's name.
    pub operator: Option<String>,
    /// Whether another operator's network is used (roaming).
    pub roaming: bool,
}

/// Asks ModemManager about all modems, at most 16.
pub fn modems() -> Result<Vec<Modem>, DesktopError> {
    let list = parse_json(&output_of("mmcli", &["-L", "-J"])?)?;
    let mut found = Vec::new();
    for path in texts(&list["modem-list"]).into_iter().take(MOST_MODEMS) {
        // A path that begins like an option is none.
        if path.starts_with('/') {
            found.push(parse_modem(&parse_json(&output_of("mmcli", &["-m", &path, "-J"])?)?));
        }
    }
    Ok(found)
}

fn parse_json(output: &str) -> Result<Value, DesktopError> {
    serde_json::from_str(output).map_err(|_| DesktopError::Output("mmcli"))
}

/// Every value is a text or a list of texts; `--` stands for unknown.
fn parse_modem(answer: &Value) -> Modem {
    let generic = &answer["modem"]["generic"];
    let home = &answer["modem"]["3gpp"];
    let quality = &generic["signal-quality"];
    let is_recent = text(&quality["recent"]).as_deref() == Some("yes");
    let signal = text(&quality["value"]).and_then(|value| value.parse().ok()).filter(|value| *value <= 100);
    let interfaces = texts(&generic["ports"])
        .into_iter()
        .filter_map(|port| Some(port.strip_suffix(" (net)")?.to_owned()))
        .filter(|name| (1..=15).contains(&name.len()))
        .collect();
    Modem {
        interfaces,
        signal_percent: signal.filter(|_| is_recent),
        technologies: texts(&generic["access-technologies"]),
        operator: text(&home["operator-name"]),
        roaming: text(&home["registration-state"]).as_deref() == Some("roaming"),
    }
}

fn text(value: &Value) -> Option<String> {
    let text = value.as_str()?;
    // An operator's name comes by radio from whoever sends it, and ends on a terminal.
    let plain = text.chars().filter(|character| !character.is_control());
    (text != "--" && !text.is_empty()).then(|| plain.take(LONGEST_TEXT).collect())
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(text).take(MOST_ITEMS).collect()
}

const MOST_MODEMS: usize = 16;
const MOST_ITEMS: usize = 64;
const LONGEST_TEXT: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modem_is_read() {
        let answer = r#"{"modem":{"3gpp":{"operator-name":"Example Mobile","registration-state":"roaming"},
            "generic":{"access-technologies":["lte","5gnr"],"ports":["cdc-wdm0 (mbim)","wwan0 (net)"],
            "signal-quality":{"recent":"yes","value":"67"}}}}"#;
        let expected = Modem {
            interfaces: vec!["wwan0".into()],
            signal_percent: Some(67),
            technologies: vec!["lte".into(), "5gnr".into()],
            operator: Some("Example Mobile".into()),
            roaming: true,
        };
        assert_eq!(parse_modem(&parse_json(answer).unwrap()), expected);
    }

    #[test]
    fn what_is_unknown_old_or_nonsense_is_left_out() {
        let answer = r#"{"modem":{"3gpp":{"operator-name":"--"},"generic":{"ports":[7, "a (net)"],
            "signal-quality":{"recent":"no","value":"67"}}}}"#;
        let modem = parse_modem(&parse_json(answer).unwrap());
        assert_eq!((modem.signal_percent, modem.operator, modem.roaming), (None, None, false));
        assert_eq!(modem.interfaces, ["a"]);
        let hostile = r#"{"modem":{"3gpp":{"operator-name":"A\u001b[2J\n\u009bB"}}}"#;
        assert_eq!(parse_modem(&parse_json(hostile).unwrap()).operator.as_deref(), Some("A[2JB"));
        for answer in ["[]", "7", "{}", r#"{"modem":[1]}"#] {
            assert!(parse_modem(&parse_json(answer).unwrap()).interfaces.is_empty());
        }
        assert!(parse_json("error: no bus").is_err());
    }

    #[test]
    fn this_machine_answers_or_says_what_is_missing() {
        match modems() {
            Ok(found) => assert!(found.len() <= MOST_MODEMS),
            Err(error) => assert!(error.to_string().contains("mmcli"), "{error}"),
        }
    }
}
