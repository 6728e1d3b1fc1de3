//! Commands at stated times, for a pipe into `tc -batch -` or a shell.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// Prints the text of each line of `file` when its time has come, again and again after `period` where given; ends
/// when nobody reads any more.
///
/// # Errors
/// If the file cannot be read, a line has no time, times fall, or the period is shorter than the schedule.
pub fn pace(file: &Path, period: Option<Duration>) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let schedule = parse(&text)?;
    let last = schedule.last().map_or(Duration::ZERO, |(at, _)| *at);
    ensure!(
        period.is_none_or(|period| period >= last && !period.is_zero()),
        "the period is shorter than the schedule"
    );
    let mut start = Instant::now();
    let mut output = io::stdout().lock();
    loop {
        for (at, text) in &schedule {
            thread::sleep((start + *at).saturating_duration_since(Instant::now()));
            if writeln!(output, "{text}").and_then(|()| output.flush()).is_err() {
                return Ok(());
            }
        }
        match period {
            Some(period) => start += period,
            None => return Ok(()),
        }
    }
}

fn parse(text: &str) -> Result<Vec<(Duration, &str)>> {
    let mut schedule: Vec<(Duration, &str)> = Vec::new();
    for line in text.lines() {
        let (time, text) =
            line.split_once(' ').with_context(|| format!("{line:?} is not a time and a text"))?;
        let time: u64 = time.parse().with_context(|| format!("{time:?} is not a number of milliseconds"))?;
        let at = Duration::from_millis(time);
        ensure!(
            schedule.last().is_none_or(|(before, _)| *before <= at),
            "{line:?} comes before the line above it"
        );
        schedule.push((at, text));
    }
    Ok(schedule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_checked() {
        let schedule = parse("0 first\n1500 then this\n").unwrap();
        assert_eq!(schedule, [(Duration::ZERO, "first"), (Duration::from_millis(1_500), "then this")]);
        for text in ["x y", "12", "5 a\n4 b"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
