#!/usr/bin/env python3
"""Runs the demo with the programs built for tests and checks what it reports.

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


def run(directory):
    """(exit code, report or None, what it said)."""
    path = pathlib.Path(directory) / "demo.json"
    path.unlink(missing_ok=True)
    result = subprocess.run([PROGRAM, "demo", "--json", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    report = json.loads(path.read_text()) if path.exists() else None
    return result.returncode, report, result.stdout


def main():
    with tempfile.TemporaryDirectory() as directory:
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


if __name__ == "__main__":
    sys.exit(main())
