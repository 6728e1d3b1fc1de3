//! A file that goes up through a neighbour, all on this machine: a destination, a neighbour and a source, each with a key of its own.
//!
//! ```text
//! cargo run -p anabranch --example upload -- FILE DIRECTORY
//! ```
//!
//! What is for neighbours goes out on a LAN of this machine, if it has one; without one all goes by the source's own way.

use std::error::Error;
use std::path::Path;

use anabranch::upload::{AcceptOptions, Ledger, ShareOptions, Trust, UploadOptions, accept, share, upload};
use anabranch::{Admission, ConnectOptions, Endpoint, EndpointOptions, Peer};
use identity::{KeyPair, StateDirectory};
use units::BitRate;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, directory] = arguments.as_slice() else { return Err("say FILE and DIRECTORY".into()) };
    let key = KeyPair::generate()?;
    let peer = Peer { key: key.public(), addresses: vec!["127.0.0.1:4699".parse()?] };
    let destination = Endpoint::bind(EndpointOptions::listening(key, 4_699, Admission::Anybody))?;
    let (own, neighbour) = (KeyPair::generate()?, KeyPair::generate()?);
    let source = Endpoint::bind(EndpointOptions::new(own.clone()))?;
    let helper = Endpoint::bind(EndpointOptions::new(neighbour.clone()))?;
    let state = StateDirectory::create(Path::new(directory).join("neighbour"))?;
    let mut ledger = Ledger::open(&state, neighbour)?;
    let accepted =
        AcceptOptions { directory: directory.into(), count: Some(1), senders: None, largest: None };
    let shared = ShareOptions {
        trust: Trust::Keys(vec![own.public()]),
        rate: None,
        volume: None,
        time: None,
        air: None,
        repeat: Vec::new(),
        air_rates: None,
        radio: None,
    };
    let sent = UploadOptions {
        on_air: true,
        air: None,
        air_rate: BitRate(20_000_000),
        air_rates: None,
        own_uplink: true,
    };
    let (place, connect) = (|| peer.clone(), ConnectOptions::default());
    let (mut accept_tells, mut share_tells) =
        (|event| println!("accept: {event:?}"), |event| println!("share: {event:?}"));
    let mut upload_tells = |event| println!("upload: {event:?}");
    let accepting = accept(&destination, &accepted, &mut accept_tells);
    let sharing = share(&helper, &place, &connect, &shared, &mut ledger, &mut share_tells);
    let uploading = upload(&source, &place, &connect, &own, Path::new(file), &sent, &mut upload_tells);
    tokio::select! {
        outcome = async { tokio::try_join!(async { Ok(accepting.await?) }, async { Ok::<_, Box<dyn Error>>(uploading.await?) }) } => {
            println!("{:?}", outcome?.1);
        }
        ended = sharing => println!("the neighbour ended: {ended:?}"),
    }
    Ok(())
}
