#!/usr/bin/env python3
"""Runs one experiment of each family again and compares its verdict with the one that is kept.

The rest are rerun by `make experiments`, which takes hours; so are families that only run in the virtual machine. Fails
where a verdict differs.
"""

import json
import pathlib
import subprocess
import sys

EXPERIMENTS = pathlib.Path("experiments")
PROGRAM = pathlib.Path("target/debug/anabranch-lab")

# The one to rerun where another than the first kept result of the family is the better check.
# MULTIAP: one whose verdict is the same with each seed. VCONN: not one that measures this machine in real time.
CHOSEN = {"BOND": "equal", "MULTIAP": "fig6b-uplink", "VCONN": "mesh"}


def choose(family, names):
    """The experiment of the family to rerun, among the names that have a kept result; None if there are none."""
    names = sorted(names)
    chosen = CHOSEN.get(family)
    return chosen if chosen in names else next(iter(names), None)


def main():
    failed = False
    for family in sorted(path for path in EXPERIMENTS.glob("*") if path.is_dir()):
        name = choose(family.name, [result.parent.name for result in family.glob("*/result.json")])
        if name is None:
            continue
        kept = json.loads((family / name / "result.json").read_text())
        experiment = f"{family.name}/{name}"
        if kept["bed"] == "vm":
            print(f"experiments: {experiment} boots virtual machines for minutes: make experiments WHAT={experiment}")
            continue
        print(f"experiments: {experiment} again on bed {kept['bed']} with seed {kept['seed']}", flush=True)
        # One seed of several is enough to see whether the kept result still comes out, and CI has not all day.
        command = [PROGRAM, "run", experiment, "--check", "--bed", kept["bed"], "--seed", str(kept["seed"])]
        command += ["--seeds", "1"]
        failed |= subprocess.run(command).returncode != 0
    if failed:
        print("experiments: a kept verdict does not hold any more; if that is right, keep the new one: "
              "make experiments WHAT=KEY/NAME")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
