//! IP and hardware addresses, by their form.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Given, Kind, each_run};

/// Hexadecimal digits of a hardware address.
const MAC_DIGITS: usize = 12;

pub(super) fn replace(text: &str, given: &mut Given) -> String {
    // With dashes as Windows and some routers write them: no IP address looks so.
    let text = each_run(text, |letter| letter.is_ascii_hexdigit() || letter == '-', |run| dashed(run, given));
    let text = each_run(
        &text,
        |letter| letter.is_ascii_hexdigit() || letter == ':' || letter == '.',
        |run| address(run, given),
    );
    // Names of interfaces may be made of it: enx0200deadbeef.
    each_run(
        &text,
        |letter| letter.is_ascii_alphanumeric(),
        |run| {
            let place = run.len().checked_sub(MAC_DIGITS)?;
            let (name, digits) = (run.get(..place)?, run.get(place..)?);
            let is_name = matches!(name, "enx" | "wlx" | "wwx" | "usb" | "bnep" | "");
            let is_mac = is_name && digits.chars().all(|letter| letter.is_ascii_hexdigit());
            // A plain number of twelve digits is none.
            let is_mac =
                is_mac && (!name.is_empty() || digits.chars().any(|letter| letter.is_ascii_alphabetic()));
            is_mac.then(|| format!("{name}{}", given.placeholder(Kind::Mac, &digits.to_ascii_lowercase())))
        },
    )
}

/// A run of hexadecimal digits, colons and dots: one address, perhaps with a port or punctuation beside it, or none.
fn address(run: &str, given: &mut Given) -> Option<String> {
    if !run.contains([':', '.']) {
        return None;
    }
    // The run as it is, and without what may be punctuation at its ends.
    for (from, to) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let end = run.len().checked_sub(to)?;
        let (Some(inner), Some(before), Some(after)) = (run.get(from..end), run.get(..from), run.get(end..))
        else {
            continue;
        };
        let is_punctuation = |text: &str| text.chars().all(|letter| letter == ':' || letter == '.');
        if !is_punctuation(before) || !is_punctuation(after) {
            continue;
        }
        if let Ok(address) = inner.parse::<Ipv6Addr>() {
            return Some(format!("{before}{}{after}", v6(address, given)));
        }
    }
    if run.contains(':') {
        if let Some(made) = mac(run, ':', given) {
            return Some(made);
        }
        // No address that can be read, but more than a time of day: taken out as a whole.
        if run.contains('.') && run.matches(':').count() <= 1 {
            return Some(quads(run, given));
        }
        let long = run.contains("::") && run.len() > 4 || run.matches(':').count() >= 4;
        return long.then(|| given.placeholder(Kind::Ipv6, run));
    }
    mac(run, '.', given).or_else(|| Some(quads(run, given)))
}

fn dashed(run: &str, given: &mut Given) -> Option<String> {
    mac(run, '-', given)
}

/// Six pairs or more, divided by `separator`; also three groups of four, as Cisco's routers write them.
fn mac(run: &str, separator: char, given: &mut Given) -> Option<String> {
    let trimmed = run.trim_matches(separator);
    let groups: Vec<&str> = trimmed.split(separator).collect();
    let pairs = groups.len() >= 6 && groups.iter().all(|group| group.len() == 2);
    let quadruples = separator == '.' && groups.len() == 3 && groups.iter().all(|group| group.len() == 4);
    if !pairs && !quadruples {
        return None;
    }
    let digits = groups.concat().to_ascii_lowercase();
    if digits.chars().all(|digit| digit == '0') || digits.chars().all(|digit| digit == 'f') {
        return Some(run.to_owned());
    }
    let (before, rest) = run.split_once(trimmed)?;
    Some(format!("{before}{}{rest}", given.placeholder(Kind::Mac, &digits)))
}

/// Dotted quads within a run.
fn quads(run: &str, given: &mut Given) -> String {
    let mut made = String::new();
    let mut at = 0;
    while let Some(rest) = run.get(at..).filter(|rest| !rest.is_empty()) {
        let before = run[..at].chars().next_back();
        let free = !before.is_some_and(|letter| letter.is_ascii_digit() || letter == '.');
        match quad(rest).filter(|_| free) {
            Some((address, length)) => {
                made.push_str(&v4(address, given));
                at += length;
            }
            None => {
                made.push_str(&rest[..1]);
                at += 1;
            }
        }
    }
    made
}

/// A dotted quad at the beginning of a text, and its length.
fn quad(text: &str) -> Option<(Ipv4Addr, usize)> {
    let mut octets = [0_u8; 4];
    let mut at = 0;
    for (number, octet) in octets.iter_mut().enumerate() {
        if number > 0 {
            at += text.get(at..)?.strip_prefix('.').map(|_| 1)?;
        }
        let digits = text.get(at..)?.bytes().take_while(u8::is_ascii_digit).count();
        // Leading zeros are read as decimal, as people write them.
        *octet = text.get(at..at + digits)?.parse().ok()?;
        at += digits;
    }
    let mut after = text[at..].chars();
    let goes_on = after.next() == Some('.') && after.next().is_some_and(|letter| letter.is_ascii_digit());
    (!goes_on).then(|| (Ipv4Addr::from(octets), at))
}

/// Private, shared, local and reserved addresses tell nothing to anybody else (RFC 1918, 3927, 6598), nor do masks.
fn v4(address: Ipv4Addr, given: &mut Given) -> String {
    let [first, second, ..] = address.octets();
    let shared = first == 100 && (64..128).contains(&second);
    let is_mask = address.to_bits().leading_ones() + address.to_bits().trailing_zeros() >= 32;
    let harmless = address.is_private() || address.is_loopback() || address.is_link_local() || shared;
    if harmless || first == 0 || first >= 224 || is_mask {
        return address.to_string();
    }
    given.placeholder(Kind::Ipv4, &address.to_string())
}

/// Interface identifiers may be hardware addresses and prefixes lead to a home, so all but the well-known ones are taken out.
fn v6(address: Ipv6Addr, given: &mut Given) -> String {
    if let IpAddr::V4(inner) = IpAddr::V6(address).to_canonical() {
        return format!("::ffff:{}", v4(inner, given));
    }
    let groups = address.segments();
    let prefix_alone = |length: usize| groups[length..].iter().all(|group| *group == 0);
    let well_known = address.is_unspecified()
        || address.is_loopback()
        || (groups[0] == 0xfe80 && prefix_alone(1))
        || (groups[..6] == [0x64, 0xff9b, 0, 0, 0, 0] && prefix_alone(6))
        || (groups[0] & 0xff00 == 0xff00
            && groups[1..7].iter().all(|group| *group == 0)
            && groups[7] < 0x200)
        || (prefix_alone(1) && matches!(groups[0], 0x2000 | 0x2001 | 0x2002 | 0xfc00 | 0xfd00 | 0xff00));
    if well_known {
        return address.to_string();
    }
    given.placeholder(Kind::Ipv6, &address.to_string())
}
