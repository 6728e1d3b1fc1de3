use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anabranch::control::{EventKind, MAX_BODY};
use identity::{StateDirectory, WebToken};

use super::super::tests::{Bed, bed};
use super::super::{Callers, ControlServer, Doors};
use super::*;

struct Web {
    bed: Bed,
    address: SocketAddr,
    token: String,
}

fn web() -> Web {
    let mut bed = bed();
    bed.server = None;
    let door = WebDoor::open(&bed.state, "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = door.address();
    let token = WebToken::load(&bed.state).unwrap().text().to_owned();
    let callers = Callers::of_state(&bed.state, None).unwrap();
    let doors = Doors { web: Some(door), ..Doors::default() };
    bed.server = Some(ControlServer::start_with(doors, &bed.state, callers, bed.backend.clone()).unwrap());
    Web { bed, address, token }
}

impl Web {
    /// Sends bytes as they are, and returns what comes back.
    fn raw(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        // The server may close before it has read all.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn ask(&self, request: &str, headers: &[&str], body: &str) -> String {
        let length = format!("content-length: {}", body.len());
        let lines = [&[request, "connection: close", length.as_str()], headers, &["", body]].concat();
        self.raw(lines.join("\r\n").as_bytes())
    }

    fn host(&self) -> String {
        format!("host: {}", self.address)
    }

    fn bearer(&self) -> String {
        format!("authorization: Bearer {}", self.token)
    }

    fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1"), &[&self.host(), &self.bearer()], "")
    }
}

#[test]
fn with_the_token_all_that_the_socket_offers() {
    let web = web();
    let status = web.get("/v1/status");
    assert!(status.starts_with("HTTP/1.1 200") && status.contains("\"van\""), "{status}");
    let change = web.ask(
        "PUT /v1/networks/usb0%20%C3%A9 HTTP/1.1",
        &[&web.host(), &web.bearer(), &format!("origin: http://{}", web.address)],
        "{\"priority\":7}",
    );
    assert!(change.contains("\"priority\":7"), "{change}");
    assert_eq!(web.bed.client.networks().unwrap()[0].priority.0, 7);
    assert!(web.get("/v1/nothing").starts_with("HTTP/1.1 404"));
    let run = web.ask("POST /v1/run HTTP/1.1", &[&web.host(), &web.bearer()], "{}");
    assert!(run.contains("wrong-role"), "{run}");
}

#[test]
fn metrics_are_served_to_who_shows_the_token() {
    let web = web();
    web.bed.backend.events.push(EventKind::Warning, None, "one");
    let metrics = web.get("/metrics");
    assert!(metrics.contains("content-type: text/plain; version=0.0.4"), "{metrics}");
    for line in [
        "anabranch_build_info{version=\"0\",role=\"device\",name=\"van\"} 1",
        "anabranch_session_up 1",
        "anabranch_path_rtt_seconds{network=\"usb0 é\",path=\"1\",remote=\"[2001:db8::1]:4600\"} 0.02",
        "anabranch_path_expected_bytes_per_second{network=\"usb0 é\",path=\"1\",remote=\"[2001:db8::1]:4600\"} 5000000",
        "anabranch_events_total{kind=\"warning\"} 1",
    ] {
        assert!(metrics.lines().any(|shown| shown == line), "{line} is missing from\n{metrics}");
    }
    let stranger = web.ask("GET /metrics HTTP/1.1", &[&web.host()], "");
    assert!(stranger.starts_with("HTTP/1.1 401"), "{stranger}");
}

#[test]
fn without_the_token_the_page_and_nothing_else() {
    let web = web();
    let page = web.ask("GET / HTTP/1.1", &[&web.host()], "");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("default-src 'none'"), "{page}");
    assert!(page.contains("cache-control: no-store") && page.contains("nosniff"), "{page}");
    assert!(!page.contains("van") && !page.contains(&web.token), "{page}");
    for headers in [vec![], vec!["authorization: Bearer wrong"], vec!["authorization: Basic eA=="]] {
        let host = web.host();
        let headers: Vec<&str> = [&[host.as_str()], &headers[..]].concat();
        let answer = web.ask("GET /v1/status HTTP/1.1", &headers, "");
        assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("anabranch web"), "{answer}");
        assert!(answer.contains("www-authenticate: Bearer"), "{answer}");
    }
}

#[test]
fn other_pages_and_other_names_are_refused() {
    let web = web();
    let (host, bearer) = (web.host(), web.bearer());
    let port = web.address.port();
    // A name server of somebody else points its name here (DNS rebinding).
    for name in [
        format!("evil.example:{port}"),
        "127.0.0.1".to_owned(),
        format!("127.0.0.1:{}", port ^ 1),
        String::new(),
    ] {
        for path in ["/", "/v1/status"] {
            let answer = web.ask(&format!("GET {path} HTTP/1.1"), &[&format!("host: {name}"), &bearer], "");
            assert!(answer.starts_with("HTTP/1.1 403"), "{name}: {answer}");
        }
    }
    let local = web.ask("GET /v1/status HTTP/1.1", &[&format!("host: localhost:{port}"), &bearer], "");
    assert!(local.starts_with("HTTP/1.1 200"), "{local}");
    for foreign in [
        "origin: http://evil.example",
        "origin: null",
        "origin: http://127.0.0.1:1",
        "sec-fetch-site: cross-site",
        "sec-fetch-site: same-site",
    ] {
        let answer = web.ask("POST /v1/down HTTP/1.1", &[&host, &bearer, foreign], "");
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("another page"), "{foreign}: {answer}");
    }
    let link = ["sec-fetch-site: cross-site", "sec-fetch-mode: navigate"];
    let page = web.ask("GET / HTTP/1.1", &[&[host.as_str()], &link[..]].concat(), "");
    assert!(page.starts_with("HTTP/1.1 200"), "a link may lead to the page: {page}");
    let answer = web.ask("GET /v1/status HTTP/1.1", &[&[host.as_str(), &bearer], &link[..]].concat(), "");
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[test]
fn large_and_senseless_requests_are_refused_and_the_rest_goes_on() {
    let web = web();
    let body = " ".repeat(MAX_BODY + 1);
    let large = web.ask("POST /v1/explain HTTP/1.1", &[&web.host(), &web.bearer()], &body);
    assert!(large.starts_with("HTTP/1.1 413"), "{large}");
    let head = web.ask("GET / HTTP/1.1", &[&web.host(), &format!("x: {}", "y".repeat(40_000))], "");
    assert!(head.starts_with("HTTP/1.1 431") || head.is_empty(), "{head}");
    assert!(web.raw(b"\x16\x03\x01 no HTTP\r\n\r\n").starts_with("HTTP/1.1 400"));
    assert!(web.get("/v1/status").starts_with("HTTP/1.1 200"), "and goes on");
}

#[test]
fn who_is_slow_is_cut_off_and_keeps_nobody_else_out() {
    let web = web();
    let slow: Vec<TcpStream> = (0..MOST_CONNECTIONS)
        .map(|_| {
            let mut stream = TcpStream::connect(web.address).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
            stream
        })
        .collect();
    // All places are taken until the slow ones are cut off.
    let begun = Instant::now();
    assert!(web.get("/v1/status").starts_with("HTTP/1.1 200"));
    assert!(begun.elapsed() < HEADER_TIME * 3, "{:?}", begun.elapsed());
    drop(slow);
}

#[test]
fn a_port_that_is_taken_is_named_and_the_daemon_goes_on() {
    let web = web();
    let events = super::super::EventLog::default();
    assert!(open(&web.bed.state, Some(web.address), &events).is_none());
    let text = &events.since(anabranch::control::EventSequence(0))[0].text;
    assert!(text.contains(&web.address.to_string()) && text.contains("another port"), "{text}");
    assert!(open(&web.bed.state, None, &events).is_none());
}

#[test]
fn it_ends_with_the_server() {
    let mut web = web();
    assert!(web.get("/v1/status").starts_with("HTTP/1.1 200"));
    web.bed.server = None;
    assert!(TcpStream::connect(web.address).is_err());
    let again =
        WebDoor::open(&StateDirectory::open(web.bed.state.path(), "x").unwrap(), web.address).unwrap();
    assert_eq!(again.token.text(), web.token, "the token stays");
}
