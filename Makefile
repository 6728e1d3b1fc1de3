# What a person or CI runs. `make help` lists it; README.md and CONTRIBUTING.md explain it.

CARGO ?= cargo
PREFIX ?= /usr/local
PROFILE ?= release
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# An experiment (KEY/NAME), a family (KEY) or all.
WHAT ?= all

.PHONY: all help setup build release demo test test-unit test-rust test-python test-scripts test-dissector test-experiments \
	test-systemd test-demo experiments bench fmt lint docs licences purity install

all: build

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install (as root) or name (otherwise) the packages that everything here needs
	@scripts/setup.sh bench

build: ## Build both programs for development, into target/debug
	@scripts/setup.sh build
	$(CARGO) build --locked --workspace --bins

release: ## Build both programs and both libraries for use, into target/release
	@scripts/setup.sh build
	$(CARGO) build --locked --profile $(PROFILE) --bin anabranch --bin anabranch-lab
	$(CARGO) build --locked --profile $(PROFILE) --package anabranch-preload --package anabranch-c --lib

demo: ## Show bonding at work in namespaces on this machine; takes a minute once built
	@scripts/setup.sh demo
	$(CARGO) build --locked --release --bin anabranch --bin anabranch-lab
	target/release/anabranch demo $(DEMO)

test: ## Run all tests; namespaces and the virtual machine included where this machine can
	@scripts/setup.sh test $(if $(CI),,--lenient)
	@$(MAKE) --no-print-directory purity test-scripts test-dissector test-rust test-python test-systemd test-experiments test-demo

test-unit: ## Run the tests of the pure crates only: quick, no privileges
	$(CARGO) test --locked -p anabranch-units -p anabranch-wire -p anabranch-policy -p anabranch-bond -p anabranch-radio -p anabranch-upload -p anabranch-sim

# The tests of the lab start the programs, so these come first.
test-rust:
	$(CARGO) build --locked --workspace --bins
	python3 scripts/run_tests.py

test-scripts:
	python3 -m unittest discover --start-directory scripts/tests

# The Python package, over the C library.
test-python:
	$(CARGO) build --locked --package anabranch-c --lib
	ANABRANCH_LIBRARY=$(CURDIR)/target/debug/libanabranch_c.so python3 -m unittest discover --start-directory python/tests

test-dissector:
	python3 packaging/wireshark/check_dissector.py

# One experiment of each family again, against the verdict that is kept.
test-experiments:
	$(CARGO) build --locked --workspace --bins
	python3 scripts/check_experiments.py

# The systemd units, under a systemd of their own.
test-systemd:
	$(CARGO) build --locked --workspace --bins
	python3 scripts/check_units.py

# The whole product once: real programs, real sockets, a link cut on the way.
test-demo:
	$(CARGO) build --locked --workspace --bins
	python3 scripts/check_demo.py

purity: ## Check that the pure crates depend on nothing that does I/O
	python3 scripts/check_purity.py

experiments: ## Run experiments (WHAT=all, KEY or KEY/NAME) and keep their results; all takes hours
	@scripts/setup.sh experiments
	$(CARGO) build --locked --release --bin anabranch --bin anabranch-lab
	target/release/anabranch-lab run $(WHAT)

bench: ## Run benchmarks (BENCH="throughput idle", or all) and keep their results; all takes about half an hour
	@scripts/setup.sh bench
	$(CARGO) build --locked --release --bin anabranch --bin anabranch-lab
	target/release/anabranch-lab bench $(BENCH)

fmt: ## Format the sources
	$(CARGO) fmt --all

lint: ## Check format, clippy and the documentation; warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	@$(MAKE) --no-print-directory docs

docs: ## Build the documentation of the code into target/doc; warnings are errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --workspace

licences: ## Check the licences of everything that is linked
	python3 scripts/check_licences.py

install: ## Install the programs below PREFIX (/usr/local); build first: make release
	@test -x target/$(PROFILE)/anabranch || { echo "install: nothing is built yet: make release" >&2; exit 1; }
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/doc/anabranch $(DESTDIR)$(PREFIX)/lib/systemd/system
	install -m 755 target/$(PROFILE)/anabranch target/$(PROFILE)/anabranch-lab $(DESTDIR)$(PREFIX)/bin/
	install -D -m 755 target/$(PROFILE)/libanabranch_preload.so $(DESTDIR)$(PREFIX)/lib/anabranch/libanabranch_preload.so
	install -d $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/lib/pkgconfig
	install -m 644 target/$(PROFILE)/libanabranch_c.so $(DESTDIR)$(PREFIX)/lib/libanabranch.so.0
	ln -sf libanabranch.so.0 $(DESTDIR)$(PREFIX)/lib/libanabranch.so
	install -m 644 crates/c/include/anabranch.h $(DESTDIR)$(PREFIX)/include/
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' packaging/pkgconfig/anabranch.pc.in \
		>$(DESTDIR)$(PREFIX)/lib/pkgconfig/anabranch.pc
	install -d $(DESTDIR)$(PREFIX)/share/anabranch/python/anabranch
	install -m 644 python/pyproject.toml $(DESTDIR)$(PREFIX)/share/anabranch/python/
	install -m 644 python/anabranch/*.py $(DESTDIR)$(PREFIX)/share/anabranch/python/anabranch/
	test -n "$(DESTDIR)" || ldconfig
	install -m 644 README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE packaging/config.example.toml \
		$(DESTDIR)$(PREFIX)/share/doc/anabranch/
	for unit in anabranch anabranch-gateway; do \
		sed 's|/usr/local/bin|$(PREFIX)/bin|' packaging/systemd/$$unit.service \
			>$(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit.service; \
	done
	@# Where NetworkManager is, or where a package is made.
	if [ -n "$(DESTDIR)" ] || [ -d /etc/NetworkManager/conf.d ]; then \
		install -D -m 644 packaging/networkmanager/anabranch.conf $(DESTDIR)/etc/NetworkManager/conf.d/anabranch.conf; \
	fi
	@# The daemon's own user; without it the daemon shares `nobody` with others.
	@test -n "$(DESTDIR)" || id -u anabranch >/dev/null 2>&1 || \
		useradd --system --no-create-home --shell /usr/sbin/nologin anabranch || \
		echo "install: no user anabranch could be made; until there is one the daemon runs as nobody" >&2
