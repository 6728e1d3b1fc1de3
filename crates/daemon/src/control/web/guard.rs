//! Who may talk to the web page: a browser on this machine that shows the token, and came from the page itself.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anabranch::control::{Failure, FailureCode};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, WWW_AUTHENTICATE,
};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use identity::WebToken;
use tokio::sync::watch;

use super::assets;
use crate::control::routes::{self, Refused};
use crate::control::{Backend, Requester};

struct Guard {
    token: WebToken,
    /// What a browser may have in its address line.
    hosts: Vec<String>,
}

/// The routes of the control socket behind the guard, beside the page's own files.
pub(super) fn router(
    token: WebToken,
    address: SocketAddr,
    backend: Arc<dyn Backend>,
    stopped: watch::Receiver<bool>,
) -> Router {
    let guard = Arc::new(Guard { token, hosts: hosts(address) });
    let api = routes::api(backend, stopped)
        .layer(middleware::from_fn(in_time))
        .layer(middleware::from_fn_with_state(Arc::clone(&guard), check_token));
    assets::router()
        .fallback_service(api)
        .layer(middleware::from_fn_with_state(guard, check_origin))
        .layer(middleware::from_fn(harden))
}

/// The names by which a browser on this machine reaches the address. Any other name in a request's head is one that
/// somebody else's name server made to point here.
fn hosts(address: SocketAddr) -> Vec<String> {
    let port = address.port();
    let own = match address.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    vec![format!("{own}:{port}"), format!("localhost:{port}")]
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Refuses what other pages or other names for this machine send.
async fn check_origin(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let host = text(headers, &HOST).unwrap_or_default();
    if !guard.hosts.iter().any(|own| own.eq_ignore_ascii_case(host)) {
        let own = guard.hosts.join(" or ");
        return refuse(format!("this is not the address of this page; use http://{own}"));
    }
    let from_here =
        |origin: &str| origin.strip_prefix("http://").is_some_and(|rest| rest.eq_ignore_ascii_case(host));
    let foreign_origin = headers.contains_key(ORIGIN) && !text(headers, &ORIGIN).is_some_and(from_here);
    let site = text(headers, &SEC_FETCH_SITE);
    // A link from elsewhere may lead to the page itself, which holds nothing and changes nothing.
    let foreign_site = site.is_some_and(|site| site != "same-origin" && site != "none");
    let navigates = text(headers, &SEC_FETCH_MODE) == Some("navigate") && request.uri().path() == "/";
    if foreign_origin || (foreign_site && !navigates) {
        return refuse("another page sent this request; only this one may".to_owned());
    }
    next.run(request).await
}

/// Refuses who does not show the token.
async fn check_token(State(guard): State<Arc<Guard>>, mut request: Request, next: Next) -> Response {
    let shown = text(request.headers(), &AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    if !shown.is_some_and(|shown| guard.token.admits(shown.as_bytes())) {
        tokio::time::sleep(WRONG_TOKEN_PAUSE).await;
        let mut refused =
            refuse("the token is missing or wrong; `anabranch web` shows the right address".to_owned());
        *refused.status_mut() = StatusCode::UNAUTHORIZED;
        refused.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return refused;
    }
    // Who has the token may do what the state directory's owner may; no process can be told.
    let requester = Requester { user: rustix::process::geteuid().as_raw(), process: None, controls: true };
    request.extensions_mut().insert(requester);
    next.run(request).await
}

/// Gives up on a request whose body does not come.
async fn in_time(request: Request, next: Next) -> Response {
    tokio::time::timeout(REQUEST_TIME, next.run(request)).await.unwrap_or_else(|_| {
        let message = format!("the request took longer than {} s", REQUEST_TIME.as_secs());
        Refused(Failure { code: FailureCode::Unavailable, message }).into_response()
    })
}

/// Tells the browser what the page will never need.
async fn harden(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in HARDENING {
        response
            .headers_mut()
            .entry(HeaderName::from_static(name))
            .or_insert(HeaderValue::from_static(value));
    }
    response.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn refuse(message: String) -> Response {
    Refused(Failure { code: FailureCode::NotAllowed, message }).into_response()
}

const HARDENING: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// Makes guessing slower still.
const WRONG_TOKEN_PAUSE: Duration = Duration::from_millis(200);
/// A radio's scan takes up to 25 s.
const REQUEST_TIME: Duration = Duration::from_secs(40);
