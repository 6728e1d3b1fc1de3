//! What a key does: changes the view, and may give an order. Pure.

use anabranch::control::NetworkChange;
use policy::Priority;
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::dialog::{Dialog, Holding};
use super::order::Order;
use super::view::{Kind, Tab, View};

/// Longest filter, in letters.
const MOST_LETTERS: usize = 64;
/// Weights of the radio's networks, as `anabranch radio weights` takes them.
const MOST_WEIGHT: u16 = 1_000;

/// What the program does after a key.
#[derive(Clone, PartialEq, Debug)]
pub enum Deed {
    Nothing,
    Order(Order),
    /// Stop as other programs do at ^Z.
    Suspend,
    Quit,
}

/// Lines of the list of keys: the key, what it does, and where.
pub const KEYS: [(&str, &str); 14] = [
    ("Tab, 1-6", "another list (also: left, right)"),
    ("up, down, PgUp, PgDn, Home, End", "choose a row (also: k, j)"),
    ("Esc", "let the row go, close a question, clear the filter"),
    ("- +", "networks: preferred sooner, later; radio: less, more of its time"),
    ("b", "networks: backup on or off"),
    ("m", "networks: metered on or off"),
    ("o", "networks: off, or on again"),
    ("h", "flows: hold new flows to this destination"),
    ("/", "flows: show only those with this text"),
    ("d", "rules: remove a pin"),
    ("r", "clients: shut out, or withdraw the invitation"),
    ("D", "bring the daemon down"),
    ("Ctrl-L", "draw everything anew"),
    ("q", "quit (also: Ctrl-C)"),
];

impl View {
    /// Takes one key.
    pub fn press(&mut self, key: KeyEvent) -> Deed {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Deed::Quit,
                KeyCode::Char('z') => Deed::Suspend,
                _ => Deed::Nothing,
            };
        }
        match self.dialog.take() {
            Some(dialog) => self.answer(dialog, key.code),
            None => self.act(key.code),
        }
    }

    fn answer(&mut self, dialog: Dialog, key: KeyCode) -> Deed {
        match (dialog, key) {
            (Dialog::Keys, KeyCode::Char('q')) => Deed::Quit,
            (Dialog::Keys, _) => Deed::Nothing,
            (Dialog::Confirm { order, .. }, KeyCode::Char('y' | 'Y')) => Deed::Order(order),
            // A key that was meant for the list must not answer the question in one way or the other.
            (Dialog::Confirm { .. }, KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc) => {
                self.remark = "nothing was changed".to_owned();
                Deed::Nothing
            }
            (Dialog::Hold(_), KeyCode::Esc | KeyCode::Char('q')) => Deed::Nothing,
            (Dialog::Hold(holding), KeyCode::Enter) => holding.order().map_or(Deed::Nothing, Deed::Order),
            (Dialog::Hold(mut holding), key) => {
                let last = holding.ways.len().saturating_sub(1);
                holding.chosen = match key {
                    KeyCode::Up | KeyCode::Char('k') => holding.chosen.saturating_sub(1),
                    KeyCode::Down | KeyCode::Char('j') => (holding.chosen + 1).min(last),
                    _ => holding.chosen,
                };
                self.dialog = Some(Dialog::Hold(holding));
                Deed::Nothing
            }
            (Dialog::Filter, key) => {
                self.type_filter(key);
                Deed::Nothing
            }
            (dialog, _) => {
                self.dialog = Some(dialog);
                Deed::Nothing
            }
        }
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => return,
            KeyCode::Esc => {
                self.filter.clear();
                return self.show(Tab::Flows);
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) if self.filter.chars().count() < MOST_LETTERS => self.filter.push(letter),
            _ => {}
        }
        self.show(Tab::Flows);
        self.dialog = Some(Dialog::Filter);
    }

    fn act(&mut self, key: KeyCode) -> Deed {
        let tabs = self.tabs();
        let place = tabs.iter().position(|tab| *tab == self.tab).unwrap_or(0);
        let page = usize::from(self.size.1).saturating_sub(super::draw::FRAME_ROWS).max(1);
        let index = self.cursor.index;
        match key {
            KeyCode::Char('q') => return Deed::Quit,
            KeyCode::Char('?') | KeyCode::F(1) => self.dialog = Some(Dialog::Keys),
            KeyCode::Tab | KeyCode::Right => self.show(tabs[(place + 1) % tabs.len()]),
            KeyCode::BackTab | KeyCode::Left => self.show(tabs[(place + tabs.len() - 1) % tabs.len()]),
            KeyCode::Char(digit @ '1'..='9') => {
                if let Some(tab) = tabs.get(digit as usize - '1' as usize) {
                    self.show(*tab);
                }
            }
            KeyCode::Up | KeyCode::Char('k') => self.choose(index.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.choose(index + 1),
            KeyCode::PageUp => self.choose(index.saturating_sub(page)),
            KeyCode::PageDown => self.choose(index.saturating_add(page)),
            KeyCode::Home => self.choose(0),
            KeyCode::End => self.choose(usize::MAX),
            KeyCode::Esc if self.tab == Tab::Flows => {
                self.filter.clear();
                self.show(Tab::Flows);
            }
            KeyCode::Esc => self.show(self.tab),
            KeyCode::Char('D') if self.kind.is_some() => self.ask_down(),
            key => return self.change(key),
        }
        self.remark.clear();
        Deed::Nothing
    }

    /// Keys that are about the chosen row.
    fn change(&mut self, key: KeyCode) -> Deed {
        let order = match (self.tab, key) {
            (Tab::Networks | Tab::Paths, KeyCode::Char(letter)) => self.change_network(letter),
            (Tab::Flows, KeyCode::Char('/')) => {
                self.dialog = Some(Dialog::Filter);
                None
            }
            (Tab::Flows, KeyCode::Char('h')) => {
                let flow = self.shown_flows().nth(self.cursor.index);
                self.dialog = flow.map(|flow| Dialog::Hold(Holding::of(flow, self.networks())));
                None
            }
            (Tab::Radio, KeyCode::Char(sign @ ('+' | '=' | '-'))) => self.weigh(sign != '-'),
            (Tab::Rules, KeyCode::Char('d') | KeyCode::Delete) => {
                self.rules.get(self.cursor.index).map(|rule| Order::Unpin(rule.name.clone()))
            }
            (Tab::Clients, KeyCode::Char('r')) => {
                self.ask_revoke();
                None
            }
            _ => None,
        };
        order.map_or(Deed::Nothing, Deed::Order)
    }

    fn change_network(&mut self, letter: char) -> Option<Order> {
        let network = match self.tab {
            Tab::Paths => self.paths().nth(self.cursor.index)?.0,
            _ => self.networks().get(self.cursor.index)?,
        };
        let stays = NetworkChange::default();
        let change = match letter {
            '-' => NetworkChange { priority: Some(Priority(network.priority.0.saturating_sub(1))), ..stays },
            '+' | '=' => {
                NetworkChange { priority: Some(Priority(network.priority.0.saturating_add(1))), ..stays }
            }
            'b' => NetworkChange { backup: Some(!network.backup), ..stays },
            'm' => NetworkChange { metered: Some(!network.metered), ..stays },
            'o' => NetworkChange { off: Some(!network.off), ..stays },
            _ => return None,
        };
        let name = network.name.clone();
        let others = self.networks().iter().any(|other| other.name != name && other.connected && !other.off);
        let interrupts = change.off == Some(true) && network.connected;
        let order = Order::Network { name: name.clone(), change };
        if !interrupts {
            return Some(order);
        }
        let question = match others {
            true => format!("Switch {name} off? Connections that go directly over it end."),
            false => {
                format!("Switch {name} off? It is the last network in use: nothing gets out without it.")
            }
        };
        self.dialog = Some(Dialog::Confirm { question, order });
        None
    }

    fn weigh(&self, more: bool) -> Option<Order> {
        let network = self.radio.as_ref()?.networks.get(self.cursor.index)?;
        let weight = if more { network.weight.saturating_add(1) } else { network.weight.saturating_sub(1) };
        Some(Order::Weight { ssid: network.ssid.clone(), weight: weight.clamp(1, MOST_WEIGHT) })
    }

    fn ask_revoke(&mut self) {
        let clients = &self.clients.clients;
        let (name, question) = if let Some(client) = clients.get(self.cursor.index) {
            let name = client.name.clone();
            let question = format!("Shut {name} out? Its session ends, and its key is not known any more.");
            (name, question)
        } else {
            let index = self.cursor.index - clients.len();
            let Some(invitation) = self.clients.invitations.get(index) else { return };
            let name = invitation.name.clone();
            let question = format!("Withdraw the invitation of {name}? Its link will let nobody in.");
            (name, question)
        };
        self.dialog = Some(Dialog::Confirm { question, order: Order::Revoke(name) });
    }

    fn ask_down(&mut self) {
        let what = match self.kind {
            Some(Kind::Radio) => {
                "Bring the radio down? All its networks are left, and the card is given back."
            }
            _ => "Bring the daemon down? It takes back what it changed on this machine, and ends.",
        };
        self.dialog = Some(Dialog::Confirm { question: what.to_owned(), order: Order::Down });
    }
}
