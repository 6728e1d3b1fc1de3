#!/usr/bin/env python3
"""Checks the Debian packages: lintian, then a clean Debian under a systemd of its own, in namespaces.

There they are installed, upgraded while the daemon runs, removed and purged; the daemon runs from them as gateway and as
device. After the purge every file of the system must be as it was before. Skipped, with a reason, where this cannot be done.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from check_units import namespaces, run_steps

ROOT = pathlib.Path(__file__).resolve().parents[1]
PATIENCE = 240
# What the steps need beside what the packages depend on.
ALSO = ["iproute2", "systemd"]
SUPERSEDED, CURRENT = "0.0.1-1", "0.0.2-1"

# What process 1 does before it becomes systemd: its root is the clean Debian, unpacked in memory.
BOOT = """
set -e
work=$1
shift
mount -t tmpfs -o mode=755 tmpfs "$work/memory"
tar --extract --numeric-owner --exclude='./dev/*' --file "$work/root.tar" --directory "$work/memory"
cd "$work/memory"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
for at in run sys/fs/cgroup; do mount -t tmpfs -o mode=755 tmpfs "$at"; done
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t cgroup2 cgroup2 sys/fs/cgroup
mkdir run/report run/old
mount --bind "$work/report" run/report
cp "$work/units/"* etc/systemd/system/
pivot_root . run/old
umount --lazy /run/old
exec env -i container=anabranch-test PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
"""

# What is checked, step by step; the first that fails is the last that is said.
STEPS = """
set -ex
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive HOME=/root LC_ALL=C.UTF-8
packages="anabranch anabranch-lab libanabranch0 libanabranch-dev python3-anabranch"
answers() { for try in $(seq 100); do anabranch status >/dev/null 2>&1 && return; sleep 0.1; done; systemctl status "$1"; return 1; }
gone() { if ip link show "$1"; then return 1; fi; }
# All that the system consists of, less what belongs to the package system, to logs and to caches, and the copies that adduser keeps.
files() {
    find / -xdev -path /var/log -prune -o -path /var/lib/dpkg -prune -o -path /var/cache -prune -o -path /var/lib/systemd -prune \\
        -o ! -path /etc/ld.so.cache ! -path '/etc/*-' ! -path /var/tmp ! -path /root ! -path '/etc/.pwd.lock' ! -path '*/__pycache__*' \\
        -printf '%p %y %m %u:%g %l\\n' | sort
    find /etc -xdev -type f ! -path /etc/ld.so.cache ! -path '/etc/*-' -exec sha256sum {} + | sort -k 2
}
ip link set lo up
files >/run/report/before

: installed, nothing is enabled and nothing runs
dpkg --install /run/report/superseded/*.deb
anabranch --version
for unit in anabranch anabranch-gateway; do
    if systemctl is-enabled --quiet $unit || systemctl is-active --quiet $unit; then exit 1; fi
done
gone any0
test -z "$(nft list ruleset)"
test ! -e /var/lib/anabranch
getent passwd anabranch
systemd-analyze verify --man=no --recursive-errors=no anabranch.service anabranch-gateway.service
test -f /usr/share/man/man1/anabranch-gateway-invite.1.gz
python3 -B -c 'import anabranch; anabranch.PrivateKey.generate()'

: a gateway
anabranch gateway init --address 192.0.2.1
systemctl daemon-reload
systemctl enable --now anabranch-gateway
answers anabranch-gateway
link=$(anabranch gateway invite van)
worker=$(anabranch status --json | sed -n 's/.*"pid": *\\([0-9]*\\).*/\\1/p')
test "$(stat -c %U "/proc/$worker")" = anabranch
before=$(systemctl show -p MainPID --value anabranch-gateway)

: upgraded, it has become the new program in place and knows whom it invited, and what did not run does not
dpkg --install /run/report/current/*.deb
answers anabranch-gateway
test "$(systemctl show -p MainPID --value anabranch-gateway)" = "$before"
test "$(readlink "/proc/$before/exe")" = /usr/bin/anabranch
test "$(anabranch status --json | sed -n 's/.*"pid": *\\([0-9]*\\).*/\\1/p')" != "$worker"
if systemctl is-active --quiet anabranch; then exit 1; fi
anabranch gateway clients --json | grep '"van"'

: a device
systemctl stop anabranch-gateway
mv /var/lib/anabranch /run/of_gateway
echo "$link" | anabranch join -
systemctl start anabranch
answers anabranch
ip link show any0

: removed while it runs, the machine is as it was, and keys stay
dpkg --remove $packages
gone any0
test -z "$(nft list ruleset)"
test -z "$(ip rule list | grep -v 'lookup local\\|lookup main\\|lookup default')"
test -f /var/lib/anabranch/key
test ! -e /usr/bin/anabranch
test ! -e /usr/lib/systemd/system/anabranch.service

: installed again and started by hand, then purged: nothing is left
dpkg --install /run/report/current/*.deb
anabranch up
answers anabranch
ip link show any0
mkdir -p /etc/anabranch
echo >/etc/anabranch/config.toml
dpkg --purge $packages
gone any0
test -z "$(nft list ruleset)"
files >/run/report/after
diff -u /run/report/before /run/report/after
echo EVERYTHING PASSED
"""


def build(into, version):
    """The packages of what is built for development, packed fast."""
    command = [sys.executable, ROOT / "scripts/debian_packages.py", "--profile", "debug", "--quick"]
    subprocess.run([*command, "--into", into, "--version", version], check=True, stdout=subprocess.DEVNULL)
    return sorted(into.glob("*.deb"))


def dependencies(packages):
    """What the packages depend on and do not bring themselves."""
    own = {package.name.split("_")[0] for package in packages}
    needed = set()
    for package in packages:
        said = subprocess.run(["dpkg-deb", "--field", package, "Depends"], check=True, stdout=subprocess.PIPE, text=True).stdout
        needed |= {re.split(r"[ (|]", word.strip())[0] for word in said.split(",") if word.strip()}
    return sorted(needed - own)


def why_not():
    """Why no clean Debian can be made and started here, or None."""
    for program, package in (("dpkg-deb", "dpkg"), ("dpkg-shlibdeps", "dpkg-dev"), ("mmdebstrap", "mmdebstrap")):
        if not shutil.which(program):
            return f"{program} is missing (package {package})"
    if os.geteuid() != 0:
        return "this is no root"
    if release().get("ID") != "debian":
        return "this is no Debian"
    tried = subprocess.run(namespaces("test", "-c", "/dev/net/tun"), stderr=subprocess.PIPE, text=True)
    return (tried.stderr.strip() or "there is no /dev/net/tun") if tried.returncode else None


def release():
    lines = pathlib.Path("/etc/os-release").read_text().splitlines()
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}


def clean_debian(tar, packages):
    """A small Debian of this machine's release, with what the packages depend on."""
    include = ",".join([*dependencies(packages), *ALSO])
    command = ["mmdebstrap", "--variant=essential", f"--include={include}", release()["VERSION_CODENAME"], tar]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return result.stdout if result.returncode else None


@contextlib.contextmanager
def work_directory():
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        for name in ("memory", "report", "units"):
            (work / name).mkdir()
        yield work


def boot(work):
    """What the steps have said."""
    return run_steps(work, BOOT, "/lib/systemd/systemd", {}, STEPS, PATIENCE)


def lint(packages):
    """What lintian calls an error, or None."""
    if not shutil.which("lintian"):
        print("packages: lintian is missing (package lintian): not asked")
        return None
    command = ["lintian", "--allow-root", "--fail-on", "error", "--display-level", ">=warning", *packages]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return result.stdout if result.returncode else None


def main():
    reason = why_not()
    if reason:
        print(f"packages: skipped: {reason}")
        return int("CI" in os.environ)
    with work_directory() as work:
        build(work / "report/superseded", SUPERSEDED)
        packages = build(work / "report/current", CURRENT)
        fault = lint(packages) or clean_debian(work / "root.tar", packages)
        if fault:
            print(f"packages: {fault}")
            return 1
        said = boot(work)
    if "\nEVERYTHING PASSED" not in said:
        print(said)
        print("packages: the last step above failed")
        return 1
    print(f"packages: {len(packages)} packages in a clean Debian: installed, run, upgraded, removed and purged; nothing is left behind")
    return 0


if __name__ == "__main__":
    sys.exit(main())
