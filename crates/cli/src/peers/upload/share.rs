//! `anabranch share`.

use anabranch::control::radio_socket;
use anabranch::upload::{Ledger, ShareEvent, ShareOptions, ShareSummary, Silence, Trust, share};
use anyhow::bail;
use serde::Serialize;

use super::{Reached, bit_rate, keys_of, no_air};
use crate::arguments::Share;
use crate::exit::WrongUsage;
use crate::output;
use crate::peers;
use crate::session::Session;
use crate::table::Table;

pub fn run(session: &Session, arguments: &Share) -> anyhow::Result<()> {
    if arguments.ledger {
        return show_ledger(session, arguments.json);
    }
    let Some(destination) = &arguments.destination else {
        bail!(WrongUsage("say where the files go".to_owned()));
    };
    if arguments.trust.is_empty() && !arguments.trust_all {
        bail!(WrongUsage(
            "say for whom: --trust KEY or --trust NAME, or --trust-all for every source that the destination lets in"
                .to_owned()
        ));
    }
    let reached = Reached::new(session, destination, &arguments.call, !arguments.equal)?;
    let trusted = keys_of(&reached.state, "--trust", &arguments.trust)?;
    let options = ShareOptions {
        trust: if arguments.trust_all { Trust::Admitted } else { Trust::Keys(trusted) },
        rate: arguments.rate.map(bit_rate),
        volume: arguments.volume.map(|volume| volume.saturating_mul(1_000_000)),
        time: arguments.time,
        air: (!arguments.air.is_empty()).then(|| arguments.air.clone()),
        repeat: arguments.repeat.clone(),
        air_rates: arguments.air_rates.clone(),
        radio: Some(radio_socket()),
    };
    let mut ledger = Ledger::open(&reached.state, reached.key.clone())?;
    let name = reached.known.name.clone();
    let mut met = false;
    let mut tell = |event: ShareEvent| {
        let said = match event {
            ShareEvent::Connected => {
                if !std::mem::replace(&mut met, true)
                    && let Err(error) = peers::redeemed(&reached.state, reached.known.peer.key)
                {
                    output::remark(&format!("anabranch: the invitation could not be noted as used: {error}"));
                }
                format!("This machine shares its uplink for uploads to {name}.")
            }
            ShareEvent::Lost(why) => format!("{name} is not reached: {why}. It is called again."),
            ShareEvent::Deaf => {
                format!("Nobody is heard: {}.", reached.silence(Silence::NoAdapter, options.air.as_deref()))
            }
            ShareEvent::Useless(named) => {
                format!("Not all adapters are used: {}.", no_air(&named, &reached.endpoint.adapters()))
            }
            ShareEvent::Begun { source, size } => {
                format!("Helps {} with a file of {:.1} MB.", reached.name_of(source), size as f64 / 1e6)
            }
            ShareEvent::Waits(source) => {
                format!("{} has to wait: enough others are helped at the moment.", reached.name_of(source))
            }
            ShareEvent::Untrusted(source) => {
                format!(
                    "{} is not trusted, and gets nothing. To help it: --trust {source}",
                    reached.name_of(source)
                )
            }
            ShareEvent::Ended { source, carried } => {
                format!("Has carried {:.1} MB for {}.", carried as f64 / 1e6, reached.name_of(source))
            }
            ShareEvent::Ledger(error) => {
                return output::remark(&format!("anabranch: the ledger cannot be written: {error}"));
            }
        };
        // A closed output leaves nobody to tell.
        let _ = output::line(&said);
    };
    let peer = || reached.lookout.complete(&reached.known.peer);
    let ended = peers::runtime()?.block_on(async {
        let shared =
            share(&reached.endpoint, &peer, &reached.options(), &options, &mut ledger, &mut tell).await;
        reached.endpoint.clone().close().await;
        shared
    })?;
    output::line(match ended {
        ShareSummary::Volume => "The volume is used up.",
        ShareSummary::Time => "The time is over.",
    })
}

#[derive(Serialize)]
struct Row {
    day: String,
    transfer: String,
    source: String,
    source_key: String,
    destination: String,
    destination_key: String,
    bytes: u64,
}

fn show_ledger(session: &Session, json: bool) -> anyhow::Result<()> {
    let (state, key) = peers::identity(session)?;
    let key = key.public();
    let name_of = |key| peers::name_of(state.path(), key);
    let entries = Ledger::read(&state, key)?;
    let rows: Vec<Row> = entries
        .iter()
        .map(|entry| Row {
            day: date(entry.day),
            transfer: format!("{:016x}", entry.transfer),
            source: name_of(entry.source),
            source_key: entry.source.to_string(),
            destination: name_of(entry.destination),
            destination_key: entry.destination.to_string(),
            bytes: entry.bytes,
        })
        .collect();
    if json {
        return output::json(&rows);
    }
    let mut table = Table::new(&["DAY", "SOURCE", "DESTINATION", "BYTES"]);
    for row in rows {
        table.row(vec![row.day, row.source, row.destination, row.bytes.to_string()]);
    }
    output::line(table.render().trim_end())
}

/// A day as people write it: days since 1970-01-01 in the Gregorian calendar (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms",
/// `civil_from_days`).
fn date(day: u64) -> String {
    let shifted = day + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{date:02}")
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn days_have_dates() {
        assert_eq!(
            [0, 11_016, 19_782, 20_779].map(date),
            ["1970-01-01", "2000-02-29", "2024-02-29", "2026-11-22"]
        );
    }
}
