//! The methods of `org.anabranch.Daemon1`: each is a request of the control API, with arguments and answer in the bus's own types.

use anabranch::control::Failure;
use axum::Router;
use axum::body::Body;
use axum::http::{Method as Verb, Request, Uri};
use linux::dbus::Value;
use serde_json::Value as Json;
use tower_service::Service;

use super::fault::Fault;
use super::json;
use crate::control::Requester;

/// What an argument is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Argument {
    /// `s`: takes the place of `{}` in the path.
    Name,
    /// `t`: the same for a number.
    Number,
    /// `a{sv}`: the body, field by field.
    Fields,
}

/// What a method answers with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// `a{sv}`.
    Object,
    /// `aa{sv}`.
    Objects,
}

/// A method.
#[derive(Debug)]
pub(super) struct Method {
    pub(super) name: &'static str,
    /// Their names for people, and what they are.
    pub(super) arguments: &'static [(&'static str, Argument)],
    pub(super) answer: Answer,
    verb: Verb,
    path: &'static str,
}

const fn method(
    name: &'static str,
    arguments: &'static [(&'static str, Argument)],
    answer: Answer,
    verb: Verb,
    path: &'static str,
) -> Method {
    Method { name, arguments, answer, verb, path }
}

/// All of them, but for `Call`, which is any request of the control API.
pub(super) const METHODS: &[Method] = &[
    method("GetNetworks", &[], Answer::Objects, Verb::GET, "/v1/networks"),
    method(
        "ChangeNetwork",
        &[("name", Argument::Name), ("change", Argument::Fields)],
        Answer::Object,
        Verb::PUT,
        "/v1/networks/{}",
    ),
    method("GetEvents", &[("since", Argument::Number)], Answer::Objects, Verb::GET, "/v1/events?since={}"),
    method("GetFlows", &[], Answer::Object, Verb::GET, "/v1/flows"),
    method("Explain", &[("flow", Argument::Fields)], Answer::Object, Verb::POST, "/v1/explain"),
    method("GetRules", &[], Answer::Objects, Verb::GET, "/v1/rules"),
    method("Pin", &[("rule", Argument::Fields)], Answer::Object, Verb::POST, "/v1/rules"),
    method("Unpin", &[("name", Argument::Name)], Answer::Object, Verb::DELETE, "/v1/rules/{}"),
    method("GetNeighbours", &[], Answer::Object, Verb::GET, "/v1/neighbours"),
    method(
        "AddNeighbour",
        &[("name", Argument::Name), ("key", Argument::Fields)],
        Answer::Object,
        Verb::PUT,
        "/v1/neighbours/{}",
    ),
    method("ForgetNeighbour", &[("name", Argument::Name)], Answer::Object, Verb::DELETE, "/v1/neighbours/{}"),
    method("GetRadio", &[], Answer::Object, Verb::GET, "/v1/radio"),
    method("GetAccessPoints", &[], Answer::Objects, Verb::GET, "/v1/radio/aps"),
    method("Scan", &[], Answer::Objects, Verb::POST, "/v1/radio/scan"),
    method("Down", &[], Answer::Object, Verb::POST, "/v1/down"),
    method("GetClients", &[], Answer::Object, Verb::GET, "/v1/gateway/clients"),
    method(
        "Invite",
        &[("invitation", Argument::Fields)],
        Answer::Object,
        Verb::POST,
        "/v1/gateway/invitations",
    ),
    method("Revoke", &[("name", Argument::Name)], Answer::Object, Verb::DELETE, "/v1/gateway/clients/{}"),
    method("Forward", &[("port", Argument::Fields)], Answer::Object, Verb::PUT, "/v1/gateway/forwards"),
    method(
        "StopForward",
        &[("port", Argument::Fields)],
        Answer::Object,
        Verb::DELETE,
        "/v1/gateway/forwards",
    ),
];

/// A request of the control API.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) verb: Verb,
    pub(super) uri: Uri,
    body: String,
}

impl Argument {
    pub(super) fn signature(self) -> &'static str {
        match self {
            Self::Name => "s",
            Self::Number => "t",
            Self::Fields => "a{sv}",
        }
    }
}

impl Answer {
    pub(super) fn signature(self) -> &'static str {
        match self {
            Self::Object => "a{sv}",
            Self::Objects => "aa{sv}",
        }
    }
}

impl Method {
    /// The request that a call with these arguments makes.
    pub(super) fn request(&self, arguments: &[Value]) -> Result<Asked, Fault> {
        if arguments.len() != self.arguments.len() {
            return Err(self.wants());
        }
        let (mut path, mut body) = (self.path.to_owned(), String::new());
        for ((_, kind), value) in self.arguments.iter().zip(arguments) {
            match (kind, value) {
                (Argument::Name, Value::Text(name)) => path = path.replace("{}", &escape(name)),
                (Argument::Number, Value::Number(b't', number)) => {
                    path = path.replace("{}", &number.to_string());
                }
                (Argument::Fields, Value::Array(element, _)) if element == "{sv}" => {
                    let json = json::of_value(value);
                    body = json
                        .ok_or_else(|| Fault::arguments("a field has a type that JSON has not"))?
                        .to_string();
                }
                _ => return Err(self.wants()),
            }
        }
        Asked::new(self.verb.clone(), &path, body)
    }

    /// The answer's value.
    pub(super) fn give(&self, body: &[u8]) -> Result<Value, Fault> {
        match (self.answer, serde_json::from_slice(body)) {
            (Answer::Object, Ok(Json::Object(fields))) => Ok(json::object(&fields)),
            (Answer::Objects, Ok(Json::Array(list))) => Ok(json::objects(&list)),
            _ => Err(Fault::internal("the daemon's own answer makes no sense")),
        }
    }

    fn wants(&self) -> Fault {
        let signature: String = self.arguments.iter().map(|(_, argument)| argument.signature()).collect();
        Fault::arguments(&format!("{} takes arguments of the types \"{signature}\"", self.name))
    }
}

impl Asked {
    fn new(verb: Verb, path: &str, body: String) -> Result<Self, Fault> {
        let uri = path.parse().map_err(|_| Fault::arguments("that is no path"))?;
        Ok(Self { verb, uri, body })
    }

    /// From the arguments of `Call`: `GET`, `/v1/status` and a body.
    pub(super) fn any(arguments: &[Value]) -> Result<Self, Fault> {
        let [Value::Text(verb), Value::Text(path), Value::Text(body)] = arguments else {
            return Err(Fault::arguments("Call takes arguments of the types \"sss\""));
        };
        let verb = Verb::from_bytes(verb.as_bytes()).map_err(|_| Fault::arguments("that is no method"))?;
        if !path.starts_with('/') {
            return Err(Fault::arguments("a path begins with a slash"));
        }
        let asked = Self::new(verb, path, body.clone())?;
        if asked.uri.query().is_some_and(|query| query.contains("follow")) {
            return Err(Fault::arguments("events that go on come as signals here"));
        }
        Ok(asked)
    }

    /// What the routes answer: the status, and the body up to [`LONGEST_ANSWER`].
    pub(super) async fn make(self, router: &Router, by: Requester) -> Result<(u16, Vec<u8>), Fault> {
        let mut request = Request::new(Body::from(self.body));
        *request.method_mut() = self.verb;
        *request.uri_mut() = self.uri;
        request.extensions_mut().insert(by);
        // A router is always ready, and never fails.
        let Ok(response) = router.clone().call(request).await;
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), LONGEST_ANSWER).await;
        let body = body.map_err(|error| Fault::internal(&format!("the answer cannot be read: {error}")))?;
        Ok((status, body.to_vec()))
    }
}

/// The body of an answer, or the failure that it tells of.
pub(super) fn succeeded((status, body): (u16, Vec<u8>)) -> Result<Vec<u8>, Fault> {
    if (200..300).contains(&status) {
        return Ok(body);
    }
    let failure = serde_json::from_slice::<Failure>(&body);
    Err(failure.map_or_else(|_| Fault::internal(&format!("HTTP status {status}")), Fault::from))
}

/// Percent-encodes all but the unreserved characters of RFC 3986 section 2.3.
fn escape(name: &str) -> String {
    let each = |byte: u8| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    name.bytes().map(each).collect()
}

/// Bytes of an answer.
const LONGEST_ANSWER: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> &'static Method {
        METHODS.iter().find(|method| method.name == name).unwrap()
    }

    #[test]
    fn arguments_make_a_request() {
        let change = Value::properties([("priority", Value::Number(b'y', 3)), ("off", Value::boolean(true))]);
        let asked = named("ChangeNetwork").request(&[Value::text("a b/../c"), change]).unwrap();
        assert_eq!((asked.verb, asked.uri.path()), (Verb::PUT, "/v1/networks/a%20b%2F..%2Fc"));
        assert_eq!(asked.body, r#"{"off":true,"priority":3}"#);
        let asked = named("GetEvents").request(&[Value::uint64(7)]).unwrap();
        assert_eq!(asked.uri, "/v1/events?since=7");
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for arguments in [
            vec![],
            vec![Value::text("a")],
            vec![Value::text("a"), Value::text("b")],
            vec![Value::uint64(1), Value::properties([])],
            vec![Value::text("a"), Value::properties([("x", Value::path("/"))])],
            vec![Value::text("a"), Value::properties([]), Value::text("b")],
        ] {
            assert!(named("ChangeNetwork").request(&arguments).is_err(), "{arguments:?}");
        }
        for [verb, path] in [
            ["GET", ""],
            ["GET", "http://a/v1/status"],
            ["G T", "/"],
            ["GET", "/v1/events?follow=1"],
            ["GET", "/a b"],
        ] {
            assert!(Asked::any(&[Value::text(verb), Value::text(path), Value::text("")]).is_err(), "{path}");
        }
    }
}
