//! A neighbourhood of `sim` for the real programs: homes with a card in monitor mode and a shaped uplink each, and a destination that all of them reach.
//!
//! ```text
//! air: channel 6, timing and rates of 802.11b; home0, the source, is heard by home1, home2 ... as the neighbourhood says
//!
//! homeN uplink [tbf] --- isp-homeN [netem, both ways] --- core --- far
//! ```
//!
//! Deviation from the simulated uplink: rates count the 14 bytes of an Ethernet header, and a queue ends at `QUEUE` bytes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Context;
use sim::neighbourhood::{CHUNK, NeighbourhoodSpec, RATES};
use units::Bytes;

use super::direct::Answers;
use super::{Job, program};
use crate::medium::{Config, LinkConfig, Quality};

/// What an uplink's modem keeps: 64 KiB.
const QUEUE: Bytes = Bytes(65_536);

/// A file that goes up, and what happens meanwhile.
#[derive(Clone, Debug)]
pub struct HomesJob {
    /// Where.
    pub neighbourhood: NeighbourhoodSpec,
    /// The file, in chunks of `sim`.
    pub chunks: u32,
    /// Decides chance on the air.
    pub seed: u64,
    /// Shell commands beside the upload. They may `note TEXT` the time and what happens, `share HOME` (which waits for the destination's answer),
    /// `kill_share HOME`, and use the namespaces of the [module](self).
    pub meanwhile: String,
}

/// How it went; times are seconds since the guest's start.
#[derive(Clone, PartialEq, Debug)]
pub struct HomesOutcome {
    /// From the command's start to its end.
    pub took: f64,
    /// When the destination took the file.
    pub begun: f64,
    /// Bytes that were stored at a time, as the source is told.
    pub stored: Vec<(f64, f64)>,
    /// The part of the file that each home's uplink has brought, the source's first.
    pub parts: Vec<f64>,
    /// Bytes with all headers that came by each home's uplink until a time, the source's first.
    pub on_the_wire: Vec<(f64, Vec<f64>)>,
    /// What was noted, and when.
    pub notes: Vec<(f64, String)>,
}

impl HomesJob {
    /// Everything but the two programs.
    ///
    /// # Errors
    /// If a tool is not on this machine.
    pub fn job(&self) -> anyhow::Result<Job> {
        let homes = self.neighbourhood.neighbours.len() + 1;
        let uplinks = std::iter::once(&self.neighbourhood.own)
            .chain(self.neighbourhood.neighbours.iter().map(|neighbour| &neighbour.uplink));
        let mut script = FUNCTIONS.to_owned();
        for (number, uplink) in uplinks.enumerate() {
            let (rate, delay) = (uplink.rate.0, uplink.delay.as_micros());
            // Writing to a string cannot fail.
            let _ = writeln!(script, "home {number} {rate} {delay} {}", QUEUE.0);
        }
        let helpers: Vec<String> = (1..homes).map(|number| format!("home{number}")).collect();
        let all: Vec<String> = (0..homes).map(|number| format!("home{number}")).collect();
        let _ = write!(
            script,
            "helpers='{}'; homes='{}'; links={homes}; chunks={}; chunk={}\n{BEGIN}{}\n{END}",
            helpers.join(" "),
            all.join(" "),
            self.chunks,
            CHUNK.0,
            self.meanwhile
        );
        let mut job = Job::new(script);
        let air = toml::to_string(&self.air()).context("describe the air")?;
        job.files.insert("/job/air.toml".into(), air.into_bytes());
        job.programs.extend([program("iw", "iw")?, program("chrt", "util-linux")?]);
        job.modules.push(format!("mac80211_hwsim radios={homes}"));
        job.timeout = Duration::from_secs(600);
        job.wall_timeout = Duration::from_secs(1_800);
        Ok(job)
    }

    fn air(&self) -> Config {
        let link = |(at, neighbour)| {
            let chances = (0..RATES.len()).map(|rate| self.neighbourhood.own_chance(neighbour, rate));
            let loss_at: BTreeMap<String, f64> = RATES
                .iter()
                .zip(chances)
                .map(|(rate, chance)| (rate.bit_rate().as_mbps().to_string(), 1.0 - chance))
                .collect();
            LinkConfig {
                from: Some(0),
                to: Some(at + 1),
                quality: Quality { loss_at, ..Quality::default() },
                ..LinkConfig::default()
            }
        };
        Config {
            seed: self.seed,
            timing_of_b: true,
            report: Some("/results/air.json".into()),
            link: self.neighbourhood.neighbours.iter().enumerate().map(link).collect(),
            ..Config::default()
        }
    }
}

impl HomesOutcome {
    /// Reads what a job left.
    ///
    /// # Errors
    /// Names what is missing.
    pub fn of(answers: &Answers, neighbours: usize) -> anyhow::Result<Self> {
        let times = answers.text("times")?;
        let [from, to] = numbers(&times)?[..] else { anyhow::bail!("not two times: {times:?}") };
        let (mut begun, mut stored, mut own) = (None, Vec::new(), 0.0);
        for line in answers.text("events")?.lines() {
            let (at, event) = line.split_once(' ').with_context(|| format!("no event: {line:?}"))?;
            let at: f64 = at.parse().with_context(|| format!("no time: {line:?}"))?;
            let event: serde_json::Value =
                serde_json::from_str(event).with_context(|| format!("no event: {line:?}"))?;
            match event["event"].as_str() {
                Some("begun") => begun = begun.or(Some(at)),
                Some("progress") => stored.push((at, event["done"].as_f64().unwrap_or(0.0))),
                Some("stored") => {
                    stored.push((at, event["size"].as_f64().unwrap_or(0.0)));
                    own = own_part(&event["shares"]);
                }
                _ => {}
            }
        }
        let mut on_the_wire = Vec::new();
        for line in answers.text("wire")?.lines() {
            let mut sample = numbers(line)?;
            anyhow::ensure!(sample.len() == neighbours + 2, "no sample of all uplinks: {line:?}");
            let at = sample.remove(0);
            on_the_wire.push((at, sample));
        }
        // The source knows its neighbours by keys only; the ledgers count what was carried twice too.
        let carried = (1..=neighbours).map(|number| {
            let lines: Vec<serde_json::Value> = answers.read(&format!("home{number}.ledger"))?;
            Ok(lines.iter().filter_map(|line| line["bytes"].as_f64()).sum())
        });
        let carried: Vec<f64> = carried.collect::<anyhow::Result<_>>()?;
        let all = carried.iter().sum::<f64>().max(1.0);
        let by_neighbours = carried.iter().map(|bytes| bytes / all * (1.0 - own));
        let notes = answers.text("notes")?;
        let notes = notes.lines().filter_map(|line| line.split_once(' '));
        Ok(Self {
            took: to - from,
            begun: begun.context("the destination never took the file")?,
            stored,
            parts: std::iter::once(own).chain(by_neighbours).collect(),
            on_the_wire,
            notes: notes
                .map(|(at, text)| Ok((at.parse().context("a note has no time")?, text.to_owned())))
                .collect::<anyhow::Result<_>>()?,
        })
    }

    /// When something was noted.
    ///
    /// # Errors
    /// If it was not.
    pub fn noted(&self, text: &str) -> anyhow::Result<f64> {
        let note = self.notes.iter().find(|(_, noted)| noted == text);
        note.map(|(at, _)| *at).with_context(|| format!("\"{text}\" was not noted"))
    }
}

/// Of what was carried, the part that came by the own uplink.
fn own_part(shares: &serde_json::Value) -> f64 {
    let own = shares["own"].as_f64().unwrap_or(0.0);
    let neighbours = shares["neighbours"].as_array().map(Vec::as_slice).unwrap_or_default();
    let others: f64 = neighbours.iter().filter_map(|one| one["bytes"].as_f64()).sum();
    own / (own + others).max(1.0)
}

/// The value of a line of points at a time.
pub fn value_at(points: impl IntoIterator<Item = (f64, f64)>, at: f64) -> f64 {
    let mut before: Option<(f64, f64)> = None;
    for (time, value) in points {
        if time >= at {
            let Some((earlier, low)) = before.filter(|(earlier, _)| *earlier < time) else { return value };
            return low + (value - low) * (at - earlier) / (time - earlier);
        }
        before = Some((time, value));
    }
    before.map_or(0.0, |(_, value)| value)
}

fn numbers(line: &str) -> anyhow::Result<Vec<f64>> {
    let parsed = line.split_whitespace().map(str::parse).collect::<Result<_, _>>();
    parsed.with_context(|| format!("not numbers: {line:?}"))
}

const FUNCTIONS: &str = r#"fail() { echo "failed: $*"; cat /results/*.log; exit 1; }
at() { local place=$1; shift; ip netns exec "$place" "$@"; }
now() { cut -d' ' -f1 /proc/uptime; }
note() { echo "$(now) $*" >>/results/notes; }
chrt -f 10 anabranch-lab medium /job/air.toml >/results/medium.log 2>&1 & medium=$!
for _ in $(seq 100); do grep -q ready /results/medium.log && break; sleep 0.1; done
grep -q ready /results/medium.log || fail 'no medium'
: >/results/notes
for name in far core; do ip netns add $name; ip -n $name link set lo up; done
join() { # two ends: namespace, interface, address
    ip link add "$2" netns "$1" type veth peer name "$5" netns "$4"
    ip -n "$1" addr add "$3" dev "$2"; ip -n "$4" addr add "$6" dev "$5"
    ip -n "$1" link set "$2" up; ip -n "$4" link set "$5" up
}
forward() { at "$1" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'; }
join far net 10.10.0.1/24 core far 10.10.0.2/24
ip -n far route add default via 10.10.0.2; forward core
home() { # number, bits a second, microseconds one way, bytes of queue
    local name=home$1 isp=isp-home$1
    for place in $name $isp; do ip netns add $place; ip -n $place link set lo up; done
    join $name uplink 10.9.$1.1/24 $isp home 10.9.$1.2/24
    join $isp core 10.8.$1.1/24 core $name 10.8.$1.2/24
    forward $isp
    ip -n $name route add default via 10.9.$1.2; ip -n $isp route add default via 10.8.$1.2
    ip -n core route add 10.9.$1.0/24 via 10.8.$1.1
    at $name tc qdisc add dev uplink root tbf rate ${2}bit burst 1600 limit $4 || fail "no uplink for $name"
    for end in home core; do
        at $isp tc qdisc add dev $end root netem limit 100000 delay ${3}us || fail "no delay for $name"
    done
    iw phy phy$1 set netns name $name
    # The medium knows a radio once one of its interfaces was on that is no monitor.
    ip -n $name link set wlan$1 up; ip -n $name link set wlan$1 down; at $name iw dev wlan$1 set type monitor
    ip -n $name link set wlan$1 name air; ip -n $name link set air up
    at $name iw dev air set channel 6 || fail "no channel 6 for $name"
}
"#;

const BEGIN: &str = r#"mkdir /tmp/into
at far anabranch --state /tmp/far accept --dir /tmp/into --links $links >/results/far.log 2>&1 &
for _ in $(seq 600); do [ "$(grep -c 'anabranch://' /results/far.log)" -ge $links ] && break; sleep 0.1; done
grep -o 'anabranch://[^ ]*' /results/far.log >/tmp/links
share() { # a home; it comes with a link the first time
    local name=$1 link=far more= count
    touch /results/$name.log; count=$(grep -c 'shares its uplink' /results/$name.log)
    if [ ! -e /tmp/$name ]; then link=$(sed -n 1p /tmp/links); sed -i 1d /tmp/links; more='--name far'; fi
    ip netns exec $name anabranch --state /tmp/$name share "$link" $more --trust-all --air air >>/results/$name.log 2>&1 &
    echo $! >/tmp/$name.pid
    for _ in $(seq 1000); do [ "$(grep -c 'shares its uplink' /results/$name.log)" -gt $count ] && return; sleep 0.02; done
    fail "$name does not share"
}
kill_share() { kill -9 "$(cat /tmp/$1.pid)"; }
for name in $helpers; do share $name; done
dd if=/dev/urandom of=/tmp/file bs=$chunk count=$chunks 2>/dev/null
link=$(sed -n 1p /tmp/links)
cat >/tmp/watch <<'HERE'
until [ -e /tmp/over ]; do
    read now _ </proc/uptime; line=$now
    for name in $homes; do read bytes </sys/class/net/$name/statistics/rx_bytes; line="$line $bytes"; done
    echo $line; sleep 0.1
done
HERE
export homes; at core sh /tmp/watch >/results/wire &
watching=$!
sleep 1; head -1 /proc/stat >/results/before; begun=$(now)
( at home0 anabranch --state /tmp/home0 upload /tmp/file "$link" --name far --air air --air-rates 1,2,5.5,11 --json 2>/results/upload.log
  echo $? >/tmp/sent ) | while read -r line; do read now _ </proc/uptime; echo "$now $line"; done >/results/events & upload=$!
"#;

const END: &str = r#"wait $upload; ended=$(now); head -1 /proc/stat >/results/after; touch /tmp/over; wait $watching
[ "$(cat /tmp/sent)" = 0 ] || fail "not uploaded"
cmp /tmp/file /tmp/into/file || fail 'not what was sent'
echo "$begun $ended" >/results/times
for name in $helpers; do at $name anabranch --state /tmp/$name share --ledger --json >/results/$name.ledger || fail 'no ledger'; done
kill -TERM $medium; wait $medium || fail 'the medium did not end well'
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use sim::neighbourhood::parse;

    #[test]
    fn the_air_is_as_the_neighbourhood_says() {
        let neighbourhood =
            parse("800/50 | 400/25 1 0.9 0.8 0.4 | 1200/75 0.5 0.4 0.3 0.2").unwrap().remove(0);
        let job = HomesJob { neighbourhood, chunks: 10, seed: 3, meanwhile: "note here".to_owned() };
        let air = job.air();
        assert_eq!(Config::read(&toml::to_string(&air).unwrap()).unwrap(), air);
        let second = &air.link[1];
        assert_eq!((second.from, second.to), (Some(0), Some(2)));
        let lost = |rate: &str| second.quality.loss_at[rate];
        assert!(
            ["1", "2", "5.5", "11"]
                .map(lost)
                .iter()
                .zip([0.5, 0.6, 0.7, 0.8])
                .all(|(lost, said)| (lost - said).abs() < 1e-9)
        );
    }

    #[test]
    fn lines_have_values_between_their_points() {
        let line = [(1.0, 10.0), (3.0, 30.0)];
        let values = [0.5, 1.0, 1.5, 3.0, 9.0].map(|at| value_at(line, at));
        assert_eq!(values, [10.0, 10.0, 15.0, 30.0, 30.0]);
        assert_eq!(value_at([], 1.0), 0.0);
    }

    #[test]
    fn the_own_part_is_that_of_all_that_was_carried() {
        let shares = serde_json::json!({ "own": 10, "neighbours": [{ "bytes": 20 }, { "bytes": 10 }] });
        assert!((own_part(&shares) - 0.25).abs() < 1e-9);
        assert_eq!(own_part(&serde_json::Value::Null), 0.0);
    }
}
