//! To which network a socket belongs.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;

use crate::system_call::errno;

/// What a carrier's socket is tied to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BindTo {
    /// The only interface it may use; `None` lets the routes choose.
    pub interface: Option<String>,
    /// Local address and port; unspecified and 0 let the kernel choose. Its family is the socket's.
    pub local: SocketAddr,
    /// Firewall mark of its packets, by which rules tell them from the applications'; `None` for none.
    pub mark: Option<u32>,
}

/// Why a socket could not be opened.
#[derive(Debug, Error)]
#[error("cannot open a {kind} socket for {local}{}: {step}: {error}{}",
    interface.as_deref().map(|name| format!(" on {name}")).unwrap_or_default(), hint(error))]
pub struct BindError {
    kind: &'static str,
    local: SocketAddr,
    interface: Option<String>,
    step: &'static str,
    /// The kernel's error.
    pub error: io::Error,
}

fn hint(error: &io::Error) -> &'static str {
    match errno(error) {
        libc::EPERM => "; it takes CAP_NET_ADMIN, run as root",
        libc::EADDRINUSE => "; another program has this port, choose another one",
        libc::EADDRNOTAVAIL => "; no interface has this address",
        _ => "",
    }
}

impl BindTo {
    /// A non-blocking socket of `kind` with interface, mark and address set.
    pub(crate) fn open(&self, kind: Type) -> Result<Socket, BindError> {
        self.open_with(kind, |_| Ok(()))
    }

    /// The same; `prepare` is called just before the socket gets its address.
    pub(crate) fn open_with(
        &self,
        kind: Type,
        prepare: impl FnOnce(&Socket) -> io::Result<()>,
    ) -> Result<Socket, BindError> {
        let (protocol, name) =
            if kind == Type::DGRAM { (Protocol::UDP, "UDP") } else { (Protocol::TCP, "TCP") };
        let fail = |step| move |error| self.failed(name, step, error);
        let socket = Socket::new(Domain::for_address(self.local), kind.nonblocking(), Some(protocol))
            .map_err(fail("open"))?;
        if self.local.is_ipv6() {
            socket.set_only_v6(true).map_err(fail("restrict to IPv6"))?;
        }
        if let Some(interface) = &self.interface {
            socket.bind_device(Some(interface.as_bytes())).map_err(fail("tie to the interface"))?;
        }
        if let Some(mark) = self.mark {
            socket.set_mark(mark).map_err(fail("set the mark"))?;
        }
        if kind == Type::STREAM {
            socket.set_reuse_address(true).map_err(fail("share the address with closing connections"))?;
        }
        prepare(&socket).map_err(fail("prepare"))?;
        socket.bind(&self.local.into()).map_err(fail("bind"))?;
        Ok(socket)
    }

    /// A TCP connection to `remote`, of the same family as the local address, that is there within `patience`. Blocks.
    ///
    /// # Errors
    /// [`BindError`] with the step "connect" if nobody answered, or the step that failed before.
    pub fn connect_tcp(&self, remote: SocketAddr, patience: Duration) -> Result<TcpStream, BindError> {
        let socket = self.open(Type::STREAM)?;
        socket
            .connect_timeout(&remote.into(), patience)
            .and_then(|()| socket.set_nonblocking(false))
            .map_err(|error| self.failed("TCP", "connect", error))?;
        Ok(socket.into())
    }

    pub(crate) fn failed(&self, kind: &'static str, step: &'static str, error: io::Error) -> BindError {
        BindError { kind, local: self.local, interface: self.interface.clone(), step, error }
    }
}
