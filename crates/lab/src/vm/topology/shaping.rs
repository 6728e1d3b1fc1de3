//! A [`sim::LinkSpec`] as queueing disciplines of the guest's kernel.
//!
//! One direction of a link is two interfaces in a row, so that queue and delay do not share a limit:
//!
//! ```text
//! -> [rate interface: tbf, queue limit] -> [delay interface: netem delay, jitter, loss] ->
//! ```
//!
//! Deviations from the simulator's link: rates count the 14 bytes of an Ethernet header (0.9 % of a full packet); what
//! already travels when a link falls silent still arrives. Delivery traces are not for this module.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use sim::{Capacity, Change, Jitter, LinkSpec, LinkState, Loss, QueueLimit};
use units::{BitRate, Bytes};

/// The `tc` commands of one direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shaping {
    /// Run once, in order, without the word `tc`: the rate interface's.
    pub rate: Vec<String>,
    /// The same for the delay interface.
    pub delay: Vec<String>,
    /// Later changes of the rate interface, by time since the start.
    pub rate_changes: Changes,
    /// Later changes of the delay interface.
    pub delay_changes: Changes,
    /// Times at which the device can see the link go down (false) and come up (true).
    pub carrier_changes: Vec<(Duration, bool)>,
    /// The period after which the carrier changes repeat.
    pub carrier_period: Option<Duration>,
}

/// Timed commands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Time since the start of the schedule, and a `tc` command without the word `tc`.
    pub lines: Vec<(Duration, String)>,
    /// The schedule starts anew after this time.
    pub period: Option<Duration>,
}

impl Shaping {
    /// The commands for `link` on the given interfaces.
    ///
    /// # Errors
    /// If the link marks packets or changes between traces and rates, which this bed does not do.
    pub fn new(link: &LinkSpec, rate_interface: &str, delay_interface: &str) -> Result<Self> {
        ensure!(link.mark_above.is_none(), "the vm bed has no links that mark packets");
        let mut shaping = Self::default();
        let mut delay = DelayStage {
            link,
            delay: link.delay,
            jitter: link.jitter,
            loss: link.loss,
            state: LinkState::Up,
        };
        let queue = link.queue;
        shaping.delay.push(delay.command("add", delay_interface));
        shaping.delay_changes.period = link.schedule_period;
        shaping.rate_changes.period = link.schedule_period;
        shaping.carrier_period = link.schedule_period;
        match &link.capacity {
            Capacity::Unlimited => {}
            Capacity::Rate(rate) => shaping.rate = rate_commands(*rate, queue, rate_interface),
            Capacity::Trace(_) => anyhow::bail!("a trace is replayed by the emulator, not by the kernel"),
        }
        for timed in &link.schedule {
            match &timed.change {
                Change::Capacity(Capacity::Rate(rate)) => {
                    ensure!(
                        matches!(link.capacity, Capacity::Rate(_)),
                        "only a steady rate can change on the vm bed"
                    );
                    let command = rate_command("change", *rate, queue, rate_interface);
                    shaping.rate_changes.lines.push((timed.at, command));
                    continue;
                }
                Change::Capacity(_) => {
                    anyhow::bail!("on the vm bed a link's rate changes to another rate only")
                }
                Change::Delay(time) => delay.delay = *time,
                Change::Jitter(jitter) => delay.jitter = *jitter,
                Change::Loss(loss) => delay.loss = *loss,
                Change::State(state) => {
                    let (before, now) = (delay.state == LinkState::Down, *state == LinkState::Down);
                    match (before, now) {
                        (false, true) => shaping.carrier_changes.push((timed.at, false)),
                        (true, false) => shaping.carrier_changes.push((timed.at + CARRIER_LAG, true)),
                        _ => {}
                    }
                    delay.state = *state;
                }
            }
            shaping.delay_changes.lines.push((timed.at, delay.command("change", delay_interface)));
        }
        Ok(shaping)
    }
}

/// What the delay interface does at some time.
struct DelayStage<'a> {
    link: &'a LinkSpec,
    delay: Duration,
    jitter: Jitter,
    loss: Loss,
    state: LinkState,
}

impl DelayStage<'_> {
    fn command(&self, verb: &str, interface: &str) -> String {
        let mut text = format!("qdisc {verb} dev {interface} root handle 2: netem limit {TRAVELLING_LIMIT}");
        // Writing to a string cannot fail.
        let _ = write!(text, " delay {}us", self.delay.as_micros());
        match self.jitter {
            Jitter::None => {}
            Jitter::OrderKept(amplitude) | Jitter::Reordering(amplitude) => {
                let _ = write!(text, " {}us", amplitude.as_micros());
            }
        }
        match self.loss {
            _ if self.state != LinkState::Up => text.push_str(" loss 100%"),
            Loss::None => {}
            Loss::Random(probability) => {
                let _ = write!(text, " loss {}%", percent(probability));
            }
            Loss::GilbertElliott { good_to_bad, bad_to_good, loss_in_good, loss_in_bad } => {
                let [p, r, bad, good] = [good_to_bad, bad_to_good, loss_in_bad, loss_in_good].map(percent);
                let _ = write!(text, " loss gemodel {p}% {r}% {bad}% {good}%");
            }
        }
        // With a rate, netem never lets a packet overtake the one before.
        if matches!(self.jitter, Jitter::OrderKept(_)) || matches!(self.link.jitter, Jitter::OrderKept(_)) {
            text.push_str(" rate 100gbit");
        }
        text
    }
}

fn rate_commands(rate: BitRate, queue: QueueLimit, interface: &str) -> Vec<String> {
    let mut commands = vec![rate_command("add", rate, queue, interface)];
    if let QueueLimit::Packets(packets) = queue {
        commands
            .push(format!("qdisc add dev {interface} parent 1:1 handle 10: pfifo limit {}", packets.max(1)));
    }
    commands
}

/// The `tc` command, without the word `tc`, that gives the rate interface a rate and a queue: `add` at first, `change` later.
pub fn rate_command(verb: &str, rate: BitRate, queue: QueueLimit, interface: &str) -> String {
    let limit = match queue {
        QueueLimit::Bytes(Bytes(bytes)) => bytes.max(FULL_PACKET),
        QueueLimit::Packets(packets) => packets.max(1) as u64 * FULL_PACKET,
    };
    let rate = rate.0.max(SLOWEST);
    format!("qdisc {verb} dev {interface} root handle 1: tbf rate {rate}bit burst {BURST} limit {limit}")
}

/// A probability in per cent, to the resolution of `tc`.
fn percent(probability: f64) -> String {
    format!("{:.5}", probability.clamp(0.0, 1.0) * 100.0)
}

/// A 1500-byte packet with its Ethernet header.
const FULL_PACKET: u64 = 1_514;

/// Bytes tbf may send at once: one packet, with room for its rounding of times.
const BURST: u64 = 1_600;

/// A link that reports its carrier carries. The commands of one moment run in any order, and the first thing that
/// the kernel sends over a link that came back, an ARP request, is not repeated for a second if it is lost.
const CARRIER_LAG: Duration = Duration::from_millis(20);

/// netem's queue holds what is on its way: far more than any bandwidth-delay product here.
const TRAVELLING_LIMIT: u32 = 100_000;

/// tbf knows no standstill; at this rate a full packet waits 120 ms, which bounds how late it sees the next rate.
const SLOWEST: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use sim::TimedChange;

    fn steady() -> LinkSpec {
        LinkSpec::steady(BitRate::from_mbps(10.0), Duration::from_millis(15))
            .with_queue(QueueLimit::Bytes(Bytes(90_000)))
    }

    #[test]
    fn a_steady_link_is_two_commands() {
        let shaping = Shaping::new(&steady(), "r", "d").unwrap();
        assert_eq!(
            shaping.rate,
            ["qdisc add dev r root handle 1: tbf rate 10000000bit burst 1600 limit 90000"]
        );
        assert_eq!(shaping.delay, ["qdisc add dev d root handle 2: netem limit 100000 delay 15000us"]);
        assert!(shaping.rate_changes.lines.is_empty() && shaping.delay_changes.lines.is_empty());
    }

    #[test]
    fn only_order_keeping_jitter_has_a_rate() {
        let jittery = |jitter| Shaping::new(&steady().with_jitter(jitter), "r", "d").unwrap().delay.remove(0);
        let amplitude = Duration::from_millis(5);
        assert!(jittery(Jitter::OrderKept(amplitude)).ends_with("delay 15000us 5000us rate 100gbit"));
        assert!(jittery(Jitter::Reordering(amplitude)).ends_with("delay 15000us 5000us"));
    }

    #[test]
    fn an_outage_loses_all_and_keeps_what_was_set() {
        let at =
            |seconds, state| TimedChange { at: Duration::from_secs(seconds), change: Change::State(state) };
        let link = steady().with_loss(Loss::Random(0.005)).with_schedule(
            vec![
                at(5, LinkState::Silent),
                at(6, LinkState::Up),
                at(7, LinkState::Down),
                at(8, LinkState::Up),
            ],
            None,
        );
        let shaping = Shaping::new(&link, "r", "d").unwrap();
        let ends: Vec<_> =
            shaping.delay_changes.lines.iter().map(|(_, line)| line.rsplit(' ').next().unwrap()).collect();
        assert_eq!(ends, ["100%", "0.50000%", "100%", "0.50000%"]);
        assert_eq!(
            shaping.carrier_changes,
            [(Duration::from_secs(7), false), (Duration::from_secs(8) + CARRIER_LAG, true)]
        );
    }
}
