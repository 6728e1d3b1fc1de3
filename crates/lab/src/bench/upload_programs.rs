//! Memory of the programs of an upload: `accept`, `share` and `upload` in network namespaces, one large file through many neighbours.
//!
//! ```text
//! source ----+            +---- uplink ----+
//! neighbour -+-- switch   +---- uplink ----+-- destination
//! neighbour -+            +---- uplink ----+
//! ```
//!
//! Each home has the LAN and an uplink of its own. The air is faster than all uplinks together, so that neighbours keep what they cannot carry yet.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use linux::netns::Namespace;
use linux::prefix::IpPrefix;
use sim::SeededRandom;

use super::Effort;
use super::accounting::peak_resident_kb;
use crate::experiment::{Goal, Metrics};
use crate::netbed::program_beside;

/// What each home's uplink carries.
const UPLINK: &str = "8mbit";
/// What the source sends to all, Mbit/s.
const AIR_RATE: &str = "300";
/// Empty, and gone with the namespaces: [`crate::netbed::isolation`].
const PLACE: &str = "/run/upload";
const MEBIBYTE: usize = 1 << 20;
const BYTES_PER_KB: f64 = 1_024.0;
const BYTES_PER_MB: f64 = 1e6;
/// How often memory and progress are looked at.
const STEP: Duration = Duration::from_millis(200);
/// For programs to start on a machine that is busy.
const STARTING: Duration = Duration::from_secs(120);
/// For the whole file.
const CARRYING: Duration = Duration::from_secs(3_600);

pub(super) fn goals() -> Vec<Goal> {
    ["source.mb", "destination.mb", "neighbour.most_mb"].map(|metric| Goal::at_most(metric, 64.0)).to_vec()
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Metrics> {
    let (neighbours, mebibytes) = match effort {
        Effort::Quick => (3, 16),
        Effort::Full => (32, 1_024),
    };
    let place = PathBuf::from(PLACE);
    fs::create_dir(&place).with_context(|| format!("make the directory {PLACE}"))?;
    write_file(&place.join("file"), mebibytes)?;
    let street = Street::build(neighbours)?;

    let mut destination = street.start(
        &street.far,
        "far",
        &["accept", "--dir", "/run/upload/out", "--links", &(neighbours + 1).to_string()],
    )?;
    destination.wait_until("it shows its links", STARTING, |said| said.lines().count() > neighbours)?;
    let links: Vec<String> = destination.said().lines().map(str::to_owned).collect();
    let mut sharing = Vec::new();
    for (number, (home, link)) in street.homes.iter().skip(1).zip(links.iter().skip(1)).enumerate() {
        sharing.push(street.start(
            home,
            &format!("neighbour{number}"),
            &["share", link, "--trust-all", "--air", "lan"],
        )?);
    }
    destination.wait_until("all neighbours share", STARTING, |said| {
        said.matches("shares its uplink").count() >= neighbours
    })?;

    let (home, link) = (street.homes.first(), links.first());
    let (home, link) = (home.context("there is no home")?, link.context("there is no link")?);
    let began = Instant::now();
    let sending =
        ["upload", "/run/upload/file", link, "--name", "far", "--air", "lan", "--air-rate", AIR_RATE];
    let mut source = street.start(home, "source", &sending)?;
    let source_kb = source.peak_until_its_end(CARRYING)?;
    let took = began.elapsed();
    let stored = fs::metadata(place.join("out/file")).context("look at what has arrived")?.len();
    ensure!(stored == (mebibytes * MEBIBYTE) as u64, "{stored} bytes have arrived");
    let said = source.said();
    ensure!(said.contains("verified"), "the source does not say that the file is verified:\n{said}");

    let mut most = 0;
    for neighbour in &sharing {
        most = most.max(neighbour.peak()?);
    }
    let megabytes = |kb: u64| (kb as f64 * BYTES_PER_KB / BYTES_PER_MB * 100.0).round() / 100.0;
    let seconds = took.as_secs_f64();
    let rate = stored as f64 * 8.0 / seconds / BYTES_PER_MB;
    let figures = [
        ("neighbours", neighbours as f64),
        ("file.mib", mebibytes as f64),
        ("file.mbps", (rate * 10.0).round() / 10.0),
        ("file.by_neighbours", by_neighbours(&said).context("the source does not say who has carried what")?),
        ("source.mb", megabytes(source_kb)),
        ("destination.mb", megabytes(destination.peak()?)),
        ("neighbour.most_mb", megabytes(most)),
    ];
    Ok(figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// The part of the file that did not come by the own uplink, from what the source says at the end.
fn by_neighbours(said: &str) -> Option<f64> {
    let (_, rest) = said.rsplit_once("own uplink ")?;
    let percent: f64 = rest.split_whitespace().next()?.parse().ok()?;
    Some(1.0 - percent / 100.0)
}

fn write_file(path: &Path, mebibytes: usize) -> anyhow::Result<()> {
    let mut random = SeededRandom::new(1);
    let mut file = File::create(path).with_context(|| format!("make {}", path.display()))?;
    let mut block = Vec::with_capacity(MEBIBYTE);
    for _ in 0..mebibytes {
        block.clear();
        block.extend((0..MEBIBYTE / 8).flat_map(|_| random.next_u64().to_le_bytes()));
        file.write_all(&block).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// Homes on one LAN, the source's first, each with an uplink to `far`.
struct Street {
    homes: Vec<Namespace>,
    far: Namespace,
    _switch: Namespace,
}

impl Street {
    fn build(neighbours: usize) -> anyhow::Result<Self> {
        let make = || Namespace::anonymous().context("make a network namespace");
        let (far, switch) = (make()?, make()?);
        let mut homes = Vec::new();
        command(&switch, &["ip", "link", "add", "lan", "type", "bridge", "mcast_snooping", "0"])?;
        command(&switch, &["ip", "link", "set", "lan", "up"])?;
        far.set_up("lo", true)?;
        for number in 0..=neighbours {
            let home = make()?;
            let (port, wan) = (format!("home{number}"), format!("wan{number}"));
            home.set_up("lo", true)?;
            home.join(&switch, "lan", &port)?;
            command(&switch, &["ip", "link", "set", &port, "master", "lan"])?;
            home.join(&far, "wan", &wan)?;
            home.add_address("lan", prefix(&format!("192.168.7.{}/24", number + 1))?)?;
            home.add_address("wan", prefix(&format!("10.7.{number}.1/24"))?)?;
            far.add_address(&wan, prefix(&format!("10.7.{number}.2/24"))?)?;
            let shape = ["tc", "qdisc", "add", "dev", "wan", "root", "tbf", "rate", UPLINK];
            command(&home, &[&shape[..], &["burst", "16k", "latency", "50ms"]].concat())?;
            homes.push(home);
        }
        Ok(Self { homes, far, _switch: switch })
    }

    /// Starts the program in a namespace, with a state directory of this name.
    fn start(&self, machine: &Namespace, state: &str, arguments: &[&str]) -> anyhow::Result<Program> {
        let said = Path::new(PLACE).join(format!("{state}.said"));
        let errors = Path::new(PLACE).join(format!("{state}.errors"));
        let file = |path: &Path| File::create(path).with_context(|| format!("make {}", path.display()));
        let child = machine
            .command(program_beside("anabranch"))?
            .arg("--state")
            .arg(Path::new(PLACE).join(state))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(file(&said)?)
            .stderr(file(&errors)?)
            .spawn()
            .with_context(|| format!("start anabranch {}", arguments.join(" ")))?;
        Ok(Program { name: state.to_owned(), child, said, errors })
    }
}

fn prefix(text: &str) -> anyhow::Result<IpPrefix> {
    text.parse().with_context(|| format!("{text} is no prefix"))
}

fn command(namespace: &Namespace, words: &[&str]) -> anyhow::Result<()> {
    let (program, arguments) = words.split_first().context("a command has a program")?;
    let output = namespace.command(program)?.args(arguments).output();
    let output = output.with_context(|| format!("run {program}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", words.join(" "), told.trim());
    Ok(())
}

/// A program that runs until this is dropped; what it says is in files.
struct Program {
    name: String,
    child: Child,
    said: PathBuf,
    errors: PathBuf,
}

impl Program {
    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }

    fn wait_until(
        &mut self,
        what: &str,
        patience: Duration,
        holds: impl Fn(&str) -> bool,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + patience;
        while !holds(&self.said()) {
            let ended = self.child.try_wait().with_context(|| format!("watch {}", self.name))?;
            ensure!(
                ended.is_none() && Instant::now() < deadline,
                "{}: {what}: {}",
                self.name,
                self.explained()
            );
            std::thread::sleep(STEP);
        }
        Ok(())
    }

    /// The most memory that it has had so far, kB.
    fn peak(&self) -> anyhow::Result<u64> {
        peak_resident_kb(&[self.child.id()]).with_context(|| format!("{}: {}", self.name, self.explained()))
    }

    /// The same of its whole life, as of the last time that was looked before it ended.
    fn peak_until_its_end(&mut self, patience: Duration) -> anyhow::Result<u64> {
        let (mut most, deadline) = (0, Instant::now() + patience);
        loop {
            // One that has just ended has no memory any more.
            most = most.max(self.peak().unwrap_or(0));
            if let Some(status) = self.child.try_wait().with_context(|| format!("watch {}", self.name))? {
                ensure!(status.success(), "{} ended ({status}): {}", self.name, self.explained());
                ensure!(most > 0, "{} ended before its memory was looked at", self.name);
                return Ok(most);
            }
            ensure!(Instant::now() < deadline, "{} has not ended: {}", self.name, self.explained());
            std::thread::sleep(STEP);
        }
    }

    fn explained(&self) -> String {
        let errors = fs::read_to_string(&self.errors).unwrap_or_default();
        let last = |text: &str| text.lines().rev().take(5).map(str::to_owned).collect::<Vec<_>>();
        [last(&self.said()), last(&errors)].concat().join("\n")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::by_neighbours;

    #[test]
    fn the_last_line_says_who_has_carried_what() {
        let said = "own uplink 90 %, x 10 %.\nfile is at far as file: 7 bytes, verified; own uplink 42 %, x 30 %, y 28 %.\n";
        assert!((by_neighbours(said).unwrap() - 0.58).abs() < 1e-9);
        assert_eq!(by_neighbours("nothing"), None);
    }
}
