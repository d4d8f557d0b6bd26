# One word per job. `make` alone lists them.
#
# Every job that needs Python depends on $(STAMP), so each of them sets itself up on a fresh machine.
# The stamp is newer than the pins and pyproject.toml exactly when the environment is up to date:
# a second call costs nothing, a changed pin reinstalls.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
BOOT   := .boot
VENV   := .venv
BENCH  := .venv-bench
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp
UV     := $(BOOT)/bin/uv
SEEDS  ?= 4000
PINS   ?= boot runtime dev bench
ARGS   ?=

# uv would otherwise try to download an interpreter it does not find.
export UV_PYTHON_DOWNLOADS := never
# A machine behind a proxy keeps the proxy's certificate with the system's own.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt),)
export UV_SYSTEM_CERTS := true
endif
# Without bytecode every start of `agentq` pays for compiling it again.
unexport PYTHONDONTWRITEBYTECODE
# A caller's active environment must not redirect what is installed here.
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME

# Fastest first, so that a plain mistake is reported in seconds.
FAST_TESTS := tests/core tests/ledger tests/text tests/workflows tests/organisation tests/schedules tests/hooks tests/artifacts tests/agents
ALL_TESTS  := $(FAST_TESTS) tests/proofs tests/plugins tests/worker tests/repository tests/contracts tests/delivery tests/daemon tests/server tests/web tests/interfaces tests/simulation tests/processes
# All of them, unless ARGS names files or folders of its own.
CHOSEN_TESTS = $(if $(findstring tests/,$(ARGS)),,$(ALL_TESTS))
# Files whose tests make up their inputs.
MADE_UP     = $(shell grep -lrE '^from hypothesis|made_up' $(ALL_TESTS) --include='test_*.py')
# Files go to the processes whole, in the order that tests/budget.py gives them. Two processes per
# core: half of the time of a test is waiting, for a disk, a server or another process.
PROCESSES  ?= 4
RUN_TESTS  := $(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

.PHONY: help
help: ## List the targets
	@awk -F':.*## ' '/^[a-z][a-z-]*:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) ## Make .venv with agentq and its tools (once; redone when a pin changes)

$(UV): requirements/boot.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "agentq needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Use: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) has no venv module. On Debian: apt-get install python3-venv" >&2; exit 1; }
	rm -rf $(BOOT)
	$(PYTHON) -m venv $(BOOT)
	$(BOOT)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/boot.txt
	touch $@

$(VENV)/pyvenv.cfg: $(UV)
	$(UV) venv --quiet --clear --python $(BOOT)/bin/python $(VENV)

$(STAMP): $(VENV)/pyvenv.cfg requirements/dev.txt pyproject.toml
	$(call install,$(VENV),requirements/dev.txt)

# install(environment, pins): exactly the pins, then agentq itself as a link to src/, all compiled.
# A file of ours that does not compile is for the tests to report; it must not stop the set-up.
define install
$(UV) pip sync --quiet --python $(1)/bin/python --require-hashes --compile-bytecode $(2)
$(UV) pip install --quiet --python $(1)/bin/python --no-deps --no-build-isolation --editable .
-@$(1)/bin/python -m compileall -q src
touch $@
endef

# pytest compiles test files in its own way. Four processes that start on a fresh checkout would each
# compile all of them, so two do it first, each a half. What does not compile is for the tests to say.
COMPILED := $(VENV)/.compiled
$(COMPILED): $(STAMP)
	@for half in "$(wordlist 1,16,$(ALL_TESTS))" "$(wordlist 17,99,$(ALL_TESTS))"; do \
	  $(BIN)/python -m pytest -q --collect-only $$half >/dev/null 2>&1 & done; wait
	@touch $@

.PHONY: demo
demo: $(STAMP) ## Tell the whole story in under a minute: submit, claim, kill -9, recover, verify (ARGS=--board: on the board)
	@$(BIN)/python demo/run.py $(ARGS)

.PHONY: story
story: $(STAMP) ## Time the way from a fresh clone to a merged change, and count its commands (ARGS=--installed: from init on)
	@$(BIN)/python demo/stopwatch.py $(ARGS)

.PHONY: servers
servers:
	@tests/servers/install.sh

.PHONY: test
test: $(COMPILED) servers ## Run the tests, four to eight minutes on two cores; starts the servers it needs (ARGS="-k word" narrows)
	@$(RUN_TESTS) -m 'not long' $(CHOSEN_TESTS) $(ARGS)

.PHONY: test-long
test-long: $(COMPILED) servers ## Run what takes longer: clusters, failover, many seeds, coverage; 14 to 23 minutes
	@$(RUN_TESTS) -m long $(CHOSEN_TESTS) $(ARGS)
	@$(if $(ARGS),,$(RUN_TESTS) -q -m 'hypothesis and not long' --hypothesis-profile long $(MADE_UP))
	@$(if $(ARGS),,$(MAKE) --no-print-directory coverage)

.PHONY: fuzz
fuzz: $(COMPILED) servers ## Try twenty times as many made-up inputs: command lines, files, requests; an hour
	@$(RUN_TESTS) -q -o timeout=7200 -m 'hypothesis or fuzz' --hypothesis-profile fuzz $(MADE_UP) $(ARGS)

.PHONY: test-agents
test-agents: $(STAMP) ## Run Claude Code, Codex, Gemini CLI and opencode against a stand-in for their models; five minutes
	@tests/real_agents/run.sh $(ARGS)

.PHONY: costs
costs: $(COMPILED) servers ## Record what each test file costs, for `make check` (ARGS=tests/core/test_x.py: only that one)
	@$(RUN_TESTS) -q --record-costs $(CHOSEN_TESTS) $(ARGS)

.PHONY: test-fast
test-fast: $(STAMP) ## Run all but the long contracts, the simulation and the process tests
	@$(BIN)/python -m pytest -m 'not long' $(FAST_TESTS) tests/contracts/artifacts tests/interfaces $(ARGS)

.PHONY: check
check: $(STAMP) ## Style, types, import contracts and source rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -q tests/architecture

# What reaches every branch of core, protocol and ledger in two minutes: a branch is reached once or
# never, so few examples do, and nothing that tries the same branches for long is needed.
COVERED_TESTS := tests/core tests/text tests/ledger tests/proofs tests/contracts -m 'not postgres and not long' --hypothesis-profile few \
  $(addprefix --ignore=tests/,contracts/artifacts core/test_table_explored.py contracts/test_store_concurrency.py ledger/test_codec_threads.py)

.PHONY: coverage
coverage: $(STAMP) ## Branch coverage of core, protocol and ledger; fails below 100 %
	@rm -f .coverage .coverage.*
	@$(BIN)/python -m coverage run -m pytest -q -n $(PROCESSES) --dist loadfile --no-loadscope-reorder $(COVERED_TESTS) $(ARGS)
	@$(BIN)/python -m coverage combine -q
	@$(BIN)/python -m coverage report --include='src/agentq/core/*,src/agentq/protocol/*,src/agentq/ledger/*' --fail-under=100

.PHONY: mutants
mutants: $(STAMP) ## Plant 300 small wrongs in the core: the fast tests must find 95 % (ARGS="--seed 7")
	@nice -n 10 $(BIN)/python -m tests.mutants.run $(ARGS)

.PHONY: sim
sim: $(STAMP) ## Simulate seeded histories with faults (SEEDS=4000)
	@$(BIN)/python -m tests.simulation.run --seeds $(SEEDS) $(ARGS)

.PHONY: chaos
chaos: $(STAMP) ## Kill real processes in a loop and account for every task
	@$(BIN)/python -m tests.processes.chaos $(ARGS)

.PHONY: bench
bench: $(BENCH)/.stamp ## Measure against the raw drivers and the peers, as ratios (ARGS="--quick")
	@$(BENCH)/bin/python bench/run.py $(ARGS)

# The peers live in an environment of their own: their pins never bend ours.
$(BENCH)/pyvenv.cfg: $(UV)
	$(UV) venv --quiet --clear --python $(BOOT)/bin/python $(BENCH)

$(BENCH)/.stamp: $(BENCH)/pyvenv.cfg requirements/bench.txt pyproject.toml
	$(call install,$(BENCH),requirements/bench.txt)

.PHONY: docs
docs: $(STAMP) ## Write the generated pages again: state diagram, CLI reference
	@$(BIN)/python docs/generate.py

# No other target runs this: pins change on purpose, never by the way.
.PHONY: pins
pins: $(UV) ## Resolve requirements/*.in again; newer versions only with ARGS=--upgrade
	@cd requirements && for name in $(PINS); do \
	  ../$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	    --no-emit-index-url --no-emit-find-links $(ARGS) $$name.in --output-file $$name.txt || exit 1; \
	done

.PHONY: clean
clean: ## Remove environments, caches and build results
	rm -rf $(BOOT) $(VENV) $(BENCH) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -f .coverage .coverage.*
	find src tests demo examples bench docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
