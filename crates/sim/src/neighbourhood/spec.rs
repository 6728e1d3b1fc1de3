//! What a neighbourhood is, and its line in a file.
//!
//! ```text
//! 800/50 | 400/25 0.91 0.83 0.74 0.51 | 1200/75 ...
//! + 0 1 0.93 0.88 0.80 0.62
//! own uplink, then each neighbour's: kbit/s / one-way delay in ms, and the chance that it hears a frame at 1, 2, 5.5 and 11 Mbit/s
//! lines with + belong to the neighbourhood in front of them: two neighbours, from 0, and the chance that they hear each other; who stands in none hears none
//! ```

use std::fmt::Write as _;
use std::time::Duration;

use radio::Rate;
use radio::airtime::Flavour;
use units::{BitRate, Bytes};

/// The bit rates of 802.11b, which the paper's testbed has (`[LINKALIKE] VI.A`), slowest first.
pub const RATES: [Rate; 4] = Rate::CCK;

/// A frame with a chunk on the air, headers and check sequence included (`[LINKALIKE] VI.D`).
pub const AIR_FRAME: Bytes = Bytes(1_500);

/// A way from a home to the destination; the way back has the same delay and room for all that is sent there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UplinkSpec {
    /// Its rate.
    pub rate: BitRate,
    /// Its one-way delay.
    pub delay: Duration,
}

/// A neighbour.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NeighbourSpec {
    /// Its uplink.
    pub uplink: UplinkSpec,
    /// The chance that it hears a frame of [`AIR_FRAME`], at each of [`RATES`].
    pub reception: [f64; 4],
}

/// A source and its neighbours.
#[derive(Clone, PartialEq, Debug)]
pub struct NeighbourhoodSpec {
    /// The source's uplink.
    pub own: UplinkSpec,
    /// Its neighbours.
    pub neighbours: Vec<NeighbourSpec>,
    /// The part of frames that nobody hears, whatever each one's chance: interference at the source. Each one's own chance is what is left of it,
    /// so that it hears as much as it should.
    pub common_loss: f64,
    /// Pairs of neighbours, by their places, that hear each other, and the chance of that at each of [`RATES`].
    pub between: Vec<(usize, usize, [f64; 4])>,
}

impl NeighbourhoodSpec {
    /// The chance that a neighbour hears a frame that is not lost to all.
    pub fn own_chance(&self, neighbour: &NeighbourSpec, rate: usize) -> f64 {
        let chance = neighbour.reception.get(rate).copied().unwrap_or(0.0);
        (chance / (1.0 - self.common_loss).max(1e-9)).min(1.0)
    }

    /// The chance that one neighbour hears a frame of another.
    pub fn heard_between(&self, from: usize, to: usize, rate: usize) -> f64 {
        let pair = self
            .between
            .iter()
            .find(|(one, other, _)| (*one, *other) == (from, to) || (*one, *other) == (to, from));
        pair.and_then(|(_, _, chances)| chances.get(rate)).copied().unwrap_or(0.0)
    }

    /// The chance that at least one of a set of neighbours hears a frame: `q_K` of `[LINKALIKE] V.A`.
    pub fn heard_by_any(&self, set: u64, rate: usize) -> f64 {
        let members = self.neighbours.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
        let unheard: f64 = members.map(|(_, neighbour)| 1.0 - self.own_chance(neighbour, rate)).product();
        (1.0 - self.common_loss) * (1.0 - unheard)
    }
}

/// How long a frame for everybody takes at each of [`RATES`]: with the gap before it and the mean back-off.
pub fn air_times() -> [Duration; 4] {
    let flavour = Flavour::B;
    RATES.map(|rate| flavour.difs() + flavour.mean_back_off(0) + flavour.frame_time(rate, AIR_FRAME))
}

/// A text is not a list of neighbourhoods.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "line {line} is not a neighbourhood: {what}; it should look like \"800/50 | 400/25 0.9 0.8 0.7 0.4\""
)]
pub struct NotANeighbourhood {
    line: usize,
    what: &'static str,
}

/// Neighbours that a file may give one source.
const MAX_NEIGHBOURS: usize = wire::upload::MAX_MEMBERS;

/// Reads neighbourhoods, one a line; empty lines and those that begin with `#` say nothing.
///
/// # Errors
/// [`NotANeighbourhood`] names the line.
pub fn parse(text: &str) -> Result<Vec<NeighbourhoodSpec>, NotANeighbourhood> {
    let mut read: Vec<NeighbourhoodSpec> = Vec::new();
    let lines =
        text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    for (at, line) in lines {
        let wrong = |what| NotANeighbourhood { line: at + 1, what };
        match line.strip_prefix('+') {
            None => read.push(parse_line(line).map_err(wrong)?),
            Some(pair) => {
                let spec = read.last_mut().ok_or_else(|| wrong("no neighbourhood in front of it"))?;
                let pair = parse_pair(pair, spec).map_err(wrong)?;
                spec.between.push(pair);
            }
        }
    }
    Ok(read)
}

fn parse_pair(text: &str, spec: &NeighbourhoodSpec) -> Result<(usize, usize, [f64; 4]), &'static str> {
    let mut words = text.split_whitespace();
    let mut place = || -> Result<usize, &'static str> {
        let place = words.next().and_then(|word| word.parse().ok());
        place.filter(|place| *place < spec.neighbours.len()).ok_or("a pair is two of the neighbours")
    };
    let (one, other) = (place()?, place()?);
    let known = |(first, second, _): &(usize, usize, [f64; 4])| {
        (*first, *second) == (one, other) || (*first, *second) == (other, one)
    };
    if one == other || spec.between.iter().any(known) {
        return Err("a pair is two different neighbours, and stands there once");
    }
    Ok((one, other, parse_chances(&mut words)?))
}

fn parse_line(line: &str) -> Result<NeighbourhoodSpec, &'static str> {
    let mut parts = line.split('|');
    let own = parse_uplink(parts.next().unwrap_or_default().trim())?;
    let neighbours: Vec<NeighbourSpec> = parts.map(parse_neighbour).collect::<Result<_, _>>()?;
    if neighbours.len() > MAX_NEIGHBOURS {
        return Err("too many neighbours");
    }
    Ok(NeighbourhoodSpec { own, neighbours, common_loss: 0.0, between: Vec::new() })
}

fn parse_neighbour(part: &str) -> Result<NeighbourSpec, &'static str> {
    let mut words = part.split_whitespace();
    let uplink = parse_uplink(words.next().unwrap_or_default())?;
    Ok(NeighbourSpec { uplink, reception: parse_chances(&mut words)? })
}

fn parse_chances<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<[f64; 4], &'static str> {
    let mut chances = [0.0; 4];
    for chance in &mut chances {
        let word = words.next().ok_or("there are four chances")?;
        let value: f64 = word.parse().map_err(|_| "a chance is not a number")?;
        if !(0.0..=1.0).contains(&value) {
            return Err("a chance is not between 0 and 1");
        }
        *chance = value;
    }
    if words.next().is_some() {
        return Err("there are four chances");
    }
    Ok(chances)
}

fn parse_uplink(word: &str) -> Result<UplinkSpec, &'static str> {
    let (rate, delay) = word.split_once('/').ok_or("an uplink is kbit/s / ms")?;
    let rate: u32 = rate.parse().map_err(|_| "a rate is not a number")?;
    let delay: u16 = delay.parse().map_err(|_| "a delay is not a number")?;
    if rate == 0 {
        return Err("a rate is zero");
    }
    Ok(UplinkSpec { rate: BitRate(u64::from(rate) * 1_000), delay: Duration::from_millis(u64::from(delay)) })
}

/// The text that [`parse`] reads.
pub fn write(neighbourhoods: &[NeighbourhoodSpec]) -> String {
    let mut text = String::new();
    let uplink = |spec: &UplinkSpec| format!("{}/{}", spec.rate.0 / 1_000, spec.delay.as_millis());
    for neighbourhood in neighbourhoods {
        text.push_str(&uplink(&neighbourhood.own));
        for neighbour in &neighbourhood.neighbours {
            let _ = write!(text, " | {}", uplink(&neighbour.uplink));
            write_chances(&mut text, &neighbour.reception);
        }
        text.push('\n');
        for (one, other, chances) in &neighbourhood.between {
            let _ = write!(text, "+ {one} {other}");
            write_chances(&mut text, chances);
            text.push('\n');
        }
    }
    text
}

fn write_chances(text: &mut String, chances: &[f64; 4]) {
    for chance in chances {
        let _ = write!(text, " {chance:.3}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written_and_errors_name_the_line() {
        let text =
            "# two\n800/50 | 400/25 0.900 0.800 0.700 0.400 | 1200/75 1.000 1.000 0.500 0.000\n\n400/25\n";
        let read = parse(text).unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(parse(&write(&read)).unwrap(), read);
        for bad in [
            "800",
            "0/5",
            "1/1 | 5/5 1 1 1",
            "1/1 | 5/5 1 1 1 2",
            "1/1 | 5/5 1 1 1 NaN",
            "1/1 | 5/5 1 1 1 1 1",
        ] {
            assert_eq!(parse(&format!("\n{bad}")).unwrap_err().line, 2, "{bad}");
        }
    }

    #[test]
    fn who_hears_whom_stands_below_its_neighbourhood() {
        let text = "800/50 | 400/25 0.9 0.8 0.7 0.4 | 400/25 0 0 0 0\n+ 0 1 0.9 0.8 0.5 0.25\n400/25\n";
        let read = parse(text).unwrap();
        assert_eq!((read.len(), read[1].between.len()), (2, 0));
        assert_eq!((read[0].heard_between(1, 0, 2), read[0].heard_between(0, 0, 2)), (0.5, 0.0));
        assert_eq!(parse(&write(&read)).unwrap(), read);
        for bad in ["+ 0 1 1 1 1 1", "1/1 | 1/1 1 1 1 1\n+ 0 1 1 1 1 1", "1/1 | 1/1 1 1 1 1\n+ 0 0 1 1 1 1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn losses_in_common_leave_each_one_its_own_chance() {
        let mut spec = parse("1/1 | 1/1 0.5 0.5 0.5 0.5 | 1/1 0.4 0.4 0.4 0.4").unwrap().remove(0);
        assert!((spec.heard_by_any(0b11, 2) - 0.7).abs() < 1e-9);
        spec.common_loss = 0.5;
        assert!((spec.heard_by_any(0b01, 2) - 0.5).abs() < 1e-9);
        assert!(
            (spec.heard_by_any(0b11, 2) - 0.5).abs() < 1e-9,
            "who hears half hears all that can be heard"
        );
    }

    #[test]
    fn air_times_are_those_of_the_standard() {
        // 50 us DIFS, 310 us mean back-off, 192 us preamble, 12,000 bits at 5.5 Mbit/s.
        let by_hand = Duration::from_micros(50 + 310 + 192 + 2_182);
        assert_eq!(air_times()[2], by_hand);
    }
}
