//! `anabranch radio up|add|remove|weights`: one Wi-Fi card in several networks.

use std::fs;
use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use daemon::config::DeviceConfig;
use daemon::radio::{KnownNetwork, KnownNetworks, Login, LoginMethod, RadioOptions, run};
use identity::StateDirectory;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::arguments::{RadioAdd, RadioLogin, RadioRemove, RadioUp, RadioWeights};
use crate::session::Session;
use crate::{logging, output};

/// User that the radio's worker becomes, as the other daemons' do.
const USER: &str = "anabranch";
/// Longest line that is read as a passphrase.
const LONGEST_LINE: u64 = 256;

fn state(session: &Session) -> anyhow::Result<StateDirectory> {
    session.create()?;
    Ok(session.radio().create()?)
}

/// Runs until it is told to stop.
pub fn up(session: &Session, arguments: &RadioUp) -> anyhow::Result<()> {
    logging::start();
    let options = RadioOptions {
        state: state(session)?,
        card: arguments.card.clone(),
        kernel: arguments.kernel,
        slots: arguments.slots(),
        scan_weight: arguments.scan_weight,
        channels: arguments.channels.clone(),
        soft_handoff: arguments.soft_handoff,
        probe: arguments.probes(),
        mark: DeviceConfig::default().mark,
        capture: arguments.pcap.clone(),
        trace: arguments.trace.clone(),
        channel_cost: Duration::from_micros(arguments.channel_cost.into()),
        user: USER.to_owned(),
    };
    Ok(run(options)?)
}

/// Adds a network; its passphrase comes from the terminal or from standard input, never from the command line.
pub fn add(session: &Session, arguments: &RadioAdd) -> anyhow::Result<()> {
    let state = state(session)?;
    let mut known = KnownNetworks::load(&state)?;
    let secret = |what| Ok::<_, anyhow::Error>(Some(read_secret(what, &arguments.name)?.to_string()));
    let login = arguments.login.method.map(|method| login(method, &arguments.login, secret)).transpose()?;
    let is_open = arguments.open || arguments.ad_hoc || login.is_some();
    let passphrase = if is_open { None } else { secret("passphrase")? };
    known.add(KnownNetwork {
        ssid: arguments.name.clone(),
        passphrase,
        weight: arguments.weight,
        hidden: arguments.hidden,
        bssid: arguments.bssid.clone(),
        avoid: arguments.avoid.clone(),
        interface: arguments.interface.clone(),
        ad_hoc_channel: arguments.channel.filter(|_| arguments.ad_hoc),
        address: arguments.address.clone(),
        login,
    });
    known.save(&state)?;
    output::line(&format!("{} is known. A running radio joins it within a second.", arguments.name))
}

/// Forgets a network.
pub fn remove(session: &Session, arguments: &RadioRemove) -> anyhow::Result<()> {
    let state = state(session)?;
    let mut known = KnownNetworks::load(&state)?;
    known.remove(&arguments.name)?;
    known.save(&state)?;
    output::line(&format!("{} is forgotten. A running radio leaves it within a second.", arguments.name))
}

/// Changes a network's share of the radio.
pub fn weights(session: &Session, arguments: &RadioWeights) -> anyhow::Result<()> {
    set_weight(session, &arguments.name, arguments.weight)?;
    output::line(&format!("{} has weight {}.", arguments.name, arguments.weight))
}

/// Writes the weight where a running radio finds it within a second.
pub fn set_weight(session: &Session, name: &str, weight: u16) -> anyhow::Result<()> {
    let state = state(session)?;
    let mut known = KnownNetworks::load(&state)?;
    let found = known.network.iter_mut().find(|network| network.ssid == name);
    let network = found.ok_or_else(|| daemon::radio::KnownError::Unknown(name.to_owned()))?;
    network.weight = weight;
    Ok(known.save(&state)?)
}

fn login(
    method: LoginMethod,
    arguments: &RadioLogin,
    secret: impl Fn(&'static str) -> anyhow::Result<Option<String>>,
) -> anyhow::Result<Login> {
    let read = |path: &PathBuf| {
        fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
    };
    let read_any = |path: &Option<PathBuf>| path.as_ref().map(read).transpose();
    let authority = read_any(&arguments.authority)?.unwrap_or_default();
    Ok(Login {
        method,
        identity: arguments.identity.clone().unwrap_or_default(),
        anonymous: arguments.anonymous.clone(),
        password: if method == LoginMethod::Tls { None } else { secret("password")? },
        authority,
        domain: arguments.domain.clone(),
        certificate: read_any(&arguments.certificate)?,
        key: read_any(&arguments.private_key)?,
    })
}

fn read_secret(what: &str, name: &str) -> anyhow::Result<Zeroizing<String>> {
    let input = io::stdin();
    let hidden = if input.is_terminal() {
        eprint!("The {what} of {name}: ");
        Some(Hidden::begin()?)
    } else {
        None
    };
    let mut line = Zeroizing::new(String::new());
    let mut limited = io::Read::take(input.lock(), LONGEST_LINE);
    limited.read_line(&mut line).with_context(|| format!("the {what} cannot be read from standard input"))?;
    if hidden.is_some() {
        eprintln!();
    }
    let passphrase = line.trim_end_matches(['\r', '\n']);
    anyhow::ensure!(
        !passphrase.is_empty(),
        "no {what} was given on standard input; an open network is added with --open"
    );
    Ok(Zeroizing::new(passphrase.to_owned()))
}

/// While it lives the terminal does not show what is typed.
struct Hidden(Termios);

impl Hidden {
    fn begin() -> anyhow::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut quiet = before.clone();
        quiet.local_modes -= LocalModes::ECHO;
        tcsetattr(io::stdin(), OptionalActions::Now, &quiet)?;
        Ok(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing back.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
