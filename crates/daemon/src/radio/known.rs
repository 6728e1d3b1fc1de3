//! The networks that the radio knows: the file `radio.toml` in its state directory, mode 0600, since it holds passphrases.

use std::fs;
use std::io;
use std::os::unix::fs::lchown;
use std::path::PathBuf;

use identity::{StateDirectory, WriteError};
use linux::prefix::IpPrefix;
use radio::security::{Passphrase, PassphraseError};
use radio::{GroupSettings, NetworkSettings, Waking};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use units::{Frequency, MacAddress, Ssid};

use super::login::Login;

/// The file's name.
pub const KNOWN_NETWORKS_FILE: &str = "radio.toml";
/// Networks that one radio is in at most: more would leave none of them a usable turn.
pub const MOST_NETWORKS: usize = 8;
const LONGEST_FILE: u64 = 64 * 1_024;
const MOST_WEIGHT: u16 = 1_000;
/// Longest name of an interface (IFNAMSIZ less its end), in bytes.
const LONGEST_INTERFACE: usize = 15;

/// Why the file cannot be used, or a network not be added.
#[derive(Debug, Error)]
pub enum KnownError {
    /// It cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// It cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// It is not what is expected. Never shows the line itself, which may hold a passphrase.
    #[error("{}, line {line}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong there.
        message: String,
    },
    /// A network's value that cannot be used.
    #[error("network \"{network}\": {key}: {problem}")]
    Value {
        /// Its name.
        network: String,
        /// Which of its keys.
        key: &'static str,
        /// What would be right.
        problem: String,
    },
    /// More networks than one radio serves.
    #[error(
        "one radio is in at most {MOST_NETWORKS} networks; remove one with `anabranch radio remove NAME`"
    )]
    TooMany,
    /// No network of that name.
    #[error("the radio knows no network \"{0}\"; `anabranch radio list` shows those that it knows")]
    Unknown(String),
}

/// A network as the file has it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownNetwork {
    /// Its name on the air, text.
    pub ssid: String,
    /// Its secret; left out for open networks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passphrase: Option<String>,
    /// Its share of the radio, relative to the others'.
    #[serde(default = "one")]
    pub weight: u16,
    /// It does not tell its name unasked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// Only this access point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bssid: Option<String>,
    /// Never these access points.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoid: Vec<String>,
    /// The interface's name; by default made from the network's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// It is an ad hoc group, open, without an access point: founded on this channel if nobody is heard of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ad_hoc_channel: Option<u8>,
    /// Our address and its subnet, such as `10.9.0.1/24`, in place of one that the network lends. For ad hoc groups, where nobody lends any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Our own login, where the network asks for one (802.1X). For cards whose networks the kernel keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<Login>,
}

fn one() -> u16 {
    1
}

impl KnownNetwork {
    /// As the station takes it.
    ///
    /// # Errors
    /// [`KnownError::Value`]; the passphrase is never shown.
    pub fn settings(&self) -> Result<NetworkSettings, KnownError> {
        let wrong = |key, problem: String| KnownError::Value { network: self.ssid.clone(), key, problem };
        let ssid = Ssid::new(self.ssid.as_bytes());
        let ssid = ssid.ok_or_else(|| wrong("ssid", "a name has 1 to 32 bytes".to_owned()))?;
        let passphrase = self.passphrase.as_deref().map(Passphrase::new).transpose();
        let passphrase =
            passphrase.map_err(|error: PassphraseError| wrong("passphrase", error.to_string()))?;
        if !(1..=MOST_WEIGHT).contains(&self.weight) {
            return Err(wrong(
                "weight",
                format!("expected a number from 1 to {MOST_WEIGHT}, not {}", self.weight),
            ));
        }
        let group = |channel| {
            let frequency = Frequency::of_channel(channel).ok_or_else(|| {
                wrong("ad_hoc_channel", format!("expected a channel of 2.4 or 5 GHz, not {channel}"))
            })?;
            Ok::<_, KnownError>(GroupSettings { frequency })
        };
        let group = self.ad_hoc_channel.map(group).transpose()?;
        if group.is_some() && self.passphrase.is_some() {
            return Err(wrong("passphrase", "an ad hoc group of this radio is open".to_owned()));
        }
        if let Some(login) = &self.login {
            if self.passphrase.is_some() || group.is_some() {
                return Err(wrong("login", "a network has a passphrase or a login, not both".to_owned()));
            }
            login.check().map_err(|(key, problem)| wrong(key, problem.to_owned()))?;
        }
        self.own_address()?;
        let address = |key, text: &String| {
            parse_address(text).ok_or_else(|| {
                wrong(key, format!("expected an address like 02:00:5e:10:00:01, not \"{text}\""))
            })
        };
        Ok(NetworkSettings {
            ssid,
            passphrase,
            bssid: self.bssid.as_ref().map(|text| address("bssid", text)).transpose()?,
            avoided: self.avoid.iter().map(|text| address("avoid", text)).collect::<Result<_, _>>()?,
            hidden: self.hidden,
            weight: self.weight,
            waking: Waking::Measured,
            group,
        })
    }

    /// The configured address, if there is one.
    ///
    /// # Errors
    /// [`KnownError::Value`] if it is none.
    pub fn own_address(&self) -> Result<Option<IpPrefix>, KnownError> {
        let wrong = |text: &String| KnownError::Value {
            network: self.ssid.clone(),
            key: "address",
            problem: format!("expected an IPv4 address and its subnet like 10.9.0.1/24, not \"{text}\""),
        };
        let parse = |text: &String| {
            let address: IpPrefix = text.parse().map_err(|_| wrong(text))?;
            if address.address().is_ipv4() { Ok(address) } else { Err(wrong(text)) }
        };
        self.address.as_ref().map(parse).transpose()
    }

    /// What its interface is called: letters and digits of its name, unless it was told.
    ///
    /// # Errors
    /// [`KnownError::Value`] if what was told is no name of an interface.
    pub fn interface_name(&self) -> Result<String, KnownError> {
        if let Some(name) = &self.interface {
            let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            return if (1..=LONGEST_INTERFACE).contains(&name.len()) && name.bytes().all(legal) {
                Ok(name.clone())
            } else {
                let problem = format!("expected up to {LONGEST_INTERFACE} letters, digits, - and _");
                Err(KnownError::Value { network: self.ssid.clone(), key: "interface", problem })
            };
        }
        let kept =
            self.ssid.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase());
        let name: String = kept.take(LONGEST_INTERFACE - 3).collect();
        Ok(format!("wl-{}", if name.is_empty() { "net" } else { &name }))
    }
}

/// All of them.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownNetworks {
    /// One network carries all traffic, the others are kept ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub soft_handoff: bool,
    /// In the order of their turns.
    #[serde(default)]
    pub network: Vec<KnownNetwork>,
}

impl KnownNetworks {
    /// Reads the file; none if it is not there.
    ///
    /// # Errors
    /// Any [`KnownError`] but `Unknown`.
    pub fn load(state: &StateDirectory) -> Result<Self, KnownError> {
        let path = state.file(KNOWN_NETWORKS_FILE);
        let text = match fs::metadata(&path).map(|metadata| metadata.len()) {
            Ok(length) if length > LONGEST_FILE => Err(io::ErrorKind::FileTooLarge.into()),
            Ok(_) => fs::read_to_string(&path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => Err(error),
        };
        let text = text.map_err(|error| KnownError::Read { path: path.clone(), error })?;
        let known: Self = toml::from_str(&text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
            KnownError::Syntax { path, line, message: error.message().to_owned() }
        })?;
        known.check()?;
        Ok(known)
    }

    /// Writes the file, all of it or nothing.
    ///
    /// # Errors
    /// [`KnownError::Write`], or a value that could not be read back.
    pub fn save(&self, state: &StateDirectory) -> Result<(), KnownError> {
        self.check()?;
        let text = toml::to_string(self).map_err(|error| KnownError::Syntax {
            path: state.file(KNOWN_NETWORKS_FILE),
            line: 0,
            message: error.to_string(),
        })?;
        state.replace(KNOWN_NETWORKS_FILE, text.as_bytes())?;
        // A running radio, which has the directory, must be able to read it.
        let give = || lchown(state.file(KNOWN_NETWORKS_FILE), Some(state.owner()?.0), Some(state.owner()?.1));
        give().map_err(|error| KnownError::Read { path: state.file(KNOWN_NETWORKS_FILE), error })
    }

    /// How many networks have a name that one before them has: further access points of one extended service set.
    pub fn same_names(&self) -> usize {
        let is_repeat = |(at, known): (usize, &KnownNetwork)| {
            self.network[..at].iter().any(|other| other.ssid == known.ssid)
        };
        self.network.iter().enumerate().filter(|one| is_repeat(*one)).count()
    }

    /// Adds a network at the end, or changes that of the same name and interface.
    pub fn add(&mut self, network: KnownNetwork) {
        let same = |known: &KnownNetwork| known.ssid == network.ssid && known.interface == network.interface;
        match self.network.iter_mut().find(|known| same(known)) {
            Some(known) => *known = network,
            None => self.network.push(network),
        }
    }

    /// Forgets a network.
    ///
    /// # Errors
    /// [`KnownError::Unknown`].
    pub fn remove(&mut self, ssid: &str) -> Result<(), KnownError> {
        let before = self.network.len();
        self.network.retain(|known| known.ssid != ssid);
        if self.network.len() == before { Err(KnownError::Unknown(ssid.to_owned())) } else { Ok(()) }
    }

    fn check(&self) -> Result<(), KnownError> {
        if self.network.len() > MOST_NETWORKS {
            return Err(KnownError::TooMany);
        }
        let mut interfaces = Vec::new();
        for network in &self.network {
            network.settings()?;
            let interface = network.interface_name()?;
            if interfaces.contains(&interface) {
                let problem =
                    format!("two networks would be called {interface}; give one a name with `interface`");
                return Err(KnownError::Value { network: network.ssid.clone(), key: "interface", problem });
            }
            interfaces.push(interface);
        }
        Ok(())
    }
}

fn parse_address(text: &str) -> Option<MacAddress> {
    let mut parts = text.split(':').map(|part| u8::from_str_radix(part, 16).ok().filter(|_| part.len() == 2));
    let mut address = [0; 6];
    for byte in &mut address {
        *byte = parts.next()??;
    }
    parts.next().is_none().then_some(MacAddress(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> (tempfile::TempDir, StateDirectory) {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::create(directory.path().join("radio")).unwrap();
        (directory, state)
    }

    fn network(ssid: &str) -> KnownNetwork {
        KnownNetwork {
            ssid: ssid.to_owned(),
            passphrase: Some("correct horse".to_owned()),
            weight: 1,
            hidden: false,
            bssid: None,
            avoid: Vec::new(),
            interface: None,
            ad_hoc_channel: None,
            address: None,
            login: None,
        }
    }

    #[test]
    fn what_is_saved_comes_back_and_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let (_directory, state) = state();
        let mut known = KnownNetworks::load(&state).unwrap();
        known.add(network("Caf\u{e9} \"1\""));
        known.add(KnownNetwork { weight: 9, hidden: true, ..network("home") });
        known.save(&state).unwrap();
        let mode = fs::metadata(state.file(KNOWN_NETWORKS_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut loaded = KnownNetworks::load(&state).unwrap();
        assert_eq!((loaded.network[1].weight, loaded.network[1].hidden), (9, true));
        assert_eq!(loaded.network[0].interface_name().unwrap(), "wl-caf1");
        loaded.remove("home").unwrap();
        assert!(matches!(loaded.remove("home"), Err(KnownError::Unknown(_))));
    }

    #[test]
    fn faults_are_named_without_their_secrets() {
        let (_directory, state) = state();
        let cases = [
            ("[[network]]\nssid = \"home\"\npassphrase = \"topsecret", "line 3"),
            (
                "[[network]]\nssid = \"home\"\npassphrase = \"topsecret\"\nwieght = 2",
                "unknown field `wieght`",
            ),
            ("[[network]]\nssid = \"home\"\npassphrase = \"tops\"", "8 to 63 characters"),
            ("[[network]]\nssid = \"home\"\nweight = 0", "from 1 to 1000"),
            ("[[network]]\nssid = \"home\"\nbssid = \"topsecret\"", "expected an address like"),
            ("[[network]]\nssid = \"\"", "1 to 32 bytes"),
            ("[[network]]\nssid = \"x\"\nad_hoc_channel = 200", "not 200"),
            ("[[network]]\nssid = \"x\"\naddress = \"10.9.0.1\"", "like 10.9.0.1/24"),
            ("[[network]]\nssid = \"x\"\nad_hoc_channel = 6\npassphrase = \"topsecret\"", "is open"),
            (
                "[[network]]\nssid = \"x\"\npassphrase = \"topsecret\"\n[network.login]\nmethod = \"peap\"\nidentity = \"me\"\nauthority = \"\"",
                "not both",
            ),
            (
                "[[network]]\nssid = \"x\"\n[network.login]\nmethod = \"peap\"\nidentity = \"me\"\npassword = \"topsecret\"\nauthority = \"\"",
                "authority: expected the PEM text",
            ),
            ("[[network]]\nssid = \"a b\"\n[[network]]\nssid = \"ab\"", "two networks would be called wl-ab"),
        ];
        for (text, expected) in cases {
            fs::write(state.file(KNOWN_NETWORKS_FILE), text).unwrap();
            let error = KnownNetworks::load(&state).err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(text.contains("bssid") || !error.contains("tops"), "{error}");
        }
    }
}
