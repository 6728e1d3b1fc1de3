//! The service while it has a connection: calls in, answers and signals out.

use std::sync::Arc;
use std::time::Duration;

use anabranch::control::{Event, EventSequence};
use axum::Router;
use linux::dbus::{Kind, Message, Value};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::authority::{Authority, CHANGE, Needed, STATUS};
use super::connection::{Bus, Heard, Incoming};
use super::fault::Fault;
use super::methods::{self, Asked, METHODS};
use super::places::{Places, Whose};
use super::properties::{self, DAEMON, NETWORK, NETWORKS, Properties, ROOT};
use super::published::{Published, interfaces};
use super::{INTROSPECTABLE, OBJECT_MANAGER, PEER, PROPERTIES, introspection};
use crate::control::{Backend, Callers, routes};

/// What every call works with.
#[derive(Clone)]
pub(super) struct Service {
    bus: Bus,
    authority: Authority,
    router: Router,
    backend: Arc<dyn Backend>,
    published: Arc<Mutex<Published>>,
    places: Places,
}

impl Service {
    pub(super) fn new(
        bus: Bus,
        callers: Callers,
        backend: Arc<dyn Backend>,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        Self {
            authority: Authority { bus: bus.clone(), callers, asked: Arc::default() },
            router: routes::api(Arc::clone(&backend), stopped),
            published: Arc::new(Mutex::new(Published::new(bus.clone(), Arc::clone(&backend)))),
            backend,
            bus,
            places: Places::default(),
        }
    }

    /// Serves until the connection is lost or the daemon stops.
    pub(super) async fn run(&self, mut incoming: Incoming, mut stopped: watch::Receiver<bool>) {
        let mut under_way = JoinSet::new();
        let (_, mut events) = self.backend.events().follow(EventSequence(u64::MAX));
        let mut look = interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut check = interval(CHECK_INTERVAL);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_watched = false;
        let stop = async move { drop(stopped.wait_for(|stop| *stop).await) };
        tokio::pin!(stop);
        loop {
            tokio::select! {
                heard = incoming.next() => match heard {
                    Some(Heard::Unreadable(call)) => {
                        let fault = Fault::arguments("the arguments are too long, or nested too deep");
                        // If it cannot be sent, the connection is lost, and there will be no next message.
                        let _ = self.bus.send(fault.answer(&call)).await;
                    }
                    Some(Heard::Message(call)) if call.kind == Kind::Call => self.begin(call, &mut under_way).await,
                    Some(Heard::Message(signal)) if signal.is_signal("org.freedesktop.DBus", "NameLost") => return,
                    Some(_) => {}
                    None => return,
                },
                event = events.recv() => match event {
                    Ok(event) if is_watched && under_way.len() < MOST_UNDER_WAY => {
                        let service = self.clone();
                        under_way.spawn(async move { service.tell(Some(event)).await });
                    }
                    // A gap in the numbers tells of it.
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                },
                _ = look.tick(), if is_watched && under_way.len() < MOST_UNDER_WAY => {
                    let service = self.clone();
                    under_way.spawn(async move { service.tell(None).await });
                }
                _ = check.tick(), if is_watched => {
                    let service = self.clone();
                    under_way.spawn(async move { service.check_watchers().await });
                }
                Some(_) = under_way.join_next() => {}
                () = &mut stop => break,
            }
            is_watched = match self.published.try_lock() {
                Ok(published) => !published.watchers().is_empty(),
                Err(_) => true,
            };
        }
        // Answers under way are sent; the one to "down" is.
        let all = async { while under_way.join_next().await.is_some() {} };
        let _ = timeout(LAST_ANSWERS, all).await;
    }

    /// Tells those who watch of an event and of what has changed.
    async fn tell(&self, event: Option<Event>) {
        let mut published = self.published.lock().await;
        if let Some(event) = event {
            published.tell_event(&event).await;
        }
        if !published.watchers().is_empty() {
            // What cannot be read now is read at the next look.
            let _ = published.refresh().await;
        }
    }

    /// Begins to answer a call.
    async fn begin(&self, call: Message, under_way: &mut JoinSet<()>) {
        let Some(place) = self.places.take(Whose::Connection(call.sender.clone())) else {
            let _ = self.bus.send(Fault::crowd().answer(&call)).await;
            return;
        };
        let service = self.clone();
        under_way.spawn(async move {
            let answer = match service.admit(&call).await {
                Ok(body) => call.answer(body),
                Err(fault) => fault.answer(&call),
            };
            if !call.flags.no_reply {
                let _ = service.bus.send(answer).await;
            }
            drop(place);
        });
    }

    /// Answers a call if its user has not too many under way.
    async fn admit(&self, call: &Message) -> Result<Vec<Value>, Fault> {
        let user = self.authority.user(&call.sender).await?;
        let _place = self.places.take(Whose::User(user)).ok_or_else(Fault::crowd)?;
        self.answer(call).await
    }

    async fn answer(&self, call: &Message) -> Result<Vec<Value>, Fault> {
        let of = |interface: &str| call.interface.is_empty() || call.interface == interface;
        match call.member.as_str() {
            "Ping" if of(PEER) => Ok(Vec::new()),
            "Introspect" if of(INTROSPECTABLE) => self.introspect(call).await,
            "Get" | "GetAll" if of(PROPERTIES) => self.read(call).await,
            "Set" if of(PROPERTIES) => self.set(call).await,
            "GetManagedObjects" if of(OBJECT_MANAGER) && call.path == ROOT => {
                let published = self.look(call).await?.lock().await;
                let each = |(path, object): (&String, &Properties)| {
                    Value::Struct(vec![Value::path(path), interfaces(object)])
                };
                let all = published.objects().iter().map(each).collect();
                Ok(vec![Value::Array("{oa{sa{sv}}}".to_owned(), all)])
            }
            "Call" if of(DAEMON) && call.path == ROOT => {
                let (status, body) = self.request(call, Asked::any(&call.body)?).await?;
                let body = String::from_utf8(body).map_err(|_| Fault::internal("the answer is no text"))?;
                Ok(vec![Value::Number(b'q', status.into()), Value::text(&body)])
            }
            name if of(DAEMON) && call.path == ROOT => {
                let method = METHODS.iter().find(|method| method.name == name);
                let method = method.ok_or_else(Fault::unknown_method)?;
                let answer = self.request(call, method.request(&call.body)?).await?;
                Ok(vec![method.give(&methods::succeeded(answer)?)?])
            }
            _ => Err(Fault::unknown_method()),
        }
    }

    /// Makes a request of the control API, if the caller may.
    async fn request(&self, call: &Message, asked: Asked) -> Result<(u16, Vec<u8>), Fault> {
        let needed = Needed::of(&asked.verb, asked.uri.path());
        let by = self.authority.admit(&call.sender, needed, call.flags.interactive).await?;
        let answer = timeout(REQUEST_TIME, asked.make(&self.router, by)).await;
        answer.map_err(|_| Fault::internal("the daemon does not answer in time"))?
    }

    /// Has the objects read anew, if the caller may; from now on it hears of changes.
    async fn look(&self, call: &Message) -> Result<&Mutex<Published>, Fault> {
        self.authority.admit(&call.sender, Needed::Action(STATUS), call.flags.interactive).await?;
        let mut published = self.published.lock().await;
        published.refresh().await?;
        published.watch(&call.sender);
        Ok(&self.published)
    }

    /// `Get` and `GetAll`.
    async fn read(&self, call: &Message) -> Result<Vec<Value>, Fault> {
        let (interface, name) = match (call.member.as_str(), call.body.as_slice()) {
            ("GetAll", [Value::Text(interface)]) => (interface, None),
            ("Get", [Value::Text(interface), Value::Text(name)]) => (interface, Some(name)),
            _ => return Err(Fault::arguments("Get takes \"ss\", GetAll \"s\"")),
        };
        let published = self.look(call).await?.lock().await;
        let (_, values) = object(&published, &call.path, interface)?;
        let Some(name) = name else { return Ok(vec![Value::properties(values.iter().cloned())]) };
        let value = values.iter().find(|(known, _)| known == name);
        let (_, value) = value.ok_or_else(Fault::unknown_property)?;
        Ok(vec![Value::Variant(Box::new(value.clone()))])
    }

    /// `Set`, which is a change of a network.
    async fn set(&self, call: &Message) -> Result<Vec<Value>, Fault> {
        let [Value::Text(interface), Value::Text(name), Value::Variant(value)] = call.body.as_slice() else {
            return Err(Fault::arguments("Set takes \"ssv\""));
        };
        self.authority.admit(&call.sender, Needed::Action(CHANGE), call.flags.interactive).await?;
        let mut published = self.published.lock().await;
        let status = published.refresh().await?;
        object(&published, &call.path, interface)?;
        let network = status.networks.iter().find(|network| properties::path_of(network.id) == call.path);
        let network = network.ok_or_else(Fault::read_only)?.name.clone();
        let change = properties::change(name, value)?;
        let backend = Arc::clone(&self.backend);
        let changed = tokio::task::spawn_blocking(move || backend.set_network(&network, change)).await;
        changed.map_err(|error| Fault::internal(&error.to_string()))??;
        published.forget_status();
        published.refresh().await?;
        Ok(Vec::new())
    }

    /// Everybody may know what the objects look like, and how many networks there are.
    async fn introspect(&self, call: &Message) -> Result<Vec<Value>, Fault> {
        let is_below = call.path == NETWORKS || call.path.starts_with("/org/anabranch/networks/");
        let mut published = self.published.lock().await;
        if is_below {
            published.refresh().await?;
        }
        let networks = published.objects().iter().filter(|(_, (interface, _))| *interface == NETWORK);
        let networks: Vec<String> = networks.map(|(path, _)| path.clone()).collect();
        let text = introspection::of_object(&call.path, &networks).ok_or_else(Fault::unknown_object)?;
        Ok(vec![Value::text(&text)])
    }

    /// Forgets who has left the bus, and whom polkit would not let read any more.
    async fn check_watchers(&self) {
        let watchers = self.published.lock().await.watchers().to_vec();
        for watcher in watchers {
            if self.authority.admit(&watcher, Needed::Action(STATUS), false).await.is_err() {
                self.published.lock().await.forget(&watcher);
            }
        }
    }
}

/// An object that has this interface. No interface at all stands for the object's own.
fn object<'a>(published: &'a Published, path: &str, interface: &str) -> Result<&'a Properties, Fault> {
    let object = published.objects().get(path).ok_or_else(Fault::unknown_object)?;
    if interface.is_empty() || interface == object.0 { Ok(object) } else { Err(Fault::unknown_interface()) }
}

/// Calls and news being seen to.
const MOST_UNDER_WAY: usize = 256;
/// How often the daemon is looked at for those who watch.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// How often it is looked whether they are there, and may.
const CHECK_INTERVAL: Duration = Duration::from_secs(20);
/// A radio's scan takes up to 25 s.
const REQUEST_TIME: Duration = Duration::from_secs(40);
/// How long answers under way may take once the daemon stops.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
