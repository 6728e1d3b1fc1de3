//! The loop between the kernel's simulated radios and the medium.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use linux::clock;
use linux::hwsim::{Air, AirEvent, NO_TRIES, Order, RadioFrame, RadioReport};
use linux::poll::{Interest, Poller, Token, be_punctual};
use linux::signals::EndSignals;
use radio::frame::{FrameControl, Kind};
use sim::medium::{
    AccessCategory, Event, Frame, FrameId, Links, Medium, Outcome, Rates, Reception, StationId, Timing,
    Tuning,
};
use units::{Frequency, MacAddress, Timestamp};

use super::capture::Capture;
use super::config::Config;
use super::numbers::Numbers;
use super::partings::Partings;
use super::rates::{index_of, series_of, tries_of};
use super::report::{RadioCounts, Report};

/// Is the medium until SIGTERM or SIGINT; a SIGHUP reads `path` again and takes its links over; ways begin anew. Prints "ready" once it has begun.
///
/// # Errors
/// If the description is wrong, there are no simulated radios or another medium has them, or a file cannot be written.
pub fn run(path: &Path) -> anyhow::Result<()> {
    let config = read(path)?;
    let signals = EndSignals::catch().context("wait for signals")?;
    be_punctual();
    let mut front_end = FrontEnd::new(config)?;
    let mut poller = Poller::new().context("wait for the radios")?;
    poller.add(&front_end.air, AIR, Interest::Readable)?;
    poller.add(&signals, SIGNALS, Interest::Readable)?;
    println!("ready");
    let mut ready = Vec::new();
    loop {
        front_end.work().context("serve the simulated radios")?;
        while let Some(signal) = signals.take() {
            if signal != HANG_UP {
                return front_end.end();
            }
            front_end.change(read(path)?)?;
        }
        poller.wait(front_end.rest(), &mut ready)?;
    }
}

fn read(path: &Path) -> anyhow::Result<Config> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    Config::read(&text).with_context(|| path.display().to_string())
}

struct FrontEnd {
    config: Config,
    /// When that was read.
    config_read: Timestamp,
    air: Air,
    medium: Medium<Links>,
    /// Hardware addresses of the radios, in order of their stations.
    radios: Vec<MacAddress>,
    /// What the medium has of each radio, by its number.
    pending: BTreeMap<(StationId, FrameId), Pending>,
    /// How often an interface of each radio was taken down.
    closings: BTreeMap<StationId, u32>,
    /// How many frames each radio no longer had.
    gone: BTreeMap<StationId, u64>,
    numbers: Numbers,
    capture: Option<Capture>,
    partings: Option<Partings>,
    report: Report,
    lateness: Lateness,
    overflowed: bool,
}

/// A frame on its way through the medium.
#[derive(Clone, Copy)]
struct Pending {
    frequency: Frequency,
    without_acknowledgement: bool,
    /// How often an interface of its radio had been taken down.
    closings: u32,
}

/// How late due things were done.
#[derive(Default)]
struct Lateness {
    total: Duration,
    worst: Duration,
    count: u32,
}

/// What the kernel said at once to what it was told.
#[derive(Default)]
struct Answers {
    refused: Vec<Order>,
}

impl FrontEnd {
    fn new(config: Config) -> anyhow::Result<Self> {
        let air = Air::register()?;
        let capture =
            config.capture.as_deref().map(Capture::begin).transpose().context("begin the capture")?;
        let partings = config
            .partings
            .as_deref()
            .map(Partings::begin)
            .transpose()
            .context("begin the list of partings")?;
        let timing = if config.timing_of_b { Timing::B } else { Timing::G };
        let medium = Medium::new(Links::default(), config.seed).with_timing(timing);
        Ok(Self {
            config,
            config_read: clock::now(),
            air,
            medium,
            radios: Vec::new(),
            pending: BTreeMap::new(),
            closings: BTreeMap::new(),
            gone: BTreeMap::new(),
            numbers: Numbers::default(),
            capture,
            partings,
            report: Report::default(),
            lateness: Lateness::default(),
            overflowed: false,
        })
    }

    /// How long nothing needs to be done unless a radio sends; `None`: for ever.
    fn rest(&self) -> Option<Duration> {
        let due = self.medium.poll_timeout()?;
        Some(due.since(clock::now()))
    }

    /// Does all that can be done now.
    fn work(&mut self) -> anyhow::Result<()> {
        self.hear()?;
        while let Some(due) = self.medium.poll_timeout() {
            let now = clock::now();
            if due > now {
                break;
            }
            self.lateness.note(now.since(due));
            self.medium.handle_timeout(now);
            self.tell()?;
        }
        Ok(())
    }

    /// Takes what the radios and the kernel say; with what they refused of what they had just been told.
    fn hear(&mut self) -> anyhow::Result<Answers> {
        let mut answers = Answers::default();
        let mut heard = Vec::new();
        self.overflowed |= !self.air.receive(|event| match event {
            AirEvent::Refused(order) => answers.refused.push(order),
            AirEvent::Frame(frame) => heard.push(Heard::of(&frame)),
            AirEvent::AddressAdded { radio, address } => heard.push(Heard::Opened(radio, address)),
            AirEvent::AddressRemoved { radio, address } => heard.push(Heard::Closed(radio, address)),
        })?;
        let now = clock::now();
        for one in heard {
            match one {
                Heard::Opened(radio, address) => {
                    let station = self.station(radio)?;
                    self.medium.add_address(station, address);
                }
                Heard::Closed(radio, address) => {
                    let station = self.station(radio)?;
                    self.medium.remove_address(station, address);
                    *self.closings.entry(station).or_default() += 1;
                }
                Heard::Frame { radio, frame, without_acknowledgement } => {
                    self.send(now, radio, frame, without_acknowledgement)?;
                }
            }
        }
        Ok(answers)
    }

    /// A radio sends a frame.
    fn send(
        &mut self,
        now: Timestamp,
        radio: MacAddress,
        mut frame: Frame,
        without_acknowledgement: bool,
    ) -> anyhow::Result<()> {
        let station = self.station(radio)?;
        let (id, frequency) = (frame.id, frame.frequency);
        // The kernel does not tell of monitors, though active ones acknowledge, nor of what was open before the medium came.
        if let Some(sender) = sender_of(&frame.bytes)
            && number_of(sender) == number_of(radio)
            && self.medium.owner_of(sender).is_none()
        {
            self.medium.add_address(station, sender);
        }
        if self.medium.has_room(station, frame.category) {
            self.numbers.close_up(&mut frame.bytes);
        } else {
            self.numbers.drop(&frame.bytes);
        }
        let control = frame.bytes.first_chunk().copied();
        if self.medium.transmit(now, station, frame).is_ok() {
            if let (Some(partings), Some(control)) = (&mut self.partings, control) {
                partings.taken(now, station, id, number_of(radio), control);
            }
            let closings = self.closings(station);
            self.pending.insert((station, id), Pending { frequency, without_acknowledgement, closings });
        } else {
            self.air.report(&RadioReport {
                radio,
                cookie: id.0,
                tries: NO_TRIES,
                acknowledged: false,
                without_acknowledgement: false,
                signal_dbm: 0,
            });
            self.air.flush()?;
        }
        Ok(())
    }

    /// Tells the radios what the medium says, and the medium who was not there.
    fn tell(&mut self) -> anyhow::Result<()> {
        let mut offered: Vec<(Order, Reception)> = Vec::new();
        let mut reports: Vec<(Order, StationId, u32)> = Vec::new();
        while let Some(event) = self.medium.poll_event() {
            match event {
                Event::Reception(reception) => {
                    let Some(&radio) = self.radios.get(reception.station.0) else { continue };
                    let index = index_of(reception.frequency, reception.rate);
                    let order = self.air.deliver(
                        radio,
                        &lengthened(&reception.bytes),
                        reception.frequency,
                        index,
                        reception.signal_dbm,
                    );
                    offered.push((order, reception));
                }
                Event::Outcome(outcome) => {
                    if let Some(partings) = &mut self.partings {
                        partings.ended(outcome.at, outcome.sender, outcome.id, outcome.acknowledged);
                    }
                    reports.extend(self.report(&outcome));
                }
                Event::Attempt(attempt) => {
                    if let Some(capture) = &mut self.capture {
                        capture.add(&attempt).context("write the capture")?;
                    }
                }
            }
        }
        self.air.flush()?;
        if let Some(partings) = &mut self.partings {
            partings.told(clock::now()).context("write the list of partings")?;
        }
        let answers = self.hear()?;
        for order in answers.refused {
            if let Some((_, reception)) = offered.iter().find(|(offered, _)| *offered == order) {
                self.medium.handle_absent(reception);
            } else if let Some((_, sender, closings)) =
                reports.iter().find(|(reported, ..)| *reported == order)
                && self.closings(*sender) == *closings
            {
                *self.gone.entry(*sender).or_default() += 1;
            }
        }
        Ok(())
    }

    /// How often an interface of a radio was taken down so far: then it drops what it had still to send, as a real one does.
    fn closings(&self, station: StationId) -> u32 {
        self.closings.get(&station).copied().unwrap_or_default()
    }

    /// Tells a radio what became of its frame; with the order, the sender and how often it had been taken down before.
    fn report(&mut self, outcome: &Outcome) -> Option<(Order, StationId, u32)> {
        let pending = self.pending.remove(&(outcome.sender, outcome.id))?;
        let radio = *self.radios.get(outcome.sender.0)?;
        let order = self.air.report(&RadioReport {
            radio,
            cookie: outcome.id.0,
            tries: tries_of(pending.frequency, &outcome.attempts),
            acknowledged: outcome.acknowledged,
            without_acknowledgement: pending.without_acknowledgement,
            signal_dbm: outcome.signal_dbm.unwrap_or(0),
        });
        Some((order, outcome.sender, pending.closings))
    }

    /// The station that a radio is; a radio that is new becomes one.
    fn station(&mut self, radio: MacAddress) -> anyhow::Result<StationId> {
        if let Some(known) = self.radios.iter().position(|known| *known == radio) {
            return Ok(StationId(known));
        }
        let station = self.medium.add_station(Tuning::Unknown, self.config.queue);
        self.radios.push(radio);
        *self.medium.propagation_mut() = self.links()?;
        Ok(station)
    }

    fn links(&self) -> anyhow::Result<Links> {
        let station = |number| self.radios.iter().position(|radio| number_of(*radio) == number);
        Ok(self.config.links(self.config_read, station)?)
    }

    fn change(&mut self, config: Config) -> anyhow::Result<()> {
        self.config = config;
        self.config_read = clock::now();
        *self.medium.propagation_mut() = self.links()?;
        Ok(())
    }

    fn end(mut self) -> anyhow::Result<()> {
        if let Some(capture) = self.capture.take() {
            capture.end().context("write the capture")?;
        }
        if let Some(partings) = self.partings.take() {
            partings.end().context("write the list of partings")?;
        }
        let mut report = self.report;
        for (number, radio) in self.radios.iter().enumerate() {
            let counted = self.medium.station_statistics(StationId(number));
            let counts = RadioCounts {
                offered: counted.offered,
                attempts: counted.attempts,
                acknowledged: counted.acknowledged,
                unanswered: counted.unanswered,
                failed: counted.failed,
                queue_dropped: counted.dropped,
                gone: self.gone.get(&StationId(number)).copied().unwrap_or_default(),
            };
            report.radios.insert(number_of(*radio).to_string(), counts);
        }
        for (frequency, used) in self.medium.channel_statistics() {
            report.air_seconds.insert(frequency.0, (used.frames + used.answers).as_secs_f64());
            report.collisions += used.collisions;
        }
        report.mean_lateness_us =
            self.lateness.total.as_secs_f64() * 1e6 / f64::from(self.lateness.count.max(1));
        report.worst_lateness_us = self.lateness.worst.as_secs_f64() * 1e6;
        report.judge(self.overflowed);
        if let Some(reason) = &report.void {
            println!("void: {reason}");
        }
        if let Some(path) = &self.config.report {
            let text = serde_json::to_string_pretty(&report)?;
            fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }
}

impl Lateness {
    fn note(&mut self, late: Duration) {
        self.total += late;
        self.worst = self.worst.max(late);
        self.count = self.count.saturating_add(1);
    }
}

/// What a radio said, kept until its turn.
enum Heard {
    Opened(MacAddress, MacAddress),
    Closed(MacAddress, MacAddress),
    Frame { radio: MacAddress, frame: Frame, without_acknowledgement: bool },
}

impl Heard {
    fn of(sent: &RadioFrame<'_>) -> Self {
        let frame = Frame {
            id: FrameId(sent.cookie),
            frequency: sent.frequency,
            bytes: sent.bytes.to_vec(),
            rates: Rates::Series(series_of(sent)),
            wants_acknowledgement: !sent.without_acknowledgement,
            category: category_of(sent.bytes),
        };
        Self::Frame { radio: sent.radio, frame, without_acknowledgement: sent.without_acknowledgement }
    }
}

/// The queue in which the kernel has a frame wait, as far as the frame shows it: management frames, and those without data by which a station asks
/// whether its access point is still there. Those that announce that it sleeps have to wait for its data; for those to groups there is room as for data.
fn category_of(frame: &[u8]) -> AccessCategory {
    let Some(control) = frame.first_chunk().and_then(|bytes| FrameControl::parse(*bytes).ok()) else {
        return AccessCategory::BestEffort;
    };
    let asks = matches!(control.kind, Kind::Null | Kind::QosNull) && !control.power_save;
    let is_group = frame.get(4).is_some_and(|first| first & 1 != 0);
    if !is_group && (asks || control.kind.is_management()) {
        AccessCategory::Voice
    } else {
        AccessCategory::BestEffort
    }
}

/// The second address of a frame, which all but short control frames have.
fn sender_of(frame: &[u8]) -> Option<MacAddress> {
    let address = MacAddress(frame.get(10..16)?.try_into().ok()?);
    (!address.is_group()).then_some(address)
}

/// The kernel's simulated radios take no frame from user space that is shorter than a header with three addresses (since Linux 6.1.54), so a
/// poll of 16 bytes (PS-Poll) gets zeros behind it, which no receiver looks at. Its air time is that of its own bytes.
fn lengthened(frame: &[u8]) -> Cow<'_, [u8]> {
    if frame.len() >= SHORTEST {
        return Cow::Borrowed(frame);
    }
    let mut longer = frame.to_vec();
    longer.resize(SHORTEST, 0);
    Cow::Owned(longer)
}

/// The number of a radio, which `mac80211_hwsim` writes into its hardware address, and the lab into further addresses of one.
fn number_of(radio: MacAddress) -> usize {
    usize::from(u16::from_be_bytes([radio.0[3], radio.0[4]]))
}

const SHORTEST: usize = 24;
const AIR: Token = Token(0);
const SIGNALS: Token = Token(1);
/// SIGHUP.
const HANG_UP: i32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_manages_or_asks_goes_before_data_and_what_announces_sleep_does_not() {
        let category = |kind: Kind, power_save: bool| {
            category_of(&FrameControl { power_save, ..FrameControl::new(kind) }.to_bytes())
        };
        for kind in [Kind::Null, Kind::QosNull] {
            assert_eq!(category(kind, false), AccessCategory::Voice);
            assert_eq!(category(kind, true), AccessCategory::BestEffort);
        }
        assert_eq!(category(Kind::Authentication, false), AccessCategory::Voice);
        assert_eq!(category(Kind::QosData, false), AccessCategory::BestEffort);
        assert_eq!(category_of(&[]), AccessCategory::BestEffort);
        let beacon = [FrameControl::new(Kind::Beacon).to_bytes().as_slice(), &[0, 0], &[0xff; 6]].concat();
        assert_eq!(category_of(&beacon), AccessCategory::BestEffort);
    }
}
