//! `anabranch gateway reload`.

use crate::arguments::GatewayReload;
use crate::output;
use crate::session::Session;

pub fn run(session: &Session, arguments: &GatewayReload) -> anyhow::Result<()> {
    session.gateway()?;
    let report = session.client()?.reload()?;
    if arguments.json {
        return output::json(&report);
    }
    output::line(&match report.applied.as_slice() {
        [] => "Nothing new to take over.".to_owned(),
        applied => format!("In force now: {}.", applied.join(", ")),
    })?;
    if !report.after_restart.is_empty() {
        output::line(&format!("After the next start: {}.", report.after_restart.join(", ")))?;
    }
    Ok(())
}
