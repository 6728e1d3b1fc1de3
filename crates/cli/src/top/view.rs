//! All that the screen shows, and how answers change it. Pure: keys are in [`super::keys`], the terminal in [`super::terminal`].

use std::collections::VecDeque;

use anabranch::control::{
    Event, FlowReport, Flows, GatewayClients, NetworkReport, PathReport, RadioStatus, Role, RuleReport,
    Status, UnixMillis,
};

use super::dialog::Dialog;
use super::history::History;
use super::look::Look;
use super::sample::{News, Said, Sample};

/// Events that are kept; older ones go.
const MOST_EVENTS: usize = 500;

/// Whom the screen is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Device,
    Gateway,
    Radio,
}

/// One of the lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tab {
    Networks,
    Flows,
    Paths,
    Radio,
    Events,
    Rules,
    Clients,
}

impl Tab {
    pub fn name(self) -> &'static str {
        match self {
            Self::Networks => "Networks",
            Self::Flows => "Flows",
            Self::Paths => "Paths",
            Self::Radio => "Radio",
            Self::Events => "Events",
            Self::Rules => "Rules",
            Self::Clients => "Clients",
        }
    }
}

/// Whether the daemon answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    /// Nothing has come yet.
    Waiting,
    /// The last question was answered.
    Up,
    /// It was not.
    Gone { since: UnixMillis, why: String },
}

/// The row that keys are about. Once it was chosen it is followed when the order changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cursor {
    pub index: usize,
    pub held: Option<String>,
}

/// The model of the screen.
pub struct View {
    pub look: Look,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    pub now: UnixMillis,
    pub line: Line,
    pub kind: Option<Kind>,
    pub tab: Tab,
    pub cursor: Cursor,
    pub status: Option<Status>,
    pub flows: Flows,
    pub rules: Vec<RuleReport>,
    pub clients: GatewayClients,
    pub radio: Option<RadioStatus>,
    /// Newest first.
    pub events: VecDeque<Event>,
    pub past: History,
    pub dialog: Option<Dialog>,
    /// Only flows that have this in one of their texts.
    pub filter: String,
    /// How the last order went, or what a key would need.
    pub remark: String,
}

impl View {
    pub fn new(look: Look, size: (u16, u16), now: UnixMillis) -> Self {
        Self {
            look,
            size,
            now,
            line: Line::Waiting,
            kind: None,
            tab: Tab::Networks,
            cursor: Cursor::default(),
            status: None,
            flows: Flows::default(),
            rules: Vec::new(),
            clients: GatewayClients::default(),
            radio: None,
            events: VecDeque::new(),
            past: History::default(),
            dialog: None,
            filter: String::new(),
            remark: String::new(),
        }
    }

    /// Takes what one round of questions brought.
    pub fn take(&mut self, sample: Sample) {
        self.now = sample.at;
        match sample.said {
            Said::Nothing(why) => {
                let since = match self.line {
                    Line::Gone { since, .. } => since,
                    _ => sample.at,
                };
                self.line = Line::Gone { since, why };
            }
            Said::Radio { radio, news } => {
                self.line = Line::Up;
                self.become_kind(Kind::Radio);
                self.hear(news);
                self.radio = Some(radio);
            }
            Said::Daemon(daemon) => {
                self.line = Line::Up;
                self.become_kind(match daemon.status.role {
                    Role::Device => Kind::Device,
                    Role::Gateway => Kind::Gateway,
                });
                self.hear(daemon.news);
                self.past.add(&daemon.status.networks);
                self.status = Some(daemon.status);
                self.radio = daemon.radio;
                self.flows = daemon.flows.unwrap_or_else(|| std::mem::take(&mut self.flows));
                self.rules = daemon.rules.unwrap_or_else(|| std::mem::take(&mut self.rules));
                self.clients = daemon.clients.unwrap_or_else(|| std::mem::take(&mut self.clients));
            }
        }
        self.follow();
    }

    fn become_kind(&mut self, kind: Kind) {
        if self.kind != Some(kind) {
            self.kind = Some(kind);
            self.status = None;
            self.show(self.tabs()[0]);
        }
    }

    fn hear(&mut self, news: News) {
        if news.other {
            self.events.clear();
            self.past = History::default();
        }
        for event in news.events {
            self.events.push_front(event);
        }
        self.events.truncate(MOST_EVENTS);
    }

    /// Opens a list at its beginning.
    pub fn show(&mut self, tab: Tab) {
        self.tab = tab;
        self.cursor = Cursor::default();
    }

    /// The lists that there are for this kind of daemon.
    pub fn tabs(&self) -> &'static [Tab] {
        match self.kind {
            Some(Kind::Gateway) => &[Tab::Clients, Tab::Events],
            Some(Kind::Radio) => &[Tab::Radio, Tab::Events],
            _ => &[Tab::Networks, Tab::Flows, Tab::Paths, Tab::Radio, Tab::Events, Tab::Rules],
        }
    }

    pub fn networks(&self) -> &[NetworkReport] {
        self.status.as_ref().map_or(&[], |status| &status.networks)
    }

    pub fn paths(&self) -> impl Iterator<Item = (&NetworkReport, &PathReport)> {
        self.networks().iter().flat_map(|network| network.paths.iter().map(move |path| (network, path)))
    }

    /// The flows that pass the filter, the busiest first.
    pub fn shown_flows(&self) -> impl Iterator<Item = &FlowReport> {
        let wanted = self.filter.to_lowercase();
        self.flows.flows.iter().filter(move |flow| wanted.is_empty() || describes(flow, &wanted))
    }

    /// Rows of the open list.
    pub fn rows(&self) -> usize {
        match self.tab {
            Tab::Networks => self.networks().len(),
            Tab::Flows => self.shown_flows().count(),
            Tab::Paths => self.paths().count(),
            Tab::Radio => self.radio.as_ref().map_or(0, |radio| radio.networks.len()),
            Tab::Events => self.events.len(),
            Tab::Rules => self.rules.len(),
            Tab::Clients => self.clients.clients.len() + self.clients.invitations.len(),
        }
    }

    /// What names a row of the open list, whatever its place.
    fn name_of(&self, index: usize) -> Option<String> {
        match self.tab {
            Tab::Networks => self.networks().get(index).map(|network| network.name.clone()),
            Tab::Flows => self.shown_flows().nth(index).map(flow_name),
            Tab::Paths => self.paths().nth(index).map(|(_, path)| path.id.to_string()),
            Tab::Radio => self.radio.as_ref()?.networks.get(index).map(|network| network.interface.clone()),
            Tab::Events => self.events.get(index).map(|event| event.sequence.0.to_string()),
            Tab::Rules => self.rules.get(index).map(|rule| rule.name.clone()),
            Tab::Clients => match self.clients.clients.get(index) {
                Some(client) => Some(client.name.clone()),
                None => {
                    let index = index.checked_sub(self.clients.clients.len())?;
                    self.clients.invitations.get(index).map(|invitation| format!("/{}", invitation.name))
                }
            },
        }
    }

    /// Moves the cursor, and holds on to what is there.
    pub fn choose(&mut self, index: usize) {
        self.cursor.index = index.min(self.rows().saturating_sub(1));
        // The top of what moves by itself stays the top.
        let floats = self.cursor.index == 0 && matches!(self.tab, Tab::Events | Tab::Flows);
        self.cursor.held = if floats { None } else { self.name_of(self.cursor.index) };
    }

    /// Finds the row again that was chosen.
    pub fn follow(&mut self) {
        let rows = self.rows();
        if let Some(held) = self.cursor.held.clone() {
            let is_there = |index: usize| self.name_of(index).as_ref() == Some(&held);
            let found = if is_there(self.cursor.index) {
                Some(self.cursor.index)
            } else if self.tab == Tab::Flows {
                self.shown_flows().position(|flow| flow_name(flow) == held)
            } else {
                (0..rows).find(|index| is_there(*index))
            };
            match found {
                Some(index) => self.cursor.index = index,
                None => self.cursor.held = None,
            }
        }
        self.cursor.index = self.cursor.index.min(rows.saturating_sub(1));
    }
}

fn flow_name(flow: &FlowReport) -> String {
    format!("{} {} {}", flow.protocol, flow.source, flow.destination)
}

fn describes(flow: &FlowReport, wanted: &str) -> bool {
    let texts = [flow.program.as_deref(), Some(&flow.protocol), flow.network.as_deref(), Some(&flow.why)];
    let told = [flow.destination.to_string(), flow.treatment.to_string()];
    let all = texts.into_iter().flatten().chain(told.iter().map(String::as_str));
    all.into_iter().any(|text| text.to_lowercase().contains(wanted))
}
