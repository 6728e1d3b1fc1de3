//! For how long at a time a card that `anabranch radio` shares out hears nothing of the neighbourhood.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;
use tracing::debug;

use crate::control::{Client, RadioStatus};

/// How often the radio is asked.
const ASK: Duration = Duration::from_secs(5);
/// It answers within this, or is not there.
const ANSWER: Duration = Duration::from_secs(1);
/// A group is met at every so many beacons, a power of two that fits the cycle: up to two cycles lie between.
const CYCLES_APART: u32 = 2;

/// What the radio whose control socket is `socket` says, again and again; zero while it says nothing. `only` names the adapters that listen. Ends with the one who watches.
pub(super) fn watch(socket: PathBuf, only: Option<Vec<String>>) -> watch::Receiver<Duration> {
    let (tell, told) = watch::channel(Duration::ZERO);
    tokio::spawn(async move {
        let client = Client::new(socket);
        while !tell.is_closed() {
            let answer = tokio::time::timeout(ANSWER, client.radio()).await;
            let away = answer.ok().and_then(Result::ok).map(|status| away(&status, only.as_deref()));
            let away = away.unwrap_or_default();
            if tell.send_replace(away) != away {
                debug!(
                    ?away,
                    "the card is in other networks for up to this long at a time, which the destination is told"
                );
            }
            tokio::select! {
                () = tell.closed() => break,
                () = tokio::time::sleep(ASK) => {}
            }
        }
    });
    told
}

/// The longest time between slots, of those of the radio's networks that may lead to neighbours.
fn away(status: &RadioStatus, only: Option<&[String]>) -> Duration {
    let listens = |name: &String| only.is_none_or(|only| only.contains(name));
    let networks = status.networks.iter().filter(|network| listens(&network.interface));
    let times = networks.map(|network| {
        let (share, slot) = (network.share.0, network.slot.0 as f64 / 1e6);
        let others = if share > 0.0 && share < 1.0 { slot / share - slot } else { 0.0 };
        Duration::try_from_secs_f64(others).unwrap_or_default().saturating_mul(CYCLES_APART)
    });
    times.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Fraction, Micros, RadioNetworkReport};

    fn network(interface: &str, share: f64, slot: u64) -> RadioNetworkReport {
        let interface = interface.to_owned();
        RadioNetworkReport { interface, share: Fraction(share), slot: Micros(slot), ..Default::default() }
    }

    #[test]
    fn others_have_what_is_left_of_the_cycle() {
        let networks = vec![network("wl-hood", 0.25, 50_000), network("wl-home", 0.75, 150_000)];
        let status = RadioStatus { networks, ..Default::default() };
        let named = |name: &str| away(&status, Some(&[name.to_owned()]));
        assert_eq!(named("wl-hood"), Duration::from_millis(300));
        assert_eq!((named("wl-home"), named("eth0")), (Duration::from_millis(100), Duration::ZERO));
        assert_eq!(away(&status, None), Duration::from_millis(300));
    }

    #[test]
    fn who_has_the_radio_alone_or_not_at_all_is_not_away() {
        for share in [1.0, 0.0, f64::NAN, f64::MIN_POSITIVE] {
            let status =
                RadioStatus { networks: vec![network("wl-hood", share, 200_000)], ..Default::default() };
            assert_eq!(away(&status, None), Duration::ZERO, "{share}");
        }
    }
}
