#!/usr/bin/env python3
"""Checks the static program in an empty root, and the gateway's container image made of it.

Where the static program cannot be built (no musl compiler, no standard library of Rust for musl) it says so, and the image is made of the
usual program with its libraries. The image is unpacked by umoci and started as a container engine would: with the rights that
docs/installing.md names and no others, and /proc/sys read-only.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib

from check_units import namespaces

ROOT = pathlib.Path(__file__).resolve().parents[1]
TARGET = "x86_64-unknown-linux-musl"
STATIC = ROOT / "target" / TARGET / "quick/anabranch"
USUAL = ROOT / "target/debug/anabranch"

# What docker gives a container by itself, and NET_ADMIN.
RIGHTS = "chown,dac_override,fsetid,fowner,mknod,net_raw,setgid,setuid,setfcap,setpcap,net_bind_service,sys_chroot,kill,audit_write,net_admin"

STEPS = """
set -ex
root=$1
ip link set lo up
ip link add eth0 type veth peer name far0
ip address add 192.0.2.1/24 dev eth0
ip link set eth0 up
ip link set far0 up
sysctl -q -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
mount --bind "$root" "$root"
mkdir -p "$root/proc" "$root/dev/net"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
for device in net/tun null urandom; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
contained() { PATH=/usr/sbin:/usr/bin setpriv --bounding-set="-all,+$(echo "$RIGHTS" | sed 's/,/,+/g')" chroot "$root" "$@"; }
anabranch="/usr/bin/anabranch --state /var/lib/anabranch"
contained $anabranch gateway init --address 192.0.2.1
contained $anabranch gateway run &
for try in $(seq 100); do contained $anabranch status >/dev/null 2>&1 && break; sleep 0.1; done
contained $anabranch status
contained $anabranch gateway invite van
nft list table inet anabranch_any0 | grep masquerade
worker=$(contained $anabranch status --json | sed -n 's/.*"pid": *\\([0-9]*\\).*/\\1/p')
grep -q '^Uid:.4600' "/proc/$worker/status"
contained $anabranch down
wait
if ip link show any0; then exit 1; fi
test -z "$(nft list ruleset)"
echo EVERYTHING PASSED
"""


def why_not_static():
    """Why the static program cannot be built, or None; the standard library is fetched if rustup can."""
    if not shutil.which("musl-gcc"):
        return "musl-gcc is missing (package musl-tools)"
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    if not pathlib.Path(sysroot, "lib/rustlib", TARGET).is_dir():
        if not shutil.which("rustup"):
            return f"Rust's standard library for {TARGET} is missing"
        try:
            tried = subprocess.run(["rustup", "target", "add", TARGET], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            return f"rustup target add {TARGET} does not end"
        if tried.returncode:
            return f"rustup target add {TARGET}: {tried.stdout.strip()}"
    return None


def in_empty_root(program):
    """What goes wrong with the program in a root where nothing else is, or None."""
    with tempfile.TemporaryDirectory() as directory:
        shutil.copy2(program, directory)
        for words, code, says in (
            (["gateway", "init", "--address", "gw.example.org"], 0, "This machine is a gateway now"),
            (["gateway", "invite", "van"], 0, "anabranch://join/"),
            (["status"], 3, "no daemon is running"),
        ):
            command = ["chroot", directory, "/anabranch", "--state", "/state", *words]
            ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if ran.returncode != code or says not in ran.stdout:
                return f"{' '.join(words)} ends with {ran.returncode}: {ran.stdout}"
    return None


def image(program):
    """What goes wrong with the image, or None."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        subprocess.run(["strip", "-o", work / "program", program], check=True)
        making = [sys.executable, ROOT / "scripts/oci_image.py", work / "program"]
        for name in ("image.tar", "again.tar"):
            subprocess.run([*making, work / name], check=True, stdout=subprocess.DEVNULL)
        if (work / "image.tar").read_bytes() != (work / "again.tar").read_bytes():
            return "made twice it is not the same"
        with tarfile.open(work / "image.tar") as tar:
            tar.extractall(work / "layout")
        # Checks digests and sizes on the way.
        command = ["umoci", "unpack", "--image", f"{work}/layout:{version}", work / "bundle"]
        unpacked = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if unpacked.returncode:
            return unpacked.stdout
        command = namespaces("sh", "-c", STEPS, "sh", work / "bundle/rootfs")
        environment = {**os.environ, "RIGHTS": RIGHTS}
        ran = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120
        )
        return None if "\nEVERYTHING PASSED" in ran.stdout else ran.stdout


def main():
    missing = [name for name in ("umoci", "nft", "unshare", "setpriv", "strip") if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        print(f"image: skipped: {'this is no root' if os.geteuid() else ', '.join(missing) + ' is missing (scripts/setup.sh test)'}")
        return int("CI" in os.environ)
    reason = why_not_static()
    program = USUAL if reason else STATIC
    if reason:
        print(f"static program: not built: {reason}")
    else:
        command = ["cargo", "build", "--locked", "--profile", "quick", "--target", TARGET, "--bin", "anabranch"]
        subprocess.run(command, check=True, cwd=ROOT)
        fault = in_empty_root(program)
        if fault:
            print(f"static program: {fault}")
            return 1
        print("static program: runs in an empty root")
    fault = image(program)
    if fault:
        print(f"image: {fault}\nimage: the last step above failed")
        return 1
    print(f"image: of the {'usual' if reason else 'static'} program: valid, the same each time, and a gateway when it is started")
    return 0


if __name__ == "__main__":
    sys.exit(main())
