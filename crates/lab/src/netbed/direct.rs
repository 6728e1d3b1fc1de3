//! The real `anabranch` without a gateway: every flow leaves by one network.

use super::bonded::{INTERFACE, has_interface, state_directories, with_state};
use super::{ChildProcess, NetBed, program_beside};
use anyhow::Context;
use linux::netns::Namespace;
use std::process::Stdio;
use std::time::Duration;

/// How long the device may take to get ready.
const PATIENCE: Duration = Duration::from_secs(20);
/// Its configuration.
const CONFIGURATION: &str = "[device]\ngateway = \"none\"\nprobe = \"off\"\n";
/// A rule for flows that nobody has, but to any destination: so nftables looks at every new flow.
const IDLE_RULE: &str = "[[rule]]\ndscp = 63\nnetworks = \"net1\"\n";
/// What the daemon says where the kernel does not take the fast path.
const WITHOUT_FAST_PATH: &str = "nftables alone";

/// A running device in direct mode.
pub struct DirectDevice {
    device: ChildProcess,
}

impl DirectDevice {
    /// Brings any0 up by the command that a user types; `ruled` with a rule that matches nothing, which keeps the BPF fast
    /// path out.
    ///
    /// Its state lies in /run, so the namespaces of [`super::isolation`] must have been entered.
    ///
    /// # Errors
    /// If the command fails or flows are not led out in time; the message has what it said.
    pub fn start(bed: &NetBed, ruled: bool) -> anyhow::Result<Self> {
        let (_, state) = state_directories()?;
        std::fs::create_dir(&state).with_context(|| format!("make the directory {}", state.display()))?;
        let configuration = state.join("config.toml");
        let text = if ruled { format!("{CONFIGURATION}{IDLE_RULE}") } else { CONFIGURATION.to_owned() };
        std::fs::write(&configuration, text).with_context(|| format!("write {}", configuration.display()))?;
        let mut device = ChildProcess::start(
            &bed.device,
            program_beside("anabranch").as_os_str(),
            &with_state(&state, &["up", "--foreground"]),
        )?;
        device.wait_until("flows must be led out over the networks", PATIENCE, || {
            has_interface(&bed.device) && has_table(&bed.device)
        })?;
        Ok(Self { device })
    }

    /// Whether the kernel took the fast path, as far as the daemon has said.
    pub fn has_fast_path(&self) -> bool {
        !self.device.last_words().contains(WITHOUT_FAST_PATH)
    }

    /// Adds to `error` what the device said last.
    pub fn explain(&mut self, error: anyhow::Error) -> anyhow::Error {
        error.context(format!("the device said:\n{}", self.device.last_words()))
    }

    /// Ends the device in good order.
    pub fn stop(&mut self) {
        self.device.stop(Duration::from_secs(5));
    }
}

/// Whether the table that deals flows out is loaded.
fn has_table(namespace: &Namespace) -> bool {
    let table = format!("anabranch_direct_{INTERFACE}");
    let Ok(mut list) = namespace.command("nft") else { return false };
    list.args(["list", "table", "inet", &table])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    list.status().is_ok_and(|status| status.success())
}
