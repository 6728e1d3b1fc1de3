//! Prints the test vectors of docs/mesh.md: `cargo run -p anabranch-mesh --example vectors > docs/mesh-vectors.json`.

use std::error::Error;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use identity::KeyPair;
use wire::mesh::{
    DataHeader, Hello, LinkAddress, Node, PURPOSE, Reply, Request, RequestId, RouteError, Sequence, Signature,
};

fn main() -> Result<(), Box<dyn Error>> {
    print!("{}", vectors()?);
    Ok(())
}

/// All vectors as JSON.
///
/// # Errors
/// If the cryptography is missing.
pub fn vectors() -> Result<String, Box<dyn Error>> {
    let (near, far) = (KeyPair::from_private([1; 32])?, KeyPair::from_private([2; 32])?);
    let node = |pair: &KeyPair, port| Node { key: pair.public().0, port };
    let (near_node, far_node) = (node(&near, 40_000), node(&far, 4_610));
    let (near_id, far_id) = (mesh::node_id(&near_node), mesh::node_id(&far_node));
    let signed = |pair: &KeyPair, bytes: &[u8]| Signature(pair.sign(PURPOSE, bytes));
    let unsigned = Signature([0; 64]);
    let (id, sequence) = (RequestId(0x0102_0304), Sequence(0x0a0b_0c0d));

    let mut data = Vec::new();
    DataHeader { hops_left: 35, destination: far_id, source: near_id }.put(&mut data);
    data.extend(b"sealed");
    let request = Request {
        hop_count: 3,
        reach: 5,
        id,
        sequence,
        originator: near_node,
        destination: far_id,
        signature: unsigned,
    };
    let request = Request { signature: signed(&near, &request.signed_bytes()), ..request };
    let reply = Reply {
        hop_count: 1,
        id,
        originator: near_id,
        sequence,
        lifetime_ms: 10_000,
        destination: far_node,
        signature: unsigned,
    };
    let reply = Reply { signature: signed(&far, &reply.signed_bytes()), ..reply };
    let error = RouteError { sequence, node: near_node, lost: vec![far_id], signature: unsigned };
    let error = RouteError { signature: signed(&near, &error.signed_bytes()), ..error };
    let hello = Hello {
        asks: true,
        relays: true,
        sequence,
        node: near_node,
        addresses: vec![
            LinkAddress::V4(Ipv4Addr::new(192, 0, 2, 1), 40_000),
            LinkAddress::V6(Ipv6Addr::LOCALHOST, 40_000),
            LinkAddress::Bluetooth([1, 2, 3, 4, 5, 6], 0x1003),
        ],
        signature: unsigned,
    };
    let hello = Hello { signature: signed(&near, &hello.signed_bytes()), ..hello };

    let mut text = String::from(
        "{\n  \"about\": \"Test vectors of docs/mesh.md. Bytes are hexadecimal. Printed by: cargo run -p anabranch-mesh --example vectors\",\n  \"nodes\": [\n",
    );
    let nodes = [("near", [1; 32], near_node, near_id), ("far", [2; 32], far_node, far_id)];
    for (at, (name, private, node, id)) in nodes.iter().enumerate() {
        let (private, public, id) = (hex(private), hex(&node.key), hex(&id.0));
        let comma = if at + 1 < nodes.len() { "," } else { "" };
        writeln!(
            text,
            "    {{ \"name\": \"{name}\", \"private\": \"{private}\", \"public\": \"{public}\", \"port\": {}, \"id\": \"{id}\" }}{comma}",
            node.port
        )?;
    }
    text.push_str("  ],\n  \"messages\": [\n");
    let messages = [
        ("data", "from near to far, 35 hops left, \\\"sealed\\\"", data),
        ("request", "near looks for far, passed on three times, reaches 5 hops", request.encode()),
        ("reply", "far answers it, passed on once, believed for 10 s", reply.encode()),
        ("error", "near does not reach far any more", error.encode()),
        ("hello", "near asks and relays, 192.0.2.1, ::1 and a Bluetooth controller", hello.encode()),
    ];
    for (at, (name, meaning, bytes)) in messages.iter().enumerate() {
        let comma = if at + 1 < messages.len() { "," } else { "" };
        let bytes = hex(bytes);
        writeln!(
            text,
            "    {{ \"name\": \"{name}\", \"meaning\": \"{meaning}\", \"bytes\": \"{bytes}\" }}{comma}"
        )?;
    }
    text.push_str("  ]\n}\n");
    Ok(text)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
