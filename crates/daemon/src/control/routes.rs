//! Requests to backend calls, and back.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anabranch::control::{
    Event, EventSequence, ExplainRequest, Failure, FailureCode, ForwardRequest, Hold, InviteRequest,
    LimitRequest, MAX_BODY, NeighbourKey, NetworkChange, PinRequest, Unreached,
};
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Extension, Path, Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use axum::{Json, Router};
use serde::Deserialize;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

use super::{Backend, BackendError, Caller, Callers, RequestClass, Requester, metrics};

/// How long answers under way may take once the server stops.
pub(super) const GRACE: Duration = Duration::from_secs(2);

#[derive(Clone)]
struct Shared {
    backend: Arc<dyn Backend>,
    stopped: watch::Receiver<bool>,
}

/// All routes, behind the check of the caller.
pub(super) fn router(callers: Callers, backend: Arc<dyn Backend>, stopped: watch::Receiver<bool>) -> Router {
    api(backend, stopped).layer(middleware::from_fn_with_state(callers, check_caller))
}

/// All routes. Whoever puts them behind a check adds the [`Requester`].
pub(super) fn api(backend: Arc<dyn Backend>, stopped: watch::Receiver<bool>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/v1/status", get(status))
        .route("/v1/networks", get(networks))
        .route("/v1/networks/{name}", put(set_network))
        .route("/v1/events", get(events))
        .route("/v1/flows", get(flows))
        .route("/v1/machine", get(machine))
        .route("/v1/explain", post(explain))
        .route("/v1/run", post(run))
        .route("/v1/rules", get(rules).post(pin))
        .route("/v1/rules/{name}", delete(unpin))
        .route("/v1/neighbours", get(neighbours))
        .route("/v1/neighbours/{name}", put(add_neighbour).delete(forget_neighbour))
        .route("/v1/radio", get(radio))
        .route("/v1/radio/aps", get(radio_access_points))
        .route("/v1/radio/unreached", put(radio_unreached))
        .route("/v1/radio/scan", post(radio_scan))
        .route("/v1/down", post(down))
        .route("/v1/gateway/clients", get(clients))
        .route("/v1/gateway/clients/{name}", delete(revoke))
        .route("/v1/gateway/invitations", post(invite))
        .route("/v1/gateway/limits", put(limit))
        .route("/v1/gateway/reload", post(reload))
        .route("/v1/gateway/renewal", post(renew))
        .route("/v1/gateway/forwards", put(forward).delete(stop_forward))
        .fallback(unknown)
        .method_not_allowed_fallback(unknown_method)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::map_response(name_oversize))
        .with_state(Shared { backend, stopped })
}

/// A failure as an HTTP answer.
pub(super) struct Refused(pub(super) Failure);

impl From<BackendError> for Refused {
    fn from(error: BackendError) -> Self {
        Self(Failure { code: error.code(), message: error.to_string() })
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = match self.0.code {
            FailureCode::NotAllowed => StatusCode::FORBIDDEN,
            FailureCode::NotFound => StatusCode::NOT_FOUND,
            FailureCode::BadRequest => StatusCode::BAD_REQUEST,
            FailureCode::Conflict | FailureCode::WrongRole => StatusCode::CONFLICT,
            FailureCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            FailureCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(self.0)).into_response()
    }
}

async fn check_caller(
    State(callers): State<Callers>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    mut request: Request,
    next: Next,
) -> Response {
    let class = RequestClass::of(request.method(), request.uri().path());
    if let Some(requester) = callers.admit(caller, class) {
        request.extensions_mut().insert(requester);
        return next.run(request).await;
    }
    let who = caller.user.map_or_else(|| "an unknown user".to_owned(), |user| format!("user {user}"));
    tracing::warn!("refused a request of {who} on the control socket");
    Refused(Failure {
        code: FailureCode::NotAllowed,
        message: format!(
            "{who} may not control this daemon; run this as root or as the owner of its state directory"
        ),
    })
    .into_response()
}

/// Says in the API's words what the server's own refusal of a long body means.
async fn name_oversize(response: Response) -> Response {
    if response.status() != StatusCode::PAYLOAD_TOO_LARGE {
        return response;
    }
    let message = format!("the request's body is longer than {MAX_BODY} bytes");
    let failure = Failure { code: FailureCode::BadRequest, message };
    (StatusCode::PAYLOAD_TOO_LARGE, Json(failure)).into_response()
}

/// Runs a call where it may block.
async fn ask<T: Serialize + Send + 'static>(
    shared: Shared,
    call: impl FnOnce(&dyn Backend) -> Result<T, BackendError> + Send + 'static,
) -> Result<Json<T>, Refused> {
    let answer = tokio::task::spawn_blocking(move || call(&*shared.backend)).await;
    let answer =
        answer.map_err(|error| BackendError::Internal(format!("the daemon failed to answer: {error}")))?;
    Ok(Json(answer?))
}

/// Reads a body as JSON, with a message that says what is wrong with it.
fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|error| {
        BackendError::BadRequest(format!("the request's body makes no sense: {error}")).into()
    })
}

async fn status(State(shared): State<Shared>) -> impl IntoResponse {
    ask(shared, |backend| backend.status()).await
}

async fn metrics(State(shared): State<Shared>) -> Result<Response, Refused> {
    let Json(text) = ask(shared, metrics::text).await?;
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}

async fn networks(State(shared): State<Shared>) -> impl IntoResponse {
    ask(shared, |backend| {
        let status = backend.status()?;
        match status.role {
            anabranch::control::Role::Device => Ok(status.networks),
            anabranch::control::Role::Gateway => Err(BackendError::WrongRole("only a device has networks")),
        }
    })
    .await
}

async fn set_network(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, Refused> {
    let change: NetworkChange = read(&body)?;
    Ok(ask(shared, move |backend| backend.set_network(&name, change)).await?.into_response())
}

async fn neighbours(State(shared): State<Shared>) -> impl IntoResponse {
    ask(shared, |backend| backend.neighbours()).await
}

async fn add_neighbour(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, Refused> {
    let key: NeighbourKey = read(&body)?;
    Ok(ask(shared, move |backend| backend.add_neighbour(&name, &key)).await?.into_response())
}

async fn forget_neighbour(State(shared): State<Shared>, Path(name): Path<String>) -> impl IntoResponse {
    ask(shared, move |backend| backend.forget_neighbour(&name)).await
}

async fn flows(State(shared): State<Shared>, Extension(by): Extension<Requester>) -> impl IntoResponse {
    ask(shared, move |backend| backend.flows(by)).await
}

async fn machine(State(shared): State<Shared>) -> impl IntoResponse {
    ask(shared, move |backend| backend.machine()).await
}

async fn explain(
    State(shared): State<Shared>,
    Extension(by): Extension<Requester>,
    body: Bytes,
) -> Result<Response, Refused> {
    let request: ExplainRequest = read(&body)?;
    Ok(ask(shared, move |backend| backend.explain(by, &request)).await?.into_response())
}

async fn run(
    State(shared): State<Shared>,
    Extension(by): Extension<Requester>,
    body: Bytes,
) -> Result<Response, Refused> {
    let hold: Hold = read(&body)?;
    Ok(ask(shared, move |backend| backend.run(by, &hold)).await?.into_response())
}

async fn rules(State(shared): State<Shared>, Extension(by): Extension<Requester>) -> impl IntoResponse {
    ask(shared, move |backend| backend.rules(by)).await
}

async fn pin(
    State(shared): State<Shared>,
    Extension(by): Extension<Requester>,
    body: Bytes,
) -> Result<Response, Refused> {
    let request: PinRequest = read(&body)?;
    Ok(ask(shared, move |backend| backend.pin(by, &request)).await?.into_response())
}

async fn unpin(
    State(shared): State<Shared>,
    Extension(by): Extension<Requester>,
    Path(name): Path<String>,
) -> impl IntoResponse {
    ask(shared, move |backend| backend.unpin(by, &name)).await
}

async fn radio(State(shared): State<Shared>) -> impl IntoResponse {
    ask(shared, |backend| backend.radio()).await
}

async fn radio_access_points(State(shared): State<Shared>) -> impl IntoResponse {
    ask(shared, |backend| backend.radio_access_points()).await
}

async fn radio_unreached(State(shared): State<Shared>, body: Bytes) -> Result<Response, Refused> {
    let unreached: Unreached = read(&body)?;
    Ok(ask(shared, move |backend| backend.radio_unreached(unreached)).await?.into_response())
}

async fn radio_scan(State(shared): State<Shared>) -> impl IntoResponse {
    ask(shared, |backend| backend.radio_scan()).await
}

async fn down(State(shared): State<Shared>) -> impl IntoResponse {
    ask(shared, |backend| backend.down()).await
}

async fn clients(State(shared): State<Shared>) -> impl IntoResponse {
    ask(shared, |backend| backend.clients()).await
}

async fn revoke(State(shared): State<Shared>, Path(name): Path<String>) -> impl IntoResponse {
    ask(shared, move |backend| backend.revoke(&name)).await
}

async fn invite(State(shared): State<Shared>, body: Bytes) -> Result<Response, Refused> {
    let request: InviteRequest = read(&body)?;
    Ok(ask(shared, move |backend| backend.invite(&request)).await?.into_response())
}

async fn limit(State(shared): State<Shared>, body: Bytes) -> Result<Response, Refused> {
    let request: LimitRequest = read(&body)?;
    Ok(ask(shared, move |backend| backend.limit(&request)).await?.into_response())
}

async fn reload(State(shared): State<Shared>) -> impl IntoResponse {
    ask(shared, |backend| backend.reload()).await
}

async fn renew(State(shared): State<Shared>) -> impl IntoResponse {
    ask(shared, |backend| backend.renew()).await
}

async fn forward(State(shared): State<Shared>, body: Bytes) -> Result<Response, Refused> {
    let request: ForwardRequest = read(&body)?;
    Ok(ask(shared, move |backend| backend.forward(&request)).await?.into_response())
}

async fn stop_forward(State(shared): State<Shared>, body: Bytes) -> Result<Response, Refused> {
    let request: ForwardRequest = read(&body)?;
    Ok(ask(shared, move |backend| backend.stop_forward(&request)).await?.into_response())
}

async fn unknown() -> impl IntoResponse {
    let message = "no such request; are daemon and command of the same version?".to_owned();
    Refused(Failure { code: FailureCode::NotFound, message })
}

async fn unknown_method() -> impl IntoResponse {
    (StatusCode::METHOD_NOT_ALLOWED, unknown().await)
}

#[derive(Deserialize)]
struct EventsQuery {
    #[serde(default)]
    since: u64,
    #[serde(default)]
    follow: u8,
}

async fn events(
    State(shared): State<Shared>,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Response, Refused> {
    let Query(query) = query.map_err(|error| BackendError::BadRequest(error.body_text()))?;
    let since = EventSequence(query.since);
    if query.follow == 0 {
        return Ok(Json(shared.backend.events().since(since)).into_response());
    }
    let (past, receiver) = shared.backend.events().follow(since);
    let follower = Follower {
        backend: shared.backend,
        past: past.into(),
        receiver,
        stopped: shared.stopped,
        last: since,
    };
    let lines = futures_util::stream::unfold(follower, |mut follower| async move {
        let line = follower.next_line().await?;
        Some((Ok::<_, Infallible>(line), follower))
    });
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

/// Hands events on, one line each, until the server stops.
struct Follower {
    backend: Arc<dyn Backend>,
    past: std::collections::VecDeque<Event>,
    receiver: broadcast::Receiver<Event>,
    stopped: watch::Receiver<bool>,
    last: EventSequence,
}

impl Follower {
    async fn next_line(&mut self) -> Option<Bytes> {
        let event = self.next_event().await?;
        self.last = event.sequence;
        let mut line = serde_json::to_vec(&event).ok()?;
        line.push(b'\n');
        Some(Bytes::from(line))
    }

    async fn next_event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.past.pop_front() {
                return Some(event);
            }
            let received = tokio::select! {
                // What has happened is told before the stop.
                biased;
                received = self.receiver.recv() => received,
                _ = self.stopped.wait_for(|stop| *stop) => return None,
            };
            match received {
                Ok(event) => return Some(event),
                Err(RecvError::Lagged(_)) => {
                    let (past, receiver) = self.backend.events().follow(self.last);
                    self.past = past.into();
                    self.receiver = receiver;
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
