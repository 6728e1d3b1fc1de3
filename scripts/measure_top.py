#!/usr/bin/env python3
"""What `anabranch top` costs: scripts/measure_top.py [DIRECTORY of the programs] [SECONDS]

Runs it in pseudo-terminals beside the made-up device of crates/daemon/examples/web_page.rs (ten networks, a thousand flows, a shared
radio, all of which change each second), and prints its part of one processor, as the kernel counts it, and the bytes that it writes.
"""

import fcntl
import os
import pathlib
import pty
import select
import struct
import subprocess
import sys
import termios
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]


def processor_seconds(pid):
    """Time on a processor so far of all threads of a process (/proc/PID/task/TID/schedstat, nanoseconds): ticks would miss short work."""
    threads = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def read_for(terminal, seconds):
    """Reads what comes, as a terminal would; returns how many bytes that were."""
    count, end = 0, time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            count += len(os.read(terminal, 65536))
    return count


def measure(program, state, server, keys, columns, rows, seconds):
    """One run: the list that `keys` open, in a window of this size."""
    terminal, line = pty.openpty()
    fcntl.ioctl(line, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    top = subprocess.Popen([program, "--state", state, "top"], stdin=line, stdout=line, stderr=line, env=environment)
    read_for(terminal, 1)
    os.write(terminal, keys.encode())
    read_for(terminal, 3)
    before, served = processor_seconds(top.pid), processor_seconds(server)
    count = read_for(terminal, seconds)
    used, served = processor_seconds(top.pid) - before, processor_seconds(server) - served
    os.write(terminal, b"q")
    read_for(terminal, 0.5)
    top.wait()
    print(
        f"list {keys}, {columns}x{rows}: {used / seconds:.2%} of a processor, {count / seconds:.0f} bytes/s to the terminal; "
        f"the made-up daemon {served / seconds:.2%}"
    )


def main():
    programs = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/debug")
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 30
    server = subprocess.Popen([programs / "examples/web_page", "device"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    server.stdout.readline()
    state = server.stdout.readline().strip()
    try:
        for keys in "1", "2", "3", "5":
            for columns, rows in ((80, 24), (200, 50)):
                measure(programs / "anabranch", state, server.pid, keys, columns, rows, seconds)
    finally:
        server.stdin.close()
        server.wait()


if __name__ == "__main__":
    main()
