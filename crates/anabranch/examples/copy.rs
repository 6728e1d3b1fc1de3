//! Copies standard input to a peer, or from a peer to standard output, with threads that block:
//!
//! ```text
//! cargo run -p anabranch --example copy -- listen 4700
//! cargo run -p anabranch --example copy -- call KEY ADDRESS:4700 < FILE
//! ```

use std::error::Error;
use std::io::{self, Write};

use anabranch::blocking::Endpoint;
use anabranch::{Admission, ConnectOptions, EndpointOptions, Peer};
use identity::KeyPair;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let key = KeyPair::generate()?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["listen", port] => {
            eprintln!("key {}", key.public());
            let options = EndpointOptions::listening(key, port.parse()?, Admission::Anybody);
            let endpoint = Endpoint::bind(options)?;
            io::copy(&mut endpoint.listen().accept()?, &mut io::stdout().lock())?;
            io::stdout().flush()?;
            endpoint.close();
        }
        ["call", key_text, address] => {
            let endpoint = Endpoint::bind(EndpointOptions::new(key))?;
            let events = endpoint.events();
            std::thread::spawn(move || events.for_each(|event| eprintln!("{:?}", event.kind)));
            let peer = Peer { key: key_text.parse()?, addresses: vec![address.parse()?] };
            let mut stream = endpoint.connect(&peer, &ConnectOptions::default())?;
            io::copy(&mut io::stdin().lock(), &mut stream)?;
            stream.finish()?;
            endpoint.close();
        }
        _ => return Err("say listen PORT, or call KEY ADDRESS:PORT".into()),
    }
    Ok(())
}
