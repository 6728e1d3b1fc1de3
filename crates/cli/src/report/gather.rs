//! What a report is made of: files, the daemon's answers, what other programs say. Nothing is changed, and what cannot be had is an error of
//! its section alone.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anabranch::control::{BlockingClient, ClientError, EventSequence, Flows, Role, Status};
use serde::Serialize;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::known::Known;
use crate::session::Session;

/// One part of the report.
pub struct Section {
    pub title: String,
    /// Or why it could not be had.
    pub body: Result<String, String>,
}

/// A program that has not answered by then does not.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most that is taken of a file or of a program's answer, in bytes.
const MOST_BYTES: u64 = 256 * 1_024;
/// Flows in the report, the busiest.
const MOST_FLOWS: usize = 40;
const MOST_EVENTS: usize = 200;
/// Lines of a log, the newest.
const LOG_LINES: usize = 300;
const LOG_LINES_TEXT: &str = "300";
/// Settings of the kernel that matter, below /proc/sys.
const SETTINGS: [&str; 16] = [
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/rp_filter",
    "net/ipv4/conf/default/rp_filter",
    "net/ipv4/conf/all/src_valid_mark",
    "net/ipv6/conf/all/disable_ipv6",
    "net/ipv6/conf/all/forwarding",
    "net/ipv4/tcp_congestion_control",
    "net/core/default_qdisc",
    "net/core/rmem_max",
    "net/core/wmem_max",
    "net/core/bpf_jit_enable",
    "net/mptcp/enabled",
    "net/netfilter/nf_conntrack_max",
    "net/netfilter/nf_conntrack_count",
    "kernel/unprivileged_userns_clone",
    "user/max_net_namespaces",
];

/// Gathers everything; `known` learns the names and secrets that it meets.
pub fn all(runtime: &Runtime, session: &Session, known: &mut Known<'_>) -> Vec<Section> {
    let ask = |program: &str, arguments: &[&str]| runtime.block_on(ask(program, arguments));
    let mut sections = vec![section("Machine", Ok(machine()))];
    let mut interfaces = Vec::new();
    known.machine();
    known.state(session.path());
    for (title, path) in [
        ("Configuration, of the state directory", session.path().join("config.toml")),
        ("Configuration, of the machine", daemon::config::SYSTEM_PATH.into()),
    ] {
        sections.push(section(title, configuration(&path, known)));
    }
    sections.extend(daemon(session, known, &mut interfaces));
    sections.push(section("State directory", listing(session.path())));
    sections.push(section("daemon.log, the end", tail(&session.path().join("daemon.log"))));
    let units = ["-u", "anabranch", "-u", "anabranch-gateway"];
    let journal = [&["--no-pager", "-o", "short-iso", "-n", LOG_LINES_TEXT][..], &units].concat();
    sections.push(section("Journal of the units", ask("journalctl", &journal)));
    for (title, arguments) in [
        ("Interfaces", &["-details", "link"][..]),
        ("Addresses", &["address"]),
        ("Rules of routing", &["rule"]),
        ("Rules of routing, IPv6", &["-6", "rule"]),
        ("Routes", &["route", "show", "table", "all"]),
    ] {
        sections.push(section(title, ask("ip", arguments)));
    }
    sections.push(section("nftables, our tables", tables(ask)));
    sections.push(section("Settings of the kernel", Ok(settings())));
    for interface in &interfaces {
        let title = format!("Offloads of {interface}");
        sections.push(Section { title, body: ask("ethtool", &["-k", interface]) });
    }
    sections
}

fn section(title: &str, body: Result<String, String>) -> Section {
    Section { title: title.to_owned(), body }
}

fn machine() -> String {
    let line = |path: &str| read(Path::new(path)).map_or_else(|error| error, |text| text.trim().to_owned());
    let release = read(Path::new("/etc/os-release")).unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    format!(
        "anabranch {}\nkernel {} {}\ndistribution {}\nuser {}\nuptime and load {} / {}\nmemory {}",
        env!("CARGO_PKG_VERSION"),
        line("/proc/sys/kernel/osrelease"),
        std::env::consts::ARCH,
        name.unwrap_or("not known").trim_matches('"'),
        if rustix::process::geteuid().is_root() { "root" } else { "not root: much cannot be read" },
        line("/proc/uptime"),
        line("/proc/loadavg"),
        line("/proc/meminfo").lines().take(3).collect::<Vec<_>>().join(", "),
    )
}

/// The settings written anew, without the comments, which may hold anything.
fn configuration(path: &Path, known: &mut Known<'_>) -> Result<String, String> {
    let table = known.configuration(&read(path)?).map_err(|line| {
        format!("{}: line {line} is no TOML, so it is not known what in it is secret", path.display())
    })?;
    let settings = toml::to_string(&table).map_err(|error| error.to_string())?;
    Ok(if settings.is_empty() { "nothing is set".to_owned() } else { settings })
}

/// What the daemon says, and the radio's.
fn daemon(session: &Session, known: &mut Known<'_>, interfaces: &mut Vec<String>) -> Vec<Section> {
    let mut sections = Vec::new();
    let status = session.client().and_then(|client| client.status().map(|status| (client, status)));
    match status {
        Err(error) => sections.push(section("Status", Err(error.to_string()))),
        Ok((client, status)) => {
            known.status(&status);
            interfaces.push(status.interface.clone());
            interfaces.extend(status.networks.iter().map(|network| network.name.clone()));
            sections.extend(answers(&client, &status, known));
        }
    }
    let radio = session.radio();
    if radio.path().exists() {
        let asked = radio.client().and_then(|client| client.radio());
        if let Ok(radio) = &asked {
            known.radio(radio);
        }
        sections.push(section("Shared radio", json(asked)));
        let points = radio.client().and_then(|client| client.radio_access_points());
        for point in points.iter().flatten() {
            known.ssid(point.ssid.as_deref());
        }
        sections.push(section("Access points in range", json(points)));
        sections.push(section(
            "Events of the radio",
            radio.client().and_then(|client| events(&client)).map_err(text),
        ));
    }
    sections
}

fn answers(client: &BlockingClient, status: &Status, known: &mut Known<'_>) -> Vec<Section> {
    let mut sections = vec![section("Status", json(Ok(status)))];
    if status.role == Role::Gateway {
        let clients = client.gateway_clients();
        if let Ok(clients) = &clients {
            known.clients(clients);
        }
        sections.push(section("Clients", json(clients)));
    } else {
        let flows = client.flows().map(|mut flows: Flows| {
            flows.left_out += flows.flows.len().saturating_sub(MOST_FLOWS);
            flows.flows.truncate(MOST_FLOWS);
            flows
        });
        if let Ok(flows) = &flows {
            known.flows(flows);
        }
        sections.push(section("Flows, the busiest", json(flows)));
        sections.push(section("Rules", json(client.rules())));
        let neighbours = client.neighbours();
        if let Ok(neighbourhood) = &neighbours {
            known.neighbours(neighbourhood);
        }
        sections.push(section("Neighbours", json(neighbours)));
    }
    sections.push(section("Events", events(client).map_err(text)));
    sections
}

fn events(client: &BlockingClient) -> Result<String, ClientError> {
    let events = client.events(EventSequence(0))?;
    let latest = events.iter().skip(events.len().saturating_sub(MOST_EVENTS));
    Ok(latest.map(crate::events::line).collect::<Vec<_>>().join("\n"))
}

fn text(error: ClientError) -> String {
    error.to_string()
}

/// As JSON, since that says all there is, and what is in it can be taken out field by field.
fn json(answer: Result<impl Serialize, ClientError>) -> Result<String, String> {
    serde_json::to_string_pretty(&answer.map_err(text)?).map_err(|error| error.to_string())
}

fn listing(path: &Path) -> Result<String, String> {
    use std::os::unix::fs::MetadataExt;
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut lines = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let what = entry.metadata().map_err(failed)?;
        let (mode, name) = (what.mode() & 0o7777, entry.file_name());
        lines.push(format!(
            "{mode:04o} user {} {:>9} bytes  {}",
            what.uid(),
            what.len(),
            name.to_string_lossy()
        ));
    }
    lines.sort_by(|one, other| one.rsplit("  ").next().cmp(&other.rsplit("  ").next()));
    Ok(format!("{}\n{}", path.display(), lines.join("\n")))
}

fn tail(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut file = fs::File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(length.saturating_sub(MOST_BYTES)))
        .map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(LOG_LINES)..].join("\n"))
}

fn read(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut bytes = Vec::new();
    fs::File::open(path).map_err(failed)?.take(MOST_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn settings() -> String {
    let line = |name: &str| {
        let value = fs::read_to_string(Path::new("/proc/sys").join(name));
        let value = value.map_or_else(|error| format!("({error})"), |value| value.trim().to_owned());
        format!("{} = {value}", name.replace('/', "."))
    };
    SETTINGS.map(line).join("\n")
}

/// Other tables are not ours to show.
fn tables(ask: impl Fn(&str, &[&str]) -> Result<String, String>) -> Result<String, String> {
    let all = ask("nft", &["list", "tables"])?;
    let mut texts = Vec::new();
    for line in all.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["table", family, name] = words[..]
            && name.starts_with("anabranch")
        {
            texts.push(ask("nft", &["list", "table", family, name])?);
        }
    }
    Ok(if texts.is_empty() { "none".to_owned() } else { texts.join("\n") })
}

/// What a program says on standard output.
async fn ask(program: &str, arguments: &[&str]) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{program}: {error}");
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).kill_on_drop(true);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(format!("{program}: no pipes"));
    };
    let answer = async {
        let (mut told, mut trouble) = (Vec::new(), Vec::new());
        let (mut output, mut errors) = (output.take(MOST_BYTES), errors.take(MOST_BYTES));
        let (one, other) = tokio::join!(output.read_to_end(&mut told), errors.read_to_end(&mut trouble));
        one.and(other)?;
        // Who has more to say is not heard to the end.
        drop((output, errors));
        Ok((told, trouble, child.wait().await?))
    };
    let answer = timeout(PATIENCE, answer).await.map_err(|_| format!("{program}: no answer in time"))?;
    let (told, trouble, status) = answer.map_err(failed)?;
    let told = String::from_utf8_lossy(&told).trim_end().to_owned();
    if told.is_empty() && !status.success() {
        return Err(format!("{program}: {}", String::from_utf8_lossy(&trouble).trim()));
    }
    Ok(told)
}
