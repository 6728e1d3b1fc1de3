//! Files that cannot be sent or received to the end: nobody ends up with wrong bytes, and both ends are told.
#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;

use anabranch::apps::files::{self, FILES, ReceiveError, Received, SendFileError};
use anabranch::apps::read_line;
use identity::{KeyPair, PublicKey};

fn peer() -> PublicKey {
    KeyPair::from_private([7; 32]).unwrap().public()
}

/// Sends a file to a directory; `meanwhile` is called with the bytes that are sent.
fn transfer(
    file: &Path,
    directory: &Path,
    meanwhile: &mut dyn FnMut(u64),
) -> (Result<(), SendFileError>, Result<Received, ReceiveError>) {
    let (near, far) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let mut far = far;
            assert_eq!(read_line(&mut far).unwrap(), FILES);
            files::receive(&mut far, peer(), directory, &mut |_, _| {})
        });
        let mut near = near;
        let sent = files::send(&mut near, file, &mut |progress| meanwhile(progress.done));
        drop(near);
        (sent, receiver.join().unwrap())
    })
}

fn files_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

const SIZE: u64 = 3_000_000;

fn source(directory: &Path) -> std::path::PathBuf {
    let path = directory.join("file");
    fs::write(&path, (0..SIZE).map(|at| (at / 5) as u8).collect::<Vec<u8>>()).unwrap();
    path
}

#[test]
fn a_file_that_is_changed_while_it_is_sent_is_given_up_and_goes_the_next_time() {
    let directory = tempfile::tempdir().unwrap();
    let file = source(directory.path());
    // It grows, it is cut off, bytes of it are replaced.
    for change in 0..3 {
        let out = directory.path().join(format!("out{change}"));
        fs::create_dir(&out).unwrap();
        let mut changed = false;
        let (sent, received) = transfer(&file, &out, &mut |done| {
            if done < SIZE / 3 || changed {
                return;
            }
            changed = true;
            let mut open = OpenOptions::new().write(true).append(change == 0).open(&file).unwrap();
            match change {
                0 => open.write_all(b"more").unwrap(),
                1 => open.set_len(SIZE / 2).unwrap(),
                _ => open.write_all(&[0xee; 1_000]).unwrap(),
            }
        });
        assert!(matches!(&sent, Err(SendFileError::Changed(path)) if *path == file), "{sent:?}");
        let why = received.unwrap_err();
        assert!(why.to_string().ends_with("it was changed while it was sent"), "{why}");
        assert!(files_in(&out).iter().all(|name| name.ends_with(".part")), "{:?}", files_in(&out));
        let (sent, received) = transfer(&file, &out, &mut |_| {});
        sent.unwrap();
        assert_eq!(fs::read(received.unwrap().path).unwrap(), fs::read(&file).unwrap());
        assert_eq!(files_in(&out), ["file"]);
        source(directory.path());
    }
}

#[test]
fn what_came_before_is_used_only_if_it_is_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let file = source(directory.path());
    let out = directory.path().join("out");
    fs::create_dir(&out).unwrap();
    let sender: String = peer().to_string().chars().take(8).collect();
    let part = out.join(format!(".file.{sender}.part"));
    for (before, resumed_at) in [
        (fs::read(&file).unwrap()[..1_000_000].to_vec(), 1_000_000),
        (vec![1; 1_000_000], 0),
        (vec![1; 4_000_000], 0),
    ] {
        fs::write(&part, before).unwrap();
        let (sent, received) = transfer(&file, &out, &mut |_| {});
        sent.unwrap();
        let received = received.unwrap();
        assert_eq!(received.resumed_at, resumed_at);
        assert!(fs::read(&received.path).unwrap() == fs::read(&file).unwrap());
    }
}
