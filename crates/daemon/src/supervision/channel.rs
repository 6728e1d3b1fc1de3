//! Requests from the worker to root: one JSON object a line, one answer each.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use anabranch::control::DownReport;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What the worker may ask for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Request {
    /// Lead all traffic to the interface and names to these servers.
    Capture {
        /// Name servers; empty leaves names as they are.
        dns: Vec<IpAddr>,
    },
    /// Have names asked at the servers of networks, best network first; replaces those of the request before.
    Names {
        /// At most as many as there are networks.
        networks: Vec<linux::dns::NetworkServers>,
    },
    /// Take the radio's card over once more: it was pulled out, and may be there again.
    Card,
    /// Let answers in on an interface that is not the best way back.
    LetIn {
        /// The interface.
        interface: String,
    },
    /// Prepare routes to neighbours.
    Neighbours,
    /// Have MPTCP connections use these networks.
    Mptcp(linux::mptcp::Paths),
    /// Tell what the networks of the last [`Request::Mptcp`] were seen to do to it.
    MptcpCounts,
    /// Lead new flows directly out as described.
    Direct(Box<linux::direct::Direct>),
    /// Put a process, and what it starts from then on, into a control group of its own below the one that it is in.
    Run {
        /// Its number.
        process: u32,
        /// Whose it must be.
        user: u32,
    },
    /// Remove a control group that [`Request::Run`] has made.
    EndRun {
        /// Its path.
        cgroup: String,
    },
    /// Find the programs that have sockets open.
    Programs {
        /// The sockets' inodes, at most [`MAXIMUM_INODES`].
        inodes: Vec<u32>,
    },
    /// Make a station interface on the radio's card.
    AddStation {
        /// Its name.
        interface: String,
        /// Its hardware address is made from the card's and this, 1 to 63.
        number: u32,
    },
    /// Remove an interface that [`Request::AddStation`] has made.
    RemoveStation {
        /// Its name.
        interface: String,
    },
    /// Become the program that is on the disk now, once the worker has ended.
    Renew,
    /// Take everything back.
    Restore,
}

/// What root answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// It is done.
    Done,
    /// It is done, by other means than usual.
    DoneWithout {
        /// What is lost, why, and what serves instead; for people.
        what: String,
    },
    /// It is not done; the text tells why.
    Failed {
        /// For people.
        reason: String,
    },
    /// What was taken back.
    Restored(DownReport),
    /// The control group that was made.
    Group {
        /// Its path.
        cgroup: String,
    },
    /// The programs that were found.
    Programs {
        /// With the inode of each's socket.
        programs: Vec<SocketProgram>,
    },
    /// What networks do to MPTCP, by their numbers.
    MptcpCounts {
        /// Nothing where nothing is counted.
        counts: Vec<(u8, linux::mptcp::WayCounts)>,
    },
}

/// Which program has a socket open.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SocketProgram {
    /// The socket's inode.
    pub inode: u32,
    /// The process.
    pub process: u32,
    /// Its short name.
    pub name: String,
    /// The file that it runs.
    pub executable: Option<String>,
}

/// Why there is no useful answer.
#[derive(Debug, Error)]
pub enum AskError {
    /// The other process is gone or does not answer.
    #[error("the supervising process does not answer: {0}")]
    Channel(#[from] io::Error),
    /// It said no.
    #[error("{0}")]
    Failed(String),
}

/// The worker's end.
#[derive(Debug)]
pub struct Root {
    stream: Mutex<BufReader<UnixStream>>,
}

impl Root {
    /// Takes one end of a socket pair.
    ///
    /// # Errors
    /// If no time limit can be set on it.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream: Mutex::new(BufReader::new(stream)) })
    }

    /// Asks, and waits for the answer. Any thread may.
    ///
    /// # Errors
    /// Any [`AskError`].
    pub fn ask(&self, request: &Request) -> Result<DownReport, AskError> {
        match self.ask_for(request)? {
            Answer::Restored(report) => Ok(report),
            _ => Ok(DownReport::default()),
        }
    }

    /// The same where the answer tells something; it is never [`Answer::Failed`].
    ///
    /// # Errors
    /// Any [`AskError`].
    pub fn ask_for(&self, request: &Request) -> Result<Answer, AskError> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        write_line(stream.get_mut(), request)?;
        match read_line(&mut *stream)? {
            None => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Some(Answer::Failed { reason }) => Err(AskError::Failed(reason)),
            Some(answer) => Ok(answer),
        }
    }
}

/// What root does for a worker.
pub trait Machine: Send {
    /// Carries out one request.
    fn carry_out(&mut self, request: Request) -> Answer;

    /// Goes on as another program if that was asked for. Returns only if it was not, or failed.
    fn renew(&mut self) -> Option<io::Error> {
        None
    }
}

/// Answers requests until the worker is gone. After [`Request::Restore`] nothing is changed any more.
///
/// # Errors
/// If the worker says something else than requests.
pub fn serve(stream: UnixStream, machine: &mut dyn Machine) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut restored = false;
    while let Some(request) = read_line(&mut stream)? {
        let answer = if restored && request != Request::Restore {
            Answer::Failed { reason: "the daemon ends".to_owned() }
        } else {
            restored = request == Request::Restore;
            machine.carry_out(request)
        };
        match write_line(stream.get_mut(), &answer) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            other => other?,
        }
    }
    Ok(())
}

fn write_line(stream: &mut UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn read_line<T: for<'a> Deserialize<'a>>(stream: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    let length = stream.by_ref().take(MAXIMUM_LINE).read_until(b'\n', &mut line)?;
    if length == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

/// Setting routes and running nft or resolvectl takes seconds at worst.
const PATIENCE: Duration = Duration::from_secs(20);
const MAXIMUM_LINE: u64 = 1 << 20;
/// Sockets asked for at once; the answer fits a line.
pub const MAXIMUM_INODES: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    struct Recorder(Vec<Request>);

    impl Machine for Recorder {
        fn carry_out(&mut self, request: Request) -> Answer {
            self.0.push(request.clone());
            match request {
                Request::Capture { .. } => Answer::Done,
                Request::Direct(_)
                | Request::Neighbours
                | Request::Mptcp(_)
                | Request::MptcpCounts
                | Request::LetIn { .. }
                | Request::Names { .. }
                | Request::Card
                | Request::Run { .. }
                | Request::EndRun { .. }
                | Request::AddStation { .. }
                | Request::RemoveStation { .. }
                | Request::Renew
                | Request::Programs { .. } => Answer::Failed { reason: "no".to_owned() },
                Request::Restore => {
                    Answer::Restored(DownReport { undone: vec!["rule".to_owned()], failed: Vec::new() })
                }
            }
        }
    }

    #[test]
    fn requests_are_answered_until_the_worker_is_gone() {
        let (worker, root) = UnixStream::pair().unwrap();
        let keeper = std::thread::spawn(move || {
            let mut machine = Recorder(Vec::new());
            serve(root, &mut machine).unwrap();
            machine.0
        });
        let asked = Root::new(worker).unwrap();
        let capture = Request::Capture { dns: vec!["9.9.9.9".parse().unwrap()] };
        asked.ask(&capture).unwrap();
        let refused = asked.ask(&Request::LetIn { interface: "eth0".to_owned() }).unwrap_err();
        assert!(matches!(refused, AskError::Failed(reason) if reason == "no"));
        assert_eq!(asked.ask(&Request::Restore).unwrap().undone, ["rule"]);
        let refused = asked.ask(&capture).unwrap_err();
        assert!(matches!(refused, AskError::Failed(reason) if reason == "the daemon ends"));
        drop(asked);
        let carried_out = keeper.join().unwrap();
        assert_eq!((carried_out.len(), &carried_out[0]), (3, &capture));
    }

    #[test]
    fn nonsense_ends_the_service() {
        let (mut worker, root) = UnixStream::pair().unwrap();
        worker.write_all(b"{\"ask\":\"write-file\",\"path\":\"/etc/passwd\"}\n").unwrap();
        assert!(serve(root, &mut Recorder(Vec::new())).is_err());
    }
}
