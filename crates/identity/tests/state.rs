//! The state directory, the key file and the known far ends, on real file systems.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

use std::fs;
use std::num::NonZeroU16;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use identity::{
    DaemonLock, InvitationKind, InvitationSecret, JoinError, KeyError, KeyPair, LockError, Peers, PeersError,
    PublicKey, Registry, StateDirectory, StateError, UnixSeconds, WriteError,
};
use wire::join_link::JoinLink;

const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

fn state() -> (tempfile::TempDir, StateDirectory) {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDirectory::create(directory.path().join("state")).unwrap();
    (directory, state)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

fn link(key: u8) -> JoinLink {
    JoinLink {
        kind: InvitationKind::Gateway,
        public_key: [key; 32],
        addresses: vec!["gw.example.org:4600".parse().unwrap()],
        tcp_port: NonZeroU16::new(443),
        secret: InvitationSecret([key; 16]),
        expires: UnixSeconds(NOW.0 + 60),
    }
}

fn join(state: &StateDirectory, link: &JoinLink, name: Option<&str>) -> Result<identity::Joined, JoinError> {
    Peers::change(state, |peers| peers.join(link, name, PublicKey([0xee; 32]), NOW))
}

/// A small file system of its own, gone when dropped; `None` without the right to mount.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: &Path, options: &str) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at).status();
        mount.is_ok_and(|status| status.success()).then(|| Self(at.to_owned()))
    }

    fn again(&self, options: &str) {
        let status = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(&self.0).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn the_directory_and_its_files_are_private() {
    let (_directory, state) = state();
    KeyPair::load_or_create(&state).unwrap();
    join(&state, &link(1), None).unwrap();
    Registry::create(&state, Default::default()).unwrap();
    let _lock = DaemonLock::take(&state).unwrap();
    assert_eq!(mode(state.path()), 0o700);
    for entry in fs::read_dir(state.path()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn an_open_mode_is_mended() {
    let (_directory, state) = state();
    fs::set_permissions(state.path(), fs::Permissions::from_mode(0o755)).unwrap();
    StateDirectory::open(state.path(), "anabranch join -").unwrap();
    assert_eq!(mode(state.path()), 0o700);
}

#[test]
fn missing_directories_and_files_in_their_place_are_named() {
    let (directory, _) = state();
    let missing = StateDirectory::open(directory.path().join("none"), "anabranch join -").unwrap_err();
    assert!(missing.to_string().contains("run `anabranch join -` first"), "{missing}");
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(StateDirectory::create(&file), Err(StateError::NotADirectory(_))));
    assert!(matches!(StateDirectory::create(file.join("below")), Err(StateError::NotADirectory(_))));
}

#[test]
fn the_key_is_made_once_and_comes_back() {
    let (_directory, state) = state();
    assert!(matches!(KeyPair::load(&state), Err(KeyError::Missing(_))));
    let made = KeyPair::load_or_create(&state).unwrap();
    let loaded = KeyPair::load_or_create(&state).unwrap();
    assert_eq!((made.public(), made.private_bytes()), (loaded.public(), loaded.private_bytes()));
    assert_eq!(made.public().to_string().parse::<PublicKey>().unwrap(), made.public());
}

#[test]
fn the_public_key_is_that_of_rfc_7748() {
    // Alice's pair, section 6.1.
    let hex = |text: &str| -> [u8; 32] {
        std::array::from_fn(|index| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).unwrap())
    };
    let private = hex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a");
    let public = hex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a");
    assert_eq!(KeyPair::from_private(private).unwrap().public(), PublicKey(public));
}

#[test]
fn a_damaged_key_is_refused_and_kept() {
    let (_directory, state) = state();
    KeyPair::load_or_create(&state).unwrap();
    let good = fs::read_to_string(state.file("key")).unwrap();
    let private = good.lines().nth(1).unwrap();
    let (first, rest) = private.strip_prefix("private ").unwrap().split_at(1);
    let other = if first == "a" { "b" } else { "a" };
    let changed = good.replace(private, &format!("private {other}{rest}"));
    for wrong in ["", "anabranch key 2\n", &good[..60], &changed, &"x".repeat(5_000)] {
        fs::write(state.file("key"), wrong).unwrap();
        assert!(matches!(KeyPair::load_or_create(&state), Err(KeyError::Damaged(_))), "{wrong}");
        assert_eq!(fs::read_to_string(state.file("key")).unwrap(), wrong);
    }
}

#[test]
fn debug_and_errors_hide_the_private_key() {
    let (_directory, state) = state();
    let pair = KeyPair::load_or_create(&state).unwrap();
    let file = fs::read_to_string(state.file("key")).unwrap();
    let private = file.lines().nth(1).unwrap().strip_prefix("private ").unwrap();
    let shown = format!("{pair:?}");
    assert!(shown.contains(&pair.public().to_string()) && !shown.contains(private), "{shown}");
    fs::write(state.file("key"), format!("{file}x").replace("anabranch", "anabrunch")).unwrap();
    let error = KeyPair::load(&state).unwrap_err();
    assert!(!format!("{error} {error:?}").contains(private));
}

#[test]
fn one_daemon_at_a_time() {
    let (_directory, state) = state();
    let lock = DaemonLock::take(&state).unwrap();
    let Err(LockError::Held { process, .. }) = DaemonLock::take(&state) else { panic!("locked twice") };
    assert_eq!(process, Some(std::process::id()));
    drop(lock);
    DaemonLock::take(&state).unwrap();
}

#[test]
fn a_lock_that_is_handed_over_is_never_free() {
    let (_directory, state) = state();
    let handed = |lock: DaemonLock| lock.as_fd().try_clone_to_owned().unwrap();
    let lock = DaemonLock::adopt(&state, handed(DaemonLock::take(&state).unwrap())).unwrap();
    let lock = DaemonLock::adopt(&state, handed(lock)).unwrap();
    let Err(LockError::Held { process, .. }) = DaemonLock::take(&state) else { panic!("it was free") };
    assert_eq!(process, Some(std::process::id()));
    // The lock of a file that somebody has removed is worth nothing.
    fs::remove_file(state.file("daemon.lock")).unwrap();
    let _own = DaemonLock::adopt(&state, handed(lock)).unwrap();
    assert!(DaemonLock::take(&state).is_err());
}

#[test]
fn joining_twice_renews_and_keeps_the_name() {
    let (_directory, state) = state();
    let first = join(&state, &link(1), Some("home")).unwrap();
    assert_eq!((first.name.as_str(), first.renewed), ("home", false));
    let was_open = Peers::change(&state, |peers| Ok::<_, PeersError>(peers.redeemed(PublicKey([1; 32]))));
    assert!(was_open.unwrap());
    let mut second = link(1);
    second.addresses = vec!["192.0.2.1:1".parse().unwrap()];
    let renewed = join(&state, &second, None).unwrap();
    assert_eq!((renewed.name.as_str(), renewed.renewed), ("home", true));
    let peers = Peers::load(&state).unwrap();
    let home = peers.by_name("home").unwrap();
    assert_eq!((&home.addresses, home.invitation.as_ref()), (&second.addresses, Some(&second.secret)));
    assert_eq!(peers.of_kind(InvitationKind::Gateway).count(), 1);
}

#[test]
fn another_gateway_gets_another_name() {
    let (_directory, state) = state();
    join(&state, &link(1), None).unwrap();
    assert_eq!(join(&state, &link(2), None).unwrap().name, "gateway-2");
    let before = fs::read_to_string(state.file("peers.toml")).unwrap();
    let taken = join(&state, &link(3), Some("gateway")).unwrap_err();
    assert!(taken.to_string().contains("another gateway is called gateway here"), "{taken}");
    assert!(matches!(join(&state, &link(3), Some("")), Err(JoinError::Name)));
    assert_eq!(fs::read_to_string(state.file("peers.toml")).unwrap(), before);
}

#[test]
fn expired_and_own_links_are_refused() {
    let (_directory, state) = state();
    let mut old = link(1);
    old.expires = UnixSeconds(NOW.0 - 7_300);
    let expired = join(&state, &old, None).unwrap_err();
    assert!(expired.to_string().contains("expired 2 h ago by this machine's clock"), "{expired}");
    assert!(matches!(join(&state, &link(0xee), None), Err(JoinError::OwnLink)));
    assert!(!state.file("peers.toml").exists());
}

#[test]
fn damaged_far_ends_are_named_without_their_secrets() {
    let (_directory, state) = state();
    join(&state, &link(1), None).unwrap();
    let good = fs::read_to_string(state.file("peers.toml")).unwrap();
    let secret = good.split("invitation = \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    for (from, to) in [
        ("kind = \"gateway\"", "kind = \"friend\""),
        ("addresses = [", "addresses = [5, "),
        ("tcp_port = 443", "tcp_port = 0"),
        ("invitation = \"", "invitation = \"!"),
        ("invitation = ", "invitation "),
        ("name", "colour"),
    ] {
        assert!(good.contains(from));
        fs::write(state.file("peers.toml"), good.replace(from, to)).unwrap();
        let error = Peers::load(&state).unwrap_err();
        assert!(matches!(error, PeersError::Damaged { .. }), "{to}: {error}");
        assert!(!error.to_string().contains(&secret), "{error}");
    }
}

#[test]
fn a_read_only_disk_is_named_and_nothing_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().join("disk");
    let Some(disk) = Mounted::new(&at, "size=1m") else {
        eprintln!("skipped: no right to mount");
        return;
    };
    let state = StateDirectory::create(at.join("state")).unwrap();
    let key = KeyPair::load_or_create(&state).unwrap();
    join(&state, &link(1), None).unwrap();
    drop(Registry::create(&state, Default::default()).unwrap());
    disk.again("ro");
    let mut registry = Registry::open(&state, Default::default(), None).unwrap();
    assert_eq!(KeyPair::load_or_create(&state).unwrap().public(), key.public());
    assert!(matches!(
        join(&state, &link(2), None),
        Err(JoinError::Peers(PeersError::Write(WriteError::ReadOnly(_))))
    ));
    assert!(matches!(DaemonLock::take(&state), Err(LockError::Write(WriteError::ReadOnly(_)))));
    assert!(matches!(
        StateDirectory::create(at.join("other")),
        Err(StateError::Write(WriteError::ReadOnly(_)))
    ));
    let invited =
        registry.invite(InvitationKind::Gateway, "van", std::time::Duration::from_secs(60), NOW).unwrap_err();
    assert!(invited.to_string().contains("read-only"), "{invited}");
    assert!(Peers::load(&state).unwrap().by_name("gateway").is_some());
    assert!(registry.clients().unwrap().is_empty());
}

#[test]
fn a_full_disk_is_named_and_the_old_file_stays() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().join("disk");
    let Some(_disk) = Mounted::new(&at, "size=64k") else {
        eprintln!("skipped: no right to mount");
        return;
    };
    let state = StateDirectory::create(at.join("state")).unwrap();
    join(&state, &link(1), None).unwrap();
    let before = fs::read_to_string(state.file("peers.toml")).unwrap();
    let filler = (0..).map(|number| fs::write(at.join(format!("filler-{number}")), [0; 4_096]));
    assert!(filler.into_iter().any(|written| written.is_err()));
    assert!(matches!(
        join(&state, &link(2), None),
        Err(JoinError::Peers(PeersError::Write(WriteError::DiskFull(_))))
    ));
    assert!(matches!(KeyPair::load_or_create(&state), Err(KeyError::Write(WriteError::DiskFull(_)))));
    assert_eq!(fs::read_to_string(state.file("peers.toml")).unwrap(), before);
    let names: Vec<_> = fs::read_dir(state.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains(".new-")), "{names:?}");
    assert!(!state.file("key").exists(), "no half key");
}

#[test]
fn links_in_the_directory_lead_nowhere() {
    let (directory, state) = state();
    let victim = directory.path().join("victim");
    fs::write(&victim, "untouched").unwrap();
    for name in ["daemon.lock", "peers.lock", "daemon.log", "gateway.sqlite"] {
        std::os::unix::fs::symlink(&victim, state.file(name)).unwrap();
    }
    assert!(DaemonLock::take(&state).is_err());
    assert!(join(&state, &link(1), None).is_err());
    assert!(state.append_to("daemon.log").is_err());
    assert!(Registry::create(&state, Default::default()).is_err());
    assert!(Registry::open(&state, Default::default(), None).is_err());
    if state.hand_over(65_534, 65_534, &[], &[]).is_ok() {
        assert_ne!(fs::metadata(&victim).unwrap().uid(), 65_534);
    }
    assert_eq!(fs::read_to_string(victim).unwrap(), "untouched");
}

#[test]
fn files_are_handed_over() {
    let (_directory, state) = state();
    KeyPair::load_or_create(&state).unwrap();
    if state.hand_over(65_534, 65_534, &[], &[]).is_err() {
        eprintln!("skipped: no right to give files away");
        return;
    }
    assert_eq!(state.owner().unwrap(), (65_534, 65_534));
    assert_eq!(fs::metadata(state.file("key")).unwrap().uid(), 65_534);
}

#[test]
fn what_is_only_shown_stays_and_can_be_read() {
    let (_directory, state) = state();
    let victim = state.path().parent().unwrap().join("victim");
    for (file, mode) in [("kept", 0o600), ("shown", 0o620), ("public", 0o644), ("foreign", 0o600)] {
        fs::write(state.file(file), "").unwrap();
        fs::set_permissions(state.file(file), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(&victim, "").unwrap();
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink(&victim, state.file("link")).unwrap();
    if std::os::unix::fs::chown(state.file("foreign"), Some(65_533), None).is_err() {
        eprintln!("skipped: no right to give files away");
        return;
    }
    state.hand_over(65_534, 65_534, &["kept"], &["shown", "public", "foreign", "link"]).unwrap();
    let found = |path| {
        let metadata = fs::metadata(path).unwrap();
        (metadata.uid(), metadata.gid(), metadata.mode() & 0o777)
    };
    assert_eq!(found(state.file("kept")), (0, 0, 0o600));
    assert_eq!(found(state.file("shown")), (0, 65_534, 0o640), "its group can no longer write it");
    assert_eq!(found(state.file("public")), (0, 65_534, 0o644));
    assert_eq!(found(state.file("foreign")), (65_534, 65_534, 0o600), "as all others");
    assert_eq!(found(victim), (0, 0, 0o600));
}

#[test]
fn two_keys_have_one_secret_and_a_weak_key_none() {
    let [one, other, third] = [1, 2, 3].map(|seed| KeyPair::from_private([seed; 32]).unwrap());
    let secret = one.shared_secret(other.public()).unwrap();
    assert_eq!(*secret, *other.shared_secret(one.public()).unwrap());
    assert_ne!(*secret, *third.shared_secret(one.public()).unwrap());
    assert!(one.shared_secret(PublicKey([0; 32])).is_none(), "anybody could work it out");
}

#[test]
fn a_peer_whose_key_was_told_is_kept_by_its_name() {
    let (_directory, state) = state();
    let own = PublicKey([0xee; 32]);
    let acquaint = |name: &str, key: u8| {
        Peers::change(&state, |peers| peers.acquaint(name, PublicKey([key; 32]), own, NOW))
    };
    acquaint("ann", 1).unwrap();
    assert!(matches!(acquaint("ann", 2), Err(JoinError::NameTaken { .. })));
    assert!(matches!(acquaint("me", 0xee), Err(JoinError::OwnLink)));
    assert!(matches!(acquaint(" ", 2), Err(JoinError::Name)));
    acquaint("anna", 1).unwrap();
    let peers = Peers::load(&state).unwrap();
    let names: Vec<&str> = peers.of_kind(InvitationKind::Peer).map(|peer| peer.name.as_str()).collect();
    assert_eq!(names, ["anna"], "a key has one name");
}
