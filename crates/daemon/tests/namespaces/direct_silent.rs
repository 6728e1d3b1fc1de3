//! Networks that die without a sign: the cable stays in, and nothing beyond the first hop answers any more.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use policy::network::Reach;

use crate::bed::{Bed, Daemon, SERVER_V4, within};
use crate::direct::{bed, calls, started, third_octet};
use crate::direct_metrics::{report, web};
use crate::scenarios::nft;

/// It takes some ten seconds on a machine that is at rest.
const FOUND: Duration = Duration::from_secs(20);
/// Being asked again comes less often then.
const BACK: Duration = Duration::from_secs(90);

/// Direct mode with a server that answers its probes.
fn probed() -> (Bed, Daemon) {
    let bed = bed();
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
        if third_octet(peer) == network {
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
                by.store(third_octet(peer), Ordering::Relaxed);
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
    let (mut download, mut source) = over(&bed, 0, 8_201);
    let (mut other, mut other_end) = over(&bed, 1, 8_202);
    let echo = Echo::start(&bed, 0, 8_203);
    std::thread::spawn(move || {
        while source.write_all(&[7; 20_000]).is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    download.set_read_timeout(Some(BACK)).unwrap();
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        loop {
            match download.read(&mut buffer) {
                Ok(count) if count > 0 => {}
                outcome => return (outcome, Instant::now()),
            }
        }
    });
    std::thread::sleep(Duration::from_secs(4));
    let died = Instant::now();
    swallow(&bed);
    within(FOUND, "the network is found dead", || report(&bed, 0).reach == Reach::Nothing);
    println!("found dead after {:?}", died.elapsed());
    let (outcome, at) = reader.join().unwrap();
    println!("the download failed after {:?}: {outcome:?}", at - died);
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::ConnectionAborted);
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

pub fn forwarded_flows_of_a_network_that_goes_get_a_reset() {
    let bed = bed();
    let inside = crate::direct::behind(&bed);
    bed.write_config("device", "[device]\ndns = \"off\"\nprobe = \"off\"\n");
    let _daemon = started(&bed);
    let address = SocketAddr::new(SERVER_V4.parse().unwrap(), 8_207);
    let listener = bed.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let mut open = [None, None];
    for _ in 0..64 {
        if open.iter().all(Option::is_some) {
            break;
        }
        let call = inside.run(|| TcpStream::connect_timeout(&address, BACK)).unwrap().unwrap();
        let (answer, peer) = listener.accept().unwrap();
        open[usize::from(third_octet(peer))] = Some((call, answer));
    }
    let [Some((dying, _end)), Some((mut living, mut living_end))] = open else { panic!("{open:?}") };
    bed.gateway.set_up("lan0", false).unwrap();
    within(FOUND, "the flow of the LAN is reset", || {
        // Each try is a packet, to which the reset is the answer.
        let outcome = (&dying).write(b"hello");
        outcome.is_err_and(|error| matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe))
    });
    living.write_all(b"still here").unwrap();
    living_end.read_exact(&mut [0; 10]).unwrap();
    let again = inside.run(|| TcpStream::connect_timeout(&address, BACK)).unwrap();
    again.unwrap();
    assert_eq!(listener.accept().unwrap().1.ip(), "10.1.1.2".parse::<IpAddr>().unwrap());
}
