//! What the air is like: a TOML file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use radio::{NotARate, Rate};
use serde::{Deserialize, Serialize};
use sim::medium::{Ground, Link, Links, PathLoss, SignalLoss, StationId, Trace};
use thiserror::Error;
use units::Timestamp;

/// The air between the radios of a guest. Radios are numbered as the kernel makes them, from 0.
///
/// ```toml
/// seed = 1
/// queue = 100
/// timing_of_b = false
/// report = "/results/air.json"
/// capture = "/results/air.pcap"
/// usual = { signal_dbm = -50 }
/// link = [{ between = [0, 2], loss = 0.2 }, { from = 1, to = 2, signal_dbm = -72, by_signal = true }]
/// hidden = [[0, 1]]
///
/// [ground]
/// exponent = 3.5
/// fading_ms = 38.0
/// place = [{ radio = 0, trace = [[0, 15, 2]] }, { radio = 1, trace = [[0, 0, 0], [20, 30, 0]] }]
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Decides all chance.
    pub seed: u64,
    /// How many data frames a radio's queue holds, 1 to 150; the kernel's own limit of 200 must never be reached.
    pub queue: usize,
    /// Stations at 2.4 GHz wait between frames as those of 802.11b do.
    pub timing_of_b: bool,
    /// Where the counts go at the end, as JSON.
    pub report: Option<PathBuf>,
    /// Where every attempt goes, as pcap.
    pub capture: Option<PathBuf>,
    /// Where the times of stations' null frames go, as comma-separated numbers.
    pub partings: Option<PathBuf>,
    /// Every link that is not named.
    pub usual: Quality,
    /// The links that differ; a later entry wins over an earlier one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub link: Vec<LinkConfig>,
    /// Pairs of radios that do not notice each other's sending, and so do not wait for each other.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<[usize; 2]>,
    /// Where radios are and go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ground: Option<GroundConfig>,
}

/// Between two radios with a place the signal follows from their distance, and whether they notice each other. What is lost is still as their link has
/// it: `by_signal`, in most cases.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GroundConfig {
    /// The signal one metre away, dBm, -100 to -1.
    pub metre_dbm: f64,
    /// By how many times ten decibels it is weaker at ten times the distance, 1 to 10.
    pub exponent: f64,
    /// Each pair of radios fades by itself (Rayleigh), for so long at a time, 1 ms and more; 0: not at all.
    pub fading_ms: f64,
    /// A radio notices another one's sending from this mean signal on, dBm.
    pub senses_from_dbm: f64,
    /// Who is where.
    pub place: Vec<PlaceConfig>,
}

/// Where a radio is and goes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlaceConfig {
    /// The radio.
    pub radio: usize,
    /// Seconds since this description was read, and metres east and north; in between it goes straight on, after the last one it stays.
    pub trace: Vec<[f64; 3]>,
}

/// A link that differs from the usual one.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkConfig {
    /// The sending radio, for one direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<usize>,
    /// The hearing radio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<usize>,
    /// Two radios, for both directions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub between: Option<[usize; 2]>,
    /// How well it carries.
    #[serde(flatten)]
    pub quality: Quality,
}

/// How well a link carries.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Quality {
    /// Signal in dBm, -100 to -1.
    pub signal_dbm: i8,
    /// Nothing arrives at all.
    pub out_of_range: bool,
    /// Chance of losing a frame at each attempt, at all rates.
    pub loss: f64,
    /// The same by rate in Mbit/s, from that rate up to the next one named.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub loss_at: BTreeMap<String, f64>,
    /// The chance follows from signal, rate and length instead.
    pub by_signal: bool,
    /// Chance of losing an acknowledgement that goes this way.
    pub acknowledgement_loss: f64,
}

/// Why a description of the air cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// It is no TOML of this shape.
    #[error("the description of the air cannot be read: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A queue that the kernel's own would not hold.
    #[error("queue = {0}: a radio's queue holds 1 to 150 frames")]
    Queue(usize),
    /// A link without ends.
    #[error(
        "each link has `from` and `to`, or `between`, and each pair of `hidden` is, of two radios from 0 to 99"
    )]
    Ends,
    /// Not a chance.
    #[error("{0} is no chance: 0 is never, 1 is always")]
    Chance(f64),
    /// Not a rate.
    #[error(transparent)]
    Rate(#[from] NotARate),
    /// Not a way to weaken with distance.
    #[error(
        "ground: metre_dbm is from -100 to -1 dBm, senses_from_dbm from -120 to 0, exponent from 1 to 10, and fading_ms 0 or from 1 to 60,000"
    )]
    Ground,
    /// Not a way.
    #[error(
        "ground: the trace of radio {0} has at least one point, [seconds, metres, metres], seconds never go back, and the radio is one of 0 to 99, named once"
    )]
    Trace(usize),
    /// Not a signal.
    #[error("signal_dbm = {0}: a signal is between -100 and -1 dBm")]
    Signal(i8),
}

impl Config {
    /// Reads and checks the text of a file.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn read(text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text)?;
        if !(1..=LARGEST_QUEUE).contains(&config.queue) {
            return Err(ConfigError::Queue(config.queue));
        }
        config.links(Timestamp::ZERO, Some)?;
        Ok(config)
    }

    /// The links as the medium has them. `station` says which of its stations a radio is; links of unknown ones are left out. Who goes sets out at `began`.
    ///
    /// # Errors
    /// [`ConfigError`] for what makes no sense.
    pub fn links(
        &self,
        began: Timestamp,
        station: impl Fn(usize) -> Option<usize>,
    ) -> Result<Links, ConfigError> {
        let mut links = Links::new(self.usual.link()?);
        for entry in &self.link {
            let link = entry.quality.link()?;
            for (from, to) in entry.ends()? {
                if let (Some(from), Some(to)) = (station(from), station(to)) {
                    links.set(StationId(from), StationId(to), link.clone());
                }
            }
        }
        for &[one, other] in &self.hidden {
            if !are_two_radios(one, other) {
                return Err(ConfigError::Ends);
            }
            if let (Some(one), Some(other)) = (station(one), station(other)) {
                links.hide(StationId(one), StationId(other));
            }
        }
        if let Some(ground) = &self.ground {
            links.set_ground(ground.ground(began, self.seed, station)?);
        }
        Ok(links)
    }
}

impl GroundConfig {
    fn ground(
        &self,
        began: Timestamp,
        seed: u64,
        station: impl Fn(usize) -> Option<usize>,
    ) -> Result<Ground, ConfigError> {
        let sound = (-100.0..0.0).contains(&self.metre_dbm)
            && (-120.0..=0.0).contains(&self.senses_from_dbm)
            && (1.0..=10.0).contains(&self.exponent)
            && (self.fading_ms == 0.0 || (1.0..=60_000.0).contains(&self.fading_ms));
        if !sound {
            return Err(ConfigError::Ground);
        }
        let path_loss = PathLoss {
            metre_dbm: self.metre_dbm,
            exponent: self.exponent,
            coherence: (self.fading_ms > 0.0).then(|| Duration::from_secs_f64(self.fading_ms / 1e3)),
            senses_from_dbm: self.senses_from_dbm,
        };
        let mut ground = Ground::new(path_loss, began, seed);
        for PlaceConfig { radio, trace } in &self.place {
            let wrong = ConfigError::Trace(*radio);
            let points = trace.iter().map(|[seconds, east, north]| {
                Some((Duration::try_from_secs_f64(*seconds).ok()?, [*east, *north]))
            });
            let trace = points.collect::<Option<Vec<_>>>().and_then(Trace::new);
            let named = self.place.iter().filter(|other| other.radio == *radio).count();
            let (Some(trace), true, 1) = (trace, *radio < RADIOS, named) else { return Err(wrong) };
            if let Some(station) = station(*radio) {
                ground.place(StationId(station), trace);
            }
        }
        Ok(ground)
    }
}

impl LinkConfig {
    /// Both directions between two radios.
    pub fn between(one: usize, other: usize, quality: Quality) -> Self {
        Self { between: Some([one, other]), quality, ..Self::default() }
    }

    fn ends(&self) -> Result<Vec<(usize, usize)>, ConfigError> {
        let ends = match (self.from, self.to, self.between) {
            (Some(from), Some(to), None) => vec![(from, to)],
            (None, None, Some([one, other])) => vec![(one, other), (other, one)],
            _ => return Err(ConfigError::Ends),
        };
        let sound = ends.iter().all(|&(from, to)| are_two_radios(from, to));
        if sound { Ok(ends) } else { Err(ConfigError::Ends) }
    }
}

impl Quality {
    fn link(&self) -> Result<Link, ConfigError> {
        let chance = |chance: f64| {
            if (0.0..=1.0).contains(&chance) { Ok(chance) } else { Err(ConfigError::Chance(chance)) }
        };
        if !(-100..0).contains(&self.signal_dbm) {
            return Err(ConfigError::Signal(self.signal_dbm));
        }
        let loss = if self.by_signal {
            SignalLoss::BySignal
        } else if self.loss_at.is_empty() {
            SignalLoss::Steady(chance(self.loss)?)
        } else {
            let entry = |(text, loss): (&String, &f64)| Ok((text.parse::<Rate>()?, chance(*loss)?));
            SignalLoss::ByRate(self.loss_at.iter().map(entry).collect::<Result<_, ConfigError>>()?)
        };
        let signal_dbm = (!self.out_of_range).then_some(self.signal_dbm);
        Ok(Link { signal_dbm, loss, acknowledgement_loss: chance(self.acknowledgement_loss)? })
    }
}

impl Default for Config {
    fn default() -> Self {
        let usual = Quality::default();
        Self {
            seed: 1,
            queue: 100,
            timing_of_b: false,
            report: None,
            capture: None,
            partings: None,
            usual,
            link: Vec::new(),
            hidden: Vec::new(),
            ground: None,
        }
    }
}

impl Default for GroundConfig {
    /// Inside a building: 54 Mbit/s up to 8 m, 6 Mbit/s up to 25 m, beacons of 1 Mbit/s up to 55 m. Radios notice each other a little less far.
    fn default() -> Self {
        Self { metre_dbm: -33.0, exponent: 3.5, fading_ms: 0.0, senses_from_dbm: -92.0, place: Vec::new() }
    }
}

impl Default for Quality {
    /// A strong signal without loss.
    fn default() -> Self {
        Self {
            signal_dbm: -50,
            out_of_range: false,
            loss: 0.0,
            loss_at: BTreeMap::new(),
            by_signal: false,
            acknowledgement_loss: 0.0,
        }
    }
}

fn are_two_radios(one: usize, other: usize) -> bool {
    one != other && one < RADIOS && other < RADIOS
}

/// With the frames that may wait to be read, this stays below the 200 at which the kernel drops.
const LARGEST_QUEUE: usize = 150;
/// `mac80211_hwsim` makes at most 100.
const RADIOS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use sim::medium::{Passage, PassageKind, Propagation};
    use units::Bytes;

    fn loss(links: &mut Links, from: usize, to: usize, rate: u8) -> f64 {
        let (from, to) = (StationId(from), StationId(to));
        let passage = Passage { from, to, kind: PassageKind::Frame, rate: Rate(rate), length: Bytes(1_000) };
        links.loss(Timestamp::ZERO, &passage)
    }

    #[test]
    fn links_are_as_described() {
        let text = r#"
            usual = { signal_dbm = -40 }
            [[link]]
            between = [0, 2]
            loss = 0.2
            [[link]]
            from = 2
            to = 0
            signal_dbm = -70
            loss_at = { "36" = 0.25, "54" = 0.5 }
            [[link]]
            between = [1, 2]
            out_of_range = true
        "#;
        let text = &format!("hidden = [[0, 1]]\n{text}");
        let config = Config::read(text).unwrap();
        let mut links = config.links(Timestamp::ZERO, Some).unwrap();
        let mut senses = |one, other| links.senses(Timestamp::ZERO, StationId(one), StationId(other));
        assert_eq!([senses(0, 1), senses(1, 0), senses(0, 2)], [false, false, true]);
        let mut signal = |from, to| links.signal(Timestamp::ZERO, StationId(from), StationId(to));
        assert_eq!([signal(0, 1), signal(2, 0), signal(1, 2)], [Some(-40), Some(-70), None]);
        assert!((loss(&mut links, 0, 2, 108) - 0.2).abs() < 1e-9);
        assert!((loss(&mut links, 2, 0, 96) - 0.25).abs() < 1e-9);
        assert!(loss(&mut links, 2, 0, 48) < 1e-9);
        assert!(!config.timing_of_b && Config::read("timing_of_b = true").unwrap().timing_of_b);
        let again = Config::read(&toml::to_string(&config).unwrap()).unwrap();
        assert_eq!(again, config, "what is written is read back");
    }

    #[test]
    fn signals_follow_from_where_radios_are() {
        let text = r#"
            usual = { signal_dbm = -40, by_signal = true }
            [ground]
            exponent = 3.0
            place = [{ radio = 0, trace = [[0, 0, 0]] }, { radio = 1, trace = [[0, 10, 0], [10, 100, 0.5]] }]
        "#;
        let config = Config::read(text).unwrap();
        let began = Timestamp::ZERO + Duration::from_secs(5);
        let mut links = config.links(began, Some).unwrap();
        let mut signal =
            |at, from, to| links.signal(began + Duration::from_secs(at), StationId(from), StationId(to));
        assert_eq!([signal(0, 0, 1), signal(10, 1, 0), signal(0, 0, 2)], [Some(-63), Some(-93), Some(-40)]);
        assert!(loss(&mut links, 0, 1, 108) > 5e-4 && loss(&mut links, 0, 1, 12) < 1e-6);
        assert!(loss(&mut links, 0, 2, 108) < 1e-6, "who has no place is as the link has it");
        assert!(!links.senses(began + Duration::from_secs(10), StationId(0), StationId(1)));
        let again = Config::read(&toml::to_string(&config).unwrap()).unwrap();
        assert_eq!(again, config, "what is written is read back");
    }

    #[test]
    fn nonsense_is_refused_with_its_reason() {
        for (text, part) in [
            ("queue = 0", "1 to 150"),
            ("queue = 200", "1 to 150"),
            ("usual = { loss = 1.5 }", "1.5 is no chance"),
            ("link = [{ from = 1, loss = 0.5 }]", "`from` and `to`"),
            ("link = [{ between = [1, 1] }]", "two radios"),
            ("hidden = [[1, 100]]", "two radios"),
            ("link = [{ between = [1, 2], loss_at = { \"53\" = 0.1 } }]", "\"53\" is no rate"),
            ("usual = { signal_dbm = 5 }", "between -100 and -1"),
            ("colour = 3", "unknown field"),
            ("ground = { exponent = 0 }", "exponent from 1 to 10"),
            ("ground = { metre_dbm = nan }", "metre_dbm is from"),
            ("ground = { fading_ms = 0.2 }", "fading_ms 0 or from 1"),
            ("ground = { place = [{ radio = 100, trace = [[0, 1, 1]] }] }", "radio 100"),
            ("ground = { place = [{ radio = 1, trace = [] }] }", "at least one point"),
            (
                "ground = { place = [{ radio = 1, trace = [[0, 1, 1]] }, { radio = 1, trace = [[0, 2, 2]] }] }",
                "named once",
            ),
            ("ground = { place = [{ radio = 1, trace = [[2, 0, 0], [1, 0, 0]] }] }", "never go back"),
            ("ground = { place = [{ radio = 1, trace = [[-1, 0, 0]] }] }", "never go back"),
            ("ground = { place = [{ radio = 1, trace = [[0, inf, 0]] }] }", "at least one point"),
        ] {
            let said = Config::read(text).unwrap_err().to_string();
            assert!(said.contains(part), "{text}: {said}");
        }
    }
}
