//! `anabranch gateway renew`.

use std::time::{Duration, Instant};

use anyhow::bail;
use serde_json::json;

use crate::arguments::GatewayRenew;
use crate::output;
use crate::session::Session;

pub fn run(session: &Session, arguments: &GatewayRenew) -> anyhow::Result<()> {
    session.gateway()?;
    let client = session.client()?;
    let before = client.status()?.started;
    let was = client.renew()?.was;
    let deadline = Instant::now() + PATIENCE;
    let now = loop {
        match client.status() {
            Ok(status) if status.started != before => break status.version,
            _ if Instant::now() < deadline => std::thread::sleep(PAUSE),
            _ => bail!(
                "the gateway does not answer since it was to become another version; its log tells why: \
                 journalctl -u anabranch-gateway"
            ),
        }
    };
    if arguments.json {
        return output::json(&json!({ "was": was, "is": now }));
    }
    output::line(&format!(
        "The gateway was version {was} and is version {now}; devices are connecting again."
    ))
}

const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);
