//! Files, words and other programs' connections between two machines. Needs root, and is left out without.

mod bed;
mod running;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::Duration;

use bed::{Bed, serve_http, size, wait_until};
use running::Running;

#[test]
fn files_go_to_a_peer_by_its_link_and_then_by_its_name() {
    let Some(bed) = Bed::new() else { return };
    bed.introduce();
    assert_eq!(fs::read(bed.path("out/first")).unwrap(), b"first");
    let out = bed.path("out");
    let arguments = ["receive", "--no-link", "--to", out.to_str().unwrap()];
    let (receiver, _) = bed.waiting(&arguments, false);
    let files =
        [bed.file("one", 300_000), bed.file("two", 1), bed.file("none", 0), bed.file("first", 70_000)];
    let mut send = vec!["send"];
    send.extend(files.iter().map(|file| file.to_str().unwrap()));
    send.push("far");
    // The receiver may not be there at once.
    wait_until("it takes the files", || bed.near(&send).status.success());
    for file in &files[..3] {
        let name = file.file_name().unwrap();
        assert!(fs::read(file).unwrap() == fs::read(out.join(name)).unwrap(), "{name:?}");
    }
    assert_eq!(size(&out.join("first")), 5, "what was there is not replaced");
    assert_eq!(size(&out.join("first (2)")), 70_000);
    drop(receiver);
    let gone = bed.near(&["send", files[1].to_str().unwrap(), "nobody"]);
    assert!(String::from_utf8_lossy(&gone.stderr).contains("no peer called nobody"), "{gone:?}");
}

#[test]
fn a_stranger_gets_nothing() {
    let Some(bed) = Bed::new() else { return };
    bed.introduce();
    let out = bed.path("out");
    let (_receiver, link) = bed.waiting(&["receive", "--to", out.to_str().unwrap()], true);
    let file = bed.file("file", 10);
    let file = file.to_str().unwrap();
    // The link works once.
    assert!(bed.command(&bed.near, "second", &["send", file, &link]).output().unwrap().status.success());
    let third = bed.command(&bed.near, "third", &["send", file, &link]).output().unwrap();
    assert!(String::from_utf8_lossy(&third.stderr).contains("refuses the invitation"), "{third:?}");
}

#[test]
fn a_transfer_goes_on_after_the_receiver_was_killed() {
    let Some(bed) = Bed::new() else { return };
    bed.introduce();
    let out = bed.path("out");
    let file = bed.file("large", 12_000_000);
    let arguments = ["receive", "--no-link", "--count", "1", "--to", out.to_str().unwrap()];
    let (receiver, _) = bed.waiting(&arguments, false);
    std::thread::sleep(Duration::from_millis(500));
    let mut send = bed.command(&bed.near, "near", &["send", file.to_str().unwrap(), "far"]);
    let mut sending = Running(send.stdout(Stdio::null()).spawn().unwrap());
    let part = || {
        let mut found = fs::read_dir(&out).unwrap().flatten().map(|entry| entry.path());
        found.find(|path| path.extension().is_some_and(|extension| extension == "part"))
    };
    wait_until("some of it has come", || part().is_some_and(|part| size(&part) > 3_000_000));
    drop(receiver);
    let (mut receiver, _) = bed.waiting(&arguments, false);
    assert!(sending.0.wait().unwrap().success());
    let mut said = String::new();
    receiver.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("of them before, verified"), "{said}");
    assert!(fs::read(&file).unwrap() == fs::read(out.join("large")).unwrap());
}

#[test]
fn curl_lives_through_a_change_of_network() {
    let Some(bed) = Bed::new() else { return };
    bed.introduce();
    let body = fs::read(bed.file("body", 10_000_000)).unwrap();
    let port = serve_http(&bed, &body);
    let (_serving, _) = bed.waiting(&["serve", "--no-link", &port.to_string()], false);
    std::thread::sleep(Duration::from_millis(500));
    let got = bed.path("got");
    let url = format!("http://far.peer:{port}/");
    let arguments = ["run", "--virtual", "--", "curl", "-s", "-S", "-o", got.to_str().unwrap(), &url];
    let mut curl = Running(bed.command(&bed.near, "near", &arguments).spawn().unwrap());
    bed.change_networks(|| size(&got) as f64 / body.len() as f64);
    assert!(curl.0.wait().unwrap().success());
    assert!(fs::read(&got).unwrap() == body);
    // What is not served is refused, and curl's own exit code is told.
    let refused = bed.near(&["run", "--virtual", "--", "curl", "-s", "-f", "http://far.peer:1/"]);
    assert_eq!(refused.status.code(), Some(22), "{refused:?}");
}

#[test]
fn people_chat() {
    let Some(bed) = Bed::new() else { return };
    let mut far = bed.command(&bed.far, "far", &["chat"]);
    let far = far.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut far = Running(far);
    let mut far_says = BufReader::new(far.0.stdout.take().unwrap());
    let mut line = String::new();
    far_says.read_line(&mut line).unwrap();
    let mut near = bed.command(&bed.near, "near", &["chat", "--name", "friend", line.trim()]);
    let near = near.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut near = Running(near);
    let mut near_types = near.0.stdin.take().unwrap();
    near_types.write_all("hello over there\n".as_bytes()).unwrap();
    line.clear();
    far_says.read_line(&mut line).unwrap();
    assert!(line.ends_with(": hello over there\n"), "{line}");
    far.0.stdin.as_mut().unwrap().write_all(b"hello back\n").unwrap();
    line.clear();
    BufReader::new(near.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "friend: hello back\n");
    drop(near_types);
    drop(far.0.stdin.take());
    assert!(near.0.wait().unwrap().success());
    assert!(far.0.wait().unwrap().success());
}

#[test]
fn a_full_disk_is_told_to_both_ends_and_leaves_no_file() {
    let Some(bed) = Bed::new() else { return };
    bed.introduce();
    let out = bed.path("small");
    fs::create_dir(&out).unwrap();
    // The receiver alone sees it, and it goes with the receiver.
    let script = format!(
        "mount -t tmpfs -o size=2m none {0} && {1} --state {2} receive --no-link --to {0}; ls -A {0}",
        out.display(),
        env!("CARGO_BIN_EXE_anabranch"),
        bed.path("far").display()
    );
    let mut command = bed.far.command("unshare").unwrap();
    command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", &script]).stdout(Stdio::piped());
    let mut receiver = Running(command.spawn().unwrap());
    std::thread::sleep(Duration::from_millis(500));
    let large = bed.file("large", 6_000_000);
    let sent = bed.near(&["send", large.to_str().unwrap(), "far"]);
    let said = String::from_utf8_lossy(&sent.stderr).into_owned();
    assert_eq!(sent.status.code(), Some(1), "{said}");
    assert!(said.contains("the receiver refuses") && said.contains("No space left on device"), "{said}");
    let mut line = String::new();
    BufReader::new(receiver.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("did not come: cannot write") && line.contains("No space left"), "{line}");
}

/// Nothing of this needs privileges.
#[test]
fn users_without_rights_send_and_receive() {
    const NOBODY: &str = "65534";
    let Some(bed) = Bed::new() else { return };
    let open = |path: &std::path::Path| {
        std::os::unix::fs::chown(path, Some(65_534), Some(65_534)).unwrap();
    };
    open(bed.path("").as_path());
    // The program itself may be where nobody may look.
    let program = bed.path("anabranch");
    fs::copy(env!("CARGO_BIN_EXE_anabranch"), &program).unwrap();
    let file = bed.file("file", 2_000_000);
    let command = |machine: &linux::netns::Namespace, state: &str, arguments: &[&str]| {
        let mut command = machine.command("setpriv").unwrap();
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--no-new-privs"]);
        command.arg(&program).arg("--state").arg(bed.path(state)).args(arguments).current_dir(bed.path(""));
        command
    };
    let out = bed.path("out");
    let mut receive = command(&bed.far, "far", &["receive", "--to", out.to_str().unwrap()]);
    let mut receiver = Running(receive.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut link = String::new();
    BufReader::new(receiver.0.stdout.as_mut().unwrap()).read_line(&mut link).unwrap();
    let sent = command(&bed.near, "near", &["send", file.to_str().unwrap(), link.trim()]).output().unwrap();
    assert!(sent.status.success(), "{sent:?}");
    assert!(fs::read(out.join("file")).unwrap() == fs::read(&file).unwrap());
}
