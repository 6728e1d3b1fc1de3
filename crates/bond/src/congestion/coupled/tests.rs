//! The coupled controllers: equations by hand, then behaviour.

use super::*;
use crate::congestion::Controller;
use crate::congestion::samples::{ack, loss};
use std::time::Duration;

fn subflow(path: u8, window: f64, rtt: f64, run: f64) -> Subflow {
    Subflow { path: PathId(path), window, rtt, run }
}

fn close(left: f64, right: f64) {
    assert!((left - right).abs() < 1e-12, "{left} is not {right}");
}

/// By hand, windows 10 and 20 packets, 0.1 and 0.2 s: w/rtt^2 = 1000 and 500, w/rtt = 100 and 100,
/// alpha = 30 * 1000 / 200^2 = 0.75, increase = min(0.75 / 30, 1 / 10) = 0.025.
#[test]
fn lia_by_hand() {
    let paths = [subflow(0, 10.0, 0.1, 0.0), subflow(1, 20.0, 0.2, 0.0)];
    close(lia_alpha(&paths), 0.75);
    close(lia_increase(&paths[0], &paths), 0.025);
    close(lia_increase(&paths[1], &paths), 0.025);
}

/// A small window: alpha = 101 * (100 / 0.01) / 1010^2 = 0.990099; without the cap the window of one would grow by
/// 0.0098 only, with a much better RTT it would grow by more than Reno's 1 / 1.
#[test]
fn lia_is_never_faster_than_reno() {
    let paths = [subflow(0, 1.0, 1.0, 0.0), subflow(1, 4.0, 0.001, 0.0)];
    assert!(lia_increase(&paths[0], &paths) <= 1.0);
    let alone = [subflow(0, 8.0, 0.05, 0.0)];
    close(lia_increase(&alone[0], &alone), 1.0 / 8.0);
    close(olia_increase(&alone[0], &alone), 1.0 / 8.0);
    close(balia_increase(&alone[0], &alone), 1.0 / 8.0);
    close(balia_decrease(&alone[0], &alone), 4.0);
}

/// By hand: path 1 is largest (20), path 0 best (100/0.01 against 100/0.04): alpha_0 = 1/2, alpha_1 = -1/2.
/// First term of path 0: 1000 / 200^2 = 0.025, second 0.5 / 10 = 0.05. Path 1: 500 / 40000 - 0.5 / 20 = -0.0125.
#[test]
fn olia_by_hand() {
    let paths = [subflow(0, 10.0, 0.1, 100.0), subflow(1, 20.0, 0.2, 100.0)];
    close(olia_alpha(&paths[0], &paths), 0.5);
    close(olia_alpha(&paths[1], &paths), -0.5);
    close(olia_increase(&paths[0], &paths), 0.075);
    close(olia_increase(&paths[1], &paths), -0.0125);
}

#[test]
fn olia_leaves_alone_where_best_is_largest() {
    let paths = [subflow(0, 20.0, 0.1, 500.0), subflow(1, 10.0, 0.1, 100.0), subflow(2, 5.0, 0.1, 20.0)];
    for path in &paths {
        close(olia_alpha(path, &paths), 0.0);
    }
}

/// By hand: windows 10 and 10, 0.1 and 0.2 s: x = 100 and 50, alpha = 1 and 2.
/// Path 0: 100 / (0.1 * 150^2) * 1 * 1 = 2/45. Path 1: 50 / (0.2 * 22500) * 1.5 * 1.2 = 0.02.
/// Decrease of path 0: 5; of path 1: 5 * 1.5 = 7.5.
#[test]
fn balia_by_hand() {
    let paths = [subflow(0, 10.0, 0.1, 0.0), subflow(1, 10.0, 0.2, 0.0)];
    close(balia_increase(&paths[0], &paths), 2.0 / 45.0);
    close(balia_increase(&paths[1], &paths), 0.02);
    close(balia_decrease(&paths[0], &paths), 5.0);
    close(balia_decrease(&paths[1], &paths), 7.5);
}

fn sibling(path: u8, window: u64, bottleneck: u32) -> Sibling {
    Sibling {
        path: PathId(path),
        window,
        smoothed_rtt: Duration::from_millis(40),
        acked_since_loss: 0,
        acked_between_losses: 0,
        bottleneck,
    }
}

/// Grows a controller in avoidance beside `other` for one window and returns by how many packets it grew.
fn growth(coupling: Coupling, other: Sibling) -> f64 {
    let mut controller = CoupledController::new(coupling, 1_000, Timestamp::ZERO);
    controller.on_loss(&loss(Timestamp::from_millis(10), Timestamp::from_millis(5)), PathId(0), &[]);
    let before = controller.state.window;
    for _ in 0..before as u64 {
        let siblings = [sibling(0, controller.window(), 7), other];
        controller.on_ack(&ack(1_000), PathId(0), &siblings);
    }
    controller.state.window - before
}

#[test]
fn couples_only_at_one_bottleneck() {
    for coupling in [Coupling::Lia, Coupling::Olia, Coupling::Balia] {
        let apart = growth(coupling, sibling(1, 5_000, 8));
        let together = growth(coupling, sibling(1, 5_000, 7));
        assert!((0.9..1.0).contains(&apart), "{coupling:?} alone grows as Reno: {apart}");
        assert!(together < 0.6 * apart, "{coupling:?} together: {together}");
    }
}

#[test]
fn survives_strange_siblings() {
    for coupling in [Coupling::Lia, Coupling::Olia, Coupling::Balia] {
        let mut controller = CoupledController::new(coupling, 1_000, Timestamp::ZERO);
        controller.on_loss(&loss(Timestamp::from_millis(10), Timestamp::from_millis(5)), PathId(0), &[]);
        let many: Vec<Sibling> = (0..40)
            .map(|path| Sibling { smoothed_rtt: Duration::ZERO, window: 0, ..sibling(39 - path, 0, 1) })
            .collect();
        for siblings in [&[][..], &many[..]] {
            controller.on_ack(&ack(1_000), PathId(0), siblings);
            controller.on_loss(
                &loss(Timestamp::from_millis(20_000), Timestamp::from_millis(19_000)),
                PathId(0),
                siblings,
            );
            assert!(controller.window() >= 1_000);
        }
    }
}
