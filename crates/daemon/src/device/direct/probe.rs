//! Asks one server over one network whether the Internet is there. What answers may be hostile: everything is bounded.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use linux::BindTo;
use wire::join_link::Host;

use super::reach::Outcome;
use crate::config::ProbeTarget;
use crate::device::lookup;

/// A network to ask over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Way {
    /// Its interface.
    pub interface: String,
    /// Mark of the daemon's own packets.
    pub mark: u32,
    /// Whether it carries IPv4.
    pub v4: bool,
    /// Whether it carries IPv6.
    pub v6: bool,
}

/// Asks one target after the other until one answers as expected or is answered by somebody else. Blocks for up to
/// [`PATIENCE`] for each step of each target.
pub fn ask(way: &Way, targets: &[ProbeTarget]) -> Outcome {
    first_answer(targets.iter().map(|target| ask_target(way, target, None)))
}

/// The same in a hurry: all targets at once, and whoever has not answered within `limit` has not answered. Names may take two
/// seconds all the same.
pub fn ask_soon(way: &Way, targets: &[ProbeTarget], limit: Duration) -> Outcome {
    let deadline = Instant::now() + limit;
    std::thread::scope(|scope| {
        let asked: Vec<_> = targets
            .iter()
            .map(|target| scope.spawn(move || ask_target(way, target, Some(deadline))))
            .collect();
        first_answer(asked.into_iter().map(|thread| thread.join().unwrap_or(Outcome::Nothing)))
    })
}

fn first_answer(outcomes: impl IntoIterator<Item = Outcome>) -> Outcome {
    outcomes.into_iter().find(|outcome| *outcome != Outcome::Nothing).unwrap_or(Outcome::Nothing)
}

fn ask_target(way: &Way, target: &ProbeTarget, deadline: Option<Instant>) -> Outcome {
    let addresses = addresses(way, target).into_iter().take(MOST_ADDRESSES);
    first_answer(addresses.map(|address| ask_address(way, target, address, deadline)))
}

fn addresses(way: &Way, target: &ProbeTarget) -> Vec<IpAddr> {
    let found = match &target.server.host {
        Host::Address(address) => vec![*address],
        Host::Bluetooth(_) => Vec::new(),
        Host::Name(name) => {
            let interfaces = std::slice::from_ref(&way.interface);
            lookup::look_up(name.as_str(), interfaces, way.mark, &lookup::network_servers())
        }
    };
    found.into_iter().filter(|address| if address.is_ipv4() { way.v4 } else { way.v6 }).collect()
}

fn ask_address(way: &Way, target: &ProbeTarget, address: IpAddr, deadline: Option<Instant>) -> Outcome {
    let any = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let bind = BindTo {
        interface: Some(way.interface.clone()),
        local: SocketAddr::new(any, 0),
        mark: Some(way.mark),
    };
    let start = Instant::now();
    let remote = SocketAddr::new(address, target.server.port.get());
    let left = || match deadline {
        Some(deadline) => deadline.saturating_duration_since(Instant::now()).min(PATIENCE),
        None => PATIENCE,
    };
    if left().is_zero() {
        return Outcome::Nothing;
    }
    let Ok(stream) = bind.connect_tcp(remote, left()) else { return Outcome::Nothing };
    let round_trip = start.elapsed();
    match exchange(stream, target, left()) {
        Some(answer) => judge(&answer, round_trip),
        None => Outcome::Nothing,
    }
}

/// The head of the answer, or what came of it in time.
fn exchange(mut stream: TcpStream, target: &ProbeTarget, patience: Duration) -> Option<Vec<u8>> {
    let deadline = Instant::now() + patience;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: anabranch\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        target.path,
        target.host()
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    let mut part = [0; 1_024];
    // An answer that trickles in is cut off by the deadline of the whole.
    while answer.len() < LONGEST_HEAD && !answer.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            break;
        }
        match stream.read(&mut part) {
            Ok(0) | Err(_) => break,
            Ok(count) => answer.extend_from_slice(&part[..count]),
        }
    }
    Some(answer)
}

/// What an answer means: 204 is the expected one; a redirect, a page or a demand to log in is another's.
fn judge(answer: &[u8], round_trip: Duration) -> Outcome {
    let text = String::from_utf8_lossy(&answer[..answer.len().min(LONGEST_HEAD)]);
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| {
        let rest = line.strip_prefix("HTTP/1.")?.get(1..)?;
        rest.trim_start().get(..3)?.parse::<u16>().ok()
    });
    match status {
        Some(204) => Outcome::Internet(round_trip),
        Some(200 | 300..=399 | 511) => {
            Outcome::Captive(lines.take_while(|line| !line.is_empty()).find_map(login_page))
        }
        _ => Outcome::Nothing,
    }
}

/// The address in a `Location` field if it is one that may be shown and opened.
fn login_page(line: &str) -> Option<String> {
    let (name, value) = line.split_once(':')?;
    let value = value.trim();
    let is_address = value.starts_with("http://") || value.starts_with("https://");
    let is_plain = value.len() <= LONGEST_ADDRESS && value.bytes().all(|byte| byte.is_ascii_graphic());
    (name.trim().eq_ignore_ascii_case("location") && is_address && is_plain).then(|| value.to_owned())
}

/// For each step: a network that is slower than this is of no use.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes.
const LONGEST_HEAD: usize = 4_096;
const LONGEST_ADDRESS: usize = 512;
const MOST_ADDRESSES: usize = 2;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn answers_mean_what_they_say() {
        let judge = |answer: &str| judge(answer.as_bytes(), Duration::ZERO);
        let captive = |page: Option<&str>| Outcome::Captive(page.map(str::to_owned));
        assert_eq!(judge("HTTP/1.1 204 No Content\r\n\r\n"), Outcome::Internet(Duration::ZERO));
        let redirect = "HTTP/1.0 302 Found\r\nServer: x\r\nlocation: https://login.example/?a=b\r\n\r\n";
        assert_eq!(judge(redirect), captive(Some("https://login.example/?a=b")));
        assert_eq!(judge("HTTP/1.1 200 OK\r\n\r\n<html>Location: http://in.body/"), captive(None));
        assert_eq!(judge("HTTP/1.1 511 Network Authentication Required\r\n"), captive(None));
        for hostile in ["javascript:alert(1)", "http://a\u{1b}[2J", "http://a b", "/relative"] {
            assert_eq!(judge(&format!("HTTP/1.1 302 Found\r\nLocation: {hostile}\r\n\r\n")), captive(None));
        }
        for nothing in ["", "HTTP/1.1 503 Busy\r\n", "SSH-2.0-x", "HTTP/1.1 2", "HTTP/1.\u{e9}204"] {
            assert_eq!(judge(nothing), Outcome::Nothing, "{nothing}");
        }
    }

    /// A server that never ends its answer costs no more than the patience and the bound.
    #[test]
    fn an_endless_answer_is_cut_off() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(&[b'a'; 1_000]).is_ok() {}
        });
        let target = ProbeTarget::parse(&format!("http://{address}/")).unwrap();
        let answer = exchange(TcpStream::connect(address).unwrap(), &target, PATIENCE).unwrap();
        assert!(answer.len() < LONGEST_HEAD + 1_024);
        server.join().unwrap();
    }

    proptest! {
        #[test]
        fn any_answer_is_safe(answer in proptest::collection::vec(any::<u8>(), 0..200), head in "HTTP/1\\.[01] .{0,40}\r\n") {
            judge(&answer, Duration::ZERO);
            judge(&[head.as_bytes(), &answer].concat(), Duration::ZERO);
        }
    }
}
