//! What a daemon writes to systemd's journal: fields beside words.

use std::process::Command;

/// Listens where systemd's journal does, in mounts of its own, starts a gateway whose standard error is "the journal", and prints
/// what comes until the gateway says that it has started.
const LISTENER: &str = r#"
import json, os, socket, subprocess, sys, tempfile

def fields(entry):
    """What one datagram says: NAME=VALUE lines, or NAME, a length of eight bytes and the value."""
    read = {}
    while entry:
        head, _, entry = entry.partition(b"\n")
        name, is_text, value = head.partition(b"=")
        if not is_text:
            length = int.from_bytes(entry[:8], "little")
            value, entry = entry[8:8 + length], entry[8 + length + 1:]
        read[name.decode()] = value.decode()
    return read

os.makedirs("/run/systemd/journal")
journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
journal.bind("/run/systemd/journal/socket")
# As systemd has it: the daemon does not stay root.
os.chmod("/run/systemd/journal/socket", 0o666)
journal.settimeout(20)
program, state = sys.argv[1:]
subprocess.run([program, "--state", state, "gateway", "init", "--address", "192.0.2.1"], check=True, stdout=subprocess.DEVNULL)
with tempfile.TemporaryFile() as stream:
    about = os.fstat(stream.fileno())
    environment = dict(os.environ, JOURNAL_STREAM=f"{about.st_dev}:{about.st_ino}")
    gateway = subprocess.Popen([program, "--state", state, "gateway", "run"], stderr=stream, env=environment)
    try:
        while True:
            entry = fields(journal.recv(65536))
            print(json.dumps(entry))
            if "ANABRANCH_EVENT" in entry:
                break
    finally:
        gateway.terminate()
        gateway.wait()
        stream.seek(0)
        print(json.dumps({"lines": stream.read().decode()}))
"#;

#[test]
fn events_have_their_fields_in_the_journal() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: it needs root for mounts and a network of its own");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let script = "ip link set lo up && mount -t tmpfs tmpfs /run && exec python3 -c \"$0\" \"$@\"";
    let output = Command::new("unshare")
        .args(["--mount", "--net", "--propagation", "private", "sh", "-c", script, LISTENER])
        .arg(env!("CARGO_BIN_EXE_anabranch"))
        .arg(directory.path().join("state"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let entries: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [.., event, lines] = entries.as_slice() else { panic!("{said}") };
    for (field, value) in [
        ("SYSLOG_IDENTIFIER", "anabranch"),
        ("PRIORITY", "5"),
        ("ANABRANCH_EVENT", "started"),
        ("MESSAGE", "the gateway has started"),
    ] {
        assert_eq!(event[field], value, "{event}");
    }
    assert_eq!(lines["lines"], "", "the same is not written twice");
}
