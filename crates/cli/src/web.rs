//! `anabranch web`: where the daemon's web page is, with the token that opens it.

use daemon::config::Config;
use identity::WebToken;

use crate::arguments;
use crate::output;
use crate::session::Session;

pub fn run(session: &Session, arguments: &arguments::Web) -> anyhow::Result<()> {
    let state = session.device()?;
    let (config, source) = Config::load(arguments.config.as_deref(), state.path())?;
    let Some(address) = config.daemon.web else {
        anyhow::bail!(
            "there is no web page: set `web = \"127.0.0.1:4680\"` in {} and start the daemon again",
            match source {
                daemon::config::Source::File(path) => path.display().to_string(),
                daemon::config::Source::Defaults => daemon::config::SYSTEM_PATH.to_owned(),
            }
        );
    };
    let token = WebToken::load(&state)?;
    // After `#`: browsers do not send that part to anybody.
    let url = format!("http://{address}/#token={}", token.text());
    if arguments.json {
        return output::json(&serde_json::json!({ "url": url, "token": token.text() }));
    }
    output::line(&url)?;
    output::remark("whoever has this address and can reach this machine controls the daemon");
    Ok(())
}
