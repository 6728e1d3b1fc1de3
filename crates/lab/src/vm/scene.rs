//! What tests of `anabranch radio` in the guest begin with: access points, a device that knows networks, and the commands to be one of its users.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;

use crate::medium::{Config, LinkConfig, Quality};
use sim::NetworkSpec;

use super::measurement::Programs;
use super::wifi::{AccessPoint, Wifi, WifiNetwork};
use super::{Job, Machine, MachineError, Outcome};

/// Access points, what the device knows of them, and what happens.
#[derive(Clone, Debug)]
pub struct RadioScene {
    /// Access points and other people's radios.
    pub wifi: Wifi,
    /// The file of known networks, `radio.toml`.
    pub known: String,
    /// Shell commands. Beside the functions of [`Wifi::add_to`] there are `at_home COMMAND...` (in the device's namespace), `own ARGUMENTS...`
    /// (`anabranch radio`), `radio_up ARGUMENTS...` (in the background, its log in `/results/radio.log`), `address_on INTERFACE` (waits for
    /// one, 20 s at most) and `radio_down`, which tells how it ended.
    pub script: String,
    /// What the air is like; `None`: every frame arrives, and takes no time. With it `air_down` ends it, and its report is `air.json`.
    pub air: Option<Config>,
    /// What the air becomes by `air NAME`. Ways of radios begin then.
    pub later_airs: Vec<(String, Config)>,
    /// How long it may take, in the guest's time; by the clock three times as much.
    pub length: Duration,
    /// Further programs of this machine that it uses.
    pub programs: Vec<PathBuf>,
    /// Further kernel modules, as [`Job::modules`].
    pub modules: Vec<String>,
}

/// A good access point `near` and a bad one `far` on channel 6, both open, and what the device knows of them; of what the bad one sends so many attempts
/// are lost.
pub fn near_and_far(loss: f64, script: String) -> RadioScene {
    let network = |name: &'static str, beacon_interval| WifiNetwork {
        link: NetworkSpec::symmetric(name, 50.0, 20),
        points: vec![AccessPoint { beacon_interval, ..AccessPoint::open(name, 6) }],
    };
    // Radio 0 is the good access point, 1 the bad one, 2 the device.
    let wifi = Wifi::new(vec![network("near", 100), network("far", 97)]);
    let quality = Quality { loss, signal_dbm: -70, ..Quality::default() };
    let link = LinkConfig { from: Some(1), to: Some(2), quality, ..LinkConfig::default() };
    let known = "[[network]]\nssid = \"near\"\n\n[[network]]\nssid = \"far\"\n";
    RadioScene {
        air: Some(Config { link: vec![link], ..Config::default() }),
        ..RadioScene::new(wifi, known, script)
    }
}

impl RadioScene {
    /// With perfect air, and no further programs and modules.
    pub fn new(wifi: Wifi, known: impl Into<String>, script: impl Into<String>) -> Self {
        Self {
            wifi,
            known: known.into(),
            script: script.into(),
            air: None,
            later_airs: Vec::new(),
            length: Duration::from_secs(600),
            programs: Vec::new(),
            modules: Vec::new(),
        }
    }

    /// Plays it in the machine, and shows what it printed. `None` where something is missing, as [`Programs::find_or_skip`].
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn play(self, lab: &str) -> Result<Option<Outcome>, MachineError> {
        let Some((machine, programs)) = Programs::find_or_skip(lab)? else { return Ok(None) };
        let outcome = self.run(&machine, &programs)?;
        println!("{}\nwall time {:?}", outcome.output, outcome.wall_time);
        outcome.succeeded().map(Some)
    }

    /// Runs it in the machine; what the script ended with is in the outcome.
    ///
    /// # Errors
    /// If a program is missing, the script ran out of time, or the guest died.
    pub fn run(self, machine: &Machine, programs: &Programs) -> Result<Outcome, MachineError> {
        let air = if self.air.is_some() { AIR } else { "" };
        let mut job = Job::new(format!("{air}{FUNCTIONS}{}", self.script));
        self.wifi.add_to(&mut job)?;
        job.files.insert("/job/radio.toml".into(), self.known.into());
        let later = self.later_airs.into_iter().map(|(name, air)| (format!("/job/air-{name}.toml"), air));
        let first = self.air.map(|air| ("/job/air.toml".to_owned(), air));
        for (file, air) in first.into_iter().chain(later) {
            let air = Config { report: Some("/results/air.json".into()), ..air };
            let text = toml::to_string(&air).context("writing what the air is like")?;
            job.files.insert(file, text.into_bytes());
        }
        (job.timeout, job.wall_timeout) = (self.length, self.length * 3);
        job.programs.extend([programs.lab.clone(), programs.anabranch()?]);
        job.programs.extend(self.programs);
        job.modules.extend(self.modules);
        machine.run(&job)
    }
}

impl Programs {
    /// The machine and both programs for a test of this workspace; `lab` is the file of `anabranch-lab`, beside which the other one is. `None` with a
    /// line that says what is missing; in CI nothing may be missing.
    ///
    /// # Errors
    /// As [`Machine::find`].
    pub fn find_or_skip(lab: &str) -> Result<Option<(Machine, Self)>, MachineError> {
        let lab = PathBuf::from(lab);
        let anabranch = lab.with_file_name("anabranch");
        if !anabranch.exists() {
            let missing = MachineError::Missing {
                what: format!("{} is not built", anabranch.display()),
                remedy: "cargo build -p anabranch-cli".into(),
            };
            if std::env::var_os("CI").is_some() {
                return Err(missing);
            }
            println!("skipped: {missing}");
            return Ok(None);
        }
        let machine = Machine::find_or_skip()?;
        Ok(machine.map(|machine| (machine, Self { lab, anabranch: Some(anabranch) })))
    }
}

/// Before the first frame.
const AIR: &str = r#"chrt -f 10 anabranch-lab medium /job/air.toml >/results/medium.log 2>&1 & medium=$!
for _ in $(seq 100); do grep -q ready /results/medium.log && break; sleep 0.1; done
grep -q ready /results/medium.log || { echo 'no medium'; cat /results/medium.log; exit 1; }
air() { cp /job/air-$1.toml /job/air.toml && kill -HUP $medium; }
air_down() { kill -TERM $medium; wait $medium || { echo 'the medium did not end well'; cat /results/medium.log; exit 1; }; }
"#;

/// The device's state is in `/tmp/state`.
const FUNCTIONS: &str = r#". /job/networks; . /job/wifi; build_networks; build_air
at_home() { in_namespace device "$@"; }
own() { at_home anabranch --state /tmp/state radio "$@"; }
radio_up() { ip netns exec device anabranch --state /tmp/state radio up "$@" >>/results/radio.log 2>&1 & radio=$!; }
radio_down() { own down; wait $radio; echo "radio ended with $?"; }
address_on() { for _ in $(seq 200); do at_home ip addr show "$1" 2>/dev/null | grep -q 'inet ' && return; sleep 0.1; done; echo "no address on $1"; }
mkdir -p /tmp/state/radio; cp /job/radio.toml /tmp/state/radio/
chmod 700 /tmp/state /tmp/state/radio; chmod 600 /tmp/state/radio/radio.toml
"#;
