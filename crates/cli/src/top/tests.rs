//! The screen as it is drawn, and what keys do to it.

#[path = "../../../daemon/examples/made_up/mod.rs"]
mod made_up;

use std::fmt::Write;

use anabranch::control::{Event, EventKind, EventSequence, FarEnd, NetworkChange, Role, Seconds, UnixMillis};
use daemon::control::{Backend, Requester};
use identity::StateDirectory;
use policy::Priority;
use ratatui_core::backend::TestBackend;
use ratatui_core::buffer::Buffer;
use ratatui_core::style::{Color, Modifier};
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::dialog::Dialog;
use super::draw;
use super::keys::Deed;
use super::look::Look;
use super::order::Order;
use super::sample::{Daemon, News, Said, Sample};
use super::view::{Line, Tab, View};
use made_up::MadeUp;

/// 2026-11-22 18:00:00Z.
const NOW: UnixMillis = UnixMillis::from_seconds(1_795_370_400);
const FULL: Look = Look { colour: true, attributes: true, unicode: true };
const DUMB: Look = Look { colour: false, attributes: false, unicode: false };
/// What a network, program or device may call itself.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;x\u{7}\r\n\u{9b}31m\u{202e}日本日本日本日本日本日本日本日本日本日本日本日本日本日本日本日本日本日本日本";

fn view(look: Look, size: (u16, u16)) -> View {
    let mut view = View::new(look, size, NOW);
    for second in 0..20 {
        view.take(device_sample(second, 4));
    }
    view
}

/// What a made-up device says.
fn device_sample(second: u64, networks: u32) -> Sample {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDirectory::create(directory.path().join("state")).unwrap();
    let made = MadeUp::new(Role::Device, networks, &state).unwrap();
    let mut status = made.status().unwrap();
    status.pid = 7;
    status.started = NOW;
    status.traffic.received = units::Bytes(1_500_000_000);
    status.far_end =
        Some(FarEnd { name: "home".to_owned(), public_key: String::new(), connected_since: Some(NOW) });
    for network in &mut status.networks {
        for path in &mut network.paths {
            // The made-up ones move with the clock; these with the second.
            let number = u64::from(network.id.0) + 1;
            path.traffic.receiving = units::BitRate(number * (2_000_000 + 300_000 * (second % 7)));
            path.traffic.sending = units::BitRate(path.traffic.receiving.0 / 9);
            path.rtt = Some(anabranch::control::Micros(9_000 * number));
        }
    }
    let paths = status.networks.iter().flat_map(|network| &network.paths);
    status.traffic.receiving = units::BitRate(paths.map(|path| path.traffic.receiving.0).sum());
    status.traffic.sending = units::BitRate(status.traffic.receiving.0 / 9);
    status.traffic.sent = units::Bytes(160_000_000);
    let gain = status.gain.as_mut().unwrap();
    gain.bonded = status.traffic.receiving;
    gain.best_alone = units::BitRate(18_000_000);
    let event = |sequence: u64, kind, text: &str| Event {
        sequence: EventSequence(sequence),
        time: NOW,
        kind,
        subject: None,
        text: text.to_owned(),
    };
    let events = match second {
        0 => vec![event(1, EventKind::Started, "the daemon has started")],
        5 => vec![event(2, EventKind::PathSuspect, "usb0 to 192.0.2.1:4600 stays silent")],
        _ => vec![],
    };
    let all = made.flows(Requester { user: 0, process: None, controls: true }).unwrap();
    Sample {
        at: NOW,
        said: Said::Daemon(Box::new(Daemon {
            status,
            news: News { other: second == 0, events },
            flows: Some(all),
            rules: Some(vec![]),
            clients: None,
            radio: Some(made.radio().unwrap()),
        })),
    }
}

fn gateway_sample() -> Sample {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDirectory::create(directory.path().join("state")).unwrap();
    let made = MadeUp::new(Role::Gateway, 0, &state).unwrap();
    for name in ["van", "boat"] {
        let request =
            anabranch::control::InviteRequest { name: name.to_owned(), lifetime_seconds: Seconds(3_600) };
        made.invite(&request).unwrap();
    }
    let daemon = Daemon {
        status: made.status().unwrap(),
        news: News::default(),
        flows: None,
        rules: None,
        clients: Some(made.clients().unwrap()),
        radio: None,
    };
    Sample { at: NOW, said: Said::Daemon(Box::new(daemon)) }
}

fn buffer(view: &View) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(view.size.0, view.size.1)).unwrap();
    terminal.draw(|frame| draw::draw(frame, view)).unwrap();
    terminal.backend().buffer().clone()
}

/// The screen as lines of text. Wide letters are followed by an empty cell.
fn text(view: &View) -> String {
    let buffer = buffer(view);
    let mut text = String::new();
    for row in buffer.content.chunks(usize::from(view.size.0)) {
        let mut skip = 0;
        for cell in row {
            if skip == 0 {
                text.push_str(cell.symbol());
            }
            skip = super::text::width(cell.symbol()).max(skip).saturating_sub(1);
        }
        text.push('\n');
    }
    text
}

fn press(view: &mut View, keys: &str) -> Deed {
    keys.chars().map(|key| press_code(view, KeyCode::Char(key))).last().unwrap()
}

fn press_code(view: &mut View, code: KeyCode) -> Deed {
    view.press(KeyEvent::new(code, KeyModifiers::NONE))
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn a_device_at_a_glance() {
    for (size, also) in [
        ((80, 24), &[][..]),
        ((120, 40), &["SIGNAL", "QUEUE", "-61 dBm", "WHY", "silent: its packets go elsewhere"]),
        ((150, 40), &["LAST 30 S", "WHY"]),
        ((60, 15), &[]),
    ] {
        for look in [FULL, DUMB] {
            let text = text(&view(look, size));
            has(
                &text,
                &["van (device) is up: data flows", "eth0 alone", "[1 Networks]", "eth0", "wlan0", "suspect"],
            );
            has(
                &text,
                &["NETWORK", "STATE", "IN", "RTT", "LOSS", "> eth0", "RADIO, 1 s", "AA", "BBB", "q quit"],
            );
            has(&text, also);
            assert_eq!(text.lines().count(), usize::from(size.1));
        }
    }
    let wide = text(&view(FULL, (80, 24)));
    has(&wide, &["QUEUE", "SIGNAL", "SHARE", "OUT", "EVENTS", "stays silent", "carries data"]);
}

#[test]
fn without_colours_nothing_has_one_and_nothing_is_lost() {
    let plain = Look { colour: false, ..FULL };
    let coloured = buffer(&view(FULL, (80, 24)));
    assert!(coloured.content.iter().any(|cell| cell.fg != Color::Reset));
    for look in [plain, DUMB] {
        let mut view = view(look, (80, 24));
        for tab in ['1', '2', '3', '4', '5', '6'] {
            press(&mut view, &tab.to_string());
            for cell in &buffer(&view).content {
                assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
                assert!(look.attributes || cell.modifier == Modifier::empty());
                assert!(look.unicode || cell.symbol().is_ascii(), "{cell:?}");
            }
        }
    }
    let (colour, none) = (text(&view(FULL, (80, 24))), text(&view(plain, (80, 24))));
    assert_eq!(colour, none);
}

#[test]
fn every_list_has_its_rows() {
    for size in [(80, 24), (120, 40), (60, 15)] {
        let mut view = view(FULL, size);
        press(&mut view, "2");
        has(
            &text(&view),
            &["[2 Flows]", "DESTINATION", "firefox", "198.51.100.", "> no rule: as the", "1000 flows"],
        );
        press(&mut view, "3");
        has(&text(&view), &["[3 Paths]", "HEALTH", "suspect", "good"]);
        press(&mut view, "4");
        has(&text(&view), &["[4 Radio]", "café 0", "SHARE", "33 %", "AA", "CCC"]);
        press(&mut view, "5");
        has(&text(&view), &["[5 Events]", "2026-11-22 18:00:00", "> usb0 to 192.0.2.1:4600 stays silent"]);
        press(&mut view, "6");
        has(&text(&view), &["[6 Rules]", "No rules"]);
        press(&mut view, "?");
        has(&text(&view), &["Keys (any key", "another list"]);
    }
}

#[test]
fn a_gateway_shows_its_clients() {
    let mut view = View::new(FULL, (80, 24), NOW);
    view.take(gateway_sample());
    has(&text(&view), &["van (gateway) is up", "1 clients connected", "[1 Clients]", "boat", "invited"]);
    assert_eq!(press(&mut view, "jr"), Deed::Nothing);
    has(&text(&view), &["Withdraw the invitation of van?"]);
    assert_eq!(press(&mut view, "y"), Deed::Order(Order::Revoke("van".to_owned())));
}

#[test]
fn a_radio_alone_shows_its_slots() {
    let Said::Daemon(daemon) = device_sample(0, 1).said else { panic!() };
    let mut view = View::new(FULL, (80, 24), NOW);
    let radio = daemon.radio.unwrap();
    view.take(Sample { at: NOW, said: Said::Radio { radio: radio.clone(), news: News::default() } });
    has(&text(&view), &["shared radio", "[1 Radio]", "on channel 6 now", "café 2", "CCC"]);
    assert_eq!(press(&mut view, "j+"), Deed::Order(Order::Weight { ssid: "café 1".to_owned(), weight: 1 }));
}

#[test]
fn a_window_that_is_too_small_says_so() {
    let mut view = view(FULL, (80, 24));
    for size in [(49, 24), (80, 11), (30, 5), (3, 1), (1, 1)] {
        view.size = size;
        let text = text(&view);
        assert!(size.0 < 30 || text.contains("too small"), "{text}");
    }
    for width in 50..140 {
        view.size = (width, 12 + width % 9);
        for tab in ['1', '2', '3', '4', '5', '6', '?'] {
            press(&mut view, &tab.to_string());
            text(&view);
            press_code(&mut view, KeyCode::Esc);
        }
    }
}

/// Whatever a name holds, no cell holds more than one letter of it, and every row is as wide as the screen.
#[test]
fn names_cannot_break_the_screen() {
    for (look, size) in [(FULL, (80, 24)), (FULL, (120, 40)), (DUMB, (80, 24)), (FULL, (61, 15))] {
        let mut view = view(look, size);
        let mut sample = device_sample(3, 4);
        if let Said::Daemon(daemon) = &mut sample.said {
            daemon.status.name = HOSTILE.to_owned();
            daemon.status.why = HOSTILE.to_owned();
            for network in &mut daemon.status.networks {
                network.name = format!("{}{HOSTILE}", network.id.0);
                network.why = HOSTILE.to_owned();
                for path in &mut network.paths {
                    path.why = HOSTILE.to_owned();
                }
            }
            for flow in &mut daemon.flows.as_mut().unwrap().flows {
                flow.program = Some(HOSTILE.to_owned());
                flow.why = HOSTILE.to_owned();
            }
            for network in &mut daemon.radio.as_mut().unwrap().networks {
                network.ssid = format!("x\u{301}\u{301}\u{301}\u{301}\u{301}{HOSTILE}");
            }
            daemon.news.events.push(Event {
                sequence: EventSequence(9),
                time: NOW,
                kind: EventKind::Warning,
                subject: Some(HOSTILE.to_owned()),
                text: HOSTILE.repeat(50),
            });
        }
        view.take(sample);
        for keys in ["1", "2", "3", "4", "5", "6", "1jo"] {
            press(&mut view, keys);
            let buffer = buffer(&view);
            for cell in &buffer.content {
                assert!(!cell.symbol().chars().any(char::is_control), "{cell:?}");
                assert!(cell.symbol().chars().count() <= 4, "{cell:?}");
            }
            for line in text(&view).lines() {
                assert_eq!(super::text::width(line), usize::from(size.0), "{line}");
            }
        }
    }
}

#[test]
fn keys_change_a_network() {
    let mut view = view(FULL, (80, 24));
    let order = |name: &str, change| Deed::Order(Order::Network { name: name.to_owned(), change });
    let stays = NetworkChange::default();
    let later = NetworkChange { priority: Some(Priority(1)), ..stays };
    assert_eq!(press(&mut view, "j+"), order("wlan0", later));
    let sooner = NetworkChange { priority: Some(Priority(0)), ..stays };
    assert_eq!(press(&mut view, "-"), order("wlan0", sooner));
    assert_eq!(press(&mut view, "b"), order("wlan0", NetworkChange { backup: Some(true), ..stays }));
    assert_eq!(press(&mut view, "jm"), order("wwan0", NetworkChange { metered: Some(false), ..stays }));
    press_code(&mut view, KeyCode::End);
    assert_eq!(press(&mut view, "m"), order("usb0", NetworkChange { metered: Some(true), ..stays }));
    assert_eq!(press_code(&mut view, KeyCode::Delete), Deed::Nothing);
    assert_eq!(press(&mut view, "3"), Deed::Nothing);
    assert_eq!(press(&mut view, "jjb"), order("wwan0", NetworkChange { backup: Some(true), ..stays }));
}

#[test]
fn what_interrupts_is_asked_first() {
    let mut view = view(FULL, (80, 24));
    let off = NetworkChange { off: Some(true), ..NetworkChange::default() };
    assert_eq!(press(&mut view, "o"), Deed::Nothing);
    has(&text(&view), &["Switch eth0 off?", "end.", "y: yes"]);
    assert_eq!(press(&mut view, "o+x"), Deed::Nothing);
    assert!(view.dialog.is_some());
    assert_eq!(press(&mut view, "n"), Deed::Nothing);
    assert!(view.dialog.is_none());
    has(&text(&view), &["nothing was changed"]);
    let order = Order::Network { name: "eth0".to_owned(), change: off };
    assert_eq!(press(&mut view, "oy"), Deed::Order(order));
    press(&mut view, "D");
    has(&text(&view), &["Bring the daemon down?"]);
    assert_eq!(press(&mut view, "y"), Deed::Order(Order::Down));
    // The last one is more than that.
    let mut sample = device_sample(3, 1);
    if let Said::Daemon(daemon) = &mut sample.said {
        daemon.status.networks[0].connected = true;
    }
    view.take(sample);
    press(&mut view, "o");
    has(&text(&view), &["the last network in use"]);
}

#[test]
fn a_flow_is_held_by_two_keys() {
    let mut view = view(FULL, (80, 24));
    press(&mut view, "2j");
    let flow = view.shown_flows().nth(1).unwrap().clone();
    press(&mut view, "h");
    has(&text(&view), &["New flows to 198.51.100.", "> direct, over eth0", "duplicated"]);
    press(&mut view, "jk");
    let Deed::Order(Order::Pin(request)) = press_code(&mut view, KeyCode::Enter) else { panic!() };
    assert_eq!(request.destination, Some(units::IpPrefix::host(flow.destination.ip())));
    assert_eq!(request.hold.networks, ["eth0"]);
    press(&mut view, "h");
    press_code(&mut view, KeyCode::Esc);
    assert!(view.dialog.is_none());
}

#[test]
fn flows_are_filtered_as_one_types() {
    let mut view = view(FULL, (80, 24));
    press(&mut view, "2/rsync");
    assert_eq!(view.dialog, Some(Dialog::Filter));
    has(&text(&view), &["show flows with: rsync_", "333 of 1000 flows"]);
    assert!(!text(&view).contains("firefox"));
    press_code(&mut view, KeyCode::Enter);
    has(&text(&view), &["only flows with: rsync"]);
    press_code(&mut view, KeyCode::Esc);
    assert_eq!(view.rows(), 1_000);
}

#[test]
fn a_chosen_row_is_followed() {
    let mut view = view(FULL, (80, 24));
    press(&mut view, "2jjjjj");
    let chosen = view.shown_flows().nth(5).unwrap().clone();
    let mut sample = device_sample(3, 4);
    if let Said::Daemon(daemon) = &mut sample.said {
        daemon.flows.as_mut().unwrap().flows.reverse();
    }
    view.take(sample);
    assert_eq!(view.cursor.index, 994);
    assert_eq!(view.shown_flows().nth(994).unwrap().destination, chosen.destination);
    has(&text(&view), &[&chosen.destination.to_string()]);
    press_code(&mut view, KeyCode::Esc);
    assert_eq!(view.cursor.index, 0);
}

#[test]
fn a_daemon_that_goes_and_comes_back() {
    let mut view = View::new(FULL, (80, 24), NOW);
    has(&text(&view), &["asking the daemon"]);
    let nothing = |seconds: u64| Sample {
        at: UnixMillis(NOW.0 + seconds * 1_000),
        said: Said::Nothing("no daemon is running here".to_owned()),
    };
    view.take(nothing(0));
    has(&text(&view), &["NO ANSWER since 18:00:00Z, trying again: no daemon is running"]);
    view.take(device_sample(0, 4));
    assert_eq!(view.line, Line::Up);
    view.take(nothing(3));
    view.take(nothing(9));
    has(&text(&view), &["NO ANSWER since 18:00:03Z", "eth0", "18:00:09Z"]);
    let mut sample = device_sample(0, 4);
    if let Said::Daemon(daemon) = &mut sample.said {
        daemon.news.events[0].text = "the daemon has started anew".to_owned();
    }
    view.take(sample);
    let text = text(&view);
    has(&text, &["van (device) is up", "started anew"]);
    assert_eq!(view.events.len(), 1);
    assert!(!text.contains("NO ANSWER"));
}

#[test]
fn ways_out() {
    let mut view = view(FULL, (80, 24));
    let control = |key| KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL);
    assert_eq!(view.press(control('c')), Deed::Quit);
    assert_eq!(view.press(control('z')), Deed::Suspend);
    assert_eq!(press(&mut view, "?q"), Deed::Quit);
    assert_eq!(press(&mut view, "q"), Deed::Quit);
    assert_eq!(view.tab, Tab::Networks);
}

/// The picture of docs/top.md is what is drawn: `ANABRANCH_WRITE=1 cargo test -p anabranch-cli picture` draws it anew.
#[test]
fn the_picture_is_what_is_drawn() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures/top.svg");
    let picture = svg(&view(FULL, (112, 20)));
    if std::env::var_os("ANABRANCH_WRITE").is_some() {
        std::fs::write(&path, &picture).unwrap();
    }
    assert!(std::fs::read_to_string(&path).unwrap() == picture, "{} is another screen's", path.display());
}

/// A screen as a picture, each run of cells of one style a piece of text.
fn svg(view: &View) -> String {
    const WIDTH: usize = 8;
    const HEIGHT: usize = 17;
    let buffer = buffer(view);
    let (columns, rows) = (usize::from(view.size.0), usize::from(view.size.1));
    let (width, height) = (columns * WIDTH + 24, rows * HEIGHT + 24);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\" aria-labelledby=\"title description\" \
         font-family=\"'DejaVu Sans Mono', 'Liberation Mono', Menlo, Consolas, monospace\" font-size=\"13\">\n  \
         <title id=\"title\">anabranch top</title>\n  \
         <desc id=\"description\">The terminal view of a made-up device: rate, round trip, loss, queue, signal and share of four \
         networks, the slots of a shared radio, and events.</desc>\n  {}\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" style=\"fill:#16181d\"/>\n",
        style()
    );
    for (row, cells) in buffer.content.chunks(columns).enumerate() {
        let mut column = 0;
        while column < columns {
            let first = &cells[column];
            let run = cells[column..]
                .iter()
                .take_while(|cell| (cell.fg, cell.modifier) == (first.fg, first.modifier))
                .count();
            let text: String = cells[column..column + run].iter().map(|cell| cell.symbol()).collect();
            let reversed = first.modifier.contains(Modifier::REVERSED);
            let (x, y) = (12 + column * WIDTH, 12 + row * HEIGHT);
            if reversed {
                let long = run * WIDTH;
                writeln!(
                    svg,
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{long}\" height=\"{HEIGHT}\" style=\"fill:#c9d1d9\"/>"
                )
                .unwrap();
            }
            let shown = text.trim_end();
            let indent = shown.len() - shown.trim_start().len();
            if !shown.trim().is_empty() {
                let letters =
                    shown.trim_start().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
                let fill = if reversed { "#16181d" } else { fill(first.fg) };
                let bold = first.modifier.contains(Modifier::BOLD);
                let weight = if bold { ";font-weight:bold" } else { "" };
                let long = (shown.chars().count() - indent) * WIDTH;
                writeln!(
                    svg,
                    "<text x=\"{}\" y=\"{}\" textLength=\"{long}\" xml:space=\"preserve\" \
                     style=\"fill:{fill};text-anchor:start{weight}\">{letters}</text>",
                    x + indent * WIDTH,
                    y + 13
                )
                .unwrap();
            }
            column += run;
        }
    }
    svg + "</svg>\n"
}

/// The style sheet that the pictures of the documentation share. A terminal has colours of its own.
fn style() -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures/radio.svg");
    let picture = std::fs::read_to_string(path).unwrap();
    let (_, after) = picture.split_once("<style>").unwrap();
    let (style, _) = after.split_once("</style>").unwrap();
    format!("<style>{style}</style>")
}

fn fill(colour: Color) -> &'static str {
    match colour {
        Color::DarkGray => "#8b949e",
        Color::Green => "#7ee787",
        Color::Yellow => "#e3b341",
        Color::Red => "#ff7b72",
        Color::Cyan => "#76e3ea",
        Color::Magenta => "#d2a8ff",
        Color::Blue => "#79c0ff",
        _ => "#c9d1d9",
    }
}
