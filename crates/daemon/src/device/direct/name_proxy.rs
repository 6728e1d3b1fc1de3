//! A DNS server for this machine only, which passes questions on and learns from the answers.
//!
//! Rules by domain name need it: the address must be known to the kernel's table before the program that asked connects there. So
//! an answer that concerns a rule is held back until the table is in place. Programs that encrypt their DNS questions are not seen.
//! Questions for peers' names are answered here, and never passed on.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use tracing::warn;

use super::names::{Lesson, read_answer};

/// Where it listens: an address of this machine that nobody else has.
pub const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 86, 53));
const PORT: u16 = 53;

/// Its sockets, opened while the process is still root.
#[derive(Debug)]
pub struct Sockets {
    udp: UdpSocket,
    tcp: TcpListener,
}

impl Sockets {
    /// Opens them.
    ///
    /// # Errors
    /// If another program has the port, or this one may not have it.
    pub fn open() -> io::Result<Self> {
        let address = SocketAddr::new(ADDRESS, PORT);
        Ok(Self { udp: UdpSocket::bind(address)?, tcp: TcpListener::bind(address)? })
    }
}

/// The servers that questions are passed on to, best first.
#[derive(Clone, Debug, Default)]
pub struct Upstream(Arc<RwLock<Vec<IpAddr>>>);

impl Upstream {
    /// Uses these from now on.
    pub fn set(&self, servers: Vec<IpAddr>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = servers;
    }

    fn get(&self) -> Vec<IpAddr> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What is known here of a name: an answer to the question, or nothing.
pub type Local = Arc<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync>;

/// What is done with a lesson before the answer goes on: returns once the kernel knows.
pub type Learn = Arc<dyn Fn(Lesson) + Send + Sync>;

/// Serves on threads of its own until the process ends.
///
/// # Errors
/// If no thread can be started.
pub fn start(sockets: Sockets, upstream: Upstream, learn: Learn, local: Local) -> io::Result<()> {
    let Sockets { udp, tcp } = sockets;
    let busy = Arc::new(AtomicUsize::new(0));
    let udp = Arc::new(udp);
    let (upstream_tcp, learn_tcp, busy_tcp) = (upstream.clone(), learn.clone(), busy.clone());
    let local_tcp = local.clone();
    thread::Builder::new().name("names".to_owned()).spawn(move || {
        let mut buffer = vec![0; MAXIMUM_MESSAGE];
        loop {
            let Ok((length, client)) = udp.recv_from(&mut buffer) else { continue };
            let question = buffer[..length].to_vec();
            if let Some(answer) = local(&question) {
                drop(udp.send_to(&answer, client));
                continue;
            }
            let (udp, upstream, learn) = (udp.clone(), upstream.clone(), learn.clone());
            in_thread(&busy, move || {
                if let Some(answer) = ask_by_udp(&question, &upstream.get()) {
                    teach(&answer, &learn);
                    drop(udp.send_to(&answer, client));
                }
            });
        }
    })?;
    thread::Builder::new().name("names-tcp".to_owned()).spawn(move || {
        loop {
            let Ok((client, _)) = tcp.accept() else {
                thread::sleep(PAUSE);
                continue;
            };
            let (upstream, learn, local) = (upstream_tcp.clone(), learn_tcp.clone(), local_tcp.clone());
            in_thread(&busy_tcp, move || drop(serve_by_tcp(client, &upstream.get(), &learn, &local)));
        }
    })?;
    Ok(())
}

/// Runs `work` beside other questions; a flood of them is dropped, and asked again.
fn in_thread(busy: &Arc<AtomicUsize>, work: impl FnOnce() + Send + 'static) {
    if busy.fetch_add(1, Ordering::Relaxed) >= MAXIMUM_QUESTIONS {
        busy.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let own = busy.clone();
    let spawned = thread::Builder::new().name("question".to_owned()).stack_size(STACK).spawn(move || {
        work();
        own.fetch_sub(1, Ordering::Relaxed);
    });
    if let Err(error) = spawned {
        busy.fetch_sub(1, Ordering::Relaxed);
        warn!("a name cannot be looked up: {error}");
    }
}

fn teach(answer: &[u8], learn: &Learn) {
    if let Some(lesson) = read_answer(answer) {
        learn(lesson);
    }
}

fn ask_by_udp(question: &[u8], servers: &[IpAddr]) -> Option<Vec<u8>> {
    let id = question.first_chunk::<2>()?;
    servers.iter().find_map(|server| {
        let local = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(local).ok()?;
        socket.connect((*server, PORT)).ok()?;
        socket.set_read_timeout(Some(PATIENCE)).ok()?;
        socket.send(question).ok()?;
        let mut answer = vec![0; MAXIMUM_MESSAGE];
        let length = socket.recv(&mut answer).ok()?;
        answer.truncate(length);
        (answer.first_chunk::<2>() == Some(id)).then_some(answer)
    })
}

/// Passes one question after the other on (RFC 7766), over one connection to the first server that takes it.
fn serve_by_tcp(mut client: TcpStream, servers: &[IpAddr], learn: &Learn, local: &Local) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    let mut connected = None;
    for _ in 0..MAXIMUM_QUESTIONS {
        let question = read_message(&mut client)?;
        if let Some(answer) = local(&question) {
            write_message(&mut client, &answer)?;
            continue;
        }
        let server = match &mut connected {
            Some(server) => server,
            None => connected.insert(connect(servers)?),
        };
        write_message(server, &question)?;
        let answer = read_message(server)?;
        teach(&answer, learn);
        write_message(&mut client, &answer)?;
    }
    Ok(())
}

fn connect(servers: &[IpAddr]) -> io::Result<TcpStream> {
    let connected = servers
        .iter()
        .find_map(|server| TcpStream::connect_timeout(&SocketAddr::new(*server, PORT), PATIENCE).ok());
    let server = connected.ok_or(io::ErrorKind::HostUnreachable)?;
    server.set_read_timeout(Some(PATIENCE))?;
    Ok(server)
}

fn read_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut message)?;
    Ok(message)
}

fn write_message(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    stream.write_all(&[&length.to_be_bytes()[..], message].concat())
}

const MAXIMUM_MESSAGE: usize = 4_096;
const MAXIMUM_QUESTIONS: usize = 64;
const STACK: usize = 128 * 1024;
const PATIENCE: Duration = Duration::from_secs(2);
/// After a connection that could not be taken, as when no descriptor is left.
const PAUSE: Duration = Duration::from_millis(100);
