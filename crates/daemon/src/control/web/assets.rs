//! The page's own files. `web/` is where they are written; `make web` builds them.

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;

struct Asset {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

const ASSETS: [Asset; 4] = [
    Asset { path: "/", kind: "text/html; charset=utf-8", text: include_str!("../../../assets/index.html") },
    Asset {
        path: "/page.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("../../../assets/page.css"),
    },
    Asset {
        path: "/page.js",
        kind: "text/javascript; charset=utf-8",
        text: include_str!("../../../assets/page.js"),
    },
    Asset { path: "/icon.svg", kind: "image/svg+xml", text: include_str!("../../../assets/icon.svg") },
];

pub(super) fn router() -> Router {
    ASSETS.iter().fold(Router::new(), |router, asset| {
        let answer = || async { ([(CONTENT_TYPE, asset.kind)], asset.text).into_response() };
        router.route(asset.path, get(answer))
    })
}
