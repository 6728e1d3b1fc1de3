//! Neighbourhoods as the lines of a file.
//!
//! ```text
//! 800/50 | 400/25 0.91 0.83 0.74 0.51 | 1200/75 ...
//! + 0 1 0.93 0.88 0.80 0.62
//! set 5.5 0.31 0 1
//! own uplink, then each neighbour's: kbit/s / one-way delay in ms, and the chance that it hears a frame at 1, 2, 5.5 and 11 Mbit/s
//! lines with + belong to the neighbourhood in front of them: two neighbours, from 0, and the chance that they hear each other; who stands in none hears none
//! so do lines with set: a bit rate in Mbit/s, the part of frames at it that exactly these neighbours heard, and who they are; what is missing to 1 nobody heard
//! ```
//!
//! Without sets for a bit rate, losses of different neighbours are independent there.

use std::fmt::Write as _;
use std::str::SplitWhitespace;
use std::time::Duration;

use units::BitRate;

use super::{HeardTogether, NeighbourSpec, NeighbourhoodSpec, UplinkSpec};

/// [`RATES`](super::RATES) as files name them, in Mbit/s.
pub const RATE_NAMES: [&str; 4] = ["1", "2", "5.5", "11"];

/// A text is not a list of neighbourhoods.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {what}; {mend}")]
pub struct NotANeighbourhood {
    line: usize,
    what: String,
    mend: &'static str,
}

const A_NEIGHBOURHOOD: &str = "a neighbourhood is a line like \"800/50 | 400/25 0.9 0.8 0.7 0.4\": the own uplink in kbit/s / ms, then each neighbour's and its chances to hear frames at 1, 2, 5.5 and 11 Mbit/s";
const A_PAIR: &str = "two neighbours that hear each other are a line like \"+ 0 1 0.9 0.8 0.7 0.4\" below their neighbourhood's: who, from 0, and the chances at 1, 2, 5.5 and 11 Mbit/s";
const A_SET: &str = "a measured set is a line like \"set 5.5 0.12 0 2\" below its neighbourhood's: the bit rate in Mbit/s, the part of the frames that these neighbours heard and no others, and who they are, from 0";
const AGREEING_SETS: &str = "write that chance into the neighbourhood's line, or mend its sets";

/// Neighbours that a file may give one source.
const MAX_NEIGHBOURS: usize = wire::upload::MAX_MEMBERS;
/// Sets that a file may give one neighbourhood.
const MAX_SETS: usize = 1_024;
/// By how much what a neighbour hears by the sets may differ from the chance in its neighbourhood's line: both were rounded.
const MOST_DIFFERENCE: f64 = 0.01;
/// Of a word that is wrong, this much is shown.
const SHOWN: usize = 24;

/// Reads neighbourhoods, one a line, each with the pairs and sets below it; empty lines and those that begin with `#` say nothing.
///
/// # Errors
/// [`NotANeighbourhood`] names the line, what is wrong in it, and how it should look.
pub fn parse(text: &str) -> Result<Vec<NeighbourhoodSpec>, NotANeighbourhood> {
    let mut read: Vec<(usize, NeighbourhoodSpec)> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let (number, line) = (at + 1, line.trim());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |mend| move |what| NotANeighbourhood { line: number, what, mend };
        let nothing = || "there is no neighbourhood in front of it".to_owned();
        let mut words = line.split_whitespace();
        if let Some(pair) = line.strip_prefix('+') {
            let wrong = wrong(A_PAIR);
            let (_, spec) = read.last_mut().ok_or_else(nothing).map_err(&wrong)?;
            spec.between.push(parse_pair(pair.split_whitespace(), spec).map_err(&wrong)?);
        } else if words.next() == Some("set") {
            let wrong = wrong(A_SET);
            let (_, spec) = read.last_mut().ok_or_else(nothing).map_err(&wrong)?;
            spec.together.push(parse_set(words, spec).map_err(&wrong)?);
        } else {
            read.push((number, parse_line(line).map_err(wrong(A_NEIGHBOURHOOD))?));
        }
    }
    for (line, spec) in &read {
        let wrong = |what| NotANeighbourhood { line: *line, what, mend: AGREEING_SETS };
        check_sets(spec).map_err(wrong)?;
    }
    Ok(read.into_iter().map(|(_, spec)| spec).collect())
}

fn parse_line(line: &str) -> Result<NeighbourhoodSpec, String> {
    let mut parts = line.split('|');
    let own = parse_uplink(parts.next().unwrap_or_default().trim())?;
    let mut neighbours = Vec::new();
    for part in parts {
        if neighbours.len() == MAX_NEIGHBOURS {
            return Err(format!("there are more than {MAX_NEIGHBOURS} neighbours"));
        }
        let neighbour = parse_neighbour(part);
        neighbours.push(neighbour.map_err(|what| format!("neighbour {}: {what}", neighbours.len()))?);
    }
    Ok(NeighbourhoodSpec { own, neighbours, common_loss: 0.0, between: Vec::new(), together: Vec::new() })
}

fn parse_neighbour(part: &str) -> Result<NeighbourSpec, String> {
    let mut words = part.split_whitespace();
    let uplink = parse_uplink(words.next().unwrap_or_default())?;
    Ok(NeighbourSpec { uplink, reception: parse_chances(words)? })
}

fn parse_uplink(word: &str) -> Result<UplinkSpec, String> {
    let (rate, delay) =
        word.split_once('/').ok_or_else(|| format!("{} is not an uplink in kbit/s / ms", shown(word)))?;
    let kilobits: u32 =
        rate.parse().map_err(|_| format!("{} is not a whole number of kbit/s", shown(rate)))?;
    let delay: u16 =
        delay.parse().map_err(|_| format!("{} is not a whole number of milliseconds", shown(delay)))?;
    if kilobits == 0 {
        return Err("an uplink of 0 kbit/s carries nothing: leave it out".to_owned());
    }
    let rate = BitRate(u64::from(kilobits) * 1_000);
    Ok(UplinkSpec { rate, delay: Duration::from_millis(u64::from(delay)) })
}

fn parse_pair(
    mut words: SplitWhitespace<'_>,
    spec: &NeighbourhoodSpec,
) -> Result<(usize, usize, [f64; 4]), String> {
    let mut place =
        || words.next().ok_or("a pair is two neighbours".to_owned()).map(|word| place(word, spec));
    let (one, other) = (place()??, place()??);
    let known = |(first, second, _): &(usize, usize, [f64; 4])| {
        (*first, *second) == (one, other) || (*first, *second) == (other, one)
    };
    if one == other {
        return Err(format!("a pair is two different neighbours, and this is {one} twice"));
    }
    if spec.between.iter().any(known) {
        return Err(format!("the neighbours {one} and {other} have a line already"));
    }
    Ok((one, other, parse_chances(words)?))
}

fn parse_set(mut words: SplitWhitespace<'_>, spec: &NeighbourhoodSpec) -> Result<HeardTogether, String> {
    let rate = words.next().unwrap_or_default();
    let rate = RATE_NAMES
        .iter()
        .position(|name| *name == rate)
        .ok_or_else(|| format!("{} is none of the bit rates {}", shown(rate), RATE_NAMES.join(", ")))?;
    let part = parse_part(words.next().unwrap_or_default())?;
    let mut neighbours = 0_u64;
    for word in words {
        let one = 1 << place(word, spec)?;
        if neighbours & one != 0 {
            return Err(format!("neighbour {word} is in the set twice"));
        }
        neighbours |= one;
    }
    if neighbours == 0 {
        return Err("nobody is in the set: leave out what nobody heard".to_owned());
    }
    if spec.together.len() == MAX_SETS {
        return Err(format!("there are more than {MAX_SETS} sets; leave out the rarest"));
    }
    let name = RATE_NAMES.get(rate).copied().unwrap_or_default();
    if spec.together.iter().any(|set| (set.rate, set.neighbours) == (rate, neighbours)) {
        return Err(format!("this set has a line at {name} Mbit/s already"));
    }
    let sum = part + spec.sets(rate).iter().map(|(_, part)| part).sum::<f64>();
    if sum > 1.0 + 1e-6 {
        return Err(format!("the sets at {name} Mbit/s are {sum:.4} of all frames, which is more than 1"));
    }
    Ok(HeardTogether { rate, neighbours, part })
}

/// Whether each neighbour hears by the sets what it hears by its chance.
fn check_sets(spec: &NeighbourhoodSpec) -> Result<(), String> {
    for (rate, name) in RATE_NAMES.iter().enumerate() {
        let sets = spec.sets(rate);
        if sets.is_empty() {
            continue;
        }
        for (at, neighbour) in spec.neighbours.iter().enumerate() {
            let own =
                sets.iter().filter(|(set, _)| set >> at & 1 == 1).fold(0.0, |sum, (_, part)| sum + part);
            let chance = neighbour.reception.get(rate).copied().unwrap_or(0.0);
            if (own - chance).abs() > MOST_DIFFERENCE {
                return Err(format!(
                    "neighbour {at} hears {chance} of the frames at {name} Mbit/s by this line, and {own:.3} by the sets below it"
                ));
            }
        }
    }
    Ok(())
}

/// The place of a neighbour, from 0.
fn place(word: &str, spec: &NeighbourhoodSpec) -> Result<usize, String> {
    let count = spec.neighbours.len();
    let place = word.parse().ok().filter(|place| *place < count);
    place
        .ok_or_else(|| format!("{} is none of the {count} neighbours, which are counted from 0", shown(word)))
}

fn parse_chances(mut words: SplitWhitespace<'_>) -> Result<[f64; 4], String> {
    let mut chances = [0.0; 4];
    for (at, chance) in chances.iter_mut().enumerate() {
        let word = words.next().ok_or_else(|| format!("there are four chances, not {at}"))?;
        *chance = parse_part(word)?;
    }
    match words.next() {
        None => Ok(chances),
        Some(word) => Err(format!("there are four chances, and {} behind them", shown(word))),
    }
}

fn parse_part(word: &str) -> Result<f64, String> {
    let part: f64 = word.parse().map_err(|_| format!("{} is not a number", shown(word)))?;
    match (0.0..=1.0).contains(&part) {
        true => Ok(part),
        false => Err(format!("{} is not between 0 and 1", shown(word))),
    }
}

fn shown(word: &str) -> String {
    match word.char_indices().nth(SHOWN) {
        None => format!("{word:?}"),
        Some((end, _)) => format!("{:?} ...", word.get(..end).unwrap_or_default()),
    }
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
        for set in &neighbourhood.together {
            let rate = RATE_NAMES.get(set.rate).copied().unwrap_or_default();
            let _ = write!(text, "set {rate} {}", set.part);
            for place in (0..u64::BITS).filter(|place| set.neighbours >> place & 1 == 1) {
                let _ = write!(text, " {place}");
            }
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
    use proptest::prelude::*;

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

    const THREE: &str = "800/50 | 400/25 1 1 0.6 0 | 400/25 1 1 0.5 0 | 400/25 1 1 0.4 0\n";

    #[test]
    fn sets_that_hear_together_stand_below_their_neighbourhood() {
        let text =
            format!("{THREE}set 5.5 0.4 0 1 2\n  set 5.5 0.1 1\nset 5.5 0.2 0\nset 2 1 2 1 0\n400/25\n");
        let read = parse(&text).unwrap();
        assert_eq!(read[0].sets(2), [(0b111, 0.4), (0b010, 0.1), (0b001, 0.2)]);
        assert_eq!(read[0].sets(1), [(0b111, 1.0)]);
        assert!(read[0].sets(3).is_empty() && read[1].together.is_empty());
        assert_eq!(parse(&write(&read)).unwrap(), read);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_how_it_should_look() {
        for (below, line, what) in [
            ("set", 2, "\"\" is none of the bit rates 1, 2, 5.5, 11"),
            ("set 6 0.1 0", 2, "\"6\" is none of the bit rates"),
            ("set 5.5 half 0", 2, "\"half\" is not a number"),
            ("set 5.5 NaN 0", 2, "\"NaN\" is not between 0 and 1"),
            ("set 5.5 0.1", 2, "nobody is in the set: leave out"),
            ("set 5.5 0.1 3", 2, "\"3\" is none of the 3 neighbours, which are counted from 0"),
            ("set 5.5 0.1 1 1", 2, "neighbour 1 is in the set twice"),
            ("set 5.5 0.1 1 2\nset 5.5 0.1 2 1", 3, "has a line at 5.5 Mbit/s already"),
            ("set 5.5 0.6 0\nset 5.5 0.5 1", 3, "1.1000 of all frames"),
            (
                "\n# a remark\nset 5.5 0.6 0",
                1,
                "neighbour 1 hears 0.5 of the frames at 5.5 Mbit/s by this line, and 0.000 by",
            ),
            ("+ 0 0 1 1 1 1", 2, "0 twice"),
            ("+ 0", 2, "a pair is two neighbours"),
            ("800/50 | 400/25 1 1 1", 2, "neighbour 0: there are four chances, not 3"),
            ("800/50 | 400/25 1 1 1 1 1", 2, "four chances, and \"1\" behind them"),
            ("800/50 | 400", 2, "neighbour 0: \"400\" is not an uplink in kbit/s / ms"),
            ("eight/50", 2, "\"eight\" is not a whole number of kbit/s"),
            ("800/-1", 2, "\"-1\" is not a whole number of milliseconds"),
            ("0/5", 2, "0 kbit/s"),
        ] {
            let told = parse(&format!("{THREE}{below}\n")).unwrap_err().to_string();
            assert!(told.starts_with(&format!("line {line}: ")) && told.contains(what), "{below:?}: {told}");
            assert!(told.contains("like \"") || told.contains("mend its sets"), "{told}");
        }
        let told = parse("set 5.5 0.1 0\n").unwrap_err().to_string();
        assert!(told.contains("no neighbourhood in front of it"), "{told}");
        let told = parse(&"9".repeat(100_000)).unwrap_err().to_string();
        assert!(told.len() < 400, "{told}");
        let many = format!("1/1{}", " | 1/1 1 1 1 1".repeat(MAX_NEIGHBOURS + 1));
        assert!(parse(&many).unwrap_err().to_string().contains("more than 64"));
        let sets: String = (1..=MAX_SETS + 1).map(|set| format!("set 1 0 {}\n", bits(set as u64))).collect();
        let told = parse(&format!("1/1{}\n{sets}", " | 1/1 0 0 0 0".repeat(12))).unwrap_err().to_string();
        assert!(told.contains("more than 1024 sets"), "{told}");
    }

    fn bits(set: u64) -> String {
        let places = (0..64).filter(|place| set >> place & 1 == 1);
        places.map(|place| place.to_string()).collect::<Vec<_>>().join(" ")
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(?s).{0,200}") {
            let _ = parse(&text);
        }

        /// Words that mean something, in any order: what is read is written and read again as it was.
        #[test]
        fn lines_of_meaning_in_any_order_survive_or_are_refused(
            words in prop::collection::vec(prop::sample::select(vec![
                "800/50", "|", "400/25", "0.5", "1", "0", "0", "0", "2", "5.5", "11", "set", "+", "\n", "\n", "NaN", "-1", "1e9", "63", "|400/25 1 1 0.5 0",
                "1/1|1/1 1 1 1 1\n", "1/1|2/2 0 0 0 0|2/2 0 0 0 0\n", "set 1 1 0\n", "set 11 0 1 0\n", "+ 0 1 1 1 1 1\n", "\u{a0}", "é",
            ]), 0..40)
        ) {
            if let Ok(read) = parse(&words.join(" ")) {
                prop_assert_eq!(parse(&write(&read)).map_err(|error| error.to_string()), Ok(read));
            }
        }
    }
}
