#!/usr/bin/env bash
# Makes the state directories of a gateway and of a device that knows it, by the program as it is now:
#
#   scripts/make_old_state.sh PROGRAM DIRECTORY
#
# Run at each release, with DIRECTORY = crates/cli/tests/old_state/VERSION: the tests of later versions open it. Needs root;
# all happens in namespaces. The device is killed, so what it would have taken back is in its undo.json.
set -euo pipefail

if [ "${3-}" != inside ]; then
	mkdir -p "$2"
	[ -z "$(ls -A "$2")" ] || { echo "make_old_state: $2 is not empty" >&2; exit 1; }
	exec unshare --net --mount --pid --uts --fork --kill-child --mount-proc --propagation private \
		"$0" "$(realpath "$1")" "$(realpath "$2")" inside
fi
program=$1 into=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
hostname device
# Neither the machine's systemd nor its name servers are to be met.
mount -t tmpfs -o mode=755 tmpfs /run
echo "nameserver 192.0.2.53" >"$work/resolv.conf"
mount --bind "$work/resolv.conf" "$(realpath /etc/resolv.conf)"

unshare --net sleep 600 &
namespace=$!
until [ "$(readlink /proc/$namespace/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
on_gateway() { nsenter --net --target "$namespace" "$@"; }
gateway() { on_gateway "$program" --state "$work/gateway" "$@"; }
device() { "$program" --state "$work/device" "$@"; }

ip link set lo up
on_gateway ip link set lo up
ip link add wan0 type veth peer name eth0 netns "$namespace"
on_gateway ip address add 192.0.2.1/24 dev eth0
on_gateway ip link set eth0 up
ip address add 192.0.2.2/24 dev wan0
ip link set wan0 up
ip route add default via 192.0.2.1

gateway gateway init --address 192.0.2.1 >/dev/null
on_gateway "$program" --state "$work/gateway" gateway run >"$work/gateway.log" 2>&1 &
until gateway status >/dev/null 2>&1; do sleep 0.1; done
gateway gateway invite van 2>/dev/null | device join - >/dev/null
gateway gateway invite boat >/dev/null 2>&1

mkdir -p "$work/device"
cat >"$work/device/config.toml" <<'END'
name = "van"
web = "127.0.0.1:4680"

[device]
# The name servers of whoever runs a test with this are not to be touched.
dns = false

[network.wan0]
cap = "10 GB"
END
echo "correct horse" | device radio add home >/dev/null
device radio add station --open --weight 2 >/dev/null
device group create family >/dev/null

bonded() {
	"$program" --state "$work/device" up --foreground >>"$work/log" 2>&1 &
	daemon=$!
	for _ in $(seq 100); do
		if ip address show any0 2>/dev/null | grep -q 10.86.0; then return; fi
		sleep 0.1
	done
	cat "$work/log" >&2
	echo "make_old_state: the device was not connected" >&2
	exit 1
}
bonded
# Ended as it should be it keeps what it counted; killed it leaves what it had changed.
gateway gateway forward 8080 --client van --to 80 >/dev/null
farm=$("$program" --state "$work/farm" gateway init --address farm.example --json | sed -n 's/.*"public_key": "\(.*\)".*/\1/p')
device neighbours add farm "$farm" >/dev/null
ping -q -c 3 -i 0.2 10.86.0.1 >/dev/null || true
sleep 6
device down >/dev/null
wait "$daemon"
bonded
sleep 1
worker=$(device status --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p')
kill -KILL "$daemon" "$worker"
gateway down >/dev/null

for name in gateway device; do
	rm -f "$work/$name"/*.lock "$work/$name"/*.sock "$work/$name"/*.log
	cp -r --no-preserve=ownership "$work/$name" "$into/"
done
ls -lR "$into"
