//! HTTP as a proxy hears it: `CONNECT host:port` (RFC 9110 section 9.3.6), and requests for `http://host/...` (RFC 9112 section 3.2.2), which
//! are passed on in the form that the server expects, one for each connection.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Destination;

/// Longest request line and headers, bytes.
const MAX_REQUEST: usize = 8_192;
const HTTP_PORT: u16 = 80;
/// Headers that are meant for the proxy (RFC 9110 section 7.6.1).
const FOR_PROXY: [&str; 3] = ["connection", "proxy-connection", "proxy-authorization"];

/// What a program asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub(super) destination: Destination,
    /// The request for the server; `None` for CONNECT, whose own bytes follow.
    pub(super) head: Option<Vec<u8>>,
}

/// Reads a request after its first byte. `None` if it was answered with a refusal.
pub(super) async fn read(program: &mut TcpStream, first: u8) -> io::Result<Option<Request>> {
    let mut request = vec![first];
    while !request.ends_with(b"\r\n\r\n") {
        if request.len() >= MAX_REQUEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // One by one: what follows the request is the program's own.
        request.push(program.read_u8().await?);
    }
    let parsed = parse(&request);
    if parsed.is_none() {
        program.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await?;
    }
    Ok(parsed)
}

fn parse(request: &[u8]) -> Option<Request> {
    let text = std::str::from_utf8(request).ok()?;
    let (line, headers) = text.split_once("\r\n")?;
    let mut words = line.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    if method == "CONNECT" {
        return Some(Request { destination: authority(target, None)?, head: None });
    }
    let rest = target.strip_prefix("http://")?;
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let slash = if path.starts_with('/') { "" } else { "/" };
    // Further requests on this connection could be for other hosts.
    let mut head = format!("{method} {slash}{path} {version}\r\nConnection: close\r\n");
    if path.is_empty() {
        head = format!("{method} / {version}\r\nConnection: close\r\n");
    }
    for header in headers.split("\r\n").filter(|header| !header.is_empty()) {
        let name = header.split(':').next().unwrap_or_default();
        if !FOR_PROXY.iter().any(|own| name.eq_ignore_ascii_case(own)) {
            head.push_str(header);
            head.push_str("\r\n");
        }
    }
    head.push_str("\r\n");
    Some(Request { destination: authority(host, Some(HTTP_PORT))?, head: Some(head.into_bytes()) })
}

/// `host:port`, `[address]:port`; without a port only where there is a usual one.
fn authority(text: &str, usual: Option<u16>) -> Option<Destination> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse().ok()?)),
        _ => (text, usual),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then_some(Destination { host: host.to_owned(), port: port? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Option<(String, u16, Option<String>)> {
        let Request { destination, head } = parse(text.as_bytes())?;
        Some((destination.host, destination.port, head.map(|head| String::from_utf8(head).unwrap())))
    }

    #[test]
    fn targets_of_connect() {
        let host = |host: &str, port| Some((host.to_owned(), port, None));
        assert_eq!(asked("CONNECT laptop:22 HTTP/1.1\r\nHost: x\r\n\r\n"), host("laptop", 22));
        assert_eq!(asked("CONNECT [2001:db8::1]:443 HTTP/1.1\r\n\r\n"), host("2001:db8::1", 443));
    }

    #[test]
    fn requests_are_passed_on_as_a_server_expects_them() {
        let head = "Connection: close\r\nHost: far.peer\r\n\r\n";
        for (target, path, port) in
            [("far.peer:8080/a?b", "/a?b", 8080), ("far.peer", "/", 80), ("far.peer?b", "/?b", 80)]
        {
            let request = format!(
                "GET http://{target} HTTP/1.1\r\nHost: far.peer\r\nProxy-Connection: keep-alive\r\nconnection: x\r\n\r\n"
            );
            let expected = format!("GET {path} HTTP/1.1\r\n{head}");
            assert_eq!(asked(&request), Some(("far.peer".to_owned(), port, Some(expected))), "{target}");
        }
        let (host, port, _) = asked("GET http://[fdab::1]/ HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!((host.as_str(), port), ("fdab::1", 80));
    }

    #[test]
    fn what_is_no_request_for_a_proxy_is_refused() {
        for wrong in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET https://far/ HTTP/1.1\r\n\r\n",
            "GET http:/// HTTP/1.1\r\n\r\n",
            "GET http://far:x/ HTTP/1.1\r\n\r\n",
            "CONNECT laptop HTTP/1.1\r\n\r\n",
            "CONNECT laptop:70000 x\r\n\r\n",
            "CONNECT\r\n\r\n",
            "",
        ] {
            assert_eq!(asked(wrong), None, "{wrong}");
        }
    }
}
