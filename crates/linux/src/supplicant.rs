//! wpa_supplicant, unmodified: it keeps one network on one station interface of the kernel.
//!
//! It runs with the rights of the process that starts it, reads its configuration from a pipe (keys are never in a file or in its
//! arguments) and tells by its control socket what becomes of the network. It ends with the thread that started it.
#![expect(
    unsafe_code,
    reason = "what a program is to do between fork and exec is unsafe in the standard library"
)]

use std::env;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use thiserror::Error;
use units::{Frequency, MacAddress};

use crate::system_call::check;

/// Directory of the control sockets, below the one that [`Supplicant::start`] is given; for the configuration (`ctrl_interface`).
pub const CONTROL_DIRECTORY: &str = "supplicant";

/// Why it was not started.
#[derive(Debug, Error)]
pub enum SupplicantError {
    /// It is not installed.
    #[error(
        "the program wpa_supplicant is missing; install it: apt install wpasupplicant, dnf install wpa_supplicant"
    )]
    Missing,
    /// It could not be run, or not be told its configuration.
    #[error("cannot run wpa_supplicant: {0}")]
    Run(#[from] io::Error),
}

/// What it says of its network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said {
    /// All keys are there: data can flow. [`Control::ask_status`] tells more.
    Connected,
    /// No longer.
    Disconnected {
        /// The reason code of IEEE 802.11-2020, table 9-49, if it told one.
        reason: Option<u16>,
    },
    /// It will not try for a while.
    Refused {
        /// The key is most probably wrong.
        wrong_key: bool,
    },
    /// The access point refuses the association.
    Rejected {
        /// The status code of IEEE 802.11-2020, table 9-50, if it told one.
        status: Option<u16>,
    },
    /// The network does not accept the login (802.1X).
    LoginRefused,
    /// Who posed as the network did not show a certificate that is vouched for.
    Untrusted,
    /// No access point of the network is heard.
    NotFound,
    /// The card could not look, and it does not try again.
    LookFailed,
    /// The answer to [`Control::ask_status`].
    Status(Status),
    /// Anything else.
    Other,
}

/// How its network is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// Data can flow.
    pub completed: bool,
    /// The access point.
    pub bssid: Option<MacAddress>,
    /// Its channel.
    pub frequency: Option<Frequency>,
}

/// A running wpa_supplicant.
pub struct Supplicant {
    child: Child,
    /// Where its control socket is to be.
    path: PathBuf,
}

/// Its control socket.
pub struct Control(UnixDatagram);

impl Supplicant {
    /// The file of the program, where the shell or an administrator would find it.
    ///
    /// # Errors
    /// [`SupplicantError::Missing`].
    pub fn program() -> Result<PathBuf, SupplicantError> {
        let path = env::var_os("PATH").unwrap_or_default();
        let directories = env::split_paths(&path).chain(SYSTEM_DIRECTORIES.map(PathBuf::from));
        let mut files = directories.map(|directory| directory.join("wpa_supplicant"));
        files.find(|file| file.is_file()).ok_or(SupplicantError::Missing)
    }

    /// Starts it for `interface` in `directory`, which this process has open and may write to. Needs CAP_NET_ADMIN and CAP_NET_RAW,
    /// which it must be able to inherit.
    ///
    /// # Errors
    /// [`SupplicantError`].
    pub fn start(interface: &str, directory: &File, configuration: &str) -> Result<Self, SupplicantError> {
        let descriptor = directory.as_raw_fd();
        let parent = std::process::id();
        let mut command = Command::new(Self::program()?);
        command.args(["-D", "nl80211", "-c", "/proc/self/fd/0", "-i", interface]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: only system calls are made, which take numbers.
        unsafe {
            command.pre_exec(move || {
                check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong))?;
                if libc::getppid().cast_unsigned() != parent {
                    return Err(io::ErrorKind::NotConnected.into());
                }
                check(libc::fchdir(descriptor)).map(drop)
            });
        }
        let mut child = command.spawn()?;
        if let Some(mut input) = child.stdin.take()
            && let Err(error) = input.write_all(configuration.as_bytes())
        {
            drop(child.kill());
            drop(child.wait());
            return Err(error.into());
        }
        let path = PathBuf::from(format!("/proc/self/fd/{descriptor}/{CONTROL_DIRECTORY}/{interface}"));
        Ok(Self { child, path })
    }

    /// Its control socket, which it makes a moment after its start.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] or [`io::ErrorKind::ConnectionRefused`] until then.
    pub fn control(&self) -> io::Result<Control> {
        let mut random = [0; 16];
        io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut random)?;
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        // A name for its answers that leaves no file. Once connected, nobody else can write to it.
        let own = SocketAddr::from_abstract_name(format!("anabranch-{name}"))?;
        let socket = UnixDatagram::bind_addr(&own)?;
        socket.connect(&self.path)?;
        socket.set_nonblocking(true)?;
        socket.send(b"ATTACH")?;
        Ok(Control(socket))
    }

    /// How it ended, if it has, in words.
    pub fn ended(&mut self) -> Option<String> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(status.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Has it say good-bye to its access point, and ends it.
    pub fn end(mut self) {
        // SAFETY: plain system call; the number is that of our own child, which we have not waited for yet.
        unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGTERM) };
        let deadline = Instant::now() + PARTING;
        while Instant::now() < deadline && self.ended().is_none() {
            std::thread::sleep(PAUSE);
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Control {
    /// Asks for a [`Said::Status`].
    ///
    /// # Errors
    /// If it is gone.
    pub fn ask_status(&self) -> io::Result<()> {
        self.0.send(b"STATUS").map(drop)
    }

    /// Has it look for no access point until told to.
    ///
    /// # Errors
    /// If it is gone.
    pub fn rest(&self) -> io::Result<()> {
        self.0.send(b"DISCONNECT").map(drop)
    }

    /// Has it look for one again after [`rest`](Self::rest).
    ///
    /// # Errors
    /// If it is gone.
    pub fn go_on(&self) -> io::Result<()> {
        self.0.send(b"RECONNECT").map(drop)
    }

    /// Has it look for an access point on one frequency now, unless it looks already, or joins one. If the card is busy it says [`Said::LookFailed`], and
    /// looks no more until told to.
    ///
    /// # Errors
    /// If it is gone.
    pub fn look(&self, frequency: Frequency) -> io::Result<()> {
        self.0.send(format!("SCAN freq={}", frequency.0).as_bytes()).map(drop)
    }

    /// Has it begin anew to look for one, everywhere and again and again.
    ///
    /// # Errors
    /// If it is gone.
    pub fn look_anew(&self) -> io::Result<()> {
        self.0.send(b"REASSOCIATE").map(drop)
    }

    /// The next thing that it says; never blocks.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if it says nothing now; any other if it is gone.
    pub fn read(&self) -> io::Result<Said> {
        let mut buffer = [0; LONGEST];
        let length = self.0.recv(&mut buffer)?;
        Ok(parse(&String::from_utf8_lossy(&buffer[..length])))
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Events are `<3>NAME rest`; an answer is lines of `key=value`.
fn parse(text: &str) -> Said {
    let Some((_, event)) = text.strip_prefix('<').and_then(|rest| rest.split_once('>')) else {
        return if text.contains("wpa_state=") { Said::Status(parse_status(text)) } else { Said::Other };
    };
    let number = |key: &str| {
        let value = event.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='))?;
        value.parse::<u16>().ok()
    };
    match event.split(' ').next().unwrap_or_default() {
        "CTRL-EVENT-CONNECTED" => Said::Connected,
        "CTRL-EVENT-DISCONNECTED" => Said::Disconnected { reason: number("reason") },
        "CTRL-EVENT-SSID-TEMP-DISABLED" => Said::Refused { wrong_key: event.contains("reason=WRONG_KEY") },
        "CTRL-EVENT-ASSOC-REJECT" | "CTRL-EVENT-AUTH-REJECT" => {
            Said::Rejected { status: number("status_code") }
        }
        "CTRL-EVENT-EAP-FAILURE" => Said::LoginRefused,
        "CTRL-EVENT-EAP-TLS-CERT-ERROR" => Said::Untrusted,
        "CTRL-EVENT-NETWORK-NOT-FOUND" => Said::NotFound,
        "CTRL-EVENT-SCAN-FAILED" if number("retry") != Some(1) => Said::LookFailed,
        _ => Said::Other,
    }
}

fn parse_status(text: &str) -> Status {
    let mut status = Status::default();
    for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
        match key {
            "wpa_state" => status.completed = value == "COMPLETED",
            "bssid" => status.bssid = value.parse().ok(),
            "freq" => status.frequency = value.parse().ok().map(Frequency),
            _ => {}
        }
    }
    status
}

const SYSTEM_DIRECTORIES: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
/// It answers in less than this.
const LONGEST: usize = 4_096;
/// For a deauthentication frame and its acknowledgement.
const PARTING: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_says_is_understood() {
        let connected = "<3>CTRL-EVENT-CONNECTED - Connection to 02:00:00:00:01:00 completed [id=0 id_str=]";
        assert_eq!(parse(connected), Said::Connected);
        let left = "<3>CTRL-EVENT-DISCONNECTED bssid=02:00:00:00:01:00 reason=3 locally_generated=1";
        assert_eq!(parse(left), Said::Disconnected { reason: Some(3) });
        let wrong = "<3>CTRL-EVENT-SSID-TEMP-DISABLED id=0 ssid=\"home\" auth_failures=1 duration=10 reason=WRONG_KEY";
        assert_eq!(parse(wrong), Said::Refused { wrong_key: true });
        let full = "<3>CTRL-EVENT-ASSOC-REJECT bssid=02:00:00:00:01:00 status_code=17";
        assert_eq!(parse(full), Said::Rejected { status: Some(17) });
        assert_eq!(parse("<3>CTRL-EVENT-NETWORK-NOT-FOUND "), Said::NotFound);
        assert_eq!(parse("<3>CTRL-EVENT-SCAN-FAILED ret=-16"), Said::LookFailed);
        assert_eq!(parse("<3>CTRL-EVENT-SCAN-FAILED ret=-16 retry=1"), Said::Other);
        assert_eq!(parse("<3>CTRL-EVENT-EAP-FAILURE EAP authentication failed"), Said::LoginRefused);
        let other =
            "<3>CTRL-EVENT-EAP-TLS-CERT-ERROR reason=1 depth=0 subject='/CN=x' err='self-signed certificate'";
        assert_eq!(parse(other), Said::Untrusted);
        let status =
            "bssid=02:00:00:00:01:00\nfreq=2437\nssid=home\nid=0\nkey_mgmt=SAE\nwpa_state=COMPLETED\n";
        let expected = Status {
            completed: true,
            bssid: Some(MacAddress([2, 0, 0, 0, 1, 0])),
            frequency: Some(Frequency(2_437)),
        };
        assert_eq!(parse(status), Said::Status(expected));
    }

    #[test]
    fn nonsense_is_nothing() {
        for text in ["", "<", "<3", "<3>", "OK\n", "FAIL\n", "<3>CTRL-EVENT-DISCONNECTED reason=99999999"] {
            assert!(matches!(parse(text), Said::Other | Said::Disconnected { reason: None }), "{text:?}");
        }
        let odd = parse("wpa_state=\nbssid=xx\nfreq=-1\n=\n");
        assert_eq!(odd, Said::Status(Status::default()));
    }
}
