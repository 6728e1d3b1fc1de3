//! What is known of this machine beforehand, so that it is found in every text: names from the daemon's answers, from files, and secrets.

use std::fs;
use std::path::Path;

use anabranch::control::{Flows, GatewayClients, Neighbourhood, RadioStatus, Status};

use super::redact::{Kind, Redactor};

/// Files of a state directory in which every text of some length is a secret or somebody's name.
const SECRET_FILES: [&str; 5] = ["peers.toml", "groups.toml", "radio/radio.toml", "web-token", "key"];
/// Shorter texts of those files are settings.
const SHORTEST_SECRET: usize = 8;
/// Users below and above are the system's (login.defs of the distributions).
const PEOPLE: std::ops::Range<u32> = 1_000..60_000;

/// Teaches a redactor.
pub struct Known<'a>(pub &'a mut Redactor);

impl Known<'_> {
    /// The machine's name and its users.
    pub fn machine(&mut self) {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        self.0.learn(Kind::Host, &host);
        self.0.learn(Kind::Host, host.split('.').next().unwrap_or_default());
        for line in fs::read_to_string("/etc/passwd").unwrap_or_default().lines() {
            let fields: Vec<&str> = line.split(':').collect();
            if let [name, _, number, _, person, ..] = fields[..]
                && number.parse().is_ok_and(|number| PEOPLE.contains(&number))
            {
                self.0.learn(Kind::User, name);
                self.0.learn(Kind::User, person.split(',').next().unwrap_or_default());
            }
        }
        for variable in ["USER", "LOGNAME", "SUDO_USER"] {
            self.0.learn(Kind::User, &std::env::var(variable).unwrap_or_default());
        }
        let home = std::env::var("HOME").unwrap_or_default();
        self.0.learn(Kind::User, home.rsplit('/').next().unwrap_or_default());
    }

    /// What the files hold that nobody else is to know. Those that cannot be read are not shown either.
    pub fn state(&mut self, path: &Path) {
        for file in SECRET_FILES {
            let text = fs::read_to_string(path.join(file)).unwrap_or_default();
            match text.parse::<toml::Table>() {
                Ok(table) => self.texts("", &toml::Value::Table(table), true),
                Err(_) => self.0.learn(Kind::Secret, &text),
            }
        }
    }

    /// Names in a configuration, which is handed back as it was read.
    ///
    /// # Errors
    /// The line that is no TOML.
    pub fn configuration(&mut self, text: &str) -> Result<toml::Table, usize> {
        let table = text.parse::<toml::Table>().map_err(|error| {
            let place = error.span().map_or(0, |span| span.start);
            text.bytes().take(place).filter(|byte| *byte == b'\n').count() + 1
        })?;
        self.texts("", &toml::Value::Table(table.clone()), false);
        Ok(table)
    }

    fn texts(&mut self, key: &str, value: &toml::Value, secret: bool) {
        match value {
            toml::Value::Table(table) => {
                for (key, value) in table {
                    self.texts(key, value, secret);
                }
            }
            toml::Value::Array(values) => {
                for value in values {
                    self.texts(key, value, secret);
                }
            }
            toml::Value::String(text) => {
                let kind = match key {
                    "ssid" => Some(Kind::Ssid),
                    "name" | "gateway" => Some(Kind::Host),
                    "user" | "users" => Some(Kind::User),
                    "program" | "programs" => Some(Kind::Program),
                    "domain" | "domains" => Some(Kind::Domain),
                    _ => (secret && text.len() >= SHORTEST_SECRET).then_some(Kind::Secret),
                };
                if let Some(kind) = kind {
                    self.0.learn(kind, text);
                    // A program may be named by its path, a domain with all below it.
                    self.0.learn(kind, text.rsplit('/').next().unwrap_or_default().trim_start_matches("*."));
                }
            }
            _ => {}
        }
    }

    pub fn status(&mut self, status: &Status) {
        self.0.learn(Kind::Host, &status.name);
        if let Some(far) = &status.far_end {
            self.0.learn(Kind::Host, &far.name);
        }
        for network in &status.networks {
            let wifi = network.direct.as_ref().and_then(|direct| direct.wifi.as_ref());
            self.ssid(wifi.and_then(|wifi| wifi.ssid.as_deref()));
        }
    }

    pub fn radio(&mut self, radio: &RadioStatus) {
        for network in &radio.networks {
            self.ssid(Some(&network.ssid));
        }
    }

    pub fn ssid(&mut self, ssid: Option<&str>) {
        self.0.learn(Kind::Ssid, ssid.unwrap_or_default());
    }

    pub fn flows(&mut self, flows: &Flows) {
        for program in flows.flows.iter().filter_map(|flow| flow.program.as_deref()) {
            self.0.learn(Kind::Program, program);
        }
    }

    pub fn clients(&mut self, clients: &GatewayClients) {
        let clients_names = clients.clients.iter().map(|client| &client.name);
        let invited = clients.invitations.iter().map(|invitation| &invitation.name);
        for name in clients_names.chain(invited) {
            self.0.learn(Kind::Host, name);
        }
    }

    pub fn neighbours(&mut self, neighbourhood: &Neighbourhood) {
        for neighbour in &neighbourhood.neighbours {
            self.0.learn(Kind::Host, &neighbour.name);
        }
    }
}
