#!/usr/bin/env python3
"""Checks the systemd units: their syntax, and what they do under a systemd that is process 1 of namespaces of its own.

There the gateway is started, killed, started again by systemd and stopped, then a device; the machine outside sees nothing
of it. Skipped, with a reason, where systemd or the right to make namespaces is missing.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

UNITS = sorted(pathlib.Path("packaging/systemd").glob("*.service.in"))
PROGRAMS = pathlib.Path("target/debug")
SYSTEMD = pathlib.Path("/lib/systemd/systemd")
PATIENCE = 90
# What `systemd-analyze security` may say of a unit, times ten. The supervisor keeps root and changes routes and
# firewalls, so what is left above 3 is what it is for.
MOST_EXPOSURE = 40

# What process 1 does before it becomes the command that follows. Its root is a layer in memory over this machine's, so
# whatever a booting system clears or writes, it does not do it here.
BOOT = """
set -e
work=$1
shift
mount -t tmpfs -o mode=755 tmpfs "$work/memory"
cd "$work/memory"
mkdir upper inner root
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=inner overlay root
cd root
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
for at in run tmp var/lib var/log sys/fs/cgroup; do mount -t tmpfs -o mode=755 tmpfs "$at"; done
mount -t cgroup2 cgroup2 sys/fs/cgroup
mkdir run/programs run/report run/old
mount --bind "$work/programs" run/programs
mount --bind "$work/report" run/report
mount --bind "$work/units" etc/systemd/system
pivot_root . run/old
umount --lazy /run/old
test "$(stat --file-system --format %T /)" = overlayfs
exec env container=anabranch-test "$@"
"""

SYSTEMD_ARGUMENTS = ["--unit=check.target", "--log-target=null", "--show-status=no"]

# A shell command in the slice of a user who has logged in, as that user.
AS_USER = """#!/bin/sh
exec systemd-run --quiet --scope --slice=user-65534.slice setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
"""

# Instead of the machine's: nothing of a usual start is needed, and most of it is not wanted.
EMPTY = """[Unit]
DefaultDependencies=no
"""

TARGET = """[Unit]
DefaultDependencies=no
AllowIsolate=yes
Wants=check.service
"""

CHECK = """[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/bin/sh /run/report/check.sh
StandardOutput=append:/run/report/said
StandardError=append:/run/report/said
TimeoutStartSec=infinity
"""

# What is checked, step by step; the first that fails is the last that is said.
STEPS = """
set -ex
export PATH=$PATH:/usr/sbin:/sbin
anabranch="/run/programs/anabranch"
answers() { for try in $(seq 100); do $anabranch status >/dev/null 2>&1 && return; sleep 0.1; done; systemctl status "$1"; return 1; }
gone() { if ip link show "$1"; then return 1; fi; }
ip link set lo up
$anabranch gateway init --address 192.0.2.1
systemctl start anabranch-gateway
answers anabranch-gateway
$anabranch status
link=$($anabranch gateway invite van)
ip link show any0
nft list table inet anabranch_any0 >/dev/null
worker=$($anabranch status --json | sed -n 's/.*"pid": *\\([0-9]*\\).*/\\1/p')
grep -q 'CapBnd:.0000000000003000' "/proc/$worker/status"

: killed, it is started again
before=$(systemctl show -p MainPID --value anabranch-gateway)
kill -9 "$before"
for try in $(seq 100); do test "$(systemctl show -p NRestarts --value anabranch-gateway)" = 1 && break; sleep 0.1; done
answers anabranch-gateway
test "$(systemctl show -p MainPID --value anabranch-gateway)" != "$before"

: stopped, nothing is left
systemctl stop anabranch-gateway
test "$(systemctl show -p Result --value anabranch-gateway)" = success
gone any0
test -z "$(nft list ruleset)"

: a device
mv /var/lib/anabranch /var/lib/of_gateway
echo "$link" | $anabranch join -
systemctl start anabranch
answers anabranch
$anabranch status

: a program of a user, held to a network, is in a scope of systemd in the slice of that user
ip link add wan0 type veth peer name far0
ip address add 192.0.2.2/24 dev wan0
ip link set far0 up
ip link set wan0 up
ip route add default via 192.0.2.1 dev wan0
systemctl stop anabranch
printf '[device]\\ngateway = "none"\\n' >/var/lib/anabranch/config.toml
mkdir -p /etc/systemd/system/anabranch.service.d
printf '[Service]\\nStandardOutput=append:/run/report/device\\nStandardError=append:/run/report/device\\n' >/etc/systemd/system/anabranch.service.d/said.conf
systemctl daemon-reload
systemctl start anabranch
for try in $(seq 50); do $anabranch status | grep -q wan0 && break; sleep 0.2; done
for try in $(seq 50); do nft list tables | grep -q anabranch_direct_any0 && break; sleep 0.2; done

: the unit may lead flows out directly by BPF and name the programs of other users
cat /run/report/device
if grep 'by nftables alone' /run/report/device; then exit 1; fi
sh /run/report/as_user bash -c 'exec 3>/dev/udp/198.51.100.7/9; while echo x >&3; do sleep 0.1; done' &
for try in $(seq 50); do $anabranch flows --json >/run/report/flows; grep -q '"program": *"bash"' /run/report/flows && break; sleep 0.2; done
cat /run/report/flows
grep -q '"program": *"bash"' /run/report/flows
systemctl kill user-65534.slice

for try in $(seq 20); do
    sh /run/report/as_user $anabranch --state /tmp run --network wan0 -- sh -c 'cat /proc/self/cgroup; id -u' >/run/report/where && break
    sleep 0.5
done
cat /run/report/where
grep -q '^0::/user.slice/user-65534.slice/anabranch-run-[0-9]*-[0-9]*.scope$' /run/report/where
grep -qx 65534 /run/report/where
sh /run/report/as_user $anabranch --state /tmp run --network wan0 -- sleep 60 &
for try in $(seq 100); do systemctl list-units --plain 'anabranch-run-*.scope' | grep -q running && break; sleep 0.1; done
scope=$(systemctl list-units --plain --no-legend 'anabranch-run-*.scope' | cut -d' ' -f1)
for try in $(seq 100); do nft list ruleset | grep "socket cgroupv2 level 3" && break; sleep 0.1; done
nft list ruleset | grep "socket cgroupv2 level 3"
systemctl kill "$scope"
for try in $(seq 100); do systemctl list-units --plain 'anabranch-run-*.scope' | grep -q running || break; sleep 0.1; done
for try in $(seq 100); do nft list ruleset | grep -q "socket cgroupv2 level 3" || break; sleep 0.1; done
if nft list ruleset | grep "socket cgroupv2 level 3"; then exit 1; fi

: killed as a whole, with flows led out, it is started again
before=$(systemctl show -p MainPID --value anabranch)
systemctl kill -s KILL anabranch
for try in $(seq 100); do
    now=$(systemctl show -p MainPID --value anabranch)
    test "$now" != 0 && test "$now" != "$before" && break
    sleep 0.1
done
test "$now" != 0 && test "$now" != "$before"
answers anabranch
for try in $(seq 50); do nft list tables | grep -q anabranch_direct_any0 && break; sleep 0.2; done
nft list table inet anabranch_direct_any0 >/dev/null

: stopped, nothing is left of direct mode
systemctl stop anabranch
test "$(systemctl show -p Result --value anabranch)" = success
gone any0
test -z "$(nft list ruleset)"
test -z "$(ip -6 rule list | grep -v 'lookup local\\|lookup main\\|lookup default')"
test -z "$(ip route show table all | grep 'table [0-9]'; ip -6 route show table all | grep 'table [0-9]')"
test -z "$(ip rule list | grep -v 'lookup local\\|lookup main\\|lookup default')"
echo EVERYTHING PASSED
"""


def with_programs_at(unit, directory):
    """The unit's text with the programs in another directory."""
    return unit.read_text().replace("@PREFIX@/bin", directory)


def verify():
    """Fault of the units' syntax or of what they leave open, or None."""
    with tempfile.TemporaryDirectory() as directory:
        paths = []
        for unit in UNITS:
            path = pathlib.Path(directory) / unit.stem
            path.write_text(with_programs_at(unit, str(PROGRAMS.resolve())))
            paths.append(path)
        for path in paths:
            command = ["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSURE}", path]
            result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if result.returncode:
                return "\n".join(line for line in result.stdout.splitlines() if not line.startswith("✓"))
        command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *paths]
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        # What is said of the machine's own units is not ours.
        ours = [line for line in result.stdout.splitlines() if "anabranch" in line]
        return "\n".join(ours) if ours or result.returncode else None


def namespaces(*command):
    """The command as process 1 of namespaces of its own."""
    kinds = ["--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup"]
    return ["unshare", *kinds, "--propagation", "private", "--fork", "--kill-child", "--mount-proc", *command]


def why_not_boot():
    """Why systemd cannot be started here, or None."""
    if not SYSTEMD.exists():
        return f"there is no {SYSTEMD}"
    if os.geteuid() != 0:
        return "this is no root"
    with work_directory() as directory:
        command = namespaces("sh", "-c", BOOT, "sh", directory, "test", "-c", "/dev/net/tun")
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return result.stdout.strip() or "namespaces do not work" if result.returncode else None


@contextlib.contextmanager
def work_directory():
    """A directory with what the new root is made of."""
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        for name in ("memory", "programs", "report", "units"):
            (work / name).mkdir()
        yield work


def boot(work):
    """What the steps have said."""
    shutil.copy2(PROGRAMS / "anabranch", work / "programs")
    (work / "report/as_user").write_text(AS_USER)
    units = {unit.stem: with_programs_at(unit, "/run/programs") for unit in UNITS}
    return run_steps(work, BOOT, SYSTEMD, units, STEPS, PATIENCE)


def run_steps(work, script, systemd, units, steps, patience):
    """What the steps have said that a systemd of its own, with these units beside its targets, runs in a root that the script sets up."""
    units = units | {"check.target": TARGET, "check.service": CHECK}
    units |= dict.fromkeys(("sysinit.target", "basic.target", "shutdown.target", "multi-user.target"), EMPTY)
    for name, text in units.items():
        (work / "units" / name).write_text(text)
    report = work / "report"
    (report / "check.sh").write_text(f"trap 'touch /run/report/ended' EXIT\n{steps}")
    (report / "said").touch()
    command = namespaces("sh", "-c", script, "sh", work, str(systemd), *SYSTEMD_ARGUMENTS)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + patience
        while time.monotonic() < end and process.poll() is None and not (report / "ended").exists():
            time.sleep(0.2)
    finally:
        # Process 1 of the namespace takes all others with it, and unshare ends when it has.
        for child in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        process.wait()
    return (report / "said").read_text()


def main():
    if shutil.which("systemd-analyze") is None:
        print("units: skipped: the program systemd-analyze is missing (package systemd)")
        return 0
    fault = verify()
    if fault:
        print(f"units: {fault}")
        return 1
    print(f"units: {', '.join(unit.stem for unit in UNITS)}: nothing wrong with their syntax")
    reason = why_not_boot()
    if reason:
        print(f"units: not tried under systemd: {reason}")
        return 0
    with work_directory() as directory:
        said = boot(directory)
    if "\nEVERYTHING PASSED" not in said:
        print(said)
        print("units: the last step above failed")
        return 1
    print("units: under systemd they start, are started again when killed, hold programs in scopes, and leave nothing behind")
    return 0


if __name__ == "__main__":
    sys.exit(main())
