#!/usr/bin/env python3
"""Checks the licence of every crate that the programs, tests and experiments link.

A licence expression passes if it can be met with the licences below alone: of `A OR B` one must pass, of
`A AND B` both. Source: the `license` fields that `cargo metadata` reports, in SPDX's syntax (older crates
write `A/B` for `A OR B`).
"""

import json
import re
import subprocess
import sys

ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Zlib",
}

# Crates without a usable `license` field, read by hand: (name, licence expression).
READ_BY_HAND = {}


def is_allowed(expression):
    """Whether the expression can be met by allowed licences; raises ValueError if it is none."""
    tokens = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))
    allowed, rest = _either(tokens)
    if rest:
        raise ValueError(f"cannot read the licence {expression!r}")
    return allowed


def _either(tokens):
    allowed, tokens = _both(tokens)
    while tokens and tokens[0] == "OR":
        other, tokens = _both(tokens[1:])
        allowed = allowed or other
    return allowed, tokens


def _both(tokens):
    allowed, tokens = _one(tokens)
    while tokens and tokens[0] == "AND":
        other, tokens = _one(tokens[1:])
        allowed = allowed and other
    return allowed, tokens


def _one(tokens):
    if not tokens or tokens[0] in {"AND", "OR", "WITH", ")"}:
        raise ValueError("a licence name is missing")
    first, tokens = tokens[0], tokens[1:]
    if first == "(":
        allowed, tokens = _either(tokens)
        if not tokens or tokens[0] != ")":
            raise ValueError("a bracket is not closed")
        return allowed, tokens[1:]
    if tokens and tokens[0] == "WITH":
        first, tokens = f"{first} WITH {tokens[1] if len(tokens) > 1 else ''}", tokens[2:]
    return first in ALLOWED, tokens


def problem_of(package):
    """What is wrong with the licence of a package of `cargo metadata`, or None."""
    name = f"{package['name']} {package['version']}"
    expression = READ_BY_HAND.get(package["name"]) or package.get("license")
    if not expression:
        return f"{name} states no licence"
    try:
        allowed = is_allowed(expression)
    except ValueError as error:
        return f"{name}: {error} ({expression!r})"
    return None if allowed else f"{name} is under {expression!r}, which is not among the allowed licences"


def main():
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--all-features"]
    command += ["--filter-platform", "x86_64-unknown-linux-gnu"]
    packages = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["packages"]
    problems = [problem for problem in map(problem_of, packages) if problem]
    for problem in problems:
        print(f"licences: {problem}")
    if problems:
        print(f"licences: allowed are {', '.join(sorted(ALLOWED))}; see scripts/check_licences.py")
        return 1
    print(f"licences: all {len(packages)} crates are under allowed licences")
    return 0


if __name__ == "__main__":
    sys.exit(main())
