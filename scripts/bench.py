#!/usr/bin/env python3
"""Measures the tunnel on links without limits, beside wireguard-go in the same run: make bench

A device and a gateway in two network namespaces, joined by a veth pair. iperf3 measures one TCP flow each way over the plain
link, through wireguard-go and through any0, in turns; the processor time of the tunnel's processes on both sides is divided by the
bytes they carried. Absolute figures depend on the machine and on what else it does: read the ratios.

    scripts/bench.py [--rounds N] [--seconds N] [--json FILE]
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import wire_reference

ROOT = pathlib.Path(__file__).resolve().parents[1]
ANABRANCH = ROOT / "target" / "release" / "anabranch"
WIREGUARD = ROOT / "target" / "bench" / "wireguard"
# MIT; built from source by the Go tool chain.
WIREGUARD_SOURCE = "golang.zx2c4.com/wireguard@v0.0.0-20260522210424-ecfc5a8d5446"
NAME = f"ab-{os.getpid()}"
OUTER = {"device": "192.0.2.2", "gateway": "192.0.2.1"}
INNER = {"device": "10.9.0.2", "gateway": "10.9.0.1"}
TICKS = os.sysconf("SC_CLK_TCK")


class Bench:
    """Namespaces and processes, all gone when the block ends."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.processes = []

    def __enter__(self):
        for side in OUTER:
            run("ip", "netns", "add", f"{NAME}-{side}")
        run("ip", "-n", f"{NAME}-device", "link", "add", "eth0", "type", "veth", "peer", "eth0", "netns", f"{NAME}-gateway")
        for side, address in OUTER.items():
            self.ip(side, "address", "add", f"{address}/24", "dev", "eth0")
            self.ip(side, "link", "set", "lo", "up")
            self.ip(side, "link", "set", "eth0", "up")
        self.ip("device", "route", "add", "default", "via", OUTER["gateway"])
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        for side in OUTER:
            subprocess.run(["ip", "netns", "delete", f"{NAME}-{side}"])

    def ip(self, side, *arguments):
        run("ip", "-n", f"{NAME}-{side}", *arguments)

    def inside(self, side, *command):
        return ["ip", "netns", "exec", f"{NAME}-{side}", *map(str, command)]

    def start(self, side, *command, environment=None):
        log = open(self.directory / f"{side}-{pathlib.Path(command[0]).name}.log", "wb")
        process = subprocess.Popen(
            self.inside(side, *command), stdout=log, stderr=log, env=dict(os.environ, **(environment or {}))
        )
        self.processes.append(process)
        return process


def run(*command, **options):
    result = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if result.returncode:
        sys.exit(f"bench: {' '.join(map(str, command))}: {result.stderr.strip() or result.stdout.strip()}")
    return result.stdout


def wait_for(what, is_there, seconds=20):
    end = time.monotonic() + seconds
    while not is_there():
        if time.monotonic() > end:
            sys.exit(f"bench: {what} did not come within {seconds} s")
        time.sleep(0.05)


def start_wireguard(bench):
    """wireguard-go on both sides, configured over its own control socket; returns its processes."""
    private = {side: os.urandom(32) for side in OUTER}
    processes = []
    for side, far in (("device", "gateway"), ("gateway", "device")):
        interface = f"w{os.getpid()}{side[0]}"
        process = bench.start(side, WIREGUARD, "--foreground", interface, environment={"LOG_LEVEL": "error"})
        control = pathlib.Path(f"/var/run/wireguard/{interface}.sock")
        wait_for(f"wireguard-go's {control}", control.exists)
        settings = f"set=1\nprivate_key={private[side].hex()}\nlisten_port=51820\n"
        settings += f"public_key={wire_reference.x25519(private[far]).hex()}\n"
        settings += f"endpoint={OUTER[far]}:51820\nallowed_ip={INNER[far]}/32\n\n"
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(control))
            connection.sendall(settings.encode())
            answer = connection.recv(4096).decode()
        if "errno=0" not in answer:
            sys.exit(f"bench: wireguard-go refuses its settings: {answer.strip()}")
        bench.ip(side, "address", "add", f"{INNER[side]}/24", "dev", interface)
        bench.ip(side, "link", "set", interface, "mtu", "1420", "up")
        processes.append(process)
    return processes, INNER["gateway"]


def start_anabranch(bench):
    """A gateway and a device that has joined it; returns their processes and the gateway's inner address."""
    states = {side: bench.directory / side for side in OUTER}
    config = bench.directory / "bench.toml"
    # The namespaces share this machine's resolv.conf.
    config.write_text(f'[device]\ndns = "off"\n[gateway]\ndns = []\npublic_addresses = ["{OUTER["gateway"]}"]\n')
    call = lambda side, *words, **options: run(*bench.inside(side, ANABRANCH, "--state", states[side], *words), **options)
    call("gateway", "gateway", "init", "--address", OUTER["gateway"])
    gateway = bench.start("gateway", ANABRANCH, "--state", states["gateway"], "gateway", "run", "--config", config)
    wait_for("the gateway's control socket", (states["gateway"] / "control.sock").exists)
    link = json.loads(call("gateway", "gateway", "invite", "bench", "--qr", "never", "--json", "--config", config))["link"]
    call("device", "join", "-", input=link + "\n")
    device = bench.start("device", ANABRANCH, "--state", states["device"], "up", "--foreground", "--config", config)

    def status():
        command = bench.inside("device", ANABRANCH, "--state", states["device"], "status", "--json")
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return json.loads(result.stdout) if result.returncode == 0 else {}

    wait_for("the session", lambda: status().get("state") == "up")
    own = next(address for address in status()["addresses"] if "." in address)
    network = own.split("/")[0].split(".")
    return [device, gateway], ".".join(network[:2] + ["0", "1"])


def tree(process):
    """A process and all below it."""
    found = [process.pid]
    for pid in found:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
        if children.exists():
            found += [int(child) for child in children.read_text().split()]
    return found


def processor_seconds(processes):
    total = 0
    for pid in (pid for process in processes for pid in tree(process)):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def resident_megabytes(process):
    """Memory of a process tree that no other process shares."""
    total = 0
    for pid in tree(process):
        rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
        total += sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private_"))
    return total / 1024


def measure(bench, target, seconds, reverse, processes):
    """(Gbit/s, processor nanoseconds of the tunnel a byte) of one TCP flow."""
    before = processor_seconds(processes)
    command = bench.inside("device", "iperf3", "--json", "-c", target, "-t", seconds, *(["-R"] if reverse else []))
    report = json.loads(run(*command))["end"]["sum_received"]
    spent = processor_seconds(processes) - before
    return report["bits_per_second"] / 1e9, spent * 1e9 / report["bytes"]


def build():
    if not shutil.which("go"):
        sys.exit("bench: go is missing, which builds wireguard-go to compare with: see https://go.dev/dl")
    run("cargo", "build", "--locked", "--release", "--bin", "anabranch", cwd=ROOT)
    if not WIREGUARD.exists():
        print("bench: building wireguard-go", flush=True)
        environment = dict(os.environ, GOBIN=str(WIREGUARD.parent), GOFLAGS="-modcacherw")
        run("go", "install", WIREGUARD_SOURCE, env=environment, cwd="/")


def report_on(samples, memory, idle):
    """The figures, each the median of all rounds."""
    median = lambda way, direction, at: statistics.median(sample[at] for sample in samples[way, direction])
    result = {"memory_mb": memory, "idle_processor_percent": idle}
    print(f"\n{'one TCP flow, Gbit/s':<34}{'up':>8}{'down':>8}{'  CPU ns a byte, both ends':>28}")
    for way in ("plain", "wireguard-go", "anabranch"):
        up, down = median(way, "up", 0), median(way, "down", 0)
        cost = statistics.mean(median(way, direction, 1) for direction in ("up", "down"))
        result[way] = {"up_gbps": round(up, 3), "down_gbps": round(down, 3), "cpu_ns_per_byte": round(cost, 3)}
        print(f"{way:<34}{up:>8.2f}{down:>8.2f}{'' if way == 'plain' else f'{cost:.2f}':>28}")
    ours, theirs = result["anabranch"], result["wireguard-go"]
    for name, key in (("up", "up_gbps"), ("down", "down_gbps"), ("CPU a byte", "cpu_ns_per_byte")):
        result[f"{key}_over_wireguard_go"] = round(ours[key] / theirs[key], 3)
        print(f"{'anabranch over wireguard-go, ' + name:<42}{ours[key] / theirs[key]:>8.2f} x")
    print(f"{'memory, MB: device, gateway':<42}{memory['device']:>8.1f}{memory['gateway']:>8.1f}")
    print(f"{'processor while idle, percent: both':<42}{idle:>8.2f}")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if os.geteuid():
        sys.exit("bench: network namespaces and interfaces take root: sudo make bench")
    build()
    with tempfile.TemporaryDirectory() as directory, Bench(directory) as bench:
        # The daemons give up root and must still reach their state.
        os.chmod(directory, 0o755)
        bench.start("gateway", "iperf3", "-s")
        wireguard, through_wireguard = start_wireguard(bench)
        anabranch, through_anabranch = start_anabranch(bench)
        start = processor_seconds(anabranch)
        time.sleep(10)
        idle = round((processor_seconds(anabranch) - start) * 10, 2)
        ways = {
            "plain": (OUTER["gateway"], []),
            "wireguard-go": (through_wireguard, wireguard),
            "anabranch": (through_anabranch, anabranch),
        }
        samples = {}
        for number in range(options.rounds):
            for way, (target, processes) in ways.items():
                for direction in ("up", "down"):
                    sample = measure(bench, target, options.seconds, direction == "down", processes)
                    samples.setdefault((way, direction), []).append(sample)
                    print(f"round {number + 1}: {way} {direction}: {sample[0]:.2f} Gbit/s", flush=True)
        memory = {side: round(resident_megabytes(process), 1) for side, process in zip(("device", "gateway"), anabranch)}
        result = report_on(samples, memory, idle)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
