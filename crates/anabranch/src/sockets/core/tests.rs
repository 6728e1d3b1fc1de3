//! What cannot be seen from outside: two endpoints over the loopback adapter, looked into under their lock.

use bond::SessionEvent;
use identity::KeyPair;
use linux::clock;
use units::MacAddress;

use super::super::beside::MachineBeside;
use super::super::endpoint::Endpoint;
use super::super::event::EventKind;
use super::super::listener::VirtualListener;
use super::super::options::{Admission, ConnectOptions, EndpointOptions, Peer};
use super::super::stream::VirtualStream;

/// Who has called, whom, the connection, and what takes it.
async fn connected() -> (Endpoint, Endpoint, VirtualStream, VirtualListener) {
    let key = KeyPair::generate().unwrap();
    let public = key.public();
    let server = Endpoint::bind(EndpointOptions::listening(key, 0, Admission::Anybody)).unwrap();
    let listener = server.listen();
    let addresses = server.addresses().into_iter().filter(|address| address.is_loopback()).collect();
    let client = Endpoint::bind(EndpointOptions::new(KeyPair::generate().unwrap())).unwrap();
    let peer = Peer { key: public, addresses };
    let stream = client.connect(&peer, &ConnectOptions::default()).await.unwrap();
    (client, server, stream, listener)
}

/// Another program of the peer's may listen there: it would take the conversation for one that the peer has forgotten.
#[tokio::test]
async fn who_may_be_beside_is_no_address_of_a_live_conversation() {
    let (client, _server, stream, _listener) = connected().await;
    let hints = || -> usize {
        let core = client.shared().lock();
        core.conversations.values().map(|known| known.hints.len()).sum()
    };
    let before = hints();
    let device = MacAddress([0, 0x11, 0x22, 0x33, 0x44, 0x55]);
    let machine = MachineBeside { key: stream.peer(), device, relay_port: 4_612, ports: vec![4_612] };
    client.beside(&machine);
    assert_eq!(hints(), before);
    client.shared().lock().beside.call_all(clock::now());
    assert_eq!(client.shared().lock().beside.called(clock::now()).len(), 1);
    let address = "bt:00:11:22:33:44:55:4612".parse().unwrap();
    client.hint(&Peer { key: stream.peer(), addresses: vec![address] });
    assert_eq!(hints(), before + 1);
}

/// A session that took another one's place may have no usable path at first; the connection is none the newer for it.
#[tokio::test]
async fn a_path_that_comes_after_a_session_took_over_tells_of_no_new_connection() {
    let (client, _server, stream, _listener) = connected().await;
    let mut events = client.events();
    {
        let mut core = client.shared().lock();
        let known = core.conversations.get_mut(&stream.conversation()).unwrap();
        let (session, network) = (known.session, known.active.take().unwrap());
        known.paths.clear();
        core.on_session_event(clock::now(), session, SessionEvent::PathUp(network));
    }
    assert!(matches!(events.next().await.unwrap().kind, EventKind::On { .. }));
}
