//! A server that says everything again, and a client: `cargo run -p anabranch --example echo`.
//!
//! Both ends are in one process here; on two machines the client needs the server's key and one of its addresses.

use anabranch::{Admission, ConnectOptions, Endpoint, EndpointOptions, Peer};
use identity::KeyPair;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let key = KeyPair::generate()?;
    let public = key.public();
    let server = Endpoint::bind(EndpointOptions::listening(key, 0, Admission::Anybody))?;
    let listener = server.listen();
    let addresses = server.addresses();
    tokio::spawn(async move {
        while let Ok(incoming) = listener.accept().await {
            let (mut reader, mut writer) = tokio::io::split(incoming.stream);
            tokio::io::copy(&mut reader, &mut writer).await?;
            writer.shutdown().await?;
        }
        Ok::<_, std::io::Error>(())
    });

    let client = Endpoint::bind(EndpointOptions::new(KeyPair::generate()?))?;
    let mut stream = client.connect(&Peer { key: public, addresses }, &ConnectOptions::default()).await?;
    println!("connected to {} by {:?}", stream.peer(), stream.standing().adapter);
    stream.write_all(b"hello").await?;
    stream.finish().await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    println!("it says: {text}");
    client.close().await;
    Ok(())
}
