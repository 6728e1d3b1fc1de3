//! A neighbour that brings everything again and again costs nobody anything. In a network namespace, for the air's sake: needs root, and is left
//! out without.
#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use anabranch::upload::{
    AcceptOptions, Ledger, ShareOptions, Trust, UPLOAD, UploadOptions, Uploaded, accept, share, upload,
};
use anabranch::{Admission, ConnectOptions, Endpoint, EndpointOptions, Peer};
use identity::{KeyPair, PublicKey, StateDirectory};
use linux::group::{Group, GroupSocket};
use linux::netns::Namespace;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use units::BitRate;
use wire::upload::roles::RoleMessage;
use wire::upload::{AirFrame, AirHeader, AirNumber, Chunk, MAX_RUNS, Message, Report, Runs, Transfer};

/// As in `upload/air`.
const GROUP: Group = Group {
    v4: Ipv4Addr::new(239, 255, 97, 99),
    v6: Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0, 0x616e, 0x6163),
    port: 4_615,
};
const SIZE: u64 = 8_000_000;
/// How often each chunk is brought.
const TIMES: usize = 5;
const LIMIT: Duration = Duration::from_secs(120);

async fn say(stream: &mut (impl AsyncWrite + Unpin), message: &[u8]) -> std::io::Result<()> {
    stream.write_all(&u32::try_from(message.len()).unwrap().to_be_bytes()).await?;
    stream.write_all(message).await
}

async fn hear(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let mut message = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

/// What a neighbour has, and how often it has brought something that it had brought before.
#[derive(Default)]
struct Replayer {
    transfer: Option<Transfer>,
    kept: BTreeMap<Chunk, Vec<u8>>,
    unreported: Vec<Chunk>,
    through: u32,
    granted: Vec<Chunk>,
    replays: usize,
}

impl Replayer {
    fn handle_frame(&mut self, bytes: &[u8]) {
        let Ok(AirFrame { header: AirHeader::Chunk(header), sealed, .. }) = AirFrame::parse(bytes) else {
            return;
        };
        if Some(header.transfer) == self.transfer {
            self.through = self.through.max(header.air.0 + 1);
            if self.kept.insert(header.chunk, sealed.to_vec()).is_none() {
                self.unreported.push(header.chunk);
            }
        }
    }

    fn report(&mut self, transfer: Transfer) -> Vec<u8> {
        self.unreported.sort_unstable();
        let (heard, taken) = Runs::of_chunks(&self.unreported);
        assert!(taken <= self.unreported.len() && heard.len() <= MAX_RUNS);
        self.unreported.drain(..taken);
        let (through, window) = (AirNumber(self.through), 100);
        let buffered = u32::try_from(self.kept.len()).unwrap();
        Message::Report(Report {
            transfer,
            through,
            window,
            buffered,
            receptions: Vec::new(),
            heard,
            away: 0,
        })
        .encode()
    }

    /// Everything that it is asked for, several times, and some of what it has brought before.
    fn bring(&mut self, transfer: Transfer, carry: &Runs) -> Vec<Vec<u8>> {
        let asked = carry.iter().flat_map(|run| self.kept.range(run.first()..=run.last()));
        let asked: Vec<Chunk> = asked.map(|(chunk, _)| *chunk).collect();
        let old = self.granted.iter().rev().step_by(50).take(20).copied();
        let again: Vec<Chunk> = asked.iter().copied().chain(old).collect();
        self.granted.extend(&asked);
        self.replays += again.len() * TIMES - asked.len();
        let message = |chunk: Chunk| Message::Carried(transfer, chunk, &self.kept[&chunk]).encode();
        again.into_iter().flat_map(|chunk| vec![message(chunk); TIMES]).collect()
    }
}

/// Ends with the connection; returns how much was brought for nothing.
async fn replay(endpoint: &Endpoint, peer: &Peer, lan: u32) -> usize {
    let group = GroupSocket::open(&GROUP, "lan", lan, false).unwrap();
    let air = UdpSocket::from_std(group.into()).unwrap();
    let stream = endpoint.connect(peer, &ConnectOptions::default()).await.unwrap();
    let (mut reader, mut writer) = split(stream);
    let (into, mut said) = mpsc::channel(64);
    let reading = tokio::spawn(async move {
        while let Ok(message) = hear(&mut reader).await {
            if into.send(message).await.is_err() {
                return;
            }
        }
    });
    writer.write_all(format!("{UPLOAD}\n").as_bytes()).await.unwrap();
    say(&mut writer, &RoleMessage::Join.encode()).await.unwrap();
    let mut replayer = Replayer::default();
    let (mut buffer, mut tick) = (vec![0; 2_048], tokio::time::interval(Duration::from_millis(40)));
    loop {
        let mut saying = Vec::new();
        tokio::select! {
            heard = air.recv(&mut buffer) => replayer.handle_frame(&buffer[..heard.unwrap()]),
            _ = tick.tick() => saying.extend(replayer.transfer.map(|transfer| replayer.report(transfer))),
            message = said.recv() => {
                let Some(message) = message else { break };
                match (RoleMessage::parse(&message), Message::parse(&message)) {
                    (Ok(RoleMessage::Transfer(offer)), _) => {
                        replayer.transfer = Some(offer.transfer);
                        saying.push(RoleMessage::Taking(offer.transfer, false).encode());
                    }
                    (Ok(RoleMessage::Over(..)), _) => break,
                    (_, Ok(Message::Grant(grant))) => {
                        saying.extend(replayer.bring(grant.transfer, &grant.carry));
                    }
                    _ => {}
                }
            }
        }
        for message in saying {
            if say(&mut writer, &message).await.is_err() {
                break;
            }
        }
    }
    reading.abort();
    replayer.replays
}

/// An upload by an honest neighbour and one that replays: what came of it, the two, and how much was brought for nothing.
async fn send(directory: &Path, lan: u32) -> (Uploaded, PublicKey, PublicKey, usize) {
    let (file, into) = (directory.join("file"), directory.join("into"));
    fs::create_dir(&into).unwrap();
    fs::write(&file, (0..SIZE).map(|at| (at / 3) as u8).collect::<Vec<u8>>()).unwrap();
    let key = KeyPair::generate().unwrap();
    let public = key.public();
    let destination = Endpoint::bind(EndpointOptions::listening(key, 0, Admission::Anybody)).unwrap();
    let addresses = destination.addresses().into_iter().filter(|address| address.is_loopback()).collect();
    let peer = Peer { key: public, addresses };
    let options = AcceptOptions { directory: into.clone(), count: Some(1), senders: None, largest: None };
    let (came, mut joined) = mpsc::unbounded_channel();
    let mut tell = |event| {
        if matches!(event, anabranch::upload::AcceptEvent::NeighbourCame(_)) {
            came.send(()).unwrap();
        }
    };
    let (honest, replaying) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let (honest_key, replaying_key) = (honest.public(), replaying.public());
    let state = StateDirectory::create(directory.join("state")).unwrap();
    let mut ledger = Ledger::open(&state, honest.clone()).unwrap();
    let honest = Endpoint::bind(EndpointOptions::new(honest)).unwrap();
    let replaying = Endpoint::bind(EndpointOptions::new(replaying)).unwrap();
    let sharing = ShareOptions {
        trust: Trust::Admitted,
        rate: None,
        volume: None,
        time: None,
        air: None,
        repeat: Vec::new(),
        air_rates: None,
        radio: None,
    };
    let (connect, at) = (ConnectOptions::default(), || peer.clone());
    let mut heed = |_| {};
    let sharing = share(&honest, &at, &connect, &sharing, &mut ledger, &mut heed);
    let sending = async {
        for _ in 0..2 {
            joined.recv().await.unwrap();
        }
        let options = UploadOptions {
            on_air: true,
            air: None,
            air_rate: BitRate(40_000_000),
            air_rates: None,
            // Over the loopback interface it would bring everything.
            own_uplink: false,
        };
        let key = KeyPair::generate().unwrap();
        let source = Endpoint::bind(EndpointOptions::new(key.clone())).unwrap();
        upload(&source, &at, &connect, &key, &file, &options, &mut |_| {}).await.unwrap()
    };
    let transfer = async {
        let accepting = accept(&destination, &options, &mut tell);
        let (accepted, sent) = tokio::join!(accepting, sending);
        accepted.unwrap();
        sent
    };
    let replays = replay(&replaying, &peer, lan);
    let both = async { tokio::join!(transfer, replays) };
    let (sent, replays) = tokio::select! {
        both = tokio::time::timeout(LIMIT, both) => both.unwrap(),
        shared = sharing => panic!("the honest one has ended: {shared:?}"),
    };
    assert!(fs::read(into.join("file")).unwrap() == fs::read(&file).unwrap());
    assert_eq!(fs::read_dir(&into).unwrap().count(), 1, "nothing is left beside it");
    (sent, honest_key, replaying_key, replays)
}

#[test]
fn what_is_brought_again_counts_once_and_costs_no_one_else() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: not root");
        return;
    }
    let (homes, other) = (Namespace::anonymous().unwrap(), Namespace::anonymous().unwrap());
    homes.join(&other, "lan", "end").unwrap();
    homes.add_address("lan", "192.168.7.1/24".parse().unwrap()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let run = || {
        let shown = std::process::Command::new("ip").args(["-o", "link", "show", "lan"]).output().unwrap();
        let lan = String::from_utf8_lossy(&shown.stdout).split(':').next().unwrap().parse().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(send(directory.path(), lan))
    };
    let (sent, honest, replaying, replays) = homes.run(run).unwrap();
    assert_eq!((sent.size, sent.shares.own), (SIZE, 0));
    let brought: BTreeMap<PublicKey, u64> = sent.shares.neighbours.iter().copied().collect();
    let told = format!("{brought:?} with {replays} replays");
    assert!(replays > 1_000, "{told}");
    assert!(brought[&replaying] > 0 && brought[&honest] * 4 > SIZE, "{told}");
    assert!(brought.values().sum::<u64>() <= SIZE + 1_380, "what was brought again counts: {told}");
}
