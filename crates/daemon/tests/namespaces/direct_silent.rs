//! Networks that die without a sign: the cable stays in, and nothing beyond the first hop answers any more.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linux::netns::Namespace;
use policy::network::Reach;

use crate::bed::{Bed, Daemon, SERVER_V4, SERVER_V6, eventually, within};
use crate::direct::{LivingFlows, bed, behind, calls, dual, listing, network_of, read_on, started};
use crate::direct_metrics::{report, web};
use crate::scenarios::nft;

/// It takes some ten seconds on a machine that is at rest.
const FOUND: Duration = Duration::from_secs(20);
/// Being asked again comes less often then.
const BACK: Duration = Duration::from_secs(90);

/// Direct mode with a server that answers its probes.
fn probed() -> (Bed, Daemon) {
    probed_on(bed())
}

fn probed_on(bed: Bed) -> (Bed, Daemon) {
    web(&bed, &Arc::new(AtomicBool::new(true)));
    let probe = format!("http://{SERVER_V4}:8100/");
    bed.write_config("device", &format!("[device]\ndns = \"off\"\nprobe = \"{probe}\"\n"));
    let daemon = started(&bed);
    within(BACK, "both networks answer", || {
        (0..2).all(|network| report(&bed, network).reach == Reach::Internet)
    });
    (bed, daemon)
}

fn swallow(bed: &Bed) {
    nft(
        &bed.gateway,
        "table inet swallow { chain forward { type filter hook forward priority 0; iifname lan0 drop; oifname lan0 drop; }; }",
    );
}

/// Calls until one takes the network with this number; both ends.
fn over(bed: &Bed, network: u8, port: u16) -> (TcpStream, TcpStream) {
    let address = SocketAddr::new(SERVER_V4.parse().unwrap(), port);
    let listener = bed.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
    for _ in 0..64 {
        let call = bed.device.run(|| TcpStream::connect(address)).unwrap().unwrap();
        let (answer, peer) = listener.accept().unwrap();
        if network_of(peer) == network {
            return (call, answer);
        }
    }
    panic!("no flow takes network {network}");
}

/// A program that asks the server by UDP five times a second, from one socket, until the bed is gone.
struct Echo {
    /// The network by which the last question came, and when the last answer did.
    network: Arc<AtomicU8>,
    answers: UdpSocket,
}

impl Echo {
    fn start(bed: &Bed, network: u8, port: u16) -> Self {
        let address = SocketAddr::new(SERVER_V4.parse().unwrap(), port);
        let server = bed.server.run(|| UdpSocket::bind(address)).unwrap().unwrap();
        let seen = Arc::new(AtomicU8::new(u8::MAX));
        let by = seen.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((length, peer)) = server.recv_from(&mut buffer) {
                by.store(network_of(peer), Ordering::Relaxed);
                drop(server.send_to(&buffer[..length], peer));
            }
        });
        for _ in 0..64 {
            let socket = bed.device.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
            socket.connect(address).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            socket.send(b"which").unwrap();
            socket.recv(&mut [0; 512]).unwrap();
            if seen.load(Ordering::Relaxed) == network {
                let asking = socket.try_clone().unwrap();
                std::thread::spawn(move || {
                    loop {
                        // Refused while its network goes.
                        drop(asking.send(&[7; 200]));
                        std::thread::sleep(Duration::from_millis(200));
                    }
                });
                return Self { network: seen, answers: socket };
            }
        }
        panic!("no flow takes network {network}");
    }

    /// Waits until questions come by this network and are answered.
    fn moves_to(&self, network: u8) {
        let limit = Duration::from_millis(500);
        self.answers.set_read_timeout(Some(limit)).unwrap();
        within(FOUND, "the UDP flow takes the other network", || {
            self.network.load(Ordering::Relaxed) == network && self.answers.recv(&mut [0; 512]).is_ok()
        });
    }
}

pub fn a_network_that_dies_silently_in_use_is_left_within_seconds() {
    let (bed, _daemon) = probed();
    let (download, mut source) = over(&bed, 0, 8_201);
    let (mut other, mut other_end) = over(&bed, 1, 8_202);
    let echo = Echo::start(&bed, 0, 8_203);
    std::thread::spawn(move || {
        while source.write_all(&[7; 20_000]).is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let reader = read_on(download);
    std::thread::sleep(Duration::from_secs(4));
    let died = Instant::now();
    swallow(&bed);
    within(FOUND, "the network is found dead", || report(&bed, 0).reach == Reach::Nothing);
    println!("found dead after {:?}", died.elapsed());
    let (error, at) = reader.join().unwrap();
    println!("the download failed after {:?}: {error}", at - died);
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
    assert!(at - died < FOUND, "{:?}", at - died);
    echo.moves_to(1);
    println!("the UDP flow moved after {:?}", died.elapsed());
    assert_eq!(calls(&bed, 4), [(1, 4)].into());
    other.write_all(b"still here").unwrap();
    other_end.read_exact(&mut [0; 10]).unwrap();

    nft(&bed.gateway, "delete table inet swallow");
    within(BACK, "it is found again", || report(&bed, 0).reach == Reach::Internet);
    within(BACK, "and used", || calls(&bed, 4).contains_key(&0));
}

/// No TCP connection shows it: questions go out and nothing comes in.
pub fn a_silent_network_is_noticed_by_datagrams_alone() {
    let (bed, _daemon) = probed();
    let echo = Echo::start(&bed, 0, 8_204);
    std::thread::sleep(Duration::from_secs(4));
    let died = Instant::now();
    swallow(&bed);
    echo.moves_to(1);
    println!("the UDP flow moved after {:?}", died.elapsed());
    assert_eq!(report(&bed, 0).reach, Reach::Nothing);
}

/// A network that never answered a probe may let everything else through: what is open there stays open.
pub fn flows_live_on_where_probes_are_blocked_on_one_network() {
    let bed = bed();
    web(&bed, &Arc::new(AtomicBool::new(true)));
    nft(
        &bed.gateway,
        "table inet block { chain forward { type filter hook forward priority 0; iifname lan0 tcp dport 8100 drop; }; }",
    );
    let probe = format!("http://{SERVER_V4}:8100/");
    bed.write_config("device", &format!("[device]\ndns = \"off\"\nprobe = \"{probe}\"\n"));
    let _daemon = started(&bed);
    let (mut call, mut answer) = over(&bed, 0, 8_205);
    within(BACK, "one answers, the other does not", || {
        report(&bed, 0).reach == Reach::Nothing && report(&bed, 1).reach == Reach::Internet
    });
    // What would be ended is ended by now.
    std::thread::sleep(Duration::from_secs(2));
    call.write_all(b"still here").unwrap();
    answer.read_exact(&mut [0; 10]).unwrap();
    answer.write_all(b"me too").unwrap();
    call.read_exact(&mut [0; 6]).unwrap();
}

/// A UDP flow, and one of a LAN behind the device, whose network loses its cable.
pub fn udp_moves_when_a_network_goes() {
    let bed = bed();
    bed.write_config("device", "[device]\ndns = \"off\"\nprobe = \"off\"\n");
    let _daemon = started(&bed);
    let echo = Echo::start(&bed, 0, 8_206);
    bed.gateway.set_up("lan0", false).unwrap();
    echo.moves_to(1);
}

/// What a host of a LAN does that only receives: it sends nothing that a reset could be the answer to.
struct Downloads {
    dying: Vec<JoinHandle<(std::io::Error, Instant)>>,
    living: Vec<(TcpStream, TcpStream)>,
    /// Held open.
    _idle_ends: Vec<TcpStream>,
}

impl Downloads {
    fn begin(bed: &Bed) -> (Namespace, Self) {
        let inside = behind(bed);
        eventually("flows of the LAN are looked for", || {
            listing(&bed.device).contains("filter hook prerouting")
        });
        let (mut dying, mut living, mut idle_ends) = (Vec::new(), Vec::new(), Vec::new());
        for server in [SERVER_V4, SERVER_V6] {
            // One that data comes in on, and one that rests.
            let [(reader, mut source), other] = LivingFlows::open(bed, &inside, server, 8_207).over;
            std::thread::spawn(move || {
                while source.write_all(&[7; 20_000]).is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            let [(resting, end), _] = LivingFlows::open(bed, &inside, server, 8_208).over;
            idle_ends.push(end);
            living.push(other);
            dying.extend([read_on(reader), read_on(resting)]);
        }
        (inside, Self { dying, living, _idle_ends: idle_ends })
    }

    fn end_with_their_network(mut self, gone: Instant) {
        for reader in self.dying {
            let (error, at) = reader.join().unwrap();
            println!("{error} after {:?}", at - gone);
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
            assert!(at - gone < Duration::from_secs(10), "{:?}", at - gone);
        }
        self.living.iter_mut().for_each(LivingFlows::talk);
    }
}

pub fn downloads_of_a_lan_end_with_their_network() {
    let bed = dual();
    bed.write_config("device", "[device]\ndns = \"off\"\nprobe = \"off\"\n");
    let _daemon = started(&bed);
    let (inside, downloads) = Downloads::begin(&bed);
    bed.gateway.set_up("lan0", false).unwrap();
    downloads.end_with_their_network(Instant::now());
    for server in [SERVER_V4, SERVER_V6] {
        let address = SocketAddr::new(server.parse().unwrap(), 8_209);
        let listener = bed.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
        for _ in 0..4 {
            let again = inside.run(|| TcpStream::connect_timeout(&address, BACK)).unwrap();
            again.unwrap();
            assert_eq!(network_of(listener.accept().unwrap().1), 1);
        }
    }
}

/// What a host sends again and again without an answer is no sign of life.
pub fn uploads_of_a_lan_show_that_their_network_fell_silent() {
    let (bed, _daemon) = probed_on(dual());
    let inside = behind(&bed);
    eventually("flows of the LAN are looked for", || listing(&bed.device).contains("filter hook prerouting"));
    let [(mut upload, mut sink), _other] = LivingFlows::open(&bed, &inside, SERVER_V4, 8_210).over;
    std::thread::spawn(move || while sink.read(&mut [0; 65_536]).is_ok_and(|count| count > 0) {});
    let sender = std::thread::spawn(move || {
        loop {
            if let Err(error) = upload.write_all(&[7; 5_000]) {
                return (error, Instant::now());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    std::thread::sleep(Duration::from_secs(4));
    swallow(&bed);
    within(FOUND, "the network is found dead", || report(&bed, 0).reach == Reach::Nothing);
    let found = Instant::now();
    let (error, at) = sender.join().unwrap();
    assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
    println!("{error} {:?} after it was found", at.saturating_duration_since(found));
    assert!(at < found + Duration::from_secs(10));
}

pub fn downloads_of_a_lan_end_when_their_network_falls_silent() {
    let (bed, _daemon) = probed_on(dual());
    let (_inside, downloads) = Downloads::begin(&bed);
    std::thread::sleep(Duration::from_secs(4));
    swallow(&bed);
    within(FOUND, "the network is found dead", || report(&bed, 0).reach == Reach::Nothing);
    downloads.end_with_their_network(Instant::now());
}
