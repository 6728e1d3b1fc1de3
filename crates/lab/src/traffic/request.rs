//! What a client asks of a traffic server: one line of JSON at the start of each flow.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// What bulk flows speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// The kernel's TCP.
    Tcp,
    /// The kernel's multipath TCP, over the endpoints set by `ip mptcp`.
    Mptcp,
    /// QUIC streams, by quinn.
    Quic,
}

/// Congestion control of a bulk sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    /// CUBIC.
    Cubic,
    /// BBR, first version.
    Bbr,
    /// Reno; TCP only.
    Reno,
}

impl Congestion {
    /// The kernel's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::Reno => "reno",
        }
    }
}

/// The first line of a flow.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Whether the client sends.
    pub upload: bool,
    /// The sender ends the flow after this many bytes.
    pub bytes: Option<u64>,
    /// The receiver counts for this long, from its start.
    pub seconds: f64,
    /// Used by the sender.
    pub congestion: Congestion,
    /// The sender hands over this many bytes at a time.
    #[serde(default)]
    pub message: Option<u32>,
}

impl Request {
    /// The request as a line.
    ///
    /// # Errors
    /// If a number has no JSON form.
    pub fn to_line(self) -> Result<Vec<u8>> {
        let mut line = serde_json::to_vec(&self).context("writing the request")?;
        line.push(b'\n');
        Ok(line)
    }

    /// Reads a line without its end.
    ///
    /// # Errors
    /// If it is not a request or asks for more than an hour.
    pub fn parse(line: &[u8]) -> Result<Self> {
        let request: Self = serde_json::from_slice(line).context("the client sent no valid request")?;
        request.window()?;
        Ok(request)
    }

    /// How long the receiver counts.
    ///
    /// # Errors
    /// If it is negative or more than an hour.
    pub fn window(&self) -> Result<Duration> {
        let window = Duration::try_from_secs_f64(self.seconds).context("the time of a flow is not valid")?;
        anyhow::ensure!(window <= Duration::from_secs(3_600), "a flow of {} s; at most 3600", self.seconds);
        Ok(window)
    }
}

/// Longest request line that is read.
pub const MAX_LINE: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_the_line() {
        let request = Request {
            upload: true,
            bytes: Some(7),
            seconds: 1.5,
            congestion: Congestion::Bbr,
            message: Some(1024),
        };
        let line = request.to_line().unwrap();
        assert_eq!(line.last(), Some(&b'\n'));
        assert_eq!(Request::parse(&line[..line.len() - 1]).unwrap(), request);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["", "{}", r#"{"upload":false,"bytes":null,"seconds":-1,"congestion":"bbr"}"#] {
            assert!(Request::parse(line.as_bytes()).is_err(), "{line}");
        }
    }
}
