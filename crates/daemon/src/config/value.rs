//! Reading one TOML value as what a key wants; `None` if it is something else.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use toml::de::DeValue;
use wire::join_link::HostPort;

use super::{DEFAULT_PORT, KeepAlive};

pub(super) type Value<'a> = DeValue<'a>;

pub(super) fn boolean(value: &Value<'_>) -> Option<bool> {
    value.as_bool()
}

/// `true`, `"on"` and their opposites.
pub(super) fn on_off(value: &Value<'_>) -> Option<bool> {
    match value {
        DeValue::Boolean(on) => Some(*on),
        DeValue::String(text) if text == "on" => Some(true),
        DeValue::String(text) if text == "off" => Some(false),
        _ => None,
    }
}

pub(super) fn number(value: &Value<'_>, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
    let integer = value.as_integer()?;
    i64::from_str_radix(integer.as_str(), integer.radix()).ok().filter(|number| range.contains(number))
}

pub(super) fn text<'a>(value: &'a Value<'_>) -> Option<&'a str> {
    value.as_str()
}

pub(super) fn parsed<T: FromStr>(value: &Value<'_>) -> Option<T> {
    text(value)?.parse().ok()
}

/// The meaning of one of the words.
pub(super) fn one_of<T: Copy>(value: &Value<'_>, words: &[(&str, T)]) -> Option<T> {
    let text = text(value)?;
    words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning)
}

/// A list, or one element for a list of one; at most `most`.
pub(super) fn list<T>(
    value: &Value<'_>,
    most: usize,
    element: impl Fn(&Value<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    match value {
        DeValue::Array(array) if array.len() <= most => {
            array.iter().map(|entry| element(entry.get_ref())).collect()
        }
        DeValue::Array(_) => None,
        single => element(single).map(|one| vec![one]),
    }
}

pub(super) fn socket_address(value: &Value<'_>) -> Option<SocketAddr> {
    let text = text(value)?;
    let bare = || text.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, DEFAULT_PORT.get()));
    text.parse().ok().filter(|address: &SocketAddr| address.port() != 0).or_else(bare)
}

pub(super) fn host_port(value: &Value<'_>) -> Option<HostPort> {
    HostPort::parse_with_default(text(value)?, DEFAULT_PORT).ok()
}

/// What the kernel takes as the name of an interface: 1 to 15 bytes, no slash, no colon, no white space.
pub(super) fn interface(value: &Value<'_>) -> Option<String> {
    let name = text(value)?;
    is_interface(name).then(|| name.to_owned())
}

pub(super) fn is_interface(name: &str) -> bool {
    let plain = name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':');
    (1..=15).contains(&name.len()) && plain && name != "." && name != ".."
}

/// `"auto"`, `"off"`, or a whole number of seconds from 1 to 3600 as `"25s"`.
pub(super) fn keep_alive(value: &Value<'_>) -> Option<KeepAlive> {
    match text(value)? {
        "auto" => Some(KeepAlive::Auto),
        "off" => Some(KeepAlive::Off),
        other => {
            let seconds: u64 = other.strip_suffix('s')?.parse().ok()?;
            (1..=3_600).contains(&seconds).then(|| KeepAlive::Every(Duration::from_secs(seconds)))
        }
    }
}

/// A user name as useradd(8) takes it.
pub(super) fn user(value: &Value<'_>) -> Option<String> {
    let name = text(value)?;
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    ((1..=32).contains(&name.len()) && plain && !name.starts_with('-')).then(|| name.to_owned())
}
