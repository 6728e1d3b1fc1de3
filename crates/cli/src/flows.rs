//! `anabranch flows`.

use std::time::Duration;

use anabranch::control::{FlowReport, Flows};
use units::BitRate;

use crate::arguments;
use crate::output;
use crate::session::Session;
use crate::status::word;
use crate::table::{Table, bytes, millis, rate};

pub fn run(session: &Session, arguments: &arguments::Flows) -> anyhow::Result<()> {
    let client = session.any_client(&arguments.daemon)?;
    loop {
        let flows = client.flows()?;
        match (arguments.json, arguments.watch) {
            (true, true) => output::line(&serde_json::to_string(&flows)?)?,
            (true, false) => output::json(&flows)?,
            (false, true) => output::line(&format!("{CLEAR}{}", text(&flows)))?,
            (false, false) => output::line(&text(&flows))?,
        }
        if !arguments.watch {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
}

fn text(flows: &Flows) -> String {
    let mut table = Table::new(&HEADINGS);
    for flow in &flows.flows {
        table.row(cells(flow));
    }
    let mut text = table.render();
    if flows.left_out > 0 {
        text += &format!("\nand {} more", flows.left_out);
    }
    for remark in &flows.remarks {
        text += &format!("\n({remark})");
    }
    text
}

/// What [`cells`] are.
pub const HEADINGS: [&str; 11] = [
    "PROGRAM",
    "USER",
    "PROTOCOL",
    "DESTINATION",
    "TREATMENT",
    "NETWORK",
    "OUT",
    "IN",
    "CARRIED",
    "RTT",
    "WHY",
];

pub fn cells(flow: &FlowReport) -> Vec<String> {
    let dash = || "-".to_owned();
    let program = match (&flow.program, flow.process) {
        (Some(name), Some(process)) => format!("{name} ({process})"),
        (Some(name), None) => name.clone(),
        // Of another host, whose programs are not known here, or of the kernel itself.
        _ if flow.user.is_none() => format!("from {}", flow.source.ip()),
        _ => dash(),
    };
    let carried = flow
        .sent
        .zip(flow.received)
        .map(|(sent, received)| bytes(units::Bytes(sent.0.saturating_add(received.0))));
    let shown = |value: Option<BitRate>| value.map_or_else(dash, rate);
    vec![
        program,
        flow.user.map_or_else(dash, |user| user.to_string()),
        flow.protocol.clone(),
        if flow.destination.port() == 0 {
            flow.destination.ip().to_string()
        } else {
            flow.destination.to_string()
        },
        word(&flow.treatment),
        flow.network.clone().unwrap_or_else(dash),
        shown(flow.sending),
        shown(flow.receiving),
        carried.unwrap_or_else(dash),
        millis(flow.rtt),
        flow.why.clone(),
    ]
}

const PAUSE: Duration = Duration::from_secs(1);
/// Clears the terminal and begins at its top (ECMA-48: ED, CUP).
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";
