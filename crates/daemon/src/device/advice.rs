//! Asks the radio of this machine, if one runs, what its access points are worth.
//!
//! The radio is a daemon of its own, which shares the device's state directory but for a directory below it. A device without a radio looks
//! for its socket once in a while, and nothing else.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anabranch::control::{AccessPointReport, BlockingClient, SOCKET_NAME};
use identity::StateDirectory;
use policy::steering::MarkShare;
use tracing::warn;

use super::messages::{Command, PointAdvice};
use crate::mailbox::Mailbox;

/// The radio's state, below the device's.
const RADIO_DIRECTORY: &str = "radio";
/// How often a radio is asked that is at several access points.
const OFTEN: Duration = Duration::from_millis(200);
/// How often one that is not, or one that does not run.
const SELDOM: Duration = Duration::from_secs(3);

/// Where the radio of a device answers.
pub(super) fn radio_socket(state: &StateDirectory) -> PathBuf {
    state.file(RADIO_DIRECTORY).join(SOCKET_NAME)
}

/// Begins to ask, on a thread of its own that ends with the process.
pub(super) fn start(state: &StateDirectory, commands: Mailbox<Command>) {
    let socket = radio_socket(state);
    let started =
        thread::Builder::new().name("radio advice".to_owned()).spawn(move || ask(&socket, &commands));
    if let Err(error) = started {
        warn!("the radio's advice is not heard: {error}");
    }
}

fn ask(socket: &Path, commands: &Mailbox<Command>) {
    let mut told = Vec::new();
    let mut client = None;
    loop {
        if client.is_none() && socket.exists() {
            client = BlockingClient::new(socket).ok();
        }
        let answer = client.as_ref().map(BlockingClient::radio_access_points);
        if !matches!(answer, Some(Ok(_))) {
            client = None;
        }
        let advice = answer.and_then(Result::ok).map(|points| advice(&points)).unwrap_or_default();
        let several = advice.len() > 1;
        if advice != told && commands.post(Command::Advice(advice.clone())) {
            told = advice;
        }
        thread::sleep(if several { OFTEN } else { SELDOM });
    }
}

/// What the reports say of the networks that the radio is in.
fn advice(points: &[AccessPointReport]) -> Vec<PointAdvice> {
    let joined = points.iter().filter_map(|point| Some((point, point.interface.clone()?)));
    joined
        .map(|(point, interface)| PointAdvice {
            interface,
            used: point.used,
            limit: point.limit,
            marks: MarkShare::new(point.marks.0),
            packet_time: point.held_packet_time.map(|time| Duration::from_micros(time.0)),
        })
        .collect()
}
