# Everything that a developer or CI calls. `make help` lists it.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

CARGO ?= cargo
# cargo-nextest where it is installed, else cargo test.
NEXTEST := $(shell $(CARGO) nextest --version >/dev/null 2>&1 && echo yes)

SEED ?= 1
N ?= 200
REPLICAS ?= 1
FIRST ?= 1
MINUTES ?= 1
ARGS ?=

.PHONY: help
help: ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: check
check: ## Read-only checks: format, clippy, docs, tidy.
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet
	$(CARGO) test --quiet -p tidy

.PHONY: fix
fix: ## Format the code.
	$(CARGO) fmt --all

.PHONY: test
test: check ## Everything: checks, unit, property, simulator and integration tests, doc tests.
	$(CARGO) build --workspace --bins --quiet
ifeq ($(NEXTEST),yes)
	$(CARGO) nextest run --workspace --no-fail-fast
else
	@echo "cargo-nextest is not installed: falling back to cargo test"
	$(CARGO) test --workspace --no-fail-fast --lib --bins --tests
endif
	$(CARGO) test --workspace --doc --quiet
	$(MAKE) --no-print-directory sim-fixed
	$(MAKE) --no-print-directory sim-fresh
	@! ./scripts/docker-test.sh --probe || $(MAKE) --no-print-directory docker-test

.PHONY: integration
integration: ## Tests with real servers, a few repetitions each: make integration ARGS=r12
	$(CARGO) build --workspace --bins --quiet
ifeq ($(NEXTEST),yes)
	$(CARGO) nextest run -p integration --no-fail-fast $(ARGS)
else
	$(CARGO) test -p integration --no-fail-fast -- $(ARGS)
endif

.PHONY: cases
cases: export COHORT_CASES = full
cases: integration ## The same, with as many repetitions as the field cases ask for.

.PHONY: nemesis
nemesis: ## Three real nodes under load, and faults from a seed: make nemesis SEED=7 MINUTES=5
	$(CARGO) build --release --quiet -p server -p integration --bins
	./target/release/nemesis $(SEED) $(MINUTES)

.PHONY: chaos
chaos: nemesis ## The same as nemesis: members that come and are killed, nodes that are killed, stand still and are cut off.

.PHONY: docker-test
docker-test: build ## The image and the cluster of docker/, where a container engine answers: one node is cut off the network.
	./scripts/docker-test.sh

.PHONY: build
build: ## The release binaries.
	$(CARGO) build --release --quiet -p server -p cli

.PHONY: demo
demo: build ## The main job, end to end, on real data: kill consumers, a primary and all three nodes under load and lose nothing.
	./scripts/demo.sh

.PHONY: run
run: build ## One server on ./data: make run ARGS="--set node.address=127.0.0.1:5200"
	./target/release/cohort-server $(ARGS)

.PHONY: cluster
cluster: build ## Three servers on this machine, from configs/cluster, with their data below ./data, until Ctrl-C.
	./scripts/cluster.sh $(ARGS)

.PHONY: sim
sim: ## One simulated run: make sim SEED=7 REPLICAS=3
	$(CARGO) run --release --quiet -p simulator -- run --seed $(SEED) --replicas $(REPLICAS) $(ARGS)

.PHONY: sim-shrink
sim-shrink: ## A simulated run that fails, cut down: make sim-shrink SEED=7 REPLICAS=3
	$(CARGO) run --release --quiet -p simulator -- shrink --seed $(SEED) --replicas $(REPLICAS)

.PHONY: sim-campaign
sim-campaign: ## Many simulated runs: make sim-campaign N=1000 FIRST=1 REPLICAS=3
	$(CARGO) run --release --quiet -p simulator -- campaign --first $(FIRST) --count $(N) --replicas $(REPLICAS) $(ARGS)

.PHONY: sim-fixed
sim-fixed: ## The simulator's seeds of every test run.
	$(CARGO) run --release --quiet -p simulator -- campaign --first 1 --count 100
	$(CARGO) run --release --quiet -p simulator -- campaign --first 1 --count 60 --replicas 3
	$(CARGO) run --release --quiet -p simulator -- campaign --first 1 --count 20 --replicas 5

.PHONY: sim-fresh
sim-fresh: ## Sixty seeds that nobody has seen; a failing one is printed with how to repeat it.
	$(CARGO) run --release --quiet -p simulator -- campaign --first $$(date +%s) --count 50
	$(CARGO) run --release --quiet -p simulator -- campaign --first $$(date +%s) --count 10 --replicas 3

.PHONY: bench
bench: build ## Measure: probe, produce, consume, ping, as ratios within one run.
	$(CARGO) run --release --quiet -p bench -- all $(ARGS)

.PHONY: clean
clean: ## Remove what was built.
	$(CARGO) clean
