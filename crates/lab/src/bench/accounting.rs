//! What processes cost: processor time and memory of a process and everything that it started, from /proc
//! (proc_pid_stat(5), proc_pid_status(5)).

use anyhow::{Context, bail, ensure};
use std::fs;
use std::process::Command;
use std::time::Duration;

/// `first` and all its descendants.
///
/// # Errors
/// If `first` is not there.
pub fn process_tree(first: u32) -> anyhow::Result<Vec<u32>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").context("list the processes")?.flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process may end while it is looked at.
        let Ok(status) = fs::read_to_string(entry.path().join("status")) else { continue };
        if let Some(parent) = number_after(&status, "PPid:") {
            parents.push((process, parent));
        }
    }
    ensure!(parents.iter().any(|(process, _)| *process == first), "there is no process {first}");
    let mut tree = vec![u64::from(first)];
    let mut next = 0;
    while let Some(parent) = tree.get(next).copied() {
        tree.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(process, _)| u64::from(*process)));
        next += 1;
    }
    Ok(tree.into_iter().filter_map(|process| u32::try_from(process).ok()).collect())
}

/// The threads called `name` of `processes`.
///
/// # Errors
/// If there is none.
pub fn threads_called(name: &str, processes: &[u32]) -> anyhow::Result<Vec<u32>> {
    let mut threads = Vec::new();
    for process in processes {
        let all = fs::read_dir(format!("/proc/{process}/task"))
            .with_context(|| format!("look at process {process}"))?;
        for thread in all.flatten() {
            // A thread may end while it is looked at.
            let Ok(called) = fs::read_to_string(thread.path().join("comm")) else { continue };
            let number: Option<u32> = thread.file_name().to_str().and_then(|number| number.parse().ok());
            threads.extend(number.filter(|_| called.trim_end() == name));
        }
    }
    ensure!(!threads.is_empty(), "none of the processes {processes:?} has a thread \"{name}\"");
    Ok(threads)
}

/// A thread gets no more than `runtime` of a processor in each `period`, and that before all others (sched(7), `SCHED_DEADLINE`).
///
/// # Errors
/// If the system refuses.
pub fn hold_to(thread: u32, runtime: Duration, period: Duration) -> anyhow::Result<()> {
    let (runtime, period) = (runtime.as_nanos().to_string(), period.as_nanos().to_string());
    let mut chrt = Command::new("chrt");
    chrt.args([
        "--deadline",
        "--sched-runtime",
        &runtime,
        "--sched-deadline",
        &period,
        "--sched-period",
        &period,
    ]);
    let output = chrt.args(["--pid", "0", &thread.to_string()]).output().context("run chrt")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "a thread is not held to its share of a processor: {}", said.trim());
    Ok(())
}

/// What threads did with their time, as far as they wanted to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// On a processor.
    pub running: Duration,
    /// Ready to run, while others had the processors.
    pub waiting: Duration,
}

impl Usage {
    /// Of all threads of `processes` so far, added up.
    ///
    /// The first two numbers of `schedstat` are nanoseconds, where `stat` has ticks of 10 ms. Threads
    /// that ended are not in it; those of the daemons and of wireguard-go live as long as they do.
    ///
    /// # Errors
    /// If a process is gone, or the kernel keeps no such statistics.
    pub fn of(processes: &[u32]) -> anyhow::Result<Self> {
        let mut sum = Self::default();
        for process in processes {
            let threads = fs::read_dir(format!("/proc/{process}/task"))
                .with_context(|| format!("look at process {process}"))?;
            for thread in threads.flatten() {
                // A thread may end while it is looked at.
                let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
                let mut times = text.split_whitespace().map_while(|word| word.parse().ok());
                let (Some(running), Some(waiting)) = (times.next(), times.next()) else {
                    bail!("this kernel keeps no scheduler statistics (CONFIG_SCHED_INFO)");
                };
                sum.running += Duration::from_nanos(running);
                sum.waiting += Duration::from_nanos(waiting);
            }
        }
        Ok(sum)
    }

    /// What was used after `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            running: self.running.saturating_sub(before.running),
            waiting: self.waiting.saturating_sub(before.waiting),
        }
    }
}

/// Processor time that all threads of `processes` used so far.
///
/// # Errors
/// As [`Usage::of`].
pub fn processor_time(processes: &[u32]) -> anyhow::Result<Duration> {
    Usage::of(processes).map(|usage| usage.running)
}

/// Processor time that `process` used so far with all threads that it ever had, and that of its children that have ended; to
/// 10 ms. Other than [`processor_time`] it has what ended threads used.
///
/// # Errors
/// If the process is gone.
pub fn lifetime_processor_time(process: u32) -> anyhow::Result<(Duration, Duration)> {
    let text = fs::read_to_string(format!("/proc/{process}/stat"))
        .with_context(|| format!("look at process {process}"))?;
    times_of_stat(&text).with_context(|| format!("process {process} has no times"))
}

/// From fields 14 to 17 of `stat`: user and system time, and those of children; the name before them may hold anything.
fn times_of_stat(text: &str) -> Option<(Duration, Duration)> {
    let (_, rest) = text.rsplit_once(')')?;
    let ticks: Vec<u64> =
        rest.split_whitespace().skip(11).take(4).filter_map(|word| word.parse().ok()).collect();
    let [user, system, user_of_children, system_of_children] = ticks[..] else { return None };
    let time = |ticks: u64| Duration::from_millis(ticks * TICK_MS);
    Some((time(user + system), time(user_of_children + system_of_children)))
}

/// USER_HZ is 100 wherever Linux runs.
const TICK_MS: u64 = 10;

/// Memory that `processes` hold now (VmRSS), kB; what they share counts once for each.
///
/// # Errors
/// If a process is gone.
pub fn resident_kb(processes: &[u32]) -> anyhow::Result<u64> {
    sum_of_status(processes, "VmRSS:")
}

/// The most memory that each of `processes` ever held (VmHWM), summed, kB.
///
/// # Errors
/// If a process is gone.
pub fn peak_resident_kb(processes: &[u32]) -> anyhow::Result<u64> {
    sum_of_status(processes, "VmHWM:")
}

/// The most memory that `processes` held, where what they share counts once, kB: the peak of the process that held
/// most, and what the others have for themselves. Pages that they share are in that peak, since the others are forks
/// that do little.
///
/// # Errors
/// If a process is gone.
pub fn peak_shared_once_kb(processes: &[u32]) -> anyhow::Result<u64> {
    let mut peaks = Vec::new();
    for process in processes {
        peaks.push((peak_resident_kb(&[*process])?, *process));
    }
    peaks.sort_unstable();
    let (peak, _) = peaks.pop().context("there is no process")?;
    let mut sum = peak;
    for (_, process) in peaks {
        let memory = fs::read_to_string(format!("/proc/{process}/smaps_rollup"))
            .with_context(|| format!("look at process {process}"))?;
        for key in ["Private_Clean:", "Private_Dirty:"] {
            sum += number_after(&memory, key).with_context(|| format!("process {process} has no {key}"))?;
        }
    }
    Ok(sum)
}

fn sum_of_status(processes: &[u32], key: &str) -> anyhow::Result<u64> {
    let mut sum = 0;
    for process in processes {
        let status = fs::read_to_string(format!("/proc/{process}/status"))
            .with_context(|| format!("look at process {process}"))?;
        sum += number_after(&status, key).with_context(|| format!("process {process} has no {key}"))?;
    }
    Ok(sum)
}

/// The number on the line of a status file that begins with `key`.
fn number_after(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_child_is_in_the_tree_and_its_work_is_counted() {
        let own = std::process::id();
        let mut child =
            Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
        let tree = process_tree(own).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let worked = processor_time(&[child.id()]).unwrap();
        let [now, peak] = [resident_kb, peak_resident_kb].map(|memory| memory(&[child.id()]).unwrap());
        let both = [own, child.id()];
        let [once, twice] = [peak_shared_once_kb, peak_resident_kb].map(|memory| memory(&both).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(tree[0], own);
        assert!(tree.contains(&child.id()));
        assert!(worked > Duration::ZERO);
        assert!(0 < now && now <= peak, "{now} {peak}");
        assert!(peak < once && once < twice, "{peak} {once} {twice}");
        assert!(process_tree(child.id()).is_err());
    }

    #[test]
    fn what_ended_children_used_is_known() {
        let line = "7 (a) b) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 20 0 1 0 5";
        assert_eq!(
            times_of_stat(line),
            Some((Duration::from_millis(230), Duration::from_millis(270))),
            "11 and 12, 13 and 14 ticks"
        );
        let own = std::process::id();
        let (_, before) = lifetime_processor_time(own).unwrap();
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done";
        assert!(Command::new("sh").args(["-c", script]).status().unwrap().success());
        assert!(lifetime_processor_time(own).unwrap().1 > before);
    }

    #[test]
    fn numbers_follow_their_key() {
        let status = "Name:\tsh\nPPid:\t12\nVmRSS:\t    1924 kB\n";
        assert_eq!(number_after(status, "VmRSS:"), Some(1_924));
        assert_eq!(number_after(status, "PPid:"), Some(12));
        assert_eq!(number_after(status, "VmHWM:"), None);
    }
}
