//! A connection between network namespaces whose adapters come, go, fall silent, lose packets and change their addresses at random: every byte arrives, once
//! and in its place, both ways. Needs root, and is left out without.
//!
//! Time is real, so a seed gives the same events and not the same run. A failing run prints its seed: run one by `NETWORKS_SEED=N`, more by `NETWORKS_SEEDS=50`.

#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

#[expect(dead_code, reason = "shared with other tests")]
mod bed;

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use identity::KeyPair;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use bed::{Bed, Flow, Pair};

const CABLES: usize = 3;
const EVENTS: usize = 40;
/// Seeds of a normal run.
const SEEDS: u64 = 4;
/// Longer than all events together may leave the ends without a network.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a cable is like.
#[derive(Clone, Copy, Debug)]
struct Cable {
    is_plugged: bool,
    /// Packets of a hundred that are lost on the way in and out of the near end.
    lost: [u32; 2],
}

/// Packets of a hundred that a cable may lose.
const LOST: [u32; 5] = [0, 3, 20, 60, 100];
const GOOD: Cable = Cable { is_plugged: true, lost: [0, 0] };

struct World {
    bed: Bed,
    cables: [Cable; CABLES],
    random: StdRng,
}

impl World {
    fn happen(&mut self) {
        let cable = self.random.random_range(0..CABLES);
        let name = format!("cable{cable}");
        let is_plugged = self.cables[cable].is_plugged;
        let what = self.random.random_range(0..100);
        println!("{name} {what} {:?}", self.cables[cable]);
        match what {
            0..40 => {
                let [one, other] = [0, 1].map(|_| LOST[self.random.random_range(0..LOST.len())]);
                // Silence is mostly that of both ways.
                self.cables[cable].lost = if one == 100 { [100, 100] } else { [one, other] };
                self.set_losses();
            }
            40..55 if is_plugged => {
                self.bed.near.delete_link(&name).unwrap();
                self.cables[cable].is_plugged = false;
            }
            40..80 if !is_plugged => self.plug(cable),
            55..70 if is_plugged => {
                let end = if self.random.random_bool(0.5) { &self.bed.near } else { &self.bed.far };
                end.set_up(&name, false).unwrap();
                let pause = self.random.random_range(5..400);
                std::thread::sleep(Duration::from_millis(pause));
                end.set_up(&name, true).unwrap();
            }
            70..85 if is_plugged => {
                // Comes back with other addresses at both ends.
                self.bed.near.delete_link(&name).unwrap();
                self.bed.near.join(&self.bed.far, &name, &name).unwrap();
                let host = self.random.random_range(3..120);
                self.bed.near.add_address(&name, format!("10.9.{cable}.{host}/24").parse().unwrap()).unwrap();
                let host = host + 120;
                self.bed.far.add_address(&name, format!("10.9.{cable}.{host}/24").parse().unwrap()).unwrap();
            }
            _ => {}
        }
    }

    fn plug(&mut self, cable: usize) {
        self.bed.plug(cable);
        self.cables[cable].is_plugged = true;
    }

    fn set_losses(&self) {
        let mut script = "table inet losses\ndelete table inet losses\ntable inet losses {\n".to_owned();
        for (at, hook, interface) in [(0, "input", "iifname"), (1, "output", "oifname")] {
            writeln!(script, "chain {hook} {{ type filter hook {hook} priority 0;").unwrap();
            for (number, cable) in self.cables.iter().enumerate() {
                let lost = cable.lost[at];
                writeln!(script, "{interface} cable{number} numgen random mod 100 < {lost} drop").unwrap();
            }
            script.push_str("}\n");
        }
        script.push('}');
        let script = script
            .replace("numgen random mod 100 < 100 ", "")
            .replace("numgen random mod 100 < 0 drop", "accept");
        let ran = self.bed.near.command("nft").unwrap().arg(&script).status().unwrap();
        assert!(ran.success(), "{script}");
    }

    fn heal(&mut self) {
        for cable in 0..CABLES {
            let name = format!("cable{cable}");
            if self.cables[cable].is_plugged {
                for end in [&self.bed.near, &self.bed.far] {
                    end.set_up(&name, true).unwrap();
                }
            } else {
                self.plug(cable);
            }
        }
        self.cables = [GOOD; CABLES];
        self.set_losses();
    }
}

/// `false` without the privileges for it.
fn run(seed: u64) -> bool {
    let Some(bed) = Bed::new(CABLES) else { return false };
    let keys = [KeyPair::generate().unwrap(), KeyPair::generate().unwrap()];
    let Pair { client, server, near, far, events } = bed.connect_as(keys, PATIENCE);
    let mut world = World { bed, cables: [GOOD; CABLES], random: StdRng::seed_from_u64(seed) };
    let ((near_reads, near_writes), (far_reads, far_writes)) = (near.split(), far.split());
    let flows = [Flow::start(near_writes, far_reads), Flow::start(far_writes, near_reads)];
    for _ in 0..EVENTS {
        world.happen();
        let pause = world.random.random_range(0..500);
        std::thread::sleep(Duration::from_millis(pause));
    }
    world.heal();
    for flow in flows {
        let (longest, bytes) = flow.end();
        println!("seed {seed}: {bytes} bytes, at most {longest:?} without any");
        assert!(bytes > 100_000, "hardly anything was sent");
    }
    let events = events.lock().unwrap().len();
    println!("seed {seed}: {events} events were told");
    drop((client, server));
    true
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn whatever_happens_to_the_networks_every_byte_arrives() {
    let seeds =
        number("NETWORKS_SEED").map_or(0..number("NETWORKS_SEEDS").unwrap_or(SEEDS), |seed| seed..seed + 1);
    for seed in seeds {
        match catch_unwind(AssertUnwindSafe(|| run(seed))) {
            Ok(true) => {}
            Ok(false) => return,
            Err(panic) => {
                eprintln!("NETWORKS_SEED={seed} fails");
                resume_unwind(panic);
            }
        }
    }
}
