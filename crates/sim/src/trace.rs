//! Packet-delivery traces in the format of mahimahi's link shells: one millisecond number per line, in
//! rising order; each line is one opportunity to deliver 1504 bytes; the last number is the period
//! after which the trace starts anew.

use std::fmt::Write as _;

/// Bytes that one opportunity delivers (a 1500-byte packet and the 4-byte TUN header of the recorder).
pub(crate) const OPPORTUNITY_BYTES: u64 = 1_504;

/// Most opportunities that one trace may have: ten minutes at 300 Mbit/s.
const MAXIMUM_OPPORTUNITIES: usize = 16_000_000;

/// Longest period, milliseconds: one day.
const MAXIMUM_PERIOD_MS: u32 = 86_400_000;

/// A repeating list of opportunities to deliver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeliveryTrace {
    /// Milliseconds since the start of the period, rising.
    opportunities: Vec<u32>,
    period_ms: u32,
}

/// Why a text is not a packet-delivery trace.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TraceError {
    /// No line holds a number.
    #[error("the trace is empty: it needs at least one line with a millisecond number")]
    Empty,
    /// A line is not a number.
    #[error("line {line} of the trace is not a whole number of milliseconds: {text:?}")]
    NotANumber {
        /// The line, counted from 1.
        line: usize,
        /// Its first characters.
        text: String,
    },
    /// A number is smaller than the one before.
    #[error("line {line} of the trace goes back in time: {value} after {previous}")]
    Backwards {
        /// The line, counted from 1.
        line: usize,
        /// Its number.
        value: u32,
        /// The number before.
        previous: u32,
    },
    /// A number is past the longest period.
    #[error("line {line} of the trace is past one day: {value} ms")]
    TooLong {
        /// The line, counted from 1.
        line: usize,
        /// Its number.
        value: u64,
    },
    /// The last number is zero, so the trace has no length.
    #[error("the trace ends at 0 ms: the last number is the period and must be above 0")]
    NoPeriod,
    /// More lines than a trace may have.
    #[error("the trace has more than {MAXIMUM_OPPORTUNITIES} lines")]
    TooManyLines,
}

impl DeliveryTrace {
    /// Reads a trace. Blank lines are skipped.
    ///
    /// # Errors
    /// Names the first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut opportunities: Vec<u32> = Vec::new();
        for (index, text) in text.lines().enumerate() {
            let (line, text) = (index + 1, text.trim());
            if text.is_empty() {
                continue;
            }
            let value: u64 = text
                .parse()
                .map_err(|_| TraceError::NotANumber { line, text: text.chars().take(20).collect() })?;
            let millis = u32::try_from(value)
                .ok()
                .filter(|millis| *millis <= MAXIMUM_PERIOD_MS)
                .ok_or(TraceError::TooLong { line, value })?;
            if let Some(&previous) = opportunities.last().filter(|previous| **previous > millis) {
                return Err(TraceError::Backwards { line, value: millis, previous });
            }
            if opportunities.len() == MAXIMUM_OPPORTUNITIES {
                return Err(TraceError::TooManyLines);
            }
            opportunities.push(millis);
        }
        Self::from_opportunities(opportunities)
    }

    /// A trace of `opportunities`, milliseconds in rising order; the last is the period.
    ///
    /// # Errors
    /// [`TraceError::Empty`], [`TraceError::NoPeriod`], or [`TraceError::Backwards`] where the order falls.
    pub fn from_opportunities(opportunities: Vec<u32>) -> Result<Self, TraceError> {
        let &period_ms = opportunities.last().ok_or(TraceError::Empty)?;
        if period_ms == 0 {
            return Err(TraceError::NoPeriod);
        }
        if let Some(index) = opportunities.windows(2).position(|pair| pair[0] > pair[1]) {
            let (previous, value) = (opportunities[index], opportunities[index + 1]);
            return Err(TraceError::Backwards { line: index + 2, value, previous });
        }
        Ok(Self { opportunities, period_ms })
    }

    /// The trace as a file's text.
    pub fn to_text(&self) -> String {
        let mut text = String::with_capacity(self.opportunities.len() * 7);
        for millis in &self.opportunities {
            let _ = writeln!(text, "{millis}");
        }
        text
    }

    /// Mean rate in bits per second.
    pub fn mean_bits_per_second(&self) -> u64 {
        self.opportunities.len() as u64 * OPPORTUNITY_BYTES * 8 * 1_000 / u64::from(self.period_ms)
    }

    /// The same trace with only every `divisor`th opportunity, over the same period: a slower network with the same
    /// ups and downs. Zero counts as one.
    pub fn thinned(&self, divisor: u32) -> Self {
        let step = divisor.max(1) as usize;
        // Counted from the end, so that the last one, which is the period, stays.
        let skipped = (self.opportunities.len() - 1) % step;
        let opportunities = self.opportunities.iter().copied().skip(skipped).step_by(step).collect();
        Self { opportunities, period_ms: self.period_ms }
    }

    /// Milliseconds after which the trace repeats.
    pub fn period_ms(&self) -> u32 {
        self.period_ms
    }

    /// Nanoseconds from the start of the trace to its opportunity `number`, counted from 0 over all repeats.
    pub(crate) fn opportunity_nanos(&self, number: u64) -> u64 {
        let length = self.opportunities.len() as u64;
        let within = self.opportunities[(number % length) as usize];
        ((number / length) * u64::from(self.period_ms) + u64::from(within)) * 1_000_000
    }

    /// Number of the first opportunity at or after `nanos` from the start of the trace.
    pub(crate) fn first_at_or_after(&self, nanos: u64) -> u64 {
        let millis = nanos.div_ceil(1_000_000);
        let period = u64::from(self.period_ms);
        let (repeat, within) = (millis / period, (millis % period) as u32);
        let index = self.opportunities.partition_point(|opportunity| *opportunity < within);
        // An opportunity at the very end of the repeat before falls on millisecond 0 of this one.
        let at_end = if within == 0 {
            self.opportunities.iter().rev().take_while(|o| **o == self.period_ms).count()
        } else {
            0
        };
        let number = repeat * self.opportunities.len() as u64 + index as u64;
        if repeat > 0 { number - at_end as u64 } else { number }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let trace = DeliveryTrace::parse("0\n3\n3\n\n10\n").unwrap();
        assert_eq!(trace.period_ms(), 10);
        assert_eq!(DeliveryTrace::parse(&trace.to_text()), Ok(trace));
    }

    #[test]
    fn a_thinned_trace_keeps_its_period() {
        let trace = DeliveryTrace::parse("1\n2\n3\n4\n5\n10\n").unwrap();
        assert_eq!(trace.thinned(2), DeliveryTrace::parse("2\n4\n10\n").unwrap());
        assert_eq!(trace.thinned(4), DeliveryTrace::parse("2\n10\n").unwrap());
        assert_eq!(trace.thinned(100), DeliveryTrace::parse("10\n").unwrap());
        assert_eq!(trace.thinned(0), trace);
    }

    #[test]
    fn repeats_after_its_last_number() {
        let trace = DeliveryTrace::parse("3\n3\n10").unwrap();
        let millis: Vec<u64> = (0..6).map(|n| trace.opportunity_nanos(n) / 1_000_000).collect();
        assert_eq!(millis, [3, 3, 10, 13, 13, 20]);
        for (nanos, number) in
            [(0, 0), (3_000_000, 0), (3_000_001, 2), (10_000_000, 2), (10_000_001, 3), (20_000_000, 5)]
        {
            assert_eq!(trace.first_at_or_after(nanos), number, "at {nanos}");
        }
    }

    #[test]
    fn names_the_line_that_is_wrong() {
        assert_eq!(DeliveryTrace::parse("\n \n"), Err(TraceError::Empty));
        assert_eq!(DeliveryTrace::parse("0\n"), Err(TraceError::NoPeriod));
        assert_eq!(
            DeliveryTrace::parse("5\n4"),
            Err(TraceError::Backwards { line: 2, value: 4, previous: 5 })
        );
        assert_eq!(
            DeliveryTrace::parse("5\n99999999999"),
            Err(TraceError::TooLong { line: 2, value: 99_999_999_999 })
        );
        let error = DeliveryTrace::parse("5\n-1").unwrap_err();
        assert_eq!(error.to_string(), "line 2 of the trace is not a whole number of milliseconds: \"-1\"");
    }
}
