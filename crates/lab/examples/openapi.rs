//! Writes the description of the control API for programs (OpenAPI 3.1) to standard output: `docs/openapi.json`.
//!
//! `cargo run -p anabranch-lab --example openapi > docs/openapi.json`; a test of the scripts compares.
#![forbid(unsafe_code)]

use anabranch::control::{
    AccessPointReport, ClientReport, DownReport, Event, ExplainRequest, Explained, Failure, Flows,
    ForwardReport, ForwardRequest, GatewayClients, HeardNetwork, Hold, InviteRequest, Invited, LimitRequest,
    MachineReport, NeighbourKey, Neighbourhood, NetworkChange, NetworkReport, PinRequest, RadioStatus,
    ReloadReport, RenewReport, Revoked, RuleReport, Running, Status, Unreached,
};
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

/// One request.
struct Call {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    body: Option<Value>,
    answer: Value,
    parameters: Vec<Value>,
}

fn main() -> anyhow::Result<()> {
    let settings = SchemaSettings::openapi3().with(|settings| settings.meta_schema = None);
    let mut schemas = settings.into_generator();
    let calls = calls(&mut schemas);
    let failure = schemas.subschema_for::<Failure>();
    let mut paths = Map::new();
    for call in calls {
        let mut answers = Map::new();
        answers.insert(
            "200".to_owned(),
            json!({
                "description": "Done.", "content": { "application/json": { "schema": call.answer } }
            }),
        );
        for (status, why) in FAILURES {
            answers.insert(
                status.to_string(),
                json!({
                    "description": why, "content": { "application/json": { "schema": failure } }
                }),
            );
        }
        let mut operation = json!({
            "summary": call.summary, "operationId": operation_id(&call), "responses": answers,
        });
        if let Some(body) = call.body {
            operation["requestBody"] =
                json!({ "required": true, "content": { "application/json": { "schema": body } } });
        }
        let named: Vec<Value> = call.path.contains("{name}").then(name_parameter).into_iter().collect();
        let parameters: Vec<Value> = named.into_iter().chain(call.parameters).collect();
        if !parameters.is_empty() {
            operation["parameters"] = Value::Array(parameters);
        }
        let path = paths.entry(call.path).or_insert_with(|| json!({}));
        path[call.method] = operation;
    }
    let document = json!({
        "openapi": "3.0.3",
        "info": {
            "title": "Anabranch control API",
            "version": "1",
            "description": "Over HTTP on the socket `control.sock` of the state directory, and with a token on the web address. Fields may be added to answers; what is there stays.",
            "license": { "name": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:4680" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer", "description": "The content of `web-token` in the state directory. The socket needs none." } },
            "schemas": schemas.take_definitions(true),
        },
    });
    println!("{}", serde_json::to_string_pretty(&document)?);
    Ok(())
}

fn calls(all: &mut SchemaGenerator) -> Vec<Call> {
    let get = |path, summary, answer| Call {
        method: "get",
        path,
        summary,
        body: None,
        answer,
        parameters: Vec::new(),
    };
    macro_rules! of {
        ($kind:ty) => {
            all.subschema_for::<$kind>().to_value()
        };
    }
    let with = |method, path, summary, body, answer| Call {
        method,
        path,
        summary,
        body,
        answer,
        parameters: Vec::new(),
    };
    let mut events = get("/v1/events", "What happened, in the order it happened", of!(Vec<Event>));
    events.parameters.push(json!({
        "name": "since", "in": "query", "description": "Only events after this number",
        "schema": { "type": "integer", "minimum": 0, "maximum": u64::MAX },
    }));
    vec![
        get("/v1/status", "The whole daemon at a glance", of!(Status)),
        get("/v1/networks", "The networks of a device with their paths", of!(Vec<NetworkReport>)),
        with(
            "put",
            "/v1/networks/{name}",
            "Change a network until the daemon ends",
            Some(of!(NetworkChange)),
            of!(NetworkReport),
        ),
        events,
        get("/v1/flows", "The flows that go on now", of!(Flows)),
        get("/v1/machine", "Networks and power as the policy judges them", of!(MachineReport)),
        with("post", "/v1/explain", "What would become of a flow", Some(of!(ExplainRequest)), of!(Explained)),
        with(
            "post",
            "/v1/run",
            "Hold the calling process to networks; over the socket only",
            Some(of!(Hold)),
            of!(Running),
        ),
        get("/v1/rules", "The rules in the order in which they are tried", of!(Vec<RuleReport>)),
        with(
            "post",
            "/v1/rules",
            "Hold flows to a destination until the daemon ends",
            Some(of!(PinRequest)),
            of!(RuleReport),
        ),
        with("delete", "/v1/rules/{name}", "Remove a rule that was made so", None, of!(RuleReport)),
        get("/v1/neighbours", "Devices whose keys are known", of!(Neighbourhood)),
        with("put", "/v1/neighbours/{name}", "Make a key known", Some(of!(NeighbourKey)), of!(Neighbourhood)),
        with("delete", "/v1/neighbours/{name}", "Forget a key", None, of!(Neighbourhood)),
        get("/v1/radio", "A shared radio and its networks", of!(RadioStatus)),
        get(
            "/v1/radio/aps",
            "Access points in range of the radio, and what each is worth",
            of!(Vec<AccessPointReport>),
        ),
        with(
            "put",
            "/v1/radio/unreached",
            "Tell the radio behind which of its networks nothing answers",
            Some(of!(Unreached)),
            of!(Unreached),
        ),
        with(
            "post",
            "/v1/radio/scan",
            "Listen on every channel once; takes up to 25 s",
            None,
            of!(Vec<HeardNetwork>),
        ),
        with("post", "/v1/down", "Take back what was changed on the machine, and end", None, of!(DownReport)),
        get("/v1/gateway/clients", "A gateway's clients and invitations", of!(GatewayClients)),
        with(
            "delete",
            "/v1/gateway/clients/{name}",
            "Revoke a client or withdraw its invitation",
            None,
            of!(Revoked),
        ),
        with("post", "/v1/gateway/invitations", "Invite a device", Some(of!(InviteRequest)), of!(Invited)),
        with(
            "put",
            "/v1/gateway/limits",
            "Give a client limits of its own",
            Some(of!(LimitRequest)),
            of!(ClientReport),
        ),
        with("post", "/v1/gateway/reload", "Read the gateway's configuration anew", None, of!(ReloadReport)),
        with(
            "post",
            "/v1/gateway/renewal",
            "Become the program that is installed in the gateway's place",
            None,
            of!(RenewReport),
        ),
        with(
            "put",
            "/v1/gateway/forwards",
            "Make a port lead to a client",
            Some(of!(ForwardRequest)),
            of!(ForwardReport),
        ),
        with(
            "delete",
            "/v1/gateway/forwards",
            "Take a forwarded port back",
            Some(of!(ForwardRequest)),
            of!(ForwardReport),
        ),
    ]
}

/// `putNetworksName`.
fn operation_id(call: &Call) -> String {
    let words = call.path.split(['/', '{', '}']).filter(|word| !word.is_empty() && *word != "v1");
    words.fold(call.method.to_owned(), |id, word| {
        let (first, rest) = word.split_at(1);
        id + &first.to_uppercase() + rest
    })
}

fn name_parameter() -> Value {
    json!({ "name": "name", "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 } })
}

/// What any request may be answered with.
const FAILURES: [(u16, &str); 8] = [
    (400, "The request makes no sense."),
    (401, "The token is missing or wrong; on the web address only."),
    (403, "The caller may not."),
    (404, "There is no such thing."),
    (409, "It clashes with what is there, or the daemon has another role."),
    (413, "The request's body is longer than any."),
    (500, "The daemon failed."),
    (503, "It cannot be done now."),
];
