//! What tests of `anabranch radio` in the guest begin with: access points, a device that knows networks, and the commands to be one of its users.

use std::path::PathBuf;

use super::measurement::Programs;
use super::wifi::Wifi;
use super::{Job, Machine, MachineError, Outcome};

/// Access points, what the device knows of them, and what happens.
#[derive(Clone, Debug)]
pub struct RadioScene {
    /// Access points and other people's radios.
    pub wifi: Wifi,
    /// The file of known networks, `radio.toml`.
    pub known: &'static str,
    /// Shell commands. Beside the functions of [`Wifi::add_to`] there are `at_home COMMAND...` (in the device's namespace), `own ARGUMENTS...`
    /// (`anabranch radio`), `radio_up ARGUMENTS...` (in the background, its log in `/results/radio.log`), `address_on INTERFACE` (waits for
    /// one, 20 s at most) and `radio_down`, which tells how it ended.
    pub script: String,
    /// Further programs of this machine that it uses.
    pub programs: Vec<PathBuf>,
    /// Further kernel modules, as [`Job::modules`].
    pub modules: Vec<String>,
}

impl RadioScene {
    /// With no further programs and modules.
    pub fn new(wifi: Wifi, known: &'static str, script: impl Into<String>) -> Self {
        Self { wifi, known, script: script.into(), programs: Vec::new(), modules: Vec::new() }
    }

    /// Plays it in the machine, and shows what it printed. `None` where something is missing, as [`Programs::find_or_skip`].
    ///
    /// # Errors
    /// If a program is missing, the script ran out of time or failed, or the guest died.
    pub fn play(self, lab: &str) -> Result<Option<Outcome>, MachineError> {
        let Some((machine, programs)) = Programs::find_or_skip(lab)? else { return Ok(None) };
        let mut job = Job::new(FUNCTIONS.to_owned() + &self.script);
        self.wifi.add_to(&mut job)?;
        job.files.insert("/job/radio.toml".into(), self.known.into());
        job.programs.extend([programs.lab.clone(), programs.anabranch()?]);
        job.programs.extend(self.programs);
        job.modules.extend(self.modules);
        let outcome = machine.run(&job)?;
        println!("{}\nwall time {:?}", outcome.output, outcome.wall_time);
        outcome.succeeded().map(Some)
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
