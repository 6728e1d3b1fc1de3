//! Who a node is, and how it proves what it says.

use ring::digest::{Context, SHA256};
use wire::mesh::{Node, NodeId, Signature};

/// Signs with this node's key, and checks what others have signed. The pure router knows no cryptography of its own.
pub trait Signer: Send {
    /// This node's signature of a message.
    fn sign(&self, message: &[u8]) -> Signature;

    /// Whether the key's owner has signed the message.
    fn has_signed(&self, key: &[u8; 32], message: &[u8], signature: &Signature) -> bool;
}

/// The short name of a node: the first 16 bytes of SHA-256 over a label, its key and its port. Finding another key with
/// the same one takes about 2^128 tries.
pub fn node_id(node: &Node) -> NodeId {
    let mut context = Context::new(&SHA256);
    context.update(b"anabranch mesh node");
    context.update(&node.key);
    context.update(&node.port.to_be_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(context.finish().as_ref().get(..16).unwrap_or(&[0; 16]));
    NodeId(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_one_key_are_nodes_of_their_own() {
        let node = Node { key: [1; 32], port: 4_610 };
        assert_eq!(node_id(&node), node_id(&node));
        assert_ne!(node_id(&node), node_id(&Node { port: 4_611, ..node }));
        assert_ne!(node_id(&node), node_id(&Node { key: [2; 32], ..node }));
    }
}
