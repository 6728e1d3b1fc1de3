//! Asks the daemon once a second for what is looked at, and passes orders on.

use std::time::Duration;

use anabranch::control::{
    Client, ClientError, EventSequence, FailureCode, RadioStatus, Role, SOCKET_NAME, UnixMillis,
};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::order::Order;
use super::sample::{Daemon, News, Said, Sample};
use super::view::Tab;
use crate::radio_networks::set_weight;
use crate::session::Session;

/// Between two rounds of questions.
const EACH: Duration = Duration::from_secs(1);
/// A machine without a radio is asked for one this often, in rounds.
const NO_RADIO_ROUNDS: u32 = 15;

/// What comes from here.
#[derive(Debug)]
pub enum Report {
    Sample(Sample),
    /// How an order went, in words.
    Done(String),
}

/// Both daemons that may run on a state directory.
pub struct Source<'a> {
    session: &'a Session,
    device: Client,
    radio: Client,
    /// Process and start of the daemon that was last heard, and its last event.
    seen: Option<((u32, UnixMillis), EventSequence)>,
    without_radio: u32,
}

impl<'a> Source<'a> {
    pub fn new(session: &'a Session) -> Self {
        Self {
            session,
            device: Client::new(session.path().join(SOCKET_NAME)),
            radio: Client::new(session.radio().path().join(SOCKET_NAME)),
            seen: None,
            without_radio: 0,
        }
    }

    /// Until nobody listens any more.
    pub async fn run(
        mut self,
        mut looked_at: watch::Receiver<Tab>,
        mut orders: mpsc::Receiver<Order>,
        reports: mpsc::Sender<Report>,
    ) {
        loop {
            let next = Instant::now() + EACH;
            let tab = *looked_at.borrow_and_update();
            let sample = Sample { at: UnixMillis::now(), said: self.ask(tab).await };
            if reports.send(Report::Sample(sample)).await.is_err() {
                return;
            }
            tokio::select! {
                () = sleep_until(next) => {}
                changed = looked_at.changed() => if changed.is_err() { return },
                order = orders.recv() => {
                    let Some(order) = order else { return };
                    let done = self.carry_out(&order).await.unwrap_or_else(|error| format!("not done: {error:#}"));
                    if reports.send(Report::Done(done)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    async fn ask(&mut self, tab: Tab) -> Said {
        match self.ask_daemon(tab).await {
            Ok(daemon) => Said::Daemon(Box::new(daemon)),
            Err(error @ (ClientError::NotRunning(_) | ClientError::NotAllowed(_))) => {
                self.ask_radio().await.unwrap_or_else(|_| Said::Nothing(error.to_string()))
            }
            Err(error) => Said::Nothing(error.to_string()),
        }
    }

    async fn ask_daemon(&mut self, tab: Tab) -> Result<Daemon, ClientError> {
        let client = self.device.clone();
        let status = client.status().await?;
        let news = self.news(&client, (status.pid, status.started)).await?;
        let is_device = status.role == Role::Device;
        let flows = if tab == Tab::Flows && is_device { Some(client.flows().await?) } else { None };
        let rules = if tab == Tab::Rules && is_device { Some(client.rules().await?) } else { None };
        let clients = if is_device { None } else { Some(client.gateway_clients().await?) };
        let radio = if is_device { self.shared_radio(&client).await } else { None };
        Ok(Daemon { status, news, flows, rules, clients, radio })
    }

    async fn ask_radio(&mut self) -> Result<Said, ClientError> {
        let client = self.radio.clone();
        let radio = client.radio().await?;
        let news = self.news(&client, (radio.pid, UnixMillis::default())).await?;
        Ok(Said::Radio { radio, news })
    }

    /// The events since the last time; all of another daemon, which counts from one again.
    async fn news(&mut self, client: &Client, who: (u32, UnixMillis)) -> Result<News, ClientError> {
        let last = self.seen.filter(|(before, _)| *before == who).map(|(_, last)| last);
        let events = client.events(last.unwrap_or_default()).await?;
        let newest = events.last().map(|event| event.sequence).or(last).unwrap_or_default();
        self.seen = Some((who, newest));
        Ok(News { other: last.is_none(), events })
    }

    /// The radio of a device, which most do not have.
    async fn shared_radio(&mut self, client: &Client) -> Option<RadioStatus> {
        if self.without_radio > 0 {
            self.without_radio -= 1;
            return None;
        }
        match client.radio().await {
            Ok(radio) => Some(radio),
            Err(ClientError::Failed(failure)) if failure.code != FailureCode::Internal => {
                self.without_radio = NO_RADIO_ROUNDS;
                None
            }
            Err(_) => None,
        }
    }

    async fn carry_out(&self, order: &Order) -> anyhow::Result<String> {
        let client = &self.device;
        Ok(match order {
            Order::Network { name, change } => {
                let network = client.set_network(name, *change).await?;
                let switch = |on| if on { "on" } else { "off" };
                format!(
                    "{} until the daemon ends: priority {}, backup {}, metered {}, {}",
                    network.name,
                    network.priority.0,
                    switch(network.backup),
                    switch(network.metered),
                    if network.off { "switched off" } else { "in use" }
                )
            }
            Order::Pin(request) => {
                let rule = client.pin(request).await?;
                format!(
                    "{}: {}: {}; for new flows, until the daemon ends",
                    rule.name, rule.matches, rule.decides
                )
            }
            Order::Unpin(name) => format!("{} is removed", client.unpin(name).await?.name),
            Order::Weight { ssid, weight } => {
                set_weight(self.session, ssid, *weight)?;
                format!("{ssid} has weight {weight} now")
            }
            Order::Revoke(name) => {
                let revoked = client.revoke(name).await?;
                let what = if revoked.client { "is shut out" } else { "is no longer invited" };
                format!("{} {what}", revoked.name)
            }
            Order::Down => self.bring_down().await?,
        })
    }

    async fn bring_down(&self) -> anyhow::Result<String> {
        let answer = match self.device.down().await {
            Err(ClientError::NotRunning(_)) => self.radio.down().await,
            other => other,
        };
        let report = answer?;
        Ok(match report.failed.first() {
            None => format!("down; {} changes were taken back", report.undone.len()),
            Some(failed) => format!("down, but not all was taken back: {failed}"),
        })
    }
}
