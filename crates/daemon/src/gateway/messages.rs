//! What the gateway's threads say to each other.

use std::net::SocketAddr;
use std::sync::mpsc::SyncSender;

use anabranch::control::{PathReport, Status, Traffic, UnixMillis};
use bond::{IncomingId, PublicKey};
use units::Bytes;
use wire::request::Sibling;

use super::admission::{Admitted, Standing};
use super::parts::{Arrival, Given};

/// To the loop of a part.
pub enum Command {
    /// The answer to a device, and who it is if it is let in.
    Answer {
        /// The device's wait.
        id: IncomingId,
        /// Its key.
        peer: PublicKey,
        /// What to tell it.
        payload: Vec<u8>,
        /// Who it is.
        admitted: Option<Box<Admitted>>,
    },
    /// What is the state of things?
    Status(SyncSender<Status>),
    /// Who is connected?
    Connected(SyncSender<Vec<ConnectedClient>>),
    /// This is what all clients may carry; who is not among them was revoked.
    Standings(Vec<Standing>),
    /// This is what one client may carry.
    Allow(Standing),
    /// These are the other gateways that share the registry.
    Siblings(Vec<Sibling>),
    /// Have counted what was carried until now: other limits may hold.
    Count,
    /// End the sessions of this key: it was revoked.
    Revoke(PublicKey),
    /// The client with this key has come to another part: what it had here before is over.
    Moved(PublicKey, Arrival),
    /// What has come to another part and is for this one.
    Given(Given),
    /// Say goodbye to all and end.
    Stop,
    /// The same where another version of this program goes on at once.
    Renew,
}

/// One connected client.
#[derive(Clone, PartialEq, Debug)]
pub struct ConnectedClient {
    /// Its key.
    pub key: PublicKey,
    /// Since when.
    pub since: UnixMillis,
    /// Where its paths come from.
    pub paths: Vec<SocketAddr>,
    /// The same paths as this end sees them.
    pub outward: Vec<PathReport>,
    /// What went to and from it.
    pub traffic: Traffic,
}

/// To the watcher.
#[derive(Debug)]
pub enum Task {
    /// May this device in?
    Admit {
        /// Number of the part where it waits.
        part: usize,
        /// Its wait.
        id: IncomingId,
        /// Its key.
        peer: PublicKey,
        /// What it said.
        payload: Vec<u8>,
    },
    /// A client was heard of.
    Seen(PublicKey),
    /// This is what clients have carried since the last time.
    Count(Vec<(PublicKey, Bytes)>),
    /// This key was revoked.
    Forget(PublicKey),
    /// The loop of a part has ended.
    LoopEnded(Result<(), String>),
}
