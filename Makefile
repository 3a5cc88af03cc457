# Everything runs from .venv, built from requirements.lock on first use. Needs git, make and Python 3.11.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo check test nightly interop coordination kubernetes images sim explore fuzz soak mutants transcripts crash bench bench-store bench-replication bench-clients bench-scale bench-failover lint proto docs lock clean

FUZZ = $(if $(SEED),-seed=$(SEED)) -max_len=64 -max_total_time=600 -print_final_stats=1
PYTHON ?= $(shell command -v python3.11 || command -v python3)
RUN := .venv/bin/python
PIP := $(RUN) -m pip --quiet --disable-pip-version-check --no-input
LOCK := .venv/bin/uv pip compile --python-version 3.11 --generate-hashes --quiet --native-tls \
    --no-header --no-annotate --no-emit-index-url --no-emit-find-links

help: ## say what can be made
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 13

demo: .venv/ready ## run the main job: a cluster, a real data set, a kill -9, an audit; under 2 minutes after installation
	@.venv/bin/dittomq demo

check: .venv/ready ## lint and run what is quick, to be run all day
	@$(RUN) -m pytest -n 2 --tier check $(TESTS)

test: .venv/ready ## what CI runs: lint and test all parts; what is skipped is named with its reason (TESTS=tests/unit: only these)
	@$(RUN) -m pytest -n 2 $(TESTS)

nightly: .venv/ready ## run every test, 1,000 seeds, every crash point, every order of events of small worlds, and half an hour of faults
	@$(RUN) -m tests.support.kubernetes_programs
	@SKIPS=fail $(RUN) -m pytest -n 2 --tier nightly
	@$(MAKE) --no-print-directory sim SEEDS=1000 FROM=300
	@$(MAKE) --no-print-directory sim SEEDS=300 STRESS=any
	@$(MAKE) --no-print-directory mutants crash explore fuzz soak MINUTES=30

interop: .venv/ready ## open stores of ours with a real RocketMQ and the other way round; fails where anything for it is missing
	@SKIPS=fail $(RUN) -m pytest --tier nightly tests/interop tests/vectors

coordination: .venv/ready ## test every coordination store, with a real Kubernetes API too: builds that first, in ten minutes
	@$(RUN) -m tests.support.kubernetes_programs
	@SKIPS=fail $(RUN) -m pytest -n 2 --tier nightly tests/coordination

kubernetes: .venv/ready ## run the manifests on a real Kubernetes of one node: builds that first, in ten minutes; needs root and Go
	@$(RUN) -m tests.support.kubernetes_programs
	@SKIPS=fail $(RUN) -m pytest --tier nightly tests/kubernetes

mutants: .venv/ready ## let the simulator hunt deliberate bugs and print the table: SEEDS=100 for each, BUG=gap only that
	@$(RUN) -m tests.simulation.mutate $(if $(SEEDS),--seeds $(SEEDS)) $(if $(BUG),--only $(BUG))

transcripts: .venv/ready ## write down in tests/transcripts/*.txt what the deciders answer now; read the diff
	@$(RUN) -m tests.transcripts.rewrite

sim: .venv/ready ## simulate: SEED=7 replays one run, SEEDS=1000 FROM=0 runs many, STRESS=any with many faults of few kinds, GROUPS=1 with consumer groups
	@$(RUN) -m tests.simulation.run $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FROM),--from $(FROM)) $(if $(STRESS),--stress $(STRESS)) $(if $(GROUPS),--groups)

fuzz: .venv/ready ## send a master, a nameserver and a slave requests and frames that a coverage-guided fuzzer makes up: RUNS=20000, SEED=7
	@$(PIP) install --require-hashes --no-deps -r requirements-fuzz.lock
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	    $(RUN) -m tests.fuzz.fuzz_rpcs $$folder/data -atheris_runs=$(or $(RUNS),20000) $(FUZZ) && \
	    $(RUN) -m tests.fuzz.fuzz_master_frames -atheris_runs=$(or $(RUNS),20000) $(FUZZ)

explore: .venv/ready ## take the deciders of elections, members and the confirmed offset through every order of events in small worlds: MINUTES=15, BUG=no-holders
	@$(RUN) -m tests.explore.run $(if $(MINUTES),--minutes $(MINUTES)) $(if $(BUG),--bug $(BUG))

soak: .venv/ready ## run a group of real processes that fails over by itself under random kills, pauses, partitions and lost disks: MINUTES=30, SEED=7 chooses the faults, GROUPS=1 kills members of a consumer group
	@$(RUN) -m tests.soak.run $(if $(GROUPS),--groups) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

crash: .venv/ready ## stop or fail the disk at every call of the store, restart and check: SCRIPT=cut only that, SEEDS=5 more chances, POINT=... one run again
	@$(RUN) -m tests.crash.run $(if $(POINT),--point $(POINT)) $(if $(SCRIPT),--script $(SCRIPT)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FROM),--from $(FROM))

bench: .venv/ready ## measure against the least code that moves and flushes the same bytes
	@$(RUN) -m bench

bench-store: .venv/ready ## measure the store by itself: append, recovery, memory at rest, against the least code for the same bytes
	@$(RUN) -m bench.store $(if $(ONLY),--only $(ONLY))

bench-replication: .venv/ready ## measure replication beside PostgreSQL, RabbitMQ, etcd, Redis and RocketMQ on this machine (ONLY=postgres: one of them)
	@$(RUN) -m bench.replication $(if $(ONLY),--only $(ONLY))

bench-clients: .venv/ready ## measure what clients get, many callers of one producer, a reader, held pulls, beside PostgreSQL and bare gRPC (ONLY=callers: one of them)
	@$(RUN) -m bench.clients $(if $(ONLY),--only $(ONLY))

bench-scale: .venv/ready ## measure large tables: a nameserver of 1,000 groups, a topic more of 60,000, a commit of 1,000,000 offsets (ONLY=topics: one of them)
	@$(RUN) -m bench.scale $(if $(ONLY),--only $(ONLY))

bench-failover: .venv/ready ## kill, suspend, part and replace the master under load: how long producers wait, and that nothing is lost (SCENARIO=kill RUNS=3)
	@$(RUN) -m bench.failover $(if $(SCENARIO),--scenario $(SCENARIO)) $(if $(BACKEND),--backend $(BACKEND)) $(if $(RUNS),--runs $(RUNS))

lint: .venv/ready ## ruff, mypy, import-linter, buf: the part of `make test` that runs no code of ours
	@$(RUN) -m pytest -n 2 -q tests/architecture/test_linters.py

proto: .venv/ready ## generate dittomq/_pb from proto/
	@$(RUN) tools/genproto.py

docs: .venv/ready ## write docs/rpc.md, docs/configuration.md, docs/log-events.md and the tables of docs/state-machines.md anew from what they tell of
	@$(RUN) -m tools.rpcdoc
	@$(RUN) -m tools.configdoc
	@$(RUN) -m tools.statedoc
	@$(RUN) -m tools.logdoc

lock: .venv/ready ## resolve the lock files anew from pyproject.toml (reaches the package index)
	@$(LOCK) pyproject.toml --all-extras --group dev --upgrade --output-file requirements.lock
	@$(LOCK) --group build --constraint requirements.lock --output-file requirements-build.lock
	@$(LOCK) --group fuzz --output-file requirements-fuzz.lock
	@$(LOCK) pyproject.toml --extra services --extra security --extra kubernetes --extra traces --constraint requirements.lock --output-file deploy/docker/broker.lock
	@$(LOCK) pyproject.toml --extra audit --extra audit-jre --constraint requirements.lock --output-file deploy/docker/audit.lock
	@$(LOCK) --group manifests --upgrade --output-file deploy/k8s/tests/checkers.lock

images: .venv/ready ## build the container images dittomq and dittomq-audit; needs a container engine, and where no image registry answers mmdebstrap, as root
	@sh deploy/docker/build.sh

clean: ## remove what was built here, the environment included
	@rm -rf .venv .tools build dist deploy/docker/wheels dittomq/_pb .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The project itself, with its generated code. Its build tools are locked too, so nothing is resolved here.
.venv/ready: .venv/locked pyproject.toml hatch_build.py tools/genproto.py $(shell find proto -name '*.proto')
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@$(RUN) -m compileall -q dittomq services spark
	@touch $@

# Build tools first: packages that come as source are then built with them, and with nothing that is not locked.
.venv/locked: requirements-build.lock requirements.lock
	@[ -n "$(PYTHON)" ] || { echo "dittomq needs Python 3.11 and found no python3; install it, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.version_info[:2] == (3, 11) or sys.exit("dittomq is locked for Python 3.11 and this is %d.%d; install 3.11, or name it: make PYTHON=/path/to/python3.11" % sys.version_info[:2])'
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments; on Debian: apt-get install python3.11-venv" >&2; exit 1; }
	@echo "building .venv from requirements.lock, a few minutes the first time" >&2
	@rm -rf .venv
	@"$(PYTHON)" -m venv .venv
	@$(PIP) install --require-hashes --requirement requirements-build.lock
	@$(PIP) install --require-hashes --no-build-isolation --requirement requirements.lock
	@touch $@
