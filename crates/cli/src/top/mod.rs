//! `anabranch top`: what each network does and why, live, on a terminal.
//!
//! [`view`], [`keys`] and [`draw`] are pure: answers and keys change the view, the view is drawn. [`source`] asks the daemon,
//! [`terminal`] has the terminal, and this file joins them.

mod dialog;
mod draw;
mod figures;
mod history;
mod keys;
mod look;
mod order;
mod sample;
mod source;
mod terminal;
#[cfg(test)]
mod tests;
mod text;
mod view;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::thread;

use anabranch::control::UnixMillis;
use anyhow::Context;
use ratatui_crossterm::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::exit::{Quietly, WrongUsage};
use crate::session::Session;
use keys::Deed;
use look::Look;
use source::{Report, Source};
use terminal::Screen;
use view::View;

/// Keys and reports that may wait; a terminal that is not read holds up the rest.
const WAITING: usize = 64;
/// 128 and the number of the signal, as shells have it.
const BY_SIGNAL: u8 = 128;

pub fn run(session: &Session) -> anyhow::Result<()> {
    if !io::stdout().is_terminal() {
        return Err(WrongUsage(
            "top draws on a terminal, and standard output is none; `anabranch status`, `networks` and `flows` print, with \
             --json for programs"
                .to_owned(),
        )
        .into());
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut screen = Screen::open()?;
    runtime.block_on(live(session, &mut screen))
}

async fn live(session: &Session, screen: &mut Screen) -> anyhow::Result<()> {
    let look = Look::of(|name| std::env::var(name).ok());
    let size = screen.terminal.size()?;
    let mut view = View::new(look, (size.width, size.height), UnixMillis::now());
    let (tab, looked_at) = watch::channel(view.tab);
    let (orders, ordered) = mpsc::channel(WAITING);
    let (reports, mut reported) = mpsc::channel(WAITING);
    let asking = Source::new(session).run(looked_at, ordered, reports);
    tokio::pin!(asking);
    let mut typed = typed()?;
    let mut ends = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()].map(signal);
    let [Ok(terminate), Ok(hang_up), Ok(interrupt)] = &mut ends else {
        anyhow::bail!("signals cannot be waited for");
    };
    loop {
        screen.terminal.draw(|frame| draw::draw(frame, &view))?;
        tokio::select! {
            () = &mut asking => anyhow::bail!("the daemon is not asked any more"),
            Some(report) = reported.recv() => match report {
                Report::Sample(sample) => view.take(sample),
                Report::Done(text) => view.remark = text,
            },
            event = typed.recv() => {
                let Some(event) = event else { return Ok(()) };
                if !on_event(event, &mut view, screen, &orders)? {
                    return Ok(());
                }
            }
            _ = terminate.recv() => return ended_by(SignalKind::terminate()),
            _ = hang_up.recv() => return ended_by(SignalKind::hangup()),
            _ = interrupt.recv() => return ended_by(SignalKind::interrupt()),
        }
        tab.send_if_modified(|before| std::mem::replace(before, view.tab) != view.tab);
    }
}

/// Whether to go on.
fn on_event(
    event: Event,
    view: &mut View,
    screen: &mut Screen,
    orders: &mpsc::Sender<order::Order>,
) -> anyhow::Result<bool> {
    match event {
        Event::Resize(width, height) => view.size = (width, height),
        Event::Key(key) if key.kind != KeyEventKind::Release => {
            if key.code == KeyCode::Char('l') && key.modifiers.contains(KeyModifiers::CONTROL) {
                screen.terminal.clear()?;
            }
            match view.press(key) {
                Deed::Nothing => {}
                Deed::Quit => return Ok(false),
                Deed::Suspend => screen.suspend()?,
                Deed::Order(order) => {
                    let taken = orders.try_send(order).is_ok();
                    view.remark =
                        if taken { "asking the daemon…" } else { "too many keys wait for the daemon" }
                            .to_owned();
                }
            }
        }
        _ => {}
    }
    Ok(true)
}

/// What is typed, from a thread that waits for it; nothing more once the terminal is gone.
fn typed() -> anyhow::Result<mpsc::Receiver<Event>> {
    let (sender, receiver) = mpsc::channel(WAITING);
    thread::Builder::new()
        .name("keys".to_owned())
        .spawn(move || {
            while let Ok(event) = event::read() {
                if sender.blocking_send(event).is_err() {
                    return;
                }
            }
        })
        .context("no thread for the keys")?;
    Ok(receiver)
}

fn ended_by(signal: SignalKind) -> anyhow::Result<()> {
    let number = u8::try_from(signal.as_raw_value()).unwrap_or(0);
    Err(Quietly(ExitCode::from(BY_SIGNAL + number)).into())
}
