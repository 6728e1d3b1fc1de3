//! The disk with the state directory is full, or becomes read-only, while the daemon runs.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anabranch::control::{InviteRequest, Seconds, SessionState};

use crate::bed::{Bed, SERVER_V4, eventually, within};
use crate::scenarios::{snapshot, working_paths};

/// A disk of its own for one state directory.
pub struct Disk {
    directory: PathBuf,
}

impl Disk {
    /// Mounts it with the files that are there so far.
    pub fn under(bed: &Bed, role: &str) -> Self {
        let disk = Self { directory: bed.directory(role) };
        let files: Vec<_> =
            fs::read_dir(&disk.directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        let files: Vec<_> = files.into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect();
        disk.mount(&["-t", "tmpfs", "-o", "size=512k,mode=700", "tmpfs"]);
        for (bytes, path) in files {
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
        }
        disk
    }

    fn mount(&self, arguments: &[&str]) {
        assert!(self.mounts(arguments));
    }

    fn mounts(&self, arguments: &[&str]) -> bool {
        Command::new("mount").args(arguments).arg(&self.directory).status().unwrap().success()
    }

    pub fn fill(&self) {
        let mut ballast = OpenOptions::new().create(true).append(true).open(self.ballast()).unwrap();
        for size in [4_096, 1] {
            let error = loop {
                if let Err(error) = ballast.write_all(&vec![0; size]) {
                    break error;
                }
            };
            assert_eq!(error.kind(), ErrorKind::StorageFull);
        }
    }

    pub fn empty(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.directory.join("ballast")
    }

    /// By a read-only view of it on top: the kernel refuses to change a disk on which a file is open for writing.
    fn set_read_only(&self, read_only: bool) {
        if !read_only {
            assert!(Command::new("umount").arg(&self.directory).status().unwrap().success());
            return;
        }
        self.mount(&["--bind", self.directory.to_str().unwrap()]);
        // By this view, too, the daemon may just be writing.
        eventually("nothing is written", || self.mounts(&["-o", "remount,bind,ro"]));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(&self.directory).status());
    }
}

pub fn a_full_disk_loses_nothing_of_a_device() {
    let bed = Bed::new(false);
    let disk = Disk::under(&bed, "device");
    let before = snapshot(&bed.device);
    let (_gateway, device) = bed.connected();
    eventually("both paths work", || working_paths(&bed) == 2);
    disk.fill();
    bed.download(SERVER_V4, 1_000_000, || {});
    // What a network that comes now needs cannot be noted, so it is not changed; all else goes on.
    bed.device.set_sysctl("net.ipv4.conf.wan1.rp_filter", "1").unwrap();
    bed.gateway.set_up("lan1", false).unwrap();
    eventually("it is seen", || working_paths(&bed) == 1);
    bed.gateway.set_up("lan1", true).unwrap();
    bed.download(SERVER_V4, 1_000_000, || {});
    bed.device.set_sysctl("net.ipv4.conf.wan1.rp_filter", "0").unwrap();
    let report = bed.client("device").down().unwrap();
    assert!(report.undone.len() >= 8 && report.failed.is_empty(), "{report:?}");
    assert!(device.wait(), "down is a good end");
    assert_eq!(snapshot(&bed.device), before);

    // It starts on a full disk too, says what is missing, and goes on when there is room.
    let device = bed.start("device");
    eventually("it says what is wrong", || {
        let status = bed.status();
        status.state == SessionState::Starting
            && status.why.contains("undo.json")
            && status.why.contains("No space left")
    });
    let captured = |lines: Vec<String>| lines.iter().any(|line| line.contains("lookup 43857"));
    assert!(!captured(snapshot(&bed.device)), "captured without a note of how to undo it");
    disk.empty();
    within(Duration::from_secs(20), "it has started", || bed.status().state == SessionState::Up);
    assert!(captured(snapshot(&bed.device)));
    bed.download(SERVER_V4, 300_000, || {});
    bed.client("device").down().unwrap();
    assert!(device.wait());
    assert_eq!(snapshot(&bed.device), before);
}

pub fn a_read_only_disk_loses_nothing_of_a_device() {
    let bed = Bed::new(false);
    let disk = Disk::under(&bed, "device");
    let before = snapshot(&bed.device);
    let (_gateway, device) = bed.connected();
    let key = fs::read(bed.directory("device").join("key")).unwrap();
    disk.set_read_only(true);
    bed.download(SERVER_V4, 1_000_000, || {});
    let report = bed.client("device").down().unwrap();
    assert!(report.undone.len() >= 8, "{report:?}");
    assert!(report.failed.len() == 1 && report.failed[0].contains("Read-only file system"), "{report:?}");
    assert!(device.wait());
    assert_eq!(snapshot(&bed.device), before);
    let said = bed.start_in_vain("device");
    assert!(said.contains("read-only; choose another with --state DIR"), "{said}");
    assert_eq!(snapshot(&bed.device), before);

    disk.set_read_only(false);
    let device = bed.start("device");
    bed.wait_until_up();
    bed.download(SERVER_V4, 300_000, || {});
    bed.client("device").down().unwrap();
    assert!(device.wait());
    assert_eq!(snapshot(&bed.device), before);
    assert_eq!(fs::read(bed.directory("device").join("key")).unwrap(), key);
}

pub fn a_full_or_read_only_disk_loses_no_client() {
    let bed = Bed::new(false);
    let disk = Disk::under(&bed, "gateway");
    let (mut gateway, mut device) = bed.connected();
    bed.write_config("other", "[device]\ndns = \"off\"\ninterface = \"any1\"\nmark = 0x77\ntable = 7700\n");
    bed.join_as("other");
    let invite = || {
        let request = InviteRequest { name: "third".to_owned(), lifetime_seconds: Seconds(600) };
        bed.client("gateway").invite(&request).unwrap_err().to_string()
    };
    disk.fill();
    let refused = invite();
    assert!(refused.contains("no room left on the disk of gateway.sqlite"), "{refused}");
    // Who is known comes in; who is new is told to wait, and its invitation stays good.
    drop(device);
    device = bed.start("device");
    bed.wait_until_up();
    bed.download(SERVER_V4, 300_000, || {});
    let other = bed.start("other");
    let of_other = || bed.client("other").status().unwrap();
    eventually("the new one is told", || of_other().state == SessionState::Refused);
    assert!(of_other().why.contains("at the moment"), "{}", of_other().why);
    disk.empty();
    within(Duration::from_secs(15), "the new one is in", || of_other().state == SessionState::Up);
    let clients = || {
        let clients = bed.client("gateway").gateway_clients().unwrap().clients;
        clients
            .into_iter()
            .map(|client| (client.name, client.public_key, client.addresses))
            .collect::<Vec<_>>()
    };
    let known = clients();
    assert_eq!(known.len(), 2);

    disk.set_read_only(true);
    let refused = invite();
    assert!(
        refused.contains("gateway.sqlite cannot be written: its disk or directory is read-only"),
        "{refused}"
    );
    bed.download(SERVER_V4, 300_000, || {});
    gateway.kill();
    let said = bed.start_in_vain("gateway");
    assert!(said.contains("read-only; choose another with --state DIR"), "{said}");
    disk.set_read_only(false);
    gateway = bed.start("gateway");
    within(Duration::from_secs(15), "both are back", || {
        bed.client("gateway").gateway_clients().unwrap().clients.iter().all(|client| client.connected)
    });
    assert_eq!(clients(), known);
    bed.download(SERVER_V4, 300_000, || {});
    drop((gateway, device, other));
}
