//! Cut and restore networks by keys while graphs of the transfer and of a ping run.

use super::bonded::Bonded;
use super::setting::Setting;
use std::process::ExitCode;

/// Plays until the viewer ends it.
pub(super) fn play(_setting: &mut Setting, _bonded: Bonded) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not here yet")
}
