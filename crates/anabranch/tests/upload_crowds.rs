//! More uploads, connections and calls than there is room for: nobody is left out for good, and nobody shuts others out.
#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anabranch::upload::{
    AcceptOptions, Ledger, ShareEvent, ShareOptions, Trust, UPLOAD, UploadOptions, accept, share, upload,
};
use anabranch::{Admission, ConnectOptions, Endpoint, EndpointOptions, Peer, VirtualStream};
use identity::{KeyPair, PublicKey, StateDirectory};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use units::BitRate;
use wire::upload::roles::{End, FileOffer, RoleMessage, SIGNED_FOR, TransferOffer, signed};
use wire::upload::{Offer, Transfer};

/// A caller that says nothing is let go after this time, a transfer that brings nothing after three times as long.
const GREETING: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(120);

fn listening() -> (Endpoint, Peer) {
    let key = KeyPair::generate().unwrap();
    let public = key.public();
    let endpoint = Endpoint::bind(EndpointOptions::listening(key, 0, Admission::Anybody)).unwrap();
    let addresses = endpoint.addresses().into_iter().filter(|address| address.is_loopback()).collect();
    (endpoint, Peer { key: public, addresses })
}

async fn say(stream: &mut VirtualStream, message: &RoleMessage) {
    let message = message.encode();
    stream.write_all(&u32::try_from(message.len()).unwrap().to_be_bytes()).await.unwrap();
    stream.write_all(&message).await.unwrap();
}

async fn hear(stream: &mut VirtualStream) -> std::io::Result<RoleMessage> {
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length).await?;
        let mut message = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut message).await?;
        if let Ok(message) = RoleMessage::parse(&message) {
            return Ok(message);
        }
    }
}

/// A connection that has said what it speaks.
async fn call(endpoint: &Endpoint, peer: &Peer) -> VirtualStream {
    let mut stream = endpoint.connect(peer, &ConnectOptions::default()).await.unwrap();
    stream.write_all(format!("{UPLOAD}\n").as_bytes()).await.unwrap();
    stream
}

fn offered(source: &KeyPair, destination: PublicKey, number: u64) -> TransferOffer {
    let (transfer, air_key, chunks, chunk_length) = (Transfer(number), [7; 32], 100, 1_380);
    let said = signed(transfer, &destination.0, &air_key, chunks, chunk_length);
    let signature = source.sign(SIGNED_FOR, &said);
    TransferOffer { transfer, source: source.public().0, air_key, chunks, chunk_length, signature }
}

/// The next transfer that the neighbour takes or lets go, reports left aside.
async fn next_taken(stream: &mut VirtualStream) -> Result<Transfer, Transfer> {
    loop {
        match hear(stream).await.unwrap() {
            RoleMessage::Taking(transfer, _) => return Ok(transfer),
            RoleMessage::Over(transfer, ..) => return Err(transfer),
            _ => {}
        }
    }
}

/// A destination of the test's own tells a real neighbour of six transfers. One of them ends; of the others nothing is ever heard.
#[tokio::test]
async fn a_neighbour_helps_those_that_wait_once_others_end_or_bring_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (destination, peer) = listening();
    let neighbour = KeyPair::generate().unwrap();
    let state = StateDirectory::create(directory.path().join("state")).unwrap();
    let mut ledger = Ledger::open(&state, neighbour.clone()).unwrap();
    let endpoint = Endpoint::bind(EndpointOptions::new(neighbour)).unwrap();
    let options = ShareOptions {
        trust: Trust::Admitted,
        rate: None,
        volume: None,
        time: None,
        air: Some(Vec::new()),
        repeat: Vec::new(),
        air_rates: None,
        radio: None,
    };
    let (public, at) = (peer.key, move || peer.clone());
    let mut waits = 0;
    let mut tell = |event| waits += u32::from(matches!(event, ShareEvent::Waits(_)));
    let connect = ConnectOptions::default();
    let sharing = share(&endpoint, &at, &connect, &options, &mut ledger, &mut tell);
    let telling = async {
        let mut stream = destination.listen().accept().await.unwrap().stream;
        let mut line = vec![0; UPLOAD.len() + 1];
        stream.read_exact(&mut line).await.unwrap();
        let source = KeyPair::generate().unwrap();
        for number in 0..6 {
            say(&mut stream, &RoleMessage::Transfer(Box::new(offered(&source, public, number)))).await;
        }
        for number in 0..4 {
            assert_eq!(next_taken(&mut stream).await, Ok(Transfer(number)));
        }
        say(&mut stream, &RoleMessage::Over(Transfer(2), End::Stored, String::new())).await;
        assert_eq!(next_taken(&mut stream).await, Ok(Transfer(4)), "the next one takes its place");
        let begun = Instant::now();
        assert_eq!(next_taken(&mut stream).await, Err(Transfer(0)), "nothing of it was ever heard");
        assert!(begun.elapsed() > 2 * GREETING, "it had time");
        assert_eq!(next_taken(&mut stream).await, Ok(Transfer(5)));
        // Those that were let go have their turn again.
        let mut taken = BTreeSet::new();
        while !taken.contains(&Transfer(0)) {
            if let Ok(transfer) = next_taken(&mut stream).await {
                taken.insert(transfer);
            }
        }
    };
    tokio::select! {
        ended = tokio::time::timeout(LIMIT, sharing) => panic!("{ended:?}"),
        () = telling => {}
    }
    assert!(waits >= 2, "the owner was told of {waits}");
}

async fn upload_one(peer: &Peer, file: &Path) {
    let options =
        UploadOptions { on_air: false, air: None, air_rate: BitRate(1), air_rates: None, own_uplink: true };
    let (key, place) = (KeyPair::generate().unwrap(), || peer.clone());
    let source = Endpoint::bind(EndpointOptions::new(key.clone())).unwrap();
    let (connect, mut tell) = (ConnectOptions::default(), |_| {});
    let sent = upload(&source, &place, &connect, &key, file, &options, &mut tell);
    tokio::time::timeout(LIMIT, sent).await.unwrap().unwrap();
}

fn into(directory: &Path) -> AcceptOptions {
    let into = directory.join("into");
    fs::create_dir(&into).unwrap();
    AcceptOptions { directory: into, count: None, senders: None, largest: None }
}

#[tokio::test]
async fn one_peer_does_not_shut_others_out_and_one_that_says_nothing_is_let_go() {
    let directory = tempfile::tempdir().unwrap();
    let (destination, peer) = listening();
    let options = into(directory.path());
    let mut tell = |_| {};
    let accepting = accept(&destination, &options, &mut tell);
    let calling = async {
        let greedy = Endpoint::bind(EndpointOptions::new(KeyPair::generate().unwrap())).unwrap();
        let mut mute = Vec::new();
        let refused = loop {
            assert!(mute.len() < 100, "nobody was refused");
            let mut stream = call(&greedy, &peer).await;
            // Who is let in hears nothing.
            match tokio::time::timeout(Duration::from_millis(200), hear(&mut stream)).await {
                Ok(said) => break said.unwrap(),
                Err(_) => mute.push(stream),
            }
        };
        let RoleMessage::Over(_, End::Failed, reason) = refused else { panic!("another word") };
        assert!(reason.contains("too many connections"), "{reason}");
        assert!(mute.len() >= 32, "{}", mute.len());
        let file = directory.path().join("file");
        fs::write(&file, vec![5; 100_000]).unwrap();
        upload_one(&peer, &file).await;
        assert_eq!(fs::read(options.directory.join("file")).unwrap(), fs::read(&file).unwrap());
        // The first ones were let go, so there is room for more.
        for stream in &mut mute {
            tokio::time::timeout(LIMIT, hear(stream)).await.unwrap().map(|_| ()).unwrap_err();
        }
        let mut stream = call(&greedy, &peer).await;
        assert!(tokio::time::timeout(Duration::from_millis(500), hear(&mut stream)).await.is_err());
    };
    tokio::select! {
        // It has to listen before it is called.
        biased;
        ended = accepting => panic!("{ended:?}"),
        () = calling => {}
    }
}

/// While the destination still reads a file of the same name and size, the source's connection breaks and it calls again.
#[tokio::test]
async fn a_source_that_calls_again_while_its_place_is_made_is_not_refused() {
    const SIZE: u64 = 300_000_000;
    let directory = tempfile::tempdir().unwrap();
    let (destination, peer) = listening();
    let options = into(directory.path());
    fs::File::create(options.directory.join("file")).unwrap().set_len(SIZE).unwrap();
    let mut tell = |_| {};
    let accepting = accept(&destination, &options, &mut tell);
    let calling = async {
        let key = KeyPair::generate().unwrap();
        let source = Endpoint::bind(EndpointOptions::new(key.clone())).unwrap();
        let offer = Offer { transfer: Transfer(9), length: SIZE, chunk_length: 1_380 };
        let said = signed(offer.transfer, &peer.key.0, &[3; 32], offer.chunks().unwrap(), 1_380);
        let signature = key.sign(SIGNED_FOR, &said);
        let name = "file".to_owned();
        let file = FileOffer { offer, hash: [1; 32], chunk_key: [2; 32], air_key: [3; 32], signature, name };
        let file = RoleMessage::File(Box::new(file));
        let mut first = call(&source, &peer).await;
        say(&mut first, &file).await;
        let mut second = call(&source, &peer).await;
        say(&mut second, &file).await;
        loop {
            match tokio::time::timeout(LIMIT, hear(&mut second)).await.unwrap().unwrap() {
                RoleMessage::Ready(transfer, ..) => break assert_eq!(transfer, Transfer(9)),
                RoleMessage::Over(_, _, reason) => panic!("{reason}"),
                _ => {}
            }
        }
    };
    tokio::select! {
        // It has to listen before it is called.
        biased;
        ended = accepting => panic!("{ended:?}"),
        () = calling => {}
    }
}
