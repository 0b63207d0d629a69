# The project's commands. `make demo` and `make test` set up all they need on a fresh Debian machine
# with Rust; both need root, for BPF programs and network namespaces.

# What building needs, what the demo and the lab need, and what tests need.
PACKAGES := clang-19 gcc libc6-dev libelf-dev zlib1g-dev pkg-config make
LAB := iproute2 procps redis-server redis-tools memcached nginx-light wrk nftables ethtool tcpdump
TESTS := $(LAB) libhiredis-dev tshark

# While packages are installed: no service is started (invoke-rc.d(8); under systemd RUNLEVEL=1 alone
# does not say so).
POLICY := /usr/sbin/policy-rc.d

BATCHWISE := target/release/batchwise
export CARGO_TERM_COLOR ?= auto

.PHONY: build lab demo checked test test-all fuzz test-kernels test-metrics test-package test-units bench package package-rpm setup lint \
        kernel-functions coverage clean

## what an operator installs: target/release/batchwise and batchwise-load
build: setup
	cargo build --release --locked -p batchwise -p batchwise-load

## the same, batchwise-lab, and the workloads of batchwise-load that only experiments need
lab: PACKAGES += $(LAB)
lab: setup
	cargo build --release --locked -p batchwise -p batchwise-load -p batchwise-lab --features experiments

## a Redis under climbing load: estimate beside truth, then tuned; 80 s after the build
demo: PACKAGES += $(LAB)
demo: lab
	$(BATCHWISE) lab run demo --out out/demo

# Tests that something is missing for add a line to this file: what, and for which test.
export BATCHWISE_LEFT_OUT := $(CURDIR)/target/left-out

# Tests are compiled by Clippy, whose lints are errors, so that everything is compiled once.
LINTED := RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__
CHECKED := env $(LINTED) cargo test --workspace --locked

# Contracts and flows need namespaces and real servers; their tests take turns, and wait more than they calculate. So
# flows that are not at TCP's ends run beside the others, and get what CPU time these leave.
define RUN
	failed=; \
	$(CHECKED) --no-fail-fast -- $(1) || failed=1; \
	nice -n 19 $(CHECKED) --test flows -- --skip tcp:: $(1) >target/beside.log 2>&1 & \
	$(CHECKED) --test flows -- tcp:: $(1) || failed=1; \
	$(CHECKED) --test contracts -- $(1) || failed=1; \
	wait $$! || failed=1; cat target/beside.log; \
	sed 's/^/left out: /' $$BATCHWISE_LEFT_OUT; echo "$$(wc -l <$$BATCHWISE_LEFT_OUT) left out"; \
	[ -z "$$failed" ]
endef

## what guards main: formatting, lints, units, properties, programs, one flow a behaviour
test: PACKAGES += $(TESTS)
test: setup checked
	$(call RUN,--skip long::)

## everything: long flows, drills and faults, fuzzing, kernels, metrics, packages, units; an hour and more
test-all: PACKAGES += $(TESTS) libclang-rt-19-dev
test-all: setup checked
	$(MAKE) fuzz test-metrics test-kernels test-package test-units
	$(call RUN)

## all that reads what others wrote, fed with what nobody would write: FOR=60s in total, TARGET=options FOR=8h for one;
## INPUT=FILE TARGET=options for one input, DEEP=1 to reach into libraries
fuzz: PACKAGES += libclang-rt-19-dev
fuzz: setup
	crates/batchwise-fuzz/run

## what works on each kernel of amd64 in kernels/list, or on KERNELS="6.1 6.12-arm64 /path/bzImage", in
## virtual machines; BLESS=1 makes it what docs/reference/kernels.md tells
test-kernels: PACKAGES += $(TESTS) mmdebstrap cpio kmod jq bsdextrautils
test-kernels: PACKAGES += $(if $(findstring -arm64,$(KERNELS)),gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
test-kernels: setup
	env $(LINTED) kernels/test

## dashboards and alerting rules, with a real Prometheus that scrapes real agents; installs Prometheus
test-metrics: PACKAGES += $(TESTS) prometheus
test-metrics: setup
	promtool check rules packaging/prometheus/*.yml
	promtool test rules packaging/prometheus/tests/*.yml
	$(CHECKED) --test prometheus -- --nocapture --test-threads=1

## what it costs and how true it is: overhead and accuracy, arms interleaved
bench: PACKAGES += $(LAB)
bench: lab
	$(BATCHWISE) lab run overhead --out out/overhead
	$(BATCHWISE) lab run accuracy --out out/accuracy
	$(BATCHWISE) lab run hook-cost --out out/hook-cost

## target/package/batchwise_VERSION_ARCH.deb, with manual pages and completions; Debian's tools, cargo-deb
package: lab
	command -v cargo-deb >/dev/null || cargo install --locked cargo-deb
	command -v dpkg-shlibdeps >/dev/null || apt-get install -y -qq --no-install-recommends dpkg-dev
	cargo build --release --locked --workspace --bins
	rm -rf target/package
	target/release/batchwise-pages target/package/pages
	cargo deb -q -p batchwise --no-build --locked -o target/package/

## the same as .rpm
package-rpm: package
	command -v cargo-generate-rpm >/dev/null || cargo install --locked cargo-generate-rpm
	cargo generate-rpm -p crates/batchwise -o target/package/

## installs, runs, upgrades, removes and purges the package in a clean Debian root: about three minutes
test-package: package
	packaging/test/run

## the units under systemd, in a virtual machine: each starts and stops; `tune` is killed under each KillMode, and hangs
test-units: PACKAGES += mmdebstrap cpio kmod
test-units: build
	packaging/test/units

## crates/batchwise/src/profile/functions.txt.gz, by which `profile` goes, from the sources of four kernels (600 MB
## are downloaded)
kernel-functions: PACKAGES += universal-ctags xz-utils
kernel-functions: setup
	kernels/functions > target/functions.txt
	gzip -n -9 < target/functions.txt > crates/batchwise/src/profile/functions.txt.gz

## formatting and lints alone, which `make test` has, too
lint: setup
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy --workspace --test flows --test contracts --test prometheus --locked -- -D warnings

# All that is tested, and benchmarks.
checked:
	mkdir -p target
	: >$(BATCHWISE_LEFT_OUT)
	cargo fmt --all --check
	$(CHECKED) --all-targets --no-run
	$(CHECKED) --test flows --test contracts --test prometheus --no-run

## line coverage of the mathematics
coverage:
	command -v cargo-tarpaulin >/dev/null || cargo install --locked cargo-tarpaulin
	cargo tarpaulin -p batchwise-core --engine llvm --out stdout --fail-under 95 --include-files 'crates/batchwise-core/*'

## install what is missing; says what to do where it cannot
setup:
	@command -v cargo >/dev/null || { \
	  echo "Rust 1.88 or newer is needed: https://rustup.rs" >&2; exit 1; }
	@missing=; for p in $(PACKAGES); do \
	  dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; \
	done; \
	if [ -n "$$missing" ]; then \
	  command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] || { \
	    echo "install as root:$$missing" >&2; exit 1; }; \
	  echo "installing:$$missing"; \
	  if [ ! -e $(POLICY) ]; then \
	    trap 'rm -f $(POLICY)' EXIT; trap 'exit 1' INT TERM; \
	    printf '#!/bin/sh\nexit 101\n' >$(POLICY) && chmod 755 $(POLICY); \
	  fi; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
	    apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi

clean:
	cargo clean
	rm -rf out
