//! Reading one TOML value as what a key wants; `None` if it is something else.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use policy::network::{Percent, Price};
use toml::de::DeValue;
use wire::join_link::{Host, HostPort};

use super::{DEFAULT_PORT, KeepAlive};

/// An `http` URL that answers with status 204 wherever the Internet is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbeTarget {
    /// Who is asked.
    pub server: HostPort,
    /// What for: begins with a slash, without space or control characters.
    pub path: String,
}

impl ProbeTarget {
    /// `http://HOST[:PORT][/PATH]`; `None` for all else.
    pub fn parse(url: &str) -> Option<Self> {
        let rest = url.strip_prefix("http://").filter(|_| url.len() <= LONGEST_URL)?;
        let end = rest.find('/').unwrap_or(rest.len());
        let (server, path) = rest.split_at(end);
        let server = HostPort::parse_with_default(server, HTTP_PORT).ok()?;
        let path = if path.is_empty() { "/" } else { path };
        path.bytes().all(|byte| byte.is_ascii_graphic()).then(|| Self { server, path: path.to_owned() })
    }

    /// Those of two providers, so that the failure of one is not taken for that of a network.
    pub fn defaults() -> Vec<Self> {
        DEFAULT_PROBES.iter().filter_map(|url| Self::parse(url)).collect()
    }

    /// The host as it stands in a request.
    pub fn host(&self) -> String {
        match &self.server.host {
            Host::Address(std::net::IpAddr::V6(address)) => format!("[{address}]"),
            host => host.to_string(),
        }
    }
}

/// Answers with 204 and nothing else, run for this purpose.
const DEFAULT_PROBES: [&str; 2] =
    ["http://connectivitycheck.gstatic.com/generate_204", "http://cp.cloudflare.com/generate_204"];
const LONGEST_URL: usize = 256;
const HTTP_PORT: NonZeroU16 = match NonZeroU16::new(80) {
    Some(port) => port,
    None => NonZeroU16::MIN,
};

pub(super) type Value<'a> = DeValue<'a>;

pub(super) fn boolean(value: &Value<'_>) -> Option<bool> {
    value.as_bool()
}

/// `"off"`, or a file's name that no file of the daemon's own can have.
pub(super) fn record(value: &Value<'_>) -> Option<Option<String>> {
    let name = text(value)?;
    let stem = name.strip_suffix(".jsonl").unwrap_or_default();
    let is_plain = stem.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    match name {
        "off" => Some(None),
        _ if is_plain && (1..=64).contains(&stem.len()) && !stem.starts_with('.') => {
            Some(Some(name.to_owned()))
        }
        _ => None,
    }
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

/// `"off"`, or a loopback address and a port.
pub(super) fn web(value: &Value<'_>) -> Option<Option<SocketAddr>> {
    match text(value)? {
        "off" => Some(None),
        text => {
            let address: SocketAddr = text.parse().ok()?;
            (address.ip().is_loopback() && address.port() != 0).then_some(Some(address))
        }
    }
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

/// `"off"`, a URL, or a list of up to four.
pub(super) fn probe(value: &Value<'_>) -> Option<Vec<ProbeTarget>> {
    if text(value) == Some("off") {
        return Some(Vec::new());
    }
    list(value, 4, |url| ProbeTarget::parse(text(url)?)).filter(|targets| !targets.is_empty())
}

/// A whole number of milliseconds or seconds, `"100ms"` or `"2s"`, from 10 ms to a minute.
pub(super) fn time(value: &Value<'_>) -> Option<Duration> {
    let text = text(value)?;
    let millis: u64 = match text.strip_suffix("ms") {
        Some(millis) => millis.parse().ok()?,
        None => text.strip_suffix('s')?.parse::<u64>().ok()?.checked_mul(1_000)?,
    };
    (10..=60_000).contains(&millis).then(|| Duration::from_millis(millis))
}

/// Per cent; 0 for never.
pub(super) fn threshold(value: &Value<'_>) -> Option<Option<Percent>> {
    let number = number(value, 0..=100)?;
    Some((number > 0).then(|| Percent::new(number as u8)))
}

/// A price per gigabyte, with or without a fraction.
pub(super) fn price(value: &Value<'_>) -> Option<Price> {
    let number: f64 = match value {
        DeValue::Float(float) => float.as_str().parse().ok()?,
        _ => number(value, 0..=HIGHEST_PRICE)? as f64,
    };
    (0.0..=HIGHEST_PRICE as f64).contains(&number).then(|| Price((number * 1e3).round() as u64))
}

/// In the user's currency.
const HIGHEST_PRICE: i64 = 1_000_000;

/// A user name as useradd(8) takes it.
pub(super) fn user(value: &Value<'_>) -> Option<String> {
    let name = text(value)?;
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    ((1..=32).contains(&name.len()) && plain && !name.starts_with('-')).then(|| name.to_owned())
}

/// `"off"` for none.
pub(super) fn limit<T: FromStr>(value: &Value<'_>) -> Option<Option<T>> {
    if text(value) == Some("off") { Some(None) } else { parsed(value).map(Some) }
}

/// PostgreSQL's connection string, or `"file"` for SQLite in the state directory.
pub(super) fn registry(value: &Value<'_>) -> Option<Option<String>> {
    match text(value)? {
        "file" => Some(None),
        text => (text.contains('=') || text.starts_with("postgres")).then(|| Some(text.to_owned())),
    }
}

/// An absolute path.
pub(super) fn path(value: &Value<'_>) -> Option<PathBuf> {
    text(value).map(PathBuf::from).filter(|path| path.is_absolute())
}
