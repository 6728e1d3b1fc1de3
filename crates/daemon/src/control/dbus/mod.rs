//! The same control API as a service on the machine's message bus, for desktops: `org.anabranch` on a device, `org.anabranch.Gateway` on a gateway.
//!
//! ```text
//! applet --> system bus --> Service --> Authority: owner? else polkit --> the routes of control.sock
//!    ^-- PropertiesChanged, Event, to those who have read ---- Published <-- Backend::status, EventLog
//! ```
//!
//! Without a bus, or without leave to have the name there (`packaging/dbus`), everything else goes on and it is tried again now and then.

mod authority;
mod connection;
mod fault;
mod introspection;
mod json;
mod methods;
mod places;
mod properties;
mod published;
mod service;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linux::dbus::{SYSTEM_BUS, Value};
use thiserror::Error;
use tokio::sync::watch;
use tracing::{debug, info};

use self::connection::{Bus, BusError, Incoming};
use self::service::Service;
use super::{Backend, Callers};

pub use introspection::document;

/// The bus on which the service is to be, and the name it is to have there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BusDoor {
    socket: PathBuf,
    name: &'static str,
}

/// Why the service is not on the bus.
#[derive(Debug, Error)]
enum OffBus {
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error("{0} is taken by another daemon")]
    Taken(&'static str),
}

impl BusDoor {
    /// The device's, on the machine's own bus; `None` if it is not wanted.
    pub(crate) fn of_device(is_wanted: bool) -> Option<Self> {
        is_wanted.then(|| Self { socket: SYSTEM_BUS.into(), name: "org.anabranch" })
    }

    /// The gateway's.
    pub(crate) fn of_gateway(is_wanted: bool) -> Option<Self> {
        is_wanted.then(|| Self { socket: SYSTEM_BUS.into(), name: "org.anabranch.Gateway" })
    }

    /// Serves until told to stop; connects anew whenever the bus is lost.
    pub(super) async fn serve(
        self,
        callers: Callers,
        backend: Arc<dyn Backend>,
        mut stopped: watch::Receiver<bool>,
    ) {
        let (mut pause, mut said) = (FIRST_PAUSE, String::new());
        loop {
            match self.enter().await {
                Ok((bus, incoming)) => {
                    info!("on the message bus as {}", self.name);
                    said.clear();
                    let since = Instant::now();
                    let service =
                        Service::new(bus.clone(), callers.clone(), Arc::clone(&backend), stopped.clone());
                    service.run(incoming, stopped.clone()).await;
                    if *stopped.borrow() {
                        // Its answer comes after all that was sent before.
                        let _ = bus.ask_bus("ReleaseName", vec![Value::text(self.name)]).await;
                        return;
                    }
                    info!("the message bus is lost");
                    if since.elapsed() > STEADY {
                        pause = FIRST_PAUSE;
                    }
                }
                // Many machines have no bus, and that is no news.
                Err(OffBus::Bus(BusError::Unreachable(error))) => debug!("no message bus: {error}"),
                Err(error) => {
                    let text = error.to_string();
                    if text != said {
                        info!("not on the message bus as {}: {text}", self.name);
                        said = text;
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = stopped.wait_for(|stop| *stop) => return,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Connects, and takes the name.
    async fn enter(&self) -> Result<(Bus, Incoming), OffBus> {
        let (bus, incoming) = Bus::connect(&self.socket).await?;
        let body = vec![Value::text(self.name), Value::uint32(DO_NOT_QUEUE)];
        match bus.ask_bus("RequestName", body).await?.first() {
            Some(Value::Number(b'u', PRIMARY_OWNER)) => Ok((bus, incoming)),
            _ => Err(OffBus::Taken(self.name)),
        }
    }
}

const PEER: &str = "org.freedesktop.DBus.Peer";
const INTROSPECTABLE: &str = "org.freedesktop.DBus.Introspectable";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
const OBJECT_MANAGER: &str = "org.freedesktop.DBus.ObjectManager";
/// Flag and answer of `RequestName`.
const DO_NOT_QUEUE: u32 = 4;
const PRIMARY_OWNER: u64 = 1;
/// Before the bus is tried again; each further time twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A connection that lasted so long was no trouble.
const STEADY: Duration = Duration::from_secs(10);
