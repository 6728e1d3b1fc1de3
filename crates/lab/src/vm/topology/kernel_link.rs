//! A link as two namespaces in a row, shaped by the kernel's queueing disciplines.
//!
//! ```text
//! device NAME --- to-device [near-NAME] to-far --- to-near [far-NAME] to-core --- linkN core
//! ```
//!
//! The near end shapes the rate upwards and the delay downwards, the far end the rate downwards and the delay upwards.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;
use sim::{LinkSpec, Loss, NetworkSpec};

use super::LinkScript;
use super::shaping::{Changes, Shaping};

/// The commands of `network`, which is the device's `number`th, counted from 1.
///
/// # Errors
/// If a link cannot be shaped by this bed.
pub fn script(network: &NetworkSpec, number: u32) -> Result<LinkScript> {
    let name = network.name;
    let up = Shaping::new(&network.up, "to-far", "to-core")?;
    let down = Shaping::new(&network.down, "to-near", "to-device")?;
    let mut script = LinkScript {
        build: joining_commands(name, number),
        silence: outage_commands(network, true)?,
        restore: outage_commands(network, false)?,
        ..LinkScript::default()
    };
    for (end, commands) in
        [("near", &up.rate), ("near", &down.delay), ("far", &down.rate), ("far", &up.delay)]
    {
        for command in commands {
            // Writing to a string cannot fail.
            let _ = writeln!(script.build, "    in_namespace {end}-{name} tc {command}");
        }
    }
    let schedules = [
        ("near", "up-rate", &up.rate_changes),
        ("near", "down-delay", &down.delay_changes),
        ("far", "down-rate", &down.rate_changes),
        ("far", "up-delay", &up.delay_changes),
    ];
    for (end, stage, Changes { lines, period }) in schedules {
        let lines = lines.iter().map(|(at, line)| (*at, line.as_str()));
        let command = format!("in_namespace {end}-{name} tc -batch -");
        add_schedule(&mut script, &format!("{name}-{stage}"), lines, *period, &command);
    }
    // The device sees its interface lose and regain its carrier when the other end goes down and up.
    let carrier = down
        .carrier_changes
        .iter()
        .map(|(at, up)| (*at, if *up { "link set dev to-device up" } else { "link set dev to-device down" }));
    let command = format!("ip -n near-{name} -batch -");
    add_schedule(&mut script, &format!("{name}-carrier"), carrier, down.carrier_period, &command);
    Ok(script)
}

/// Adds a schedule's file, and to the start the pipe that carries it out.
fn add_schedule<'a>(
    script: &mut LinkScript,
    name: &str,
    lines: impl Iterator<Item = (Duration, &'a str)>,
    period: Option<Duration>,
    command: &str,
) {
    let mut text = String::new();
    for (at, line) in lines {
        let _ = writeln!(text, "{} {line}", at.as_millis());
    }
    if text.is_empty() {
        return;
    }
    let file = format!("/job/changes/{name}");
    let period = period.map_or(String::new(), |period| format!(" --period-ms {}", period.as_millis()));
    let _ = writeln!(script.start, "    anabranch-lab traffic pace {file}{period} | {command} &");
    script.files.insert(file, text.into_bytes());
}

fn joining_commands(name: &str, number: u32) -> String {
    format!(
        "    ip netns add near-{name}; ip netns add far-{name}
    join device {name} near-{name} to-device 10.64.{number}.2 10.64.{number}.1
    join near-{name} to-far far-{name} to-near 10.65.{number}.1 10.65.{number}.2
    join far-{name} to-core core link{number} 10.66.{number}.1 10.66.{number}.2
    prepare near-{name}; prepare far-{name}
    ip -n device route add default via 10.64.{number}.1 dev {name} metric {metric}
    ip -n near-{name} route add default via 10.65.{number}.2
    ip -n far-{name} route add 10.64.{number}.0/24 via 10.65.{number}.1
    ip -n far-{name} route add default via 10.66.{number}.2
    ip -n core route add 10.64.{number}.0/24 via 10.66.{number}.1
",
        metric = 100 + number,
    )
}

/// `tc` commands after which a network delivers nothing in either direction, or delivers as at its start again.
fn outage_commands(network: &NetworkSpec, silent: bool) -> Result<String> {
    let command = |link: &LinkSpec, interface: &str| -> Result<String> {
        let mut link = LinkSpec { schedule: Vec::new(), ..link.clone() };
        if silent {
            link.loss = Loss::Random(1.0);
        }
        let shaping = Shaping::new(&link, "unused", interface)?;
        Ok(shaping.delay.join(" ").replacen("qdisc add", "qdisc change", 1))
    };
    Ok(format!(
        "    in_namespace near-{name} tc {}\n    in_namespace far-{name} tc {}\n",
        command(&network.down, "to-device")?,
        command(&network.up, "to-core")?,
        name = network.name,
    ))
}
