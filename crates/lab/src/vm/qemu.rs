//! One run of the emulator.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::initramfs::unique_number;
use super::kernel::cache_directory;
use super::{Job, Machine, MachineError, Outcome, archive};

/// Starts the emulator on `initramfs`, waits for its end and reads its report.
///
/// # Errors
/// See [`Machine::run`].
pub fn run(machine: &Machine, job: &Job, initramfs: &[u8]) -> Result<Outcome, MachineError> {
    let cache = cache_directory()?;
    remove_abandoned(&cache);
    let directory = cache.join(format!("run-{}", unique_number()));
    fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
    let result = run_in(&directory, machine, job, initramfs);
    fs::remove_dir_all(&directory).with_context(|| format!("removing {}", directory.display()))?;
    result
}

/// Removes the directories of runs whose process was killed; what cannot be removed now may be next time.
fn remove_abandoned(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix("run-").and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn run_in(directory: &Path, machine: &Machine, job: &Job, initramfs: &[u8]) -> Result<Outcome, MachineError> {
    let started = Instant::now();
    fs::write(directory.join("initramfs"), initramfs).context("writing the initramfs")?;
    let mut child = command(directory, machine, job).spawn().context("starting qemu-system-x86_64")?;
    let ended = wait(&mut child, job)?;
    let wall_time = started.elapsed();

    let no_report = |what: String| {
        let console = fs::read(directory.join("console")).unwrap_or_default();
        let messages = fs::read(directory.join("messages")).unwrap_or_default();
        let text = String::from_utf8_lossy(&[console, messages].concat()).into_owned();
        MachineError::NoReport { what, console: last_characters(&text, 2_000) }
    };
    let Some(status) = ended else {
        return Err(no_report(format!("did not end within {} s", job.wall_timeout.as_secs())));
    };
    if !status.success() {
        return Err(no_report(format!("ended with {status}")));
    }
    let report = fs::read(directory.join("report")).context("reading the guest's report")?;
    let report =
        archive::read_files(&report).map_err(|error| no_report(format!("left no whole report ({error})")))?;
    outcome(job, report, wall_time)
}

fn outcome(
    job: &Job,
    mut report: BTreeMap<String, Vec<u8>>,
    wall_time: Duration,
) -> Result<Outcome, MachineError> {
    let mut text = |name: &str| {
        let bytes = report.remove(name).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let output = text("report/output");
    let exit: i32 = text("report/exit").trim().parse().context("the guest reported no exit status")?;
    let uptime: f64 = text("report/uptime").trim().parse().context("the guest reported no time")?;
    let guest_time = Duration::from_secs_f64(uptime);
    if exit == KILLED && guest_time >= job.timeout {
        return Err(MachineError::GuestTimeout {
            limit: job.timeout,
            output: last_characters(&output, 2_000),
        });
    }
    let files = report
        .into_iter()
        .filter_map(|(name, contents)| Some((name.strip_prefix("report/results/")?.to_owned(), contents)))
        .collect();
    Ok(Outcome { exit, output, files, guest_time, wall_time })
}

/// The emulator's command line. `setpriv` has the kernel end it should this process die first. The machine is q35 since
/// runs on it repeat bit for bit; on microvm, which boots a second faster, one in ten went another way.
fn command(directory: &Path, machine: &Machine, job: &Job) -> Command {
    let megabytes = (job.memory.0 >> 20).max(256);
    let mut command = Command::new("setpriv");
    let mut arguments = KERNEL_ARGUMENTS.to_owned();
    if job.instruction_nanos > 0 {
        arguments.push_str(VIRTUAL_TIME_ARGUMENTS);
    }
    arguments.push_str(FURTHER_ARGUMENTS);
    if !job.kernel_arguments.is_empty() {
        arguments.push(' ');
        arguments.push_str(&job.kernel_arguments);
    }
    command
        .args(["--pdeathsig", "KILL"])
        .arg(&machine.qemu)
        .args(["-M", "q35", "-cpu", "max,-erms,-fsrm", "-smp", "1"])
        .args(["-accel", "tcg,thread=single"])
        .args(["-m", &format!("{megabytes}M"), "-seed", &job.seed.to_string()])
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
        .args(["-initrd", "initramfs"])
        .args(["-serial", "file:console"])
        .args(["-device", "virtio-serial-pci", "-chardev", "file,id=report,path=report"])
        .args(["-device", "virtserialport,chardev=report,name=results"])
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    match job.instruction_nanos.checked_ilog2() {
        Some(shift) => {
            command.args(["-icount", &format!("shift={shift},sleep=off")]);
            command.args(["-rtc", "base=2026-01-01T00:00:00,clock=vm"]);
            command.arg("-kernel").arg(&machine.kernel.image);
        }
        None => {
            command.args(["-rtc", "base=2026-01-01T00:00:00,clock=host"]);
            // A machine that wakes up is reset first, at which the emulator lays an unpacked image over the kernel's memory again.
            command.arg("-kernel").arg(machine.kernel.packed_image());
        }
    }
    command.arg("-append").arg(arguments);
    match fs::File::create(directory.join("messages")) {
        Ok(file) => command.stderr(file),
        Err(_) => command.stderr(Stdio::null()),
    };
    command
}

/// Waits until the child ends or the clock passes `deadline`, then ends it; `None` in that case.
/// Waits for its end. The clock of virtual time is this machine's processor, and one that has to share it is slow and does not hang.
fn wait(child: &mut Child, job: &Job) -> Result<Option<ExitStatus>, MachineError> {
    let started = Instant::now();
    let longest = if job.instruction_nanos > 0 { job.wall_timeout * MOST_SHARED } else { job.wall_timeout };
    loop {
        if let Some(status) = child.try_wait().context("waiting for qemu-system-x86_64")? {
            return Ok(Some(status));
        }
        let is_over = started.elapsed() >= longest
            || processor_time(child.id()).is_some_and(|used| used >= job.wall_timeout);
        if is_over {
            child.kill().context("ending qemu-system-x86_64")?;
            child.wait().context("waiting for qemu-system-x86_64")?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// What a process has had of this machine's processors, all its threads together (proc_pid_stat(5), the 14th and 15th field).
fn processor_time(process: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, after_name) = text.rsplit_once(')')?;
    let ticks = after_name.split_ascii_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>().ok()?;
    Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

fn last_characters(text: &str, count: usize) -> String {
    let skip = text.chars().count().saturating_sub(count);
    text.chars().skip(skip).collect()
}

/// No address randomisation, so that runs repeat; no huge pages, which the kernel gives a process when it likes, so that memory repeats.
const KERNEL_ARGUMENTS: &str =
    "console=ttyS0 quiet nokaslr norandmaps mitigations=off transparent_hugepage=never";

/// Nor a clock watchdog.
const VIRTUAL_TIME_ARGUMENTS: &str = " tsc=reliable clocksource=tsc";

/// A panic ends the machine.
const FURTHER_ARGUMENTS: &str = " random.trust_cpu=on audit=0 init_on_alloc=0 panic=-1 oops=panic";

/// So much longer than alone it may take beside others.
const MOST_SHARED: u32 = 4;

/// The status of a process ended by SIGKILL, as a shell gives it.
const KILLED: i32 = 137;
