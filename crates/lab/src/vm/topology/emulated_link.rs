//! A link as one namespace in which the lab's emulator relays frames, for networks that replay a delivery trace.
//!
//! ```text
//! device NAME --- to-device [wire-NAME: anabranch-lab traffic link] to-core --- linkN core
//! ```

use std::fmt::Write as _;

use anyhow::{Result, bail, ensure};
use sim::{Capacity, Jitter, LinkSpec, Loss, NetworkSpec, QueueLimit};

use super::LinkScript;

/// The commands of `network`, which is the device's `number`th, counted from 1.
///
/// # Errors
/// If a direction has loss, jitter, marks, a schedule or a queue counted in packets beside its trace.
pub fn script(network: &NetworkSpec, number: u32) -> Result<LinkScript> {
    let name = network.name;
    let mut script = LinkScript::default();
    let mut relay = format!("anabranch-lab traffic link to-device to-core --name {name} --seed {number}");
    for (direction, link) in [("up", &network.up), ("down", &network.down)] {
        let options = direction_options(&mut script, name, direction, link)?;
        relay.push_str(&options);
    }
    // Writing to a string cannot fail.
    let _ = write!(
        script.build,
        "    ip netns add wire-{name}
    in_namespace wire-{name} sysctl -q -w net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
    join device {name} wire-{name} to-device 10.64.{number}.2 ''
    join core link{number} wire-{name} to-core 10.64.{number}.1 ''
    in_namespace device anabranch-lab traffic whole-frames {name}
    in_namespace core anabranch-lab traffic whole-frames link{number}
    ip -n device route add default via 10.64.{number}.1 dev {name} metric {metric}
    relay_{number}() {{
        in_namespace wire-{name} chrt -f 50 {relay} &
        relay_process_{number}=$!
        sleep 0.2
    }}
    relay_{number}
",
        metric = 100 + number,
    );
    // The trace starts with the process.
    let _ = write!(
        script.start,
        "    kill $relay_process_{number}; wait $relay_process_{number}
    relay_{number}\n"
    );
    for interface in ["to-device", "to-core"] {
        let tc = format!("    in_namespace wire-{name} tc qdisc");
        let _ = writeln!(script.silence, "{tc} replace dev {interface} root handle 2: netem loss 100%");
        let _ = writeln!(script.restore, "{tc} del dev {interface} root");
    }
    Ok(script)
}

/// The relay's options for one direction; a trace becomes a file.
fn direction_options(
    script: &mut LinkScript,
    name: &str,
    direction: &str,
    link: &LinkSpec,
) -> Result<String> {
    ensure!(
        link.jitter == Jitter::None
            && link.loss == Loss::None
            && link.mark_above.is_none()
            && link.schedule.is_empty(),
        "{name}: on the vm bed a network with a trace has no loss, jitter, marks or schedule"
    );
    let QueueLimit::Bytes(queue) = link.queue else {
        bail!("{name}: on the vm bed the queue of a network with a trace is counted in bytes");
    };
    let capacity = match &link.capacity {
        Capacity::Rate(rate) => format!("--{direction}-rate {}", rate.0),
        Capacity::Trace(trace) => {
            let file = format!("/job/traces/{name}-{direction}");
            script.files.insert(file.clone(), trace.to_text().into_bytes());
            format!("--{direction}-trace {file}")
        }
        Capacity::Unlimited => bail!("{name}: a network with a trace has a rate in the other direction"),
    };
    let delay = link.delay.as_micros();
    Ok(format!(" {capacity} --{direction}-delay-us {delay} --{direction}-queue {}", queue.0))
}
