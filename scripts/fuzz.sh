#!/usr/bin/env bash
# Runs fuzz targets with the installed compiler, no nightly one needed: scripts/fuzz.sh SECONDS [TARGET...]
#
# Each target, or each that is named, runs for SECONDS from the committed corpus on. Inputs that reach code which no
# committed one reaches are added to it. What breaks a property stays in target/fuzz/TARGET-*, and the script fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../fuzz"

seconds=${1:?"usage: scripts/fuzz.sh SECONDS [TARGET...]"}
shift
[ $# -gt 0 ] || set -- $(sed -n 's/^name = "\([a-z_]*\)"$/\1/p' Cargo.toml)

# Bytes of an input: what a datagram or a frame has at most, and a text of some lines.
longest=2048
folder=$PWD/../target/fuzz
mkdir -p "$folder"

# What cargo-fuzz passes on, less the sanitizers, which need a nightly compiler and find nothing in code without `unsafe`.
coverage="-Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
	coverage+=" -Cllvm-args=-sanitizer-coverage-$option"
done
platform=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="--cfg fuzzing $coverage -Cdebug-assertions -Coverflow-checks -Ccodegen-units=1" \
	cargo build --locked --release --bins --target "$platform" --target-dir "$folder"

failed=
for target in "$@"; do
	program=$folder/$platform/release/$target
	found=$(mktemp -d "$folder/found-$target.XXXXXX")
	if "$program" -max_total_time="$seconds" -max_len=$longest -timeout=10 -print_final_stats=1 \
		-artifact_prefix="$folder/$target-" "$found" "corpus/$target" >"$folder/$target.log" 2>&1; then
		# The fewest and smallest that reach new code; how often it is reached does not count.
		"$program" -merge=1 -use_counters=0 -max_len=$longest "corpus/$target" "$found" >>"$folder/$target.log" 2>&1
		echo "fuzz: $target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$folder/$target.log" | head -n1) runs," \
			"$(find "corpus/$target" -type f | wc -l) inputs in the corpus"
	else
		echo "fuzz: $target FAILED: see target/fuzz/$target.log and target/fuzz/$target-*" >&2
		failed=yes
	fi
	rm -rf "$found"
done
[ -z "$failed" ]
