//! Errors as callers on the bus see them.

use anabranch::control::{Failure, FailureCode};
use linux::dbus::Message;

use crate::control::BackendError;

/// The name of an error, and a text for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    name: &'static str,
    text: String,
}

impl Fault {
    pub(super) fn denied(text: &str) -> Self {
        Self { name: "org.freedesktop.DBus.Error.AccessDenied", text: text.to_owned() }
    }

    pub(super) fn interaction(text: &str) -> Self {
        Self { name: "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired", text: text.to_owned() }
    }

    pub(super) fn arguments(text: &str) -> Self {
        Self { name: "org.freedesktop.DBus.Error.InvalidArgs", text: text.to_owned() }
    }

    pub(super) fn unknown_method() -> Self {
        Self { name: "org.freedesktop.DBus.Error.UnknownMethod", text: "there is no such method".to_owned() }
    }

    pub(super) fn unknown_property() -> Self {
        Self {
            name: "org.freedesktop.DBus.Error.UnknownProperty",
            text: "there is no such property".to_owned(),
        }
    }

    pub(super) fn unknown_interface() -> Self {
        Self {
            name: "org.freedesktop.DBus.Error.UnknownInterface",
            text: "this object has no such interface".to_owned(),
        }
    }

    pub(super) fn unknown_object() -> Self {
        Self { name: "org.freedesktop.DBus.Error.UnknownObject", text: "there is no such object".to_owned() }
    }

    pub(super) fn read_only() -> Self {
        Self {
            name: "org.freedesktop.DBus.Error.PropertyReadOnly",
            text: "this property cannot be set".to_owned(),
        }
    }

    pub(super) fn crowd() -> Self {
        Self {
            name: "org.freedesktop.DBus.Error.LimitsExceeded",
            text: "too many calls are under way; wait for some answers".to_owned(),
        }
    }

    pub(super) fn internal(text: &str) -> Self {
        Self { name: "org.anabranch.Error.Internal", text: text.to_owned() }
    }

    /// The answer to a call.
    pub(super) fn answer(&self, call: &Message) -> Message {
        call.failed(self.name, &self.text)
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        let name = match failure.code {
            FailureCode::NotAllowed => "org.anabranch.Error.NotAllowed",
            FailureCode::NotFound => "org.anabranch.Error.NotFound",
            FailureCode::BadRequest => "org.anabranch.Error.BadRequest",
            FailureCode::Conflict => "org.anabranch.Error.Conflict",
            FailureCode::WrongRole => "org.anabranch.Error.WrongRole",
            FailureCode::Unavailable => "org.anabranch.Error.Unavailable",
            FailureCode::Internal => "org.anabranch.Error.Internal",
        };
        Self { name, text: failure.message }
    }
}

impl From<BackendError> for Fault {
    fn from(error: BackendError) -> Self {
        Failure { code: error.code(), message: error.to_string() }.into()
    }
}
