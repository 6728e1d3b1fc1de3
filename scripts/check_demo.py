#!/usr/bin/env python3
"""Runs the demo with the programs built for tests and checks what it reports; if root runs this, then once more as an
ordinary user without any rights, as most people would.

A machine that is busy with something else can spoil one run's speeds, so a demo that lost nothing but gained nothing is
given a second try. Lost or damaged bytes fail at once.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path("target/debug/anabranch")
TRIES = 2
# What a machine may forbid; without these the demo cannot run, and says so itself.
FORBIDDEN = ("does not let users make namespaces", "/dev/net/tun", "nft")


def fault_in(report):
    """What is wrong with the figures, or None."""
    for name in ("networks", "bonded_goodput_mbps", "gain_over_best", "longest_stall_ms", "bytes_verified"):
        if name not in report:
            return f"the report has no {name}"
    if not report["networks"] or not all({"name", "goodput_mbps"} <= set(network) for network in report["networks"]):
        return "networks lack name or goodput_mbps"
    if not report["nothing_lost"] or not report["bytes_verified"]:
        return "bytes were lost or damaged"
    return None


# Becomes an ordinary user, with /dev/net/tun as most distributions have it, and runs the arguments.
ORDINARY = """
set -e
directory=$1 programs=$2
shift 2
mount -t tmpfs -o mode=755 tmpfs "$directory"
mkdir "$directory/programs" "$directory/home"
mount --bind "$programs" "$directory/programs"
mknod "$directory/tun" c 10 200
chmod 666 "$directory/tun"
mount --bind "$directory/tun" /dev/net/tun
chown 12345:12345 "$directory/home"
cd "$directory/home"
exec setpriv --reuid 12345 --regid 12345 --clear-groups --bounding-set=-all --no-new-privs env HOME="$directory/home" "$@"
"""


def ordinary(directory):
    """The words that make a command one of an ordinary user; `programs/` and `home/` are in `directory` then."""
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ORDINARY, "sh"]
    return [*words, str(directory), str(PROGRAM.parent.resolve())]


def why_not_ordinary(directory):
    """Why no ordinary user can be tried here, or None."""
    if os.geteuid() != 0:
        return "this is no root"
    probe = "test -w /dev/net/tun && ../programs/anabranch --version && unshare --user --map-root-user --net true"
    result = subprocess.run([*ordinary(directory), "sh", "-c", probe], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return None if result.returncode == 0 else result.stdout.strip() or "this machine does not let users make namespaces"


def run_as_caller(directory):
    """(exit code, report or None, what it said)."""
    path = pathlib.Path(directory) / "demo.json"
    path.unlink(missing_ok=True)
    result = subprocess.run([PROGRAM, "demo", "--json", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    report = json.loads(path.read_text()) if path.exists() else None
    return result.returncode, report, result.stdout


def run_as_ordinary(directory):
    """The same. The report ends with the mounts, so it is said last."""
    command = "../programs/anabranch demo --json demo.json; code=$?; printf '\\n%s\\n' REPORT; cat demo.json; exit $code"
    result = subprocess.run(
        [*ordinary(directory), "sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    said, _, report = result.stdout.rpartition("\nREPORT\n")
    try:
        return result.returncode, json.loads(report), said
    except json.JSONDecodeError:
        return result.returncode, None, result.stdout


def check(run, directory):
    """0 if the demo does what it should."""
    for number in range(1, TRIES + 1):
        code, report, said = run(directory)
        print(said)
        if report is None:
            if "CI" not in os.environ and any(word in said for word in FORBIDDEN):
                print("demo: skipped: this machine does not allow it; see above")
                return 0
            print(f"demo: it ended with exit code {code} and no report")
            return 1
        fault = fault_in(report)
        if fault:
            print(f"demo: {fault}")
            return 1
        if code == 0:
            print(f"demo: {report['gain_over_best']} times the best network, nothing lost")
            return 0
        print(f"demo: try {number} of {TRIES}: no faster than the best network")
    return 1


def main():
    with tempfile.TemporaryDirectory() as directory:
        if check(run_as_caller, directory):
            return 1
        reason = why_not_ordinary(directory)
        if reason:
            print(f"demo: as an ordinary user: skipped: {reason}")
            return 0
        print("demo: once more as an ordinary user")
        return check(run_as_ordinary, directory)


if __name__ == "__main__":
    sys.exit(main())
