//! A BitTorrent tracker over HTTP: who asks is told who else has asked.
//!
//! BEP 3 with compact lists of peers (BEP 23). For a test bed: IPv4, a few torrents and clients, one after the other.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::torrent::{number, string};

/// Answers until ended. Returns only on error.
///
/// # Errors
/// If the address cannot be used.
pub fn track(listen: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(listen).with_context(|| format!("listening on {listen}"))?;
    let mut tracker = Tracker::default();
    for stream in listener.incoming().flatten() {
        if let Err(error) = tracker.serve(&stream) {
            tracing::debug!("an announcement was not answered: {error:#}");
        }
    }
    Ok(())
}

/// The peers of each torrent, by the name of the torrent as it stands in the URL.
#[derive(Default)]
struct Tracker {
    swarms: BTreeMap<String, Vec<SocketAddrV4>>,
}

/// What a client says.
#[derive(PartialEq, Eq, Debug)]
struct Announcement<'a> {
    torrent: &'a str,
    port: u16,
    stopped: bool,
}

impl Tracker {
    fn serve(&mut self, mut stream: &TcpStream) -> Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let SocketAddr::V4(peer) = stream.peer_addr()? else { bail!("a client with IPv6") };
        let mut lines = BufReader::new(stream.take(LONGEST_REQUEST));
        let mut request = String::new();
        lines.read_line(&mut request)?;
        let mut header = String::new();
        while lines.read_line(&mut header)? > 2 {
            header.clear();
        }
        let body = self.answer(*peer.ip(), &parse(&request)?)?;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), &body].concat())?;
        Ok(())
    }

    fn answer(&mut self, from: Ipv4Addr, said: &Announcement<'_>) -> Result<Vec<u8>> {
        let known = self.swarms.contains_key(said.torrent);
        ensure!(known || self.swarms.len() < MOST_TORRENTS, "too many torrents");
        let peers = self.swarms.entry(said.torrent.to_owned()).or_default();
        let own = SocketAddrV4::new(from, said.port);
        peers.retain(|peer| *peer != own);
        let others: Vec<u8> = peers
            .iter()
            .flat_map(|peer| [&peer.ip().octets()[..], &peer.port().to_be_bytes()].concat())
            .collect();
        if !said.stopped && peers.len() < MOST_PEERS {
            peers.push(own);
        }
        let mut body = vec![b'd'];
        string(&mut body, b"interval");
        number(&mut body, INTERVAL);
        string(&mut body, b"peers");
        string(&mut body, &others);
        body.push(b'e');
        Ok(body)
    }
}

fn parse(request: &str) -> Result<Announcement<'_>> {
    let target = request.strip_prefix("GET /announce?").context("this is no announcement")?;
    let query = target.split(' ').next().unwrap_or_default();
    let value = |wanted: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find_map(|(key, value)| (key == wanted).then_some(value))
    };
    Ok(Announcement {
        torrent: value("info_hash").context("which torrent?")?,
        port: value("port").and_then(|port| port.parse().ok()).context("which port?")?,
        stopped: value("event") == Some("stopped"),
    })
}

const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST_REQUEST: u64 = 8_192;
const MOST_TORRENTS: usize = 16;
const MOST_PEERS: usize = 64;
/// Seconds until a client is to ask again.
const INTERVAL: u64 = 1_800;

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(tracker: &mut Tracker, from: [u8; 4], event: &str) -> Vec<u8> {
        let request = format!("GET /announce?info_hash=%aa%bb&peer_id=x&port=6881{event} HTTP/1.1\r\n");
        tracker.answer(from.into(), &parse(&request).unwrap()).unwrap()
    }

    #[test]
    fn who_asks_is_told_of_the_others_until_they_stop() {
        let mut tracker = Tracker::default();
        assert!(ask(&mut tracker, [10, 0, 0, 1], "").ends_with(b"5:peers0:e"));
        assert!(ask(&mut tracker, [10, 0, 0, 2], "").ends_with(b"5:peers6:\x0a\0\0\x01\x1a\xe1e"));
        let again = ask(&mut tracker, [10, 0, 0, 2], "&event=completed");
        assert!(again.ends_with(b"5:peers6:\x0a\0\0\x01\x1a\xe1e"), "nobody is told of itself");
        ask(&mut tracker, [10, 0, 0, 1], "&event=stopped");
        assert!(ask(&mut tracker, [10, 0, 0, 2], "").ends_with(b"5:peers0:e"));
    }

    #[test]
    fn what_is_no_announcement_is_refused() {
        for request in
            ["", "GET / HTTP/1.1", "GET /announce?port=1 HTTP/1.1", "GET /announce?info_hash=a&port=x"]
        {
            assert!(parse(request).is_err(), "{request}");
        }
    }
}
