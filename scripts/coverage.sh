#!/usr/bin/env bash
# Says how much of some crates their tests reach: scripts/coverage.sh -p CRATE...
#
# The compiler's own counters (-C instrument-coverage), read by the tools of the same LLVM.
set -euo pipefail

# Per cent of lines; with less it fails.
LEAST_LINES=94
cd "$(dirname "${BASH_SOURCE[0]}")/.."

llvm=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
if command -v "llvm-cov-$llvm" >/dev/null; then
	LLVM_COV=$(command -v "llvm-cov-$llvm")
	LLVM_PROFDATA=$(command -v "llvm-profdata-$llvm")
	export LLVM_COV LLVM_PROFDATA
elif ! ls "$(rustc --print sysroot)"/lib/rustlib/*/bin/llvm-cov >/dev/null 2>&1; then
	echo "coverage: LLVM's tools are missing: apt-get install llvm-$llvm, or rustup component add llvm-tools" >&2
	exit 1
fi
coverage=$(scripts/tool.sh cargo-llvm-cov)
"$coverage" llvm-cov --locked --summary-only --fail-under-lines "$LEAST_LINES" "$@"
