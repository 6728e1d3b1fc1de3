//! Virtual sockets on this machine: two endpoints in one process, over the loopback adapter.

#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

use std::time::{Duration, Instant};

use anabranch::{
    Admission, ConnectError, ConnectOptions, Endpoint, EndpointOptions, EventKind, Peer, PeerAddress,
};
use identity::KeyPair;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn listening(admission: Admission) -> (Endpoint, Peer) {
    let key = KeyPair::generate().unwrap();
    let public = key.public();
    let endpoint = Endpoint::bind(EndpointOptions::listening(key, 0, admission)).unwrap();
    let addresses: Vec<PeerAddress> =
        endpoint.addresses().into_iter().filter(|address| address.is_loopback()).collect();
    assert!(!addresses.is_empty(), "no loopback adapter");
    (endpoint, Peer { key: public, addresses })
}

fn calling() -> Endpoint {
    Endpoint::bind(EndpointOptions::new(KeyPair::generate().unwrap())).unwrap()
}

#[tokio::test]
async fn bytes_go_both_ways_and_the_end_is_seen() {
    let (server, peer) = listening(Admission::Anybody);
    let listener = server.listen();
    let client = calling();
    let caller = client.public_key();
    let mut events = client.events();
    let start = Instant::now();
    let mut stream = client.connect(&peer, &ConnectOptions::default()).await.unwrap();
    let took = start.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    let incoming = listener.accept().await.unwrap();
    assert_eq!(incoming.peer, caller);
    let echo = tokio::spawn(async move {
        let (mut reader, mut writer) = tokio::io::split(incoming.stream);
        tokio::io::copy(&mut reader, &mut writer).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    let sent: Vec<u8> = (0..3_000_000u32).map(|at| (at / 7) as u8).collect();
    let (mut reader, mut writer) = tokio::io::split(&mut stream);
    let (mut received, all) = (Vec::new(), sent.clone());
    let write = async {
        writer.write_all(&all).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let ((), read) = tokio::join!(write, reader.read_to_end(&mut received));
    read.unwrap();
    assert!(received == sent, "{} bytes of {}", received.len(), sent.len());
    echo.await.unwrap();
    assert!(matches!(events.next().await.unwrap().kind, EventKind::New { .. }));
    assert!(stream.standing().adapter.is_some());
}

#[tokio::test]
async fn strangers_are_told_why_they_are_not_let_in() {
    let (server, peer) = listening(Admission::Keys(Vec::new()));
    let client = calling();
    let options = ConnectOptions::default();
    let refused = client.connect(&peer, &options).await.err().unwrap();
    assert_eq!(refused, ConnectError::NotListening(peer.key));
    let _listener = server.listen();
    let refused = client.connect(&peer, &options).await.err().unwrap();
    assert_eq!(refused, ConnectError::NotKnown(peer.key));
    let other = Peer { key: KeyPair::generate().unwrap().public(), addresses: peer.addresses.clone() };
    let options = ConnectOptions { deadline: Duration::from_secs(1), ..options };
    let silent = client.connect(&other, &options).await.err().unwrap();
    assert!(matches!(silent, ConnectError::NoAnswer { .. }), "who has another key does not answer: {silent}");
    let nowhere = Peer { addresses: Vec::new(), ..other };
    assert!(matches!(client.connect(&nowhere, &options).await, Err(ConnectError::NoAddress(_))));
}

#[tokio::test]
async fn a_peer_that_goes_away_ends_the_connection() {
    let (server, peer) = listening(Admission::Anybody);
    let listener = server.listen();
    let client = calling();
    let mut stream = client.connect(&peer, &ConnectOptions::default()).await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    let mut accepted = listener.accept().await.unwrap().stream;
    let mut buffer = [0; 5];
    accepted.read_exact(&mut buffer).await.unwrap();
    assert_eq!(&buffer, b"hello");
    drop((accepted, listener));
    server.close().await;
    let mut rest = Vec::new();
    // Either the end of the stream or the end of the conversation comes first; then writing fails.
    let _ = stream.read_to_end(&mut rest).await;
    let failed = async {
        while stream.write_all(b"more").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), failed).await.unwrap();
}

/// As with TCP: who has said all and gone may be read later.
#[tokio::test]
async fn a_slow_reader_gets_all_and_a_clean_end_after_the_sender_has_gone() {
    let (server, peer) = listening(Admission::Anybody);
    let listener = server.listen();
    let mut ended = server.events();
    let sent: Vec<u8> = (0..400_000u32).map(|at| (at / 5) as u8).collect();
    let client = calling();
    // One is accepted while it is there, the other one only later.
    for _ in 0..2 {
        let mut stream = client.connect(&peer, &ConnectOptions::default()).await.unwrap();
        stream.write_all(&sent).await.unwrap();
        stream.finish().await.unwrap();
    }
    let mut first = listener.accept().await.unwrap().stream;
    let mut start = vec![0; 1_000];
    first.read_exact(&mut start).await.unwrap();
    client.close().await;
    let gone = async { while !matches!(ended.next().await.unwrap().kind, EventKind::Ended { .. }) {} };
    tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap();
    let second = listener.accept();
    let mut second = tokio::time::timeout(Duration::from_secs(10), second).await.unwrap().unwrap().stream;
    let (mut rest, mut all) = (Vec::new(), Vec::new());
    first.read_to_end(&mut rest).await.unwrap();
    second.read_to_end(&mut all).await.unwrap();
    assert!([start, rest].concat() == sent && all == sent, "{} bytes", all.len());
    // The end stays the end, and whoever is gone takes nothing.
    assert_eq!(first.read(&mut [0; 10]).await.unwrap(), 0);
    assert!(first.write_all(b"answer").await.is_err());
    // What was given up half-way has no clean end.
    let client = calling();
    let mut cut = client.connect(&peer, &ConnectOptions::default()).await.unwrap();
    cut.write_all(b"half").await.unwrap();
    let mut half = listener.accept().await.unwrap().stream;
    let mut got = [0; 1];
    half.read_exact(&mut got).await.unwrap();
    cut.reset(3);
    drop(cut);
    client.close().await;
    assert!(half.read_to_end(&mut Vec::new()).await.is_err());
}

/// The other way round: all was delivered, and the reader has gone before the sender looks.
#[tokio::test]
async fn what_was_delivered_stays_finished_after_the_reader_has_gone() {
    let (server, peer) = listening(Admission::Anybody);
    let listener = server.listen();
    let client = calling();
    let mut events = client.events();
    let mut stream = client.connect(&peer, &ConnectOptions::default()).await.unwrap();
    stream.write_all(b"everything").await.unwrap();
    // Says the end, and does not wait.
    let said = tokio::time::timeout(Duration::ZERO, stream.finish()).await;
    let mut accepted = listener.accept().await.unwrap().stream;
    accepted.read_to_end(&mut Vec::new()).await.unwrap();
    drop((accepted, listener));
    server.close().await;
    let gone = async { while !matches!(events.next().await.unwrap().kind, EventKind::Ended { .. }) {} };
    tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap();
    stream.finish().await.unwrap_or_else(|error| panic!("{said:?}, then {error}"));
}

#[tokio::test]
async fn datagrams_are_exchanged() {
    let (server, peer) = listening(Admission::Anybody);
    let listener = server.listen();
    let client = calling();
    let there = client.datagrams(&peer, &ConnectOptions::default()).await.unwrap();
    let mut stream = client.connect(&peer, &ConnectOptions::default()).await.unwrap();
    stream.write_all(b"x").await.unwrap();
    let accepted = listener.accept().await.unwrap();
    let here = server.datagrams_of(&accepted.stream);
    there.send(b"ping", Duration::from_secs(1)).unwrap();
    assert_eq!(here.receive().await.unwrap(), b"ping");
    here.send(b"pong", Duration::from_secs(1)).unwrap();
    assert_eq!(there.receive().await.unwrap(), b"pong");
    assert!(there.send(&[0; 2_000], Duration::ZERO).is_err());
}

/// Direct attempts come before route discovery; a peer that answers is not looked for over relays.
#[tokio::test]
async fn no_way_over_relays_is_looked_for_while_a_peer_answers_directly() {
    // A busy machine may take longer for an answer than is waited for before relays are asked.
    for last in [false, false, true] {
        let (server, peer) = listening(Admission::Anybody);
        let listener = server.listen();
        let client = calling();
        let mut stream = client.connect(&peer, &ConnectOptions::default()).await.unwrap();
        stream.write_all(&[1; 100_000]).await.unwrap();
        stream.finish().await.unwrap();
        drop(listener.accept().await.unwrap());
        tokio::time::sleep(Duration::from_millis(800)).await;
        let asked = client.relayed().requests + server.relayed().requests;
        // And one that does not answer is looked for, or nobody would have asked anyhow.
        let silent = Peer { key: KeyPair::generate().unwrap().public(), ..peer };
        let options = ConnectOptions { deadline: Duration::from_secs(1), ..ConnectOptions::default() };
        assert!(client.connect(&silent, &options).await.is_err());
        assert!(client.relayed().requests > asked);
        if asked == 0 {
            return;
        }
        assert!(!last, "{asked} requests");
    }
}

#[test]
fn threads_may_block() {
    use anabranch::blocking;
    use std::io::{Read, Write};
    let key = KeyPair::generate().unwrap();
    let public = key.public();
    let server = blocking::Endpoint::bind(EndpointOptions::listening(key, 0, Admission::Anybody)).unwrap();
    let addresses = server.asynchronous().addresses();
    let addresses = addresses.into_iter().filter(|address| address.is_loopback()).collect();
    let listener = server.listen();
    let thread = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        stream.write_all(text.to_uppercase().as_bytes()).unwrap();
        stream.finish().unwrap();
    });
    let client = blocking::Endpoint::bind(EndpointOptions::new(KeyPair::generate().unwrap())).unwrap();
    let peer = Peer { key: public, addresses };
    let mut stream = client.connect(&peer, &ConnectOptions::default()).unwrap();
    stream.write_all(b"hello").unwrap();
    stream.finish().unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(text, "HELLO");
    thread.join().unwrap();
    client.close();
}

/// Copies of a machine, or a state directory that was copied: each process has its own connections.
#[tokio::test]
async fn two_with_one_key_do_not_disturb_each_other() {
    let (server, peer) = listening(Admission::Anybody);
    let listener = server.listen();
    tokio::spawn(async move {
        while let Ok(incoming) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = tokio::io::split(incoming.stream);
                tokio::io::copy(&mut reader, &mut writer).await.unwrap();
                // The other end may be gone once it has all.
                let _ = writer.shutdown().await;
            });
        }
    });
    let key = KeyPair::generate().unwrap();
    let mut echoes = Vec::new();
    for number in 0..3u8 {
        let client = Endpoint::bind(EndpointOptions::new(key.clone())).unwrap();
        let stream = client.connect(&peer, &ConnectOptions::default()).await.unwrap();
        echoes.push(tokio::spawn(async move {
            let mut stream = stream;
            let sent = vec![number; 2_000_000];
            let mut got = Vec::new();
            let (mut reader, mut writer) = tokio::io::split(&mut stream);
            let write = async {
                writer.write_all(&sent).await.unwrap();
                writer.shutdown().await.unwrap();
            };
            let ((), read) = tokio::join!(write, reader.read_to_end(&mut got));
            read.unwrap();
            assert!(got == sent, "{number}: {} bytes", got.len());
            drop(client);
        }));
    }
    for echo in echoes {
        tokio::time::timeout(Duration::from_secs(20), echo).await.unwrap().unwrap();
    }
    // And whoever is called by one key at two addresses: the first who answers has the whole conversation.
    let double = KeyPair::generate().unwrap();
    let addresses_of = |endpoint: &Endpoint| {
        endpoint.addresses().into_iter().filter(|address| address.is_loopback()).collect::<Vec<_>>()
    };
    let twins: Vec<_> = (0..2)
        .map(|_| {
            let options = EndpointOptions::listening(double.clone(), 0, Admission::Anybody);
            let endpoint = Endpoint::bind(options).unwrap();
            let listener = endpoint.listen();
            (endpoint, listener)
        })
        .collect();
    let addresses = twins.iter().flat_map(|(endpoint, _)| addresses_of(endpoint)).collect();
    let client = calling();
    let both = Peer { key: double.public(), addresses };
    let mut stream = client.connect(&both, &ConnectOptions::default()).await.unwrap();
    stream.write_all(&[9; 500_000]).await.unwrap();
    let (one, other) = (twins[0].1.accept(), twins[1].1.accept());
    let mut accepted = tokio::select! { stream = one => stream, stream = other => stream }.unwrap().stream;
    let mut got = vec![0; 500_000];
    tokio::time::timeout(Duration::from_secs(10), accepted.read_exact(&mut got)).await.unwrap().unwrap();
    assert!(got.iter().all(|byte| *byte == 9));
}
