//! Handing an open socket to the daemon, which ties it to a network (`SCM_RIGHTS`, unix(7)).

use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::{ClientError, Failure, sockets_name};

/// Ties an IPv4 or IPv6 socket to `network` of the daemon whose interface is `interface` (`any0` unless configured): what
/// it opens from now on leaves by that network and by no other. To be called before the socket is connected.
///
/// Any user may. The daemon must run in the same network namespace.
///
/// # Errors
/// Any [`ClientError`]; `NotFound` if there is no such network.
pub fn pin_socket(socket: impl AsFd, network: &str, interface: &str) -> Result<(), ClientError> {
    let name = sockets_name(interface);
    let address = SocketAddr::from_abstract_name(name.as_bytes())?;
    let mut stream = UnixStream::connect_addr(&address).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => ClientError::NotRunning(PathBuf::from(format!("@{name}"))),
        _ => ClientError::Io(error),
    })?;
    // Anybody may take an abstract name before a daemon does.
    let server = socket_peercred(&stream).map_err(io::Error::from)?.uid;
    if !server.is_root() && server != rustix::process::geteuid() {
        return Err(ClientError::Answer(format!("@{name} is held by user {}, not by root", server.as_raw())));
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let descriptors = [socket.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let text = format!("{network}\n");
    let sent = sendmsg(&stream, &[IoSlice::new(text.as_bytes())], &mut control, SendFlags::NOSIGNAL)
        .map_err(io::Error::from)?;
    if sent != text.len() {
        return Err(io::Error::from(io::ErrorKind::WriteZero).into());
    }
    let mut answer = Vec::new();
    stream.by_ref().take(LONGEST_ANSWER).read_to_end(&mut answer)?;
    let answer: Option<Failure> =
        serde_json::from_slice(&answer).map_err(|error| ClientError::Answer(error.to_string()))?;
    answer.map_or(Ok(()), |failure| Err(ClientError::Failed(failure)))
}

const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST_ANSWER: u64 = 4_096;
