//! What a node's owner decides, and the figures of the protocol.

use std::time::Duration;

use units::BitRate;

/// Settings of one node.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// What it does for others; nothing, unless its owner said so.
    pub relaying: Option<Relaying>,
    /// How long an unused way is believed: `ACTIVE_ROUTE_TIMEOUT`, RFC 3561 section 10. The RFC has 3 s; nodes of people who sit together move less than
    /// those of its time, and what is broken is found out by probing and by the ends.
    pub route_lifetime: Duration,
    /// Copies of a request that make a node keep its own back: counter-based suppression, Ni and others, "The Broadcast Storm Problem in a
    /// Mobile Ad Hoc Network" (MobiCom 1999), who find 3 to 4 good. `None` passes every request on.
    pub enough_copies: Option<u8>,
}

/// What a node does for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relaying {
    /// Data that it passes on, all sources together.
    pub rate: BitRate,
    /// Control messages that it passes on in a second.
    pub control_per_second: u32,
}

impl Default for Relaying {
    fn default() -> Self {
        Self { rate: BitRate(20_000_000), control_per_second: 50 }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self { relaying: None, route_lifetime: Duration::from_secs(10), enough_copies: Some(3) }
    }
}

/// How far each attempt to find somebody goes, `TTL_START` and so on, RFC 3561 section 6.4. A neighbour has been called directly before, so the
/// first ring already has a relay.
pub(crate) const RINGS: [u8; 2] = [2, 5];
/// Longest way: `NET_DIAMETER`, RFC 3561 section 10.
pub(crate) const DIAMETER: u8 = 35;
/// Attempts over the whole mesh: one, and `RREQ_RETRIES`.
pub(crate) const WIDE_ATTEMPTS: u8 = 3;
/// What one hop is thought to take before anything was measured: `NODE_TRAVERSAL_TIME`. The RFC's 40 ms are for 2 Mbit/s; an attempt that is
/// begun too early only costs messages.
pub(crate) const FIRST_HOP_TIME: Duration = Duration::from_micros(500);
pub(crate) const HOP_TIME_BOUNDS: (Duration, Duration) =
    (Duration::from_micros(200), Duration::from_millis(100));
/// Added to how long an attempt is waited for.
pub(crate) const SLACK: Duration = Duration::from_micros(500);
/// Between vain searches, doubled each time up to the second.
pub(crate) const SEARCH_PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// A relay looks for another way itself only to what is so near: `MAX_REPAIR_TTL` is 0.3 of the diameter in RFC 3561 section 6.12; so much of it
/// is longer than most ways here.
pub(crate) const REPAIR_HOPS: u8 = 4;
/// A destination answers copies of one request that came by different neighbours: spare ways, and a choice where one loses data.
pub(crate) const ANSWERS: usize = 3;
/// How long a reply by a suspect neighbour waits for one by another.
pub(crate) const SUSPECT_DELAY: Duration = Duration::from_millis(50);
/// How long a suspicion lasts.
pub(crate) const SUSPICION: Duration = Duration::from_secs(10);
/// Requests of one originator in a second: `RREQ_RATELIMIT`.
pub(crate) const REQUESTS_PER_SECOND: u32 = 10;
/// Messages of one neighbour in a second that are looked at.
pub(crate) const MESSAGES_PER_SECOND: u32 = 100;
/// Signatures that are checked in a second: about a tenth of one processor.
pub(crate) const CHECKS_PER_SECOND: u32 = 1_000;
/// Hellos that are given to those who ask, in a second.
pub(crate) const ANSWERS_PER_SECOND: u32 = 100;
/// Errors that are said in a second: `RERR_RATELIMIT`.
pub(crate) const ERRORS_PER_SECOND: u32 = 10;
