//! The real program on a pseudo-terminal, against a real control server of a device that is made up.
#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

#[path = "../../daemon/examples/made_up/mod.rs"]
mod made_up;
mod program;

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anabranch::control::{BlockingClient, Role};
use daemon::control::{Callers, ControlServer};
use identity::StateDirectory;
use made_up::MadeUp;
use program::Program;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

const PATIENCE: Duration = Duration::from_secs(20);
const BLINK: Duration = Duration::from_millis(10);

fn serve(program: &Program) -> ControlServer {
    let state = StateDirectory::create(program.state.clone()).unwrap();
    let callers = Callers::of_state(&state, None).unwrap();
    ControlServer::start(&state, callers, Arc::new(MadeUp::new(Role::Device, 4, &state).unwrap())).unwrap()
}

/// `anabranch top` in a terminal, and what that shows.
struct Watched {
    child: Child,
    keyboard: File,
    is_open: Arc<AtomicBool>,
    /// The program's end of the terminal, kept open to see how it is left.
    line: File,
    before: Termios,
    written: Receiver<Vec<u8>>,
    shown: vt100::Parser,
}

impl Watched {
    fn start(program: &Program, (columns, rows): (u16, u16), variables: &[(&str, &str)]) -> Self {
        let keyboard: OwnedFd =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap().into_string().unwrap();
        let no_control = OFlags::NOCTTY.bits().cast_signed();
        let line = File::options().read(true).write(true).custom_flags(no_control).open(name).unwrap();
        tcsetwinsize(&line, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let before = tcgetattr(&line).unwrap();
        let mut command = program.command();
        command.arg("top").env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR");
        command.envs(variables.iter().copied());
        let end = || line.try_clone().unwrap();
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        // Whoever waits in a read holds the terminal open.
        fcntl_setfl(&keyboard, fcntl_getfl(&keyboard).unwrap() | OFlags::NONBLOCK).unwrap();
        let keyboard = File::from(keyboard);
        let mut screen = keyboard.try_clone().unwrap();
        let is_open = Arc::new(AtomicBool::new(true));
        let still_open = Arc::clone(&is_open);
        let (sender, written) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while still_open.load(Ordering::Relaxed) {
                match screen.read(&mut bytes) {
                    Ok(count @ 1..) => drop(sender.send(bytes[..count].to_vec())),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(BLINK),
                    _ => return,
                }
            }
        });
        let shown = vt100::Parser::new(rows.try_into().unwrap(), columns.try_into().unwrap(), 0);
        Self { child, keyboard, is_open, line, before, written, shown }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen has all of this.
    fn shows(&mut self, parts: &[&str]) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let text = self.shown.screen().contents();
            if parts.iter().all(|part| text.contains(part)) {
                return text;
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.written.recv_timeout(left) {
                Ok(bytes) => self.shown.process(&bytes),
                Err(_) => panic!("{parts:?} is not shown:\n{text}"),
            }
        }
    }

    /// Waits for the end of the program; the terminal must be as it was.
    fn ends(&mut self) -> ExitStatus {
        let status = wait(&mut self.child);
        while let Ok(bytes) = self.written.recv_timeout(Duration::from_millis(200)) {
            self.shown.process(&bytes);
        }
        let screen = self.shown.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor());
        let after = tcgetattr(&self.line).unwrap();
        assert_eq!(format!("{after:?}"), format!("{:?}", self.before));
        status
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // It has ended, or the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait(child: &mut Child) -> ExitStatus {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < end, "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn keys_change_the_device_and_the_screen_follows() {
    let program = Program::new();
    let server = serve(&program);
    let mut watched = Watched::start(&program, (80, 24), &[]);
    watched.shows(&["van (device) is up: data flows", "[1 Networks]", "wlan0", "carries data"]);
    assert!(watched.shown.screen().alternate_screen());

    watched.press("j+");
    watched.shows(&["wlan0 until the daemon ends: priority 1"]);
    let client = BlockingClient::of_state(&program.state).unwrap();
    let priorities =
        || -> Vec<u8> { client.networks().unwrap().iter().map(|network| network.priority.0).collect() };
    assert_eq!(priorities(), [0, 1, 0, 0]);

    // The arrow key's own sequence; and what interrupts is done only after a yes.
    watched.press("\u{1b}[B");
    watched.shows(&["> wwan0"]);
    watched.press("o");
    watched.shows(&["Switch wwan0 off?"]);
    watched.press("n");
    watched.shows(&["nothing was changed"]);
    assert!(!client.networks().unwrap()[2].off);
    watched.press("oy");
    watched.shows(&["switched off", "wwan0 was changed"]);
    assert!(client.networks().unwrap()[2].off);

    watched.press("2");
    watched.shows(&["[2 Flows]", "1000 flows"]);
    watched.press("h");
    watched.shows(&["New flows to", "direct, over eth0"]);
    watched.press("\r");
    watched.shows(&["pin-1: to 198.51.100."]);
    watched.press("6");
    watched.shows(&["[6 Rules]", "pin-1", "DECIDES"]);
    watched.press("d");
    watched.shows(&["pin-1 is removed", "No rules"]);

    // The daemon goes, and another one comes.
    watched.press("1");
    drop(server);
    watched.shows(&["NO ANSWER since", "eth0"]);
    let _server = serve(&program);
    watched.shows(&["van (device) is up", "the daemon has started"]);
    watched.press("q");
    assert!(watched.ends().success());
}

#[test]
fn signals_and_a_lost_terminal_end_it_in_order() {
    let program = Program::new();
    let _server = serve(&program);
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130)] {
        let mut watched = Watched::start(&program, (80, 24), &[]);
        watched.shows(&["data flows"]);
        let process = Pid::from_child(&watched.child);
        kill_process(process, signal).unwrap();
        assert_eq!(watched.ends().code(), Some(code));
    }
    let mut watched = Watched::start(&program, (60, 15), &[("TERM", "dumb"), ("LC_ALL", "C")]);
    let text = watched.shows(&["data flows", "suspect"]);
    assert!(text.is_ascii(), "{text}");
    // An ssh connection that breaks.
    watched.is_open.store(false, Ordering::Relaxed);
    watched.keyboard = File::open("/dev/null").unwrap();
    watched.line = File::open("/dev/null").unwrap();
    assert!(wait(&mut watched.child).code().is_some());
}

#[test]
fn without_a_daemon_it_waits_and_without_a_terminal_it_says_no() {
    let program = Program::new();
    program.run(&["top"]).fails(2, "standard output is none");
    let mut watched = Watched::start(&program, (80, 24), &[]);
    watched.shows(&["NO ANSWER since", "no daemon is running here"]);
    let _server = serve(&program);
    watched.shows(&["van (device) is up"]);
    watched.press("\u{3}");
    assert!(watched.ends().success());
}
