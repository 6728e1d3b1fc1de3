#!/usr/bin/env python3
"""Checks that no pure crate can reach a clock, a socket or an event loop through its dependencies.

Pure crates take time and chance as arguments and hand bytes back; what they link, directly or not, must not
open anything. Build scripts and tests may use what they like.
"""

import subprocess
import sys

PURE = ["units", "wire", "policy", "bond", "mesh", "upload", "radio", "trace", "sim"]

# Event loops, sockets, system interfaces, clocks.
FORBIDDEN = {
    "async-io",
    "async-std",
    "chrono",
    "hyper",
    "mio",
    "netlink-sys",
    "nix",
    "polling",
    "quinn",
    "quinn-udp",
    "rtnetlink",
    "rusqlite",
    "rustix",
    "smol",
    "socket2",
    "time",
    "tokio",
    "tun-rs",
}
# Our own crates that do I/O.
FORBIDDEN |= {f"anabranch-{name}" for name in ["linux", "identity", "daemon", "cli", "lab"]} | {"anabranch"}


def names_in(tree):
    """Names of the crates in the output of `cargo tree --prefix none`."""
    return {line.split()[0] for line in tree.splitlines() if line.strip()}


def main():
    impure = False
    for crate in PURE:
        command = ["cargo", "tree", "--locked", "--package", f"anabranch-{crate}", "--edges", "normal", "--prefix", "none"]
        tree = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        for name in sorted(names_in(tree) & FORBIDDEN):
            impure = True
            print(f"purity: crates/{crate} is pure but links {name}; to see by what: "
                  f"cargo tree -p anabranch-{crate} -e normal -i {name}")
    if impure:
        return 1
    print(f"purity: {', '.join(PURE)} link nothing that does I/O")
    return 0


if __name__ == "__main__":
    sys.exit(main())
