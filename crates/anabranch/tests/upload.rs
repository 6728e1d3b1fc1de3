//! A destination among peers that do not keep to the rules: the file arrives as it was sent.
#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anabranch::upload::{AcceptEvent, AcceptOptions, UPLOAD, UploadOptions, accept, upload};
use anabranch::{Admission, ConnectOptions, Endpoint, EndpointOptions, Peer, VirtualStream};
use identity::KeyPair;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use units::BitRate;
use wire::upload::roles::{RoleMessage, TransferOffer};
use wire::upload::{AirNumber, Chunk, Message, Report, Run, Runs};

/// What a neighbour does once it has been told of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mischief {
    /// It claims the whole file and carries nothing.
    Boasts,
    /// It claims the whole file and sends other bytes for whatever it is granted.
    Damages,
    /// It sends chunks that nobody asked for, of this transfer and of others.
    Floods,
    /// It says what has no meaning.
    Babbles,
    /// It goes away whenever it is granted something, and comes back.
    Flees,
}

const SIZE: usize = 12_000_000;

fn endpoint() -> Endpoint {
    Endpoint::bind(EndpointOptions::new(KeyPair::generate().unwrap())).unwrap()
}

async fn say(stream: &mut VirtualStream, message: &[u8]) -> std::io::Result<()> {
    stream.write_all(&u32::try_from(message.len()).unwrap().to_be_bytes()).await?;
    stream.write_all(message).await
}

async fn hear(stream: &mut VirtualStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let mut message = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

fn everything(transfer: &TransferOffer) -> Vec<u8> {
    let all = Run::new(Chunk(0), Chunk(u32::MAX));
    let report = Report {
        transfer: transfer.transfer,
        through: AirNumber(u32::MAX),
        window: u32::MAX,
        buffered: 0,
        receptions: Vec::new(),
        heard: Runs::rising(all).unwrap(),
        away: wire::upload::MAX_AWAY,
    };
    Message::Report(report).encode()
}

/// One connection of a neighbour, until one of the two ends it; `misdeeds` are counted.
async fn misbehave(
    stream: &mut VirtualStream,
    mischief: Mischief,
    misdeeds: &AtomicUsize,
) -> std::io::Result<()> {
    let done = || misdeeds.fetch_add(1, Ordering::Relaxed);
    stream.write_all(format!("{UPLOAD}\n").as_bytes()).await?;
    say(stream, &RoleMessage::Join.encode()).await?;
    let mut told = None;
    loop {
        let message = hear(stream).await?;
        match RoleMessage::parse(&message) {
            Ok(RoleMessage::Transfer(offer)) => {
                say(stream, &RoleMessage::Taking(offer.transfer, false).encode()).await?;
                say(stream, &everything(&offer)).await?;
                told = Some(offer);
            }
            Ok(RoleMessage::Over(..)) => return Ok(()),
            _ => {}
        }
        let Some(offer) = &told else { continue };
        let carried =
            |chunk, length| Message::Carried(offer.transfer, Chunk(chunk), &vec![7; length]).encode();
        match (mischief, Message::parse(&message)) {
            (Mischief::Boasts, Ok(Message::Grant(grant))) if !grant.carry.is_empty() => {
                done();
            }
            (Mischief::Damages, Ok(Message::Grant(grant))) => {
                for chunk in grant.carry.iter().flat_map(|run| run.first().0..=run.last().0).take(500) {
                    say(stream, &carried(chunk, 1_396)).await?;
                    done();
                }
            }
            (Mischief::Floods, _) => {
                for chunk in 0..100 {
                    say(stream, &carried(chunk * 40_000, chunk as usize)).await?;
                    let other = wire::upload::Transfer(chunk.into());
                    say(stream, &Message::Carried(other, Chunk(chunk), &[1; 1_396]).encode()).await?;
                    done();
                }
            }
            (Mischief::Babbles, _) => {
                done();
                say(stream, &[0x52; 900]).await?;
            }
            (Mischief::Flees, Ok(Message::Grant(grant))) if !grant.carry.is_empty() => {
                done();
                return Ok(());
            }
            _ => {}
        }
    }
}

/// A neighbour that comes again and again.
async fn neighbour(peer: Peer, mischief: Mischief, misdeeds: Arc<AtomicUsize>) {
    let endpoint = endpoint();
    loop {
        if let Ok(mut stream) = endpoint.connect(&peer, &ConnectOptions::default()).await {
            drop(misbehave(&mut stream, mischief, &misdeeds).await);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn arrives_whole(mischief: &[Mischief]) {
    let directory = tempfile::tempdir().unwrap();
    let (file, into) = (directory.path().join("file"), directory.path().join("into"));
    fs::create_dir(&into).unwrap();
    fs::write(&file, (0..SIZE).map(|at| (at / 3) as u8).collect::<Vec<u8>>()).unwrap();
    let key = KeyPair::generate().unwrap();
    let public = key.public();
    let destination = Endpoint::bind(EndpointOptions::listening(key, 0, Admission::Anybody)).unwrap();
    let addresses = destination.addresses().into_iter().filter(|address| address.is_loopback()).collect();
    let peer = Peer { key: public, addresses };
    let neighbours = mischief.iter().map(|mischief| {
        let misdeeds = Arc::new(AtomicUsize::new(0));
        (tokio::spawn(neighbour(peer.clone(), *mischief, Arc::clone(&misdeeds))), misdeeds)
    });
    let neighbours: Vec<_> = neighbours.collect();
    let options = AcceptOptions { directory: into.clone(), count: Some(1), senders: None, largest: None };
    let came = AtomicUsize::new(0);
    let mut tell = |event| {
        if matches!(event, AcceptEvent::NeighbourCame(_)) {
            came.fetch_add(1, Ordering::Relaxed);
        }
    };
    let accepting = accept(&destination, &options, &mut tell);
    let sending = async {
        let options = UploadOptions {
            on_air: false,
            air: None,
            air_rate: BitRate(1),
            air_rates: None,
            own_uplink: true,
        };
        while came.load(Ordering::Relaxed) < mischief.len() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (key, place) = (KeyPair::generate().unwrap(), move || peer.clone());
        let source = Endpoint::bind(EndpointOptions::new(key.clone())).unwrap();
        upload(&source, &place, &ConnectOptions::default(), &key, &file, &options, &mut |_| {}).await
    };
    let both = async { tokio::join!(accepting, sending) };
    let (accepted, sent) = tokio::time::timeout(Duration::from_secs(120), both).await.unwrap();
    accepted.unwrap();
    sent.unwrap();
    assert!(fs::read(into.join("file")).unwrap() == fs::read(&file).unwrap());
    assert_eq!(fs::read_dir(&into).unwrap().count(), 1, "nothing is left beside it");
    for ((neighbour, misdeeds), mischief) in neighbours.into_iter().zip(mischief) {
        assert!(
            misdeeds.load(Ordering::Relaxed) > 0,
            "one that {mischief:?} was not asked to carry anything"
        );
        assert!(!neighbour.is_finished());
        neighbour.abort();
    }
}

#[tokio::test]
async fn a_neighbour_that_claims_everything_and_carries_nothing_costs_only_time() {
    arrives_whole(&[Mischief::Boasts, Mischief::Boasts]).await;
}

#[tokio::test]
async fn what_a_neighbour_damages_is_not_stored() {
    arrives_whole(&[Mischief::Damages, Mischief::Damages]).await;
}

#[tokio::test]
async fn what_nobody_asked_for_is_not_stored() {
    arrives_whole(&[Mischief::Floods, Mischief::Babbles]).await;
}

#[tokio::test]
async fn one_that_flees_and_comes_back_costs_only_time() {
    arrives_whole(&[Mischief::Flees, Mischief::Boasts, Mischief::Damages]).await;
}
