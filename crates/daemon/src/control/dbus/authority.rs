//! Who may do what on the bus: the users of the control socket, and whom polkit lets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use linux::dbus::{Message, Value};

use super::connection::{Bus, BusError};
use super::fault::Fault;
use crate::control::{Caller, Callers, RequestClass, Requester};
use axum::http::Method;

/// What a request needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Needed {
    /// Nothing: it is about the caller's own flows and programs.
    Nothing,
    /// That polkit allows this action.
    Action(&'static str),
}

/// The actions of `packaging/polkit/org.anabranch.policy`.
pub(super) const STATUS: &str = "org.anabranch.status";
pub(super) const CHANGE: &str = "org.anabranch.change";
pub(super) const SCAN: &str = "org.anabranch.scan";
pub(super) const STOP: &str = "org.anabranch.stop";
pub(super) const CLIENTS: &str = "org.anabranch.clients";

impl Needed {
    /// For a request of the control API.
    pub(super) fn of(method: &Method, path: &str) -> Self {
        if RequestClass::of(method, path) == RequestClass::Own {
            return Self::Nothing;
        }
        Self::Action(match path {
            "/v1/radio/scan" => SCAN,
            "/v1/down" | "/v1/gateway/reload" | "/v1/gateway/renewal" => STOP,
            _ if path.starts_with("/v1/gateway/") => CLIENTS,
            _ if method == Method::GET || method == Method::HEAD => STATUS,
            _ => CHANGE,
        })
    }
}

/// Decides for one connection to the bus.
#[derive(Clone, Debug)]
pub(super) struct Authority {
    pub(super) bus: Bus,
    pub(super) callers: Callers,
    /// Questions to people so far: each has a name of its own, by which it is taken back.
    pub(super) asked: Arc<AtomicU64>,
}

impl Authority {
    /// The caller behind a name on the bus, if it may. `interactive`: a person may be asked, which takes its time.
    pub(super) async fn admit(
        &self,
        sender: &str,
        needed: Needed,
        interactive: bool,
    ) -> Result<Requester, Fault> {
        let caller = self.identify(sender).await?;
        let Some(user) = caller.user else { return Err(Fault::denied(UNKNOWN)) };
        let controls = self.callers.allow(caller);
        let requester = Requester { user, process: caller.process, controls };
        match needed {
            Needed::Action(action) if !controls => {
                self.ask_polkit(sender, action, interactive).await?;
                Ok(Requester { controls: true, ..requester })
            }
            _ => Ok(requester),
        }
    }

    /// The user of a connection, as the kernel told the bus.
    pub(super) async fn user(&self, sender: &str) -> Result<u32, Fault> {
        let asked = self.bus.ask_bus("GetConnectionUnixUser", vec![Value::text(sender)]).await;
        let answer = asked.map_err(|error| unidentified(&error))?;
        match answer.first() {
            Some(Value::Number(b'u', number)) => u32::try_from(*number).ok(),
            _ => None,
        }
        .ok_or_else(|| Fault::denied(UNKNOWN))
    }

    /// User and process of a connection.
    async fn identify(&self, sender: &str) -> Result<Caller, Fault> {
        let asked = self.bus.ask_bus("GetConnectionCredentials", vec![Value::text(sender)]).await;
        let answer = asked.map_err(|error| unidentified(&error))?;
        let number = |name| match answer.first().and_then(|known| known.get(name)) {
            Some(Value::Number(b'u', number)) => u32::try_from(*number).ok(),
            _ => None,
        };
        let process = number("ProcessID").filter(|process| *process > 0);
        Ok(Caller { user: number("UnixUserID"), process })
    }

    async fn ask_polkit(&self, sender: &str, action: &str, interactive: bool) -> Result<(), Fault> {
        let name = Value::Variant(Box::new(Value::text(sender)));
        let subject = Value::Struct(vec![
            Value::text("system-bus-name"),
            Value::Array("{sv}".to_owned(), vec![Value::Struct(vec![Value::text("name"), name])]),
        ]);
        let cancellation = self.asked.fetch_add(1, Ordering::Relaxed).to_string();
        let body = vec![
            subject,
            Value::text(action),
            Value::Array("{ss}".to_owned(), Vec::new()),
            Value::uint32(interactive.into()),
            Value::text(if interactive { &cancellation } else { "" }),
        ];
        let call = |member, body| Message::call([POLKIT, POLKIT_PATH, POLKIT_INTERFACE, member], body);
        let patience = if interactive { PERSON } else { POLKIT_PATIENCE };
        let answer = self.bus.ask(call("CheckAuthorization", body), patience).await;
        if interactive && matches!(answer, Err(BusError::Silent)) {
            let body = vec![Value::text(&cancellation)];
            // The dialogue closes; whether it does changes nothing here.
            let _ = self.bus.ask(call("CancelCheckAuthorization", body), POLKIT_PATIENCE).await;
        }
        let answer = answer.map_err(|error| without_polkit(&error))?;
        let Some(Value::Struct(parts)) = answer.first() else {
            return Err(Fault::denied("polkit's answer makes no sense"));
        };
        match parts.as_slice() {
            [Value::Number(b'b', 1), ..] => Ok(()),
            [_, Value::Number(b'b', 1), ..] if !interactive => Err(Fault::interaction(&format!(
                "polkit would allow {action} to who shows a password; call again with interactive authorization"
            ))),
            _ => Err(Fault::denied(&format!("polkit does not allow {action}"))),
        }
    }
}

fn unidentified(error: &BusError) -> Fault {
    Fault::denied(&format!("the bus does not say who asks: {error}"))
}

fn without_polkit(error: &BusError) -> Fault {
    match error {
        BusError::Refused(name, _)
            if name.ends_with(".ServiceUnknown") || name.ends_with(".NameHasNoOwner") =>
        {
            Fault::denied(
                "there is no polkit on this bus; without it only root and the owner of the daemon's state directory may",
            )
        }
        other => Fault::denied(&format!("polkit cannot be asked: {other}")),
    }
}

const UNKNOWN: &str = "the bus does not know who asks";
const POLKIT: &str = "org.freedesktop.PolicyKit1";
const POLKIT_PATH: &str = "/org/freedesktop/PolicyKit1/Authority";
const POLKIT_INTERFACE: &str = "org.freedesktop.PolicyKit1.Authority";
/// How long polkit may take to look into its rules, and to be started for that.
const POLKIT_PATIENCE: Duration = Duration::from_secs(20);
/// How long a person may take to type a password.
const PERSON: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_needs_what_it_is_worth() {
        for (method, path, needed) in [
            (Method::GET, "/v1/status", Needed::Action(STATUS)),
            (Method::GET, "/metrics", Needed::Action(STATUS)),
            (Method::GET, "/v1/flows", Needed::Nothing),
            (Method::DELETE, "/v1/rules/a", Needed::Nothing),
            (Method::PUT, "/v1/networks/wlan0", Needed::Action(CHANGE)),
            (Method::POST, "/v1/radio/scan", Needed::Action(SCAN)),
            (Method::POST, "/v1/down", Needed::Action(STOP)),
            (Method::GET, "/v1/gateway/clients", Needed::Action(CLIENTS)),
            (Method::PUT, "/v1/gateway/forwards", Needed::Action(CLIENTS)),
            (Method::PUT, "/v2/anything", Needed::Action(CHANGE)),
        ] {
            assert_eq!(Needed::of(&method, path), needed, "{method} {path}");
        }
    }

    #[test]
    fn the_actions_are_those_of_the_packaged_policy() {
        let policy = include_str!("../../../../../packaging/polkit/org.anabranch.policy");
        let named: Vec<&str> =
            policy.split("<action id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(named, [STATUS, SCAN, CHANGE, STOP, CLIENTS]);
        // Without it polkit answers nobody but root, and the daemon is not root.
        let owned = policy.matches("policykit.owner\">unix-user:anabranch<").count();
        assert_eq!(owned, named.len());
    }
}
