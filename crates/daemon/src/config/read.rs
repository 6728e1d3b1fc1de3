//! From a file to a [`Config`], with messages that name line, key, value and what would be right.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{self, Key};
use super::{Config, NetworkConfig, rules, value};

/// The configuration of the whole machine.
pub const SYSTEM_PATH: &str = "/etc/anabranch/config.toml";
/// Name of the configuration in a state directory.
pub(crate) const FILE_NAME: &str = "config.toml";
/// Larger files are not read, in bytes.
const MAX_FILE: u64 = 1024 * 1024;
/// Longest part of a wrong value that a message repeats, in bytes.
const MAX_SHOWN: usize = 60;
/// Most `[network.NAME]` tables.
const MAX_NETWORKS: usize = 256;

/// What is done with a link in the place of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Links {
    Followed,
    Distrusted,
}

/// Who but root can change a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Writer {
    /// Its owner.
    User(u32),
    /// Its group, or everybody.
    Others(u32),
    /// Whoever can change the link that leads to it.
    OfLink,
}

impl Writer {
    fn of(file: &File) -> io::Result<Option<Self>> {
        let metadata = file.metadata()?;
        Ok(match (metadata.uid(), metadata.mode() & 0o777) {
            (0, mode) if mode & 0o022 == 0 => None,
            (0, mode) => Some(Self::Others(mode)),
            (user, _) => Some(Self::User(user)),
        })
    }

    /// In words, and what mends it.
    fn explain(self, path: &Path) -> (String, String) {
        let path = path.display();
        match self {
            Self::User(user) => (format!("belongs to user {user}"), format!("chown root:root {path}")),
            Self::Others(mode) => {
                (format!("others can write it (mode {mode:03o})"), format!("chmod go-w {path}"))
            }
            Self::OfLink => {
                ("is a link".to_owned(), format!("cp --remove-destination \"$(readlink -f {path})\" {path}"))
            }
        }
    }
}

/// Opens a file, and tells whether it is a link that is not to be trusted.
fn open(path: &Path, links: Links) -> (io::Result<File>, bool) {
    if links == Links::Followed {
        return (File::open(path), false);
    }
    // A pipe in its place must not keep root waiting.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            let flags = OFlags::NONBLOCK.bits() as i32;
            (OpenOptions::new().read(true).custom_flags(flags).open(path), true)
        }
        opened => (opened, false),
    }
}

/// Where a configuration came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// No file was there: every key has its default.
    Defaults,
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(formatter),
            Self::Defaults => formatter.write_str("defaults"),
        }
    }
}

/// Why a configuration is not usable.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is too large.
    #[error("{} is no configuration: it is larger than {MAX_FILE} bytes", .0.display())]
    TooLarge(PathBuf),
    /// Root is to act on a file that others can change: the daemon's own user, for one, who may have been taken over.
    #[error(
        "{0} sets {settings}, on which root acts, and {why}: look whether they are right, then run `{mend}`",
        path.display()
    )]
    NotRoots {
        /// The file.
        path: PathBuf,
        /// The settings.
        settings: String,
        /// Who can change it.
        why: String,
        /// A command.
        mend: String,
    },
    /// The file says something that makes no sense.
    #[error("{}, line {line}: {message}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Key, value and what would be right.
        message: String,
    },
}

impl Config {
    /// Reads the file that was named, else `config.toml` in the state directory, else [`SYSTEM_PATH`]; a file that was
    /// named must be there.
    ///
    /// As root it takes what root acts on (user, registry, its certificate) only from a file that nobody else can change. The state directory
    /// belongs to the daemon's user, who may put another file in the place of root's there: it counts whose the file is that was
    /// opened, and a link there is nobody's.
    ///
    /// # Errors
    /// Any [`ConfigError`].
    pub fn load(named: Option<&Path>, state: &Path) -> Result<(Self, Source), ConfigError> {
        if let Some(path) = named {
            return Self::read_from(path, Links::Followed)
                .map(|config| (config, Source::File(path.to_owned())));
        }
        for (path, links) in
            [(state.join(FILE_NAME), Links::Distrusted), (PathBuf::from(SYSTEM_PATH), Links::Followed)]
        {
            match Self::read_from(&path, links) {
                Err(ConfigError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                outcome => return outcome.map(|config| (config, Source::File(path))),
            }
        }
        Ok((Self::default(), Source::Defaults))
    }

    /// Reads one file, whosever it is.
    ///
    /// # Errors
    /// Any [`ConfigError`] but [`ConfigError::NotRoots`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::read_open(path, File::open(path)).map(|(config, _)| config)
    }

    fn read_from(path: &Path, links: Links) -> Result<Self, ConfigError> {
        let (opened, is_link) = open(path, links);
        let (config, writer) = Self::read_open(path, opened)?;
        let writer = if is_link { Some(Writer::OfLink) } else { writer };
        let settings = config.root_settings();
        match writer {
            Some(writer) if rustix::process::geteuid().is_root() && !settings.is_empty() => {
                let (why, mend) = writer.explain(path);
                Err(ConfigError::NotRoots {
                    path: path.to_owned(),
                    settings: settings.join(" and "),
                    why,
                    mend,
                })
            }
            _ => Ok(config),
        }
    }

    /// The configuration in an open file, and who but root can change that file.
    fn read_open(path: &Path, opened: io::Result<File>) -> Result<(Self, Option<Writer>), ConfigError> {
        let failed = |source| ConfigError::Read { path: path.to_owned(), source };
        let file = opened.map_err(failed)?;
        let writer = Writer::of(&file).map_err(failed)?;
        let mut text = String::new();
        if file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(failed)? as u64 > MAX_FILE {
            return Err(ConfigError::TooLarge(path.to_owned()));
        }
        let config = Self::parse(&text).map_err(|fault| ConfigError::Content {
            path: path.to_owned(),
            line: line_of(&text, fault.at),
            message: fault.message,
        })?;
        Ok((config, writer))
    }

    /// The settings that root itself acts on, beyond what the daemon's user may do to the machine's networks anyway, where they are
    /// not the defaults.
    fn root_settings(&self) -> Vec<&'static str> {
        let (own, usual) = (self, Self::default());
        let settings = [
            ("user", own.daemon.user != usual.daemon.user),
            ("gateway.registry", own.gateway.registry != usual.gateway.registry),
            ("gateway.registry_ca", own.gateway.registry_ca != usual.gateway.registry_ca),
        ];
        settings.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect()
    }

    pub(super) fn parse(text: &str) -> Result<Self, Fault> {
        let root = DeTable::parse(text).map_err(|error| Fault {
            at: error.span().map_or(0, |span| span.start),
            message: format!("not TOML: {}", error.message()),
        })?;
        let mut config = Self::default();
        for (key, value) in root.get_ref() {
            match key.get_ref().as_ref() {
                "device" => {
                    set_all(text, "device", keys::DEVICE, &mut config.device, table(text, key, value)?)?
                }
                "gateway" => {
                    set_all(text, "gateway", keys::GATEWAY, &mut config.gateway, table(text, key, value)?)?
                }
                "network" => config.set_networks(text, table(text, key, value)?)?,
                "rule" => config.rules = rules::read(text, key, value)?,
                name if keys::DAEMON.iter().any(|known| known.name == name) => {
                    set_one(text, "", keys::DAEMON, &mut config.daemon, key, value)?;
                }
                name => {
                    let known = keys::DAEMON
                        .iter()
                        .map(|known| known.name)
                        .chain(["device", "network", "gateway", "rule"]);
                    return Err(unknown(key, name, "", known));
                }
            }
        }
        Ok(config)
    }

    fn set_networks(&mut self, text: &str, networks: &DeTable<'_>) -> Result<(), Fault> {
        for (key, value) in networks {
            let name = key.get_ref().as_ref();
            if !value::is_interface(name) {
                let message = format!(
                    "[network.{name}] names no interface: expected 1 to 15 characters without slash, colon or space"
                );
                return Err(Fault { at: key.span().start, message });
            }
            if self.networks.len() == MAX_NETWORKS {
                return Err(Fault {
                    at: key.span().start,
                    message: format!("more than {MAX_NETWORKS} networks"),
                });
            }
            let DeValue::Table(table) = value.get_ref() else {
                let message =
                    format!("network.{name} is no table; write [network.{name}] and the keys below it");
                return Err(Fault { at: key.span().start, message });
            };
            let mut network = NetworkConfig::default();
            set_all(text, &format!("network.{name}"), keys::NETWORK, &mut network, table)?;
            self.networks.insert(name.to_owned(), network);
        }
        Ok(())
    }
}

/// What is wrong, and at which byte of the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) message: String,
}

pub(super) type TomlKey<'a> = Spanned<toml::de::DeString<'a>>;
pub(super) type TomlValue<'a> = Spanned<DeValue<'a>>;

fn table<'a, 'i>(text: &str, key: &TomlKey<'_>, value: &'a TomlValue<'i>) -> Result<&'a DeTable<'i>, Fault> {
    match value.get_ref() {
        DeValue::Table(table) => Ok(table),
        _ => {
            let name = key.get_ref();
            let message = format!(
                "{name} = {} is no table; write [{name}] and the keys below it",
                shown(text, value.span())
            );
            Err(Fault { at: key.span().start, message })
        }
    }
}

pub(super) fn set_all<T>(
    text: &str,
    table_name: &str,
    keys: &[Key<T>],
    target: &mut T,
    table: &DeTable<'_>,
) -> Result<(), Fault> {
    table.iter().try_for_each(|(key, value)| set_one(text, table_name, keys, target, key, value))
}

fn set_one<T>(
    text: &str,
    table_name: &str,
    keys: &[Key<T>],
    target: &mut T,
    key: &TomlKey<'_>,
    value: &TomlValue<'_>,
) -> Result<(), Fault> {
    let name = key.get_ref().as_ref();
    let Some(definition) = keys.iter().find(|definition| definition.name == name) else {
        return Err(unknown(key, name, table_name, keys.iter().map(|known| known.name)));
    };
    (definition.set)(target, value.get_ref()).ok_or_else(|| Fault {
        at: value.span().start,
        message: format!(
            "{} = {} cannot be: expected {}",
            full_name(table_name, name),
            shown(text, value.span()),
            definition.accepts
        ),
    })
}

fn unknown<'a>(
    key: &TomlKey<'_>,
    name: &str,
    table_name: &str,
    known: impl Iterator<Item = &'a str>,
) -> Fault {
    let known: Vec<&str> = known.collect();
    let near = known.iter().map(|candidate| (distance(name, candidate), *candidate)).min();
    let hint = match near {
        Some((changes, candidate)) if changes <= 2 => format!("did you mean {candidate}?"),
        _ => format!("expected one of {}", known.join(", ")),
    };
    Fault {
        at: key.span().start,
        message: format!("there is no key {}: {hint}", full_name(table_name, name)),
    }
}

fn full_name(table_name: &str, name: &str) -> String {
    if table_name.is_empty() { name.to_owned() } else { format!("{table_name}.{name}") }
}

/// The value as it stands in the file, on one line and not too long.
fn shown(text: &str, span: Range<usize>) -> String {
    let raw = text.get(span).unwrap_or_default();
    let line = raw.lines().next().unwrap_or_default();
    let end = (0..=line.len().min(MAX_SHOWN)).rev().find(|end| line.is_char_boundary(*end)).unwrap_or(0);
    let cut = &line[..end];
    if cut.len() < raw.len() { format!("{cut}...") } else { cut.to_owned() }
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// How many characters must be changed, added or taken away to make one word of the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, left) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, right) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}
