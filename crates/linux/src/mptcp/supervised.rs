//! Unmodified programs whose TCP sockets are made MPTCP ones while they ask for them, static and Go programs included.
//!
//! A filter of system calls tells of each `socket` and `connect`. For the first the program is given a socket that we have made; before the
//! second goes on, its socket is bound to the address of a network, so that it does not get any0's. Whatever fails leaves the
//! program with the socket that it would have had, and what has left for another network namespace is let alone: a socket of ours would lead out of it.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::notifications::{self, Call, Listener, Told};
use crate::signals::EndSignals;
use crate::system_call::{check, set_integer_option};

/// A program that runs supervised.
#[derive(Debug)]
pub struct Supervised {
    child: Child,
    listener: Listener,
}

impl Supervised {
    /// Starts `command`. Takes no privileges; nothing that it starts gains any by being set-user-ID.
    ///
    /// # Errors
    /// If it cannot be run, or the kernel (before Linux 5.14) or a sandbox refuses the filter.
    #[expect(unsafe_code, reason = "the filter must be set between fork and exec")]
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let (told, tell) = io::pipe()?;
        let (go, going) = io::pipe()?;
        let mut ends = Some((tell, go));
        let set_filter = move || {
            let (mut tell, mut go) = ends.take().ok_or(io::ErrorKind::Other)?;
            let listener = notifications::filter()?;
            let mut word = [0; 8];
            word[..4].copy_from_slice(&std::process::id().to_ne_bytes());
            word[4..].copy_from_slice(&listener.to_ne_bytes());
            tell.write_all(&word)?;
            // It closes at exec, so not before the parent has it.
            let mut answer = [0];
            go.read_exact(&mut answer)?;
            if answer == [TAKEN] { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
        };
        // SAFETY: only makes system calls: no allocation, no locks.
        unsafe { command.pre_exec(set_filter) };
        // `spawn` returns after exec, so another thread has to take the listener.
        let taking = std::thread::spawn(move || take_listener(told, going));
        let child = command.spawn();
        // The command keeps its copies of the pipes' ends; only with them gone does the thread hear that nobody tells.
        *command = Command::new("");
        let listener = taking.join().map_err(|_| io::Error::other("the thread that listens panicked"))?;
        Ok(Self { child: child?, listener: listener? })
    }

    /// Serves the program until it ends and tells how it did; what it has left running is served by a process of its own. `source` names the
    /// address with which a connection is to begin; `None` leaves it to the kernel.
    ///
    /// # Errors
    /// If the kernel cannot be asked any more.
    pub fn serve(
        mut self,
        signals: &EndSignals,
        mut source: impl FnMut(SocketAddr) -> Option<IpAddr>,
    ) -> io::Result<ExitStatus> {
        let process = notifications::process(self.child.id())?;
        let own = network_namespace("thread-self")?;
        let (mut ended, mut in_use) = (None, true);
        while ended.is_none() || in_use {
            let [calls, program, signalled] = notifications::wait([
                in_use.then(|| self.listener.as_fd()),
                ended.is_none().then(|| process.as_fd()),
                Some(signals.as_fd()),
            ])?;
            match calls {
                Told::Ready => {
                    if let Some(call) = self.listener.receive()? {
                        self.answer(&call, own, &mut source);
                    }
                }
                Told::End => in_use = false,
                Told::Nothing => {}
            }
            if program != Told::Nothing {
                let status = self.child.wait()?;
                if in_use && go_on_alone()? == Side::Parent {
                    return Ok(status);
                }
                ended = Some(status);
            }
            if signalled == Told::Ready {
                match signals.take() {
                    // The terminal has told the program itself.
                    None | Some(libc::SIGINT) => {}
                    Some(signal) if ended.is_none() => tell(self.child.id(), signal),
                    Some(_) => break,
                }
            }
        }
        Ok(ended.unwrap_or_else(|| ExitStatus::from_raw(0)))
    }

    /// Answers a call; what goes wrong with one is no matter of the next.
    fn answer(
        &self,
        call: &Call,
        own: NetworkNamespace,
        source: &mut impl FnMut(SocketAddr) -> Option<IpAddr>,
    ) {
        match self.improve(call, own, source) {
            Ok(Improved::Answered) => return,
            Ok(Improved::GoesOn) => {}
            // A program that has no room for a further descriptor is one of them; it is told so by its own call.
            Err(error) => tracing::debug!("a connection begins as the kernel likes: {error}"),
        }
        if let Err(error) = self.listener.go_on(call) {
            tracing::debug!("a call was not answered: {error}");
        }
    }

    fn improve(
        &self,
        call: &Call,
        own: NetworkNamespace,
        source: &mut impl FnMut(SocketAddr) -> Option<IpAddr>,
    ) -> io::Result<Improved> {
        if network_namespace(&call.thread.to_string())? != own {
            return Ok(Improved::GoesOn);
        }
        if call.number != libc::SYS_socket {
            return prepare(&self.listener, call, source).map(|()| Improved::GoesOn);
        }
        // Had the thread's number passed to another, the answer would find no call that waits.
        let [family, kind, ..] = call.arguments.map(|argument| argument as i32);
        let socket = Socket::new_raw(Domain::from(family), Type::from(kind), Some(Protocol::MPTCP))?;
        heed_marks(&socket);
        let close_on_exec = kind & libc::SOCK_CLOEXEC != 0;
        self.listener.answer_with(call, socket.as_fd(), close_on_exec).map(|()| Improved::Answered)
    }
}

/// What became of a call.
enum Improved {
    Answered,
    GoesOn,
}

/// The device and inode of one.
type NetworkNamespace = (u64, u64);

/// That of a thread, by its name in `/proc`.
fn network_namespace(thread: &str) -> io::Result<NetworkNamespace> {
    let found = std::fs::metadata(format!("/proc/{thread}/ns/net"))?;
    Ok((found.dev(), found.ino()))
}

/// Marks must count, or steering by them does nothing: a congestion control that ignores single ones (BBR) is replaced by CUBIC, which every kernel has.
fn heed_marks(socket: &Socket) {
    let ignores = |name: &[u8]| name.starts_with(b"bbr");
    if socket.tcp_congestion().is_ok_and(|name| ignores(&name)) {
        // Kernels before 5.15 cannot; then what we send is not steered.
        drop(socket.set_tcp_congestion(b"cubic"));
    }
}

/// Binds the MPTCP socket of a `connect` that has no address yet.
fn prepare(
    listener: &Listener,
    call: &Call,
    source: &mut impl FnMut(SocketAddr) -> Option<IpAddr>,
) -> io::Result<()> {
    let [descriptor, place, length, ..] = call.arguments;
    let Some(destination) = notifications::address_of(call.thread, place, length)? else { return Ok(()) };
    let socket = notifications::descriptor_of(call.thread, descriptor as i32)?;
    if !listener.waits(call) {
        return Ok(());
    }
    if SockRef::from(&socket).protocol()? != Some(Protocol::MPTCP) {
        return Ok(());
    }
    let real = SocketAddr::new(destination.ip().to_canonical(), destination.port());
    let Some(address) = source(real) else { return Ok(()) };
    let address = match (destination, address) {
        (SocketAddr::V6(_), IpAddr::V4(v4)) => IpAddr::V6(v4.to_ipv6_mapped()),
        _ => address,
    };
    // A port is chosen at connect, when the far end is known; kernels that cannot choose it now.
    drop(set_integer_option(socket.as_fd(), libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1));
    // Refused if the program has bound it itself, which is its choice.
    SockRef::from(&socket).bind(&SocketAddr::new(address, 0).into())
}

fn take_listener(mut told: PipeReader, mut going: PipeWriter) -> io::Result<Listener> {
    let mut word = [0; 8];
    told.read_exact(&mut word)?;
    let [a, b, c, d, e, f, g, h] = word;
    let process = u32::from_ne_bytes([a, b, c, d]);
    let listener = notifications::descriptor_of(process, i32::from_ne_bytes([e, f, g, h]));
    // The child waits for either.
    going.write_all(&[if listener.is_ok() { TAKEN } else { REFUSED }])?;
    listener.map(Listener::new)
}

const TAKEN: u8 = 1;
const REFUSED: u8 = 0;

#[derive(PartialEq, Eq)]
enum Side {
    Parent,
    Child,
}

/// A process of its own goes on from here, in no terminal's foreground.
#[expect(unsafe_code, reason = "fork has no safe wrapper")]
fn go_on_alone() -> io::Result<Side> {
    // SAFETY: the only other threads of this process have ended or do not matter to the child: it allocates and polls on.
    match check(unsafe { libc::fork() })? {
        0 => {
            // SAFETY: plain system call.
            unsafe { libc::setsid() };
            Ok(Side::Child)
        }
        _ => Ok(Side::Parent),
    }
}

#[expect(unsafe_code, reason = "kill has no safe wrapper in the standard library")]
fn tell(process: u32, signal: i32) {
    // SAFETY: plain system call; the process is our child and was not waited for.
    unsafe { libc::kill(process as i32, signal) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mptcp::why_not;
    use crate::privileges::supervisor::{Exit, in_child};
    use crate::test_namespace::{joined_pair, may_test};

    #[test]
    fn a_shells_sockets_speak_mptcp_from_the_address_that_was_chosen() {
        if !may_test() {
            return;
        }
        if let Some(why) = why_not() {
            eprintln!("skipped: {why}");
            return;
        }
        let (left, right) = joined_pair();
        left.add_address("cable", "10.77.0.7/24".parse().unwrap()).unwrap();
        let server = right.run(|| std::net::TcpListener::bind("10.77.0.2:0").unwrap()).unwrap();
        let port = server.local_addr().unwrap().port();
        // In a process of its own: signals are held back there.
        let status = left.run(|| {
            in_child(|| {
                // The second connection is made by a process that outlives its parent.
                let script = format!(
                    "exec 3<>/dev/tcp/10.77.0.2/{port}; (sleep 0.2; exec 4<>/dev/tcp/10.77.0.2/{port}) & exit 7"
                );
                let program = Supervised::start(Command::new("bash").args(["-c", &script])).unwrap();
                let signals = EndSignals::catch().unwrap();
                let chosen: IpAddr = "10.77.0.7".parse().unwrap();
                let status = program.serve(&signals, |to| (to.port() == port).then_some(chosen)).unwrap();
                std::process::exit(status.code().unwrap());
            })
        });
        for _ in 0..2 {
            let (_, from) = server.accept().unwrap();
            assert_eq!(from.ip(), "10.77.0.7".parse::<IpAddr>().unwrap(), "only MPTCP sockets are bound");
        }
        assert_eq!(status.unwrap().unwrap().wait().unwrap(), Exit::Code(7));
    }

    /// How a shell ends that runs `script` supervised, where PORT is that of a server at 10.77.0.2.
    fn ends(script: &str) -> Exit {
        ends_where(script, || {})
    }

    /// The same where `set_up` was run in its network namespace before.
    fn ends_where(script: &str, set_up: impl FnOnce() + Send + 'static) -> Exit {
        let (left, right) = joined_pair();
        left.run(set_up).unwrap();
        let server = right.run(|| std::net::TcpListener::bind("10.77.0.2:0").unwrap()).unwrap();
        let script = script.replace("PORT", &server.local_addr().unwrap().port().to_string());
        let status = left.run(|| {
            in_child(|| {
                let program = Supervised::start(Command::new("bash").args(["-c", &script])).unwrap();
                let status = program.serve(&EndSignals::catch().unwrap(), |_| None);
                // A panic would not end this process.
                std::process::exit(status.ok().and_then(|status| status.code()).unwrap_or(1));
            })
        });
        status.unwrap().unwrap().wait().unwrap()
    }

    #[test]
    fn a_sender_that_ignores_marks_gets_the_usual_congestion_control() {
        if !may_test() || why_not().is_some() {
            return;
        }
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
        socket.set_tcp_congestion(b"reno").unwrap();
        heed_marks(&socket);
        let name = || socket.tcp_congestion().unwrap();
        assert!(name().starts_with(b"reno"), "it heeds them");
        if let Err(error) = socket.set_tcp_congestion(b"bbr") {
            eprintln!("skipped: this kernel has no BBR: {error}");
            return;
        }
        heed_marks(&socket);
        assert!(name().starts_with(b"cubic"), "{:?}", name());
    }

    #[test]
    fn where_bbr_is_the_systems_choice_a_programs_sockets_heed_marks() {
        const SYSTEMS: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
        if !may_test() || why_not().is_some() {
            return;
        }
        let (own, _) = joined_pair();
        if let Err(error) = own.run(|| std::fs::write(SYSTEMS, "bbr")).unwrap() {
            eprintln!("skipped: this kernel has no BBR: {error}");
            return;
        }
        let script = "exec 3<>/dev/tcp/10.77.0.2/PORT || exit 3
            grep -qx bbr /proc/sys/net/ipv4/tcp_congestion_control || exit 4
            ss --tcp --info --no-header dst 10.77.0.2 >/dev/null || exit 5
            ss --tcp --info --no-header dst 10.77.0.2 | grep -w bbr && exit 6
            ss --tcp --info --no-header dst 10.77.0.2 | grep -qw cubic && exit 7";
        assert_eq!(ends_where(script, || std::fs::write(SYSTEMS, "bbr").unwrap()), Exit::Code(7));
    }

    #[test]
    fn a_program_without_a_free_descriptor_goes_on_and_connects_again_later() {
        if !may_test() || why_not().is_some() {
            return;
        }
        let script = "ulimit -n 8; to=/dev/tcp/10.77.0.2/PORT
            for n in 3 4 5 6 7; do eval \"exec $n<>$to\" || exit 3; done
            exec 8<>$to && exit 4
            exec 7>&-; exec 7<>$to || exit 5
            exit 7";
        assert_eq!(ends(script), Exit::Code(7));
    }

    #[test]
    fn what_has_left_for_another_network_namespace_is_not_led_out_of_it() {
        if !may_test() || why_not().is_some() {
            return;
        }
        let script = "to=/dev/tcp/10.77.0.2/PORT; exec 3<>$to || exit 3
            unshare -n bash -c \"exec 4<>$to || exit 9\"; [ $? = 9 ] || exit 4
            exit 7";
        assert_eq!(ends(script), Exit::Code(7));
    }

    #[test]
    fn a_supervisor_without_a_free_descriptor_lets_calls_go_on() {
        if !may_test() || why_not().is_some() {
            return;
        }
        // The first connection shows that it serves.
        let script = "to=/dev/tcp/10.77.0.2/PORT; exec 3<>$to || exit 3
            prlimit --pid $PPID --nofile=3:3 || exit 4
            exec 4<>$to || exit 5
            exec 5<>$to || exit 6
            exit 7";
        assert_eq!(ends(script), Exit::Code(7));
    }

    #[test]
    fn a_call_whose_thread_was_killed_waits_no_more_and_is_no_error() {
        let script = ["-c", "exec 3<>/dev/tcp/127.0.0.1/9"];
        let mut program = Supervised::start(Command::new("bash").args(script)).unwrap();
        let call = program.listener.receive().unwrap().unwrap();
        assert!(program.listener.waits(&call));
        program.child.kill().unwrap();
        program.child.wait().unwrap();
        assert!(!program.listener.waits(&call));
        program.listener.go_on(&call).unwrap();
    }

    #[test]
    fn a_command_that_is_not_there_is_an_error() {
        let failed = Supervised::start(&mut Command::new("/no/such/program")).unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::NotFound);
    }
}
