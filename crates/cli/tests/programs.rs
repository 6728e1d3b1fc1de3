//! Programs that know nothing of virtual sockets live through changes of network: `anabranch run --virtual` with the preloaded library
//! and, for static programs, the proxy. Needs root, and is left out without.
#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

mod bed;
mod running;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use bed::{Bed, serve_http, size, wait_until};
use running::Running;

/// Builds the library that is preloaded, beside the program that is tested: nothing may link it, so cargo does not build it for us.
fn build_library() {
    let directory = Path::new(env!("CARGO_BIN_EXE_anabranch")).parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--locked", "-q", "-p", "anabranch-preload", "--target-dir"])
        .arg(directory.parent().unwrap());
    // As for the examples of the library: ring, and all that needs it, would be built once more for another package.
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|of| name.to_string_lossy().starts_with(of)) {
            cargo.env_remove(name);
        }
    }
    if directory.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success());
    assert!(directory.join("libanabranch_preload.so").is_file());
}

/// Two machines that know each other, or none.
fn acquainted() -> Option<Bed> {
    let bed = Bed::new()?;
    build_library();
    bed.introduce();
    Some(bed)
}

/// Lets the near machine reach these ports of the far one.
fn serve(bed: &Bed, ports: &[u16]) -> Running {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let mut arguments = vec!["serve", "--no-link"];
    arguments.extend(ports.iter().map(String::as_str));
    let (serving, _) = bed.waiting(&arguments, false);
    std::thread::sleep(Duration::from_millis(500));
    serving
}

/// The near machine's command for a program over virtual sockets.
fn over_sockets(bed: &Bed, program: &[&str]) -> Command {
    let mut arguments = vec!["run", "--virtual", "--"];
    arguments.extend(program);
    bed.command(&bed.near, "near", &arguments)
}

fn has(program: &str) -> bool {
    let found =
        Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    let found = found.unwrap().success();
    if !found {
        eprintln!("left out: {program} is not installed (scripts/setup.sh test)");
    }
    found
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// An SSH server on the far machine, which sees a home directory of its own; its port and the options that a client needs.
fn ssh_server(bed: &Bed) -> (Running, u16, Vec<String>) {
    const PORT: u16 = 2_022;
    let home = bed.path("home");
    fs::create_dir_all(home.join(".ssh")).unwrap();
    for directory in [home.clone(), home.join(".ssh")] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let (key, host_key) = (bed.path("key"), bed.path("host-key"));
    run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key));
    run(Command::new("dropbearkey").args(["-t", "ed25519", "-f"]).arg(&host_key));
    fs::copy(key.with_extension("pub"), home.join(".ssh/authorized_keys")).unwrap();
    fs::set_permissions(home.join(".ssh/authorized_keys"), fs::Permissions::from_mode(0o600)).unwrap();
    let script = format!(
        "mount --bind {} /root && exec dropbear -F -E -s -p 127.0.0.1:{PORT} -r {} -P {}",
        home.display(),
        host_key.display(),
        bed.path("pid").display()
    );
    let mut server = bed.far.command("unshare").unwrap();
    let server = server.args(["--mount", "sh", "-c", &script]).stderr(Stdio::null()).spawn().unwrap();
    let options =
        ["BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"];
    let mut client: Vec<String> =
        options.iter().flat_map(|option| ["-o".to_owned(), (*option).to_owned()]).collect();
    client
        .extend(["-F", "/dev/null", "-p", &PORT.to_string(), "-i", key.to_str().unwrap()].map(str::to_owned));
    (Running(server), PORT, client)
}

#[test]
fn ssh_lives_through_a_change_of_network() {
    if !["ssh", "ssh-keygen", "dropbear"].into_iter().all(has) {
        return;
    }
    let Some(bed) = acquainted() else { return };
    let (_server, port, options) = ssh_server(&bed);
    let _serving = serve(&bed, &[port]);
    const LINES: usize = 100;
    let script = format!("i=0; while [ $i -lt {LINES} ]; do echo $i; sleep 0.04; i=$((i + 1)); done");
    let mut program = vec!["ssh"];
    program.extend(options.iter().map(String::as_str));
    program.extend(["root@far.peer", &script]);
    let said = bed.path("said");
    let mut command = over_sockets(&bed, &program);
    let mut ssh = Running(command.stdout(fs::File::create(&said).unwrap()).spawn().unwrap());
    let lines = || fs::read_to_string(&said).unwrap().lines().count();
    bed.change_networks(|| lines() as f64 / LINES as f64);
    assert!(ssh.0.wait().unwrap().success());
    let expected: String = (0..LINES).map(|line| format!("{line}\n")).collect();
    assert_eq!(fs::read_to_string(&said).unwrap(), expected);
}

#[test]
fn curl_lives_through_it_without_a_proxy() {
    let Some(bed) = acquainted() else { return };
    let body = fs::read(bed.file("body", 10_000_000)).unwrap();
    let port = serve_http(&bed, &body);
    let _serving = serve(&bed, &[port]);
    for family in ["-4", "-6"] {
        let got = bed.path(family);
        let url = format!("http://far.peer:{port}/");
        let program = ["curl", family, "--noproxy", "*", "-s", "-S", "-o", got.to_str().unwrap(), &url];
        let mut curl = Running(over_sockets(&bed, &program).spawn().unwrap());
        bed.change_networks(|| size(&got) as f64 / body.len() as f64);
        assert!(curl.0.wait().unwrap().success());
        assert!(fs::read(&got).unwrap() == body, "curl {family}");
    }
}

#[test]
fn rsync_lives_through_it() {
    if !has("rsync") {
        return;
    }
    let Some(bed) = acquainted() else { return };
    const PORT: u16 = 2_873;
    let file = bed.file("large", 10_000_000);
    let configuration = bed.path("rsyncd.conf");
    let module = format!("use chroot = no\n[all]\npath = {}\n", file.parent().unwrap().display());
    fs::write(&configuration, module).unwrap();
    let mut server = bed.far.command("rsync").unwrap();
    server.args([
        "--daemon",
        "--no-detach",
        "--address",
        "127.0.0.1",
        "--port",
        &PORT.to_string(),
        "--config",
    ]);
    let _server = Running(server.arg(&configuration).spawn().unwrap());
    let _serving = serve(&bed, &[PORT]);
    let got = bed.path("got");
    let source = format!("rsync://far.peer:{PORT}/all/large");
    let program = ["rsync", "--inplace", "--whole-file", &source, got.to_str().unwrap()];
    let mut rsync = Running(over_sockets(&bed, &program).spawn().unwrap());
    bed.change_networks(|| size(&got) as f64 / 10e6);
    assert!(rsync.0.wait().unwrap().success());
    assert!(fs::read(&got).unwrap() == fs::read(&file).unwrap());
}

/// A static program, which no library can be preloaded into.
fn static_busybox() -> Option<PathBuf> {
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/vm/busybox-static/bin/busybox");
    let found = [PathBuf::from("/bin/busybox"), cache].into_iter().find(|path| {
        let headers = Command::new("readelf").arg("-l").arg(path).output();
        headers.is_ok_and(|output| {
            output.status.success() && !String::from_utf8_lossy(&output.stdout).contains("INTERP")
        })
    });
    if found.is_none() {
        eprintln!("left out: no static busybox is installed (scripts/setup.sh test)");
    }
    found
}

#[test]
fn a_static_program_lives_through_it_by_the_proxy() {
    let Some(busybox) = static_busybox() else { return };
    let Some(bed) = acquainted() else { return };
    let body = fs::read(bed.file("body", 10_000_000)).unwrap();
    let port = serve_http(&bed, &body);
    let _serving = serve(&bed, &[port]);
    let got = bed.path("got");
    let url = format!("http://far.peer:{port}/");
    let program = [busybox.to_str().unwrap(), "wget", "-q", "-O", got.to_str().unwrap(), &url];
    let mut wget = Running(over_sockets(&bed, &program).spawn().unwrap());
    bed.change_networks(|| size(&got) as f64 / body.len() as f64);
    assert!(wget.0.wait().unwrap().success());
    assert!(fs::read(&got).unwrap() == body);
}

/// What programs see of their sockets.
const LOOK: &str = r#"
import errno, os, select, socket, sys

port = int(sys.argv[1])

def fetch(connection):
    connection.setblocking(True)
    connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
    assert connection.makefile("rb").read().endswith(b"here it is"), "the body"

def address_of(family):
    return socket.getaddrinfo("far.peer", port, family, socket.SOCK_STREAM)[0][4]

address = address_of(socket.AF_UNSPEC)
assert address[0].startswith("10.254."), address
assert socket.gethostbyname("far.peer") == address[0] == socket.gethostbyname("FAR")

# Not waiting: connected when it can be written to.
connection = socket.socket()
connection.setblocking(False)
assert connection.connect_ex(address) in (0, errno.EINPROGRESS)
assert select.select([], [connection], [], 10)[1]
assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
assert connection.getpeername() == address, connection.getpeername()
assert connection.dup().getpeername() == address
assert connection.connect_ex(address) == errno.EISCONN
fetch(connection)

# IPv6, also where a socket wants nothing else.
address = address_of(socket.AF_INET6)
for only in (0, 1):
    connection = socket.socket(socket.AF_INET6)
    connection.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
    connection.connect(address)
    assert connection.getpeername()[:2] == address[:2], connection.getpeername()
    fetch(connection)

# By the address of the peer's key, from a child, and from a program that it becomes.
child = os.fork()
if child == 0:
    fetch(socket.create_connection(address_of(socket.AF_INET)))
    if len(sys.argv) == 2:
        os.execv(sys.executable, [sys.executable, "-c", os.environ["LOOK"], str(port), "again"])
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0

# What is not served is refused, and the socket serves for another try.
connection = socket.socket()
assert connection.connect_ex((address_of(socket.AF_INET)[0], 1)) == errno.ECONNREFUSED
connection.connect(address_of(socket.AF_INET))
fetch(connection)

# Everybody else is reached as ever.
listener = socket.create_server(("127.0.0.1", 0))
connection = socket.create_connection(listener.getsockname())
assert connection.getpeername() == listener.getsockname()
try:
    socket.create_connection(("127.0.0.1", 1))
    raise AssertionError("nothing listens there")
except ConnectionRefusedError:
    pass
"#;

#[test]
fn programs_see_the_sockets_that_they_asked_for() {
    let Some(bed) = acquainted() else { return };
    let port = serve_http(&bed, b"here it is").to_string();
    let serving = serve(&bed, &[port.parse().unwrap()]);
    let looked = over_sockets(&bed, &["python3", "-c", LOOK, &port]).env("LOOK", LOOK).output().unwrap();
    let said = String::from_utf8_lossy(&looked.stderr);
    assert!(looked.status.success(), "{said}");
    assert!(said.contains("anabranch: far (port 1) does not serve this port"), "{said}");
    drop(serving);
    wait_until("nobody serves any more", || {
        let refused =
            over_sockets(&bed, &["python3", "-c", "import socket; socket.socket().connect(('far', 1))"]);
        let refused = { refused }.output().unwrap();
        String::from_utf8_lossy(&refused.stderr).contains("far (port 1) does not answer over virtual sockets")
    });
}
