# Anabranch: every target does its own set-up in .venv. Start with `make demo`.
.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-compiled again check compiled bench sim soak model mutants chaos marathon docs screenshots site interop audit-cluster up clean

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
EXTRAS := audit,control,demo,java,metrics,security,streams,telemetry,testing,dev
TEST_EXTRAS := mutation,pyright,schemas,site
PORT   ?= 9092
SEED   ?=
SCENARIO  ?= everything
SCHEDULES ?= $(if $(filter resize,$(SCENARIO)),1000,500)
DURATION ?= 600
MINUTES ?= 60
SAMPLE ?= 500
FIRST ?= 0
RECORDS ?= 10000000
# The tests start some hundred interpreters, each with a thousand modules: they are compiled once, also where this is off.
# What is installed is compiled there too, when it is first imported: pip would compile all of it, which takes 20 s.
COMPILED := env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX=$(CURDIR)/$(VENV)/pycache
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-compile -c constraints.txt -e
export SPARK_LOCAL_IP ?= 127.0.0.1

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

# Measured on Linux with Python 3.11. PySpark has no wheel: pip unpacks and packs it, which takes a minute by itself.
$(READY): pyproject.toml constraints.txt
	@echo "first, once: pip installs 110 packages into $(VENV). It fetches 690 MB (PySpark alone: 456 MB),"
	@echo "less what its cache has: 9 minutes at 10 Mbit/s, 1 at 100. Then: make $(MAKECMDGOALS)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) '.[$(EXTRAS)]'
	@touch $@
	@echo "$(VENV) is ready. Next: make $(MAKECMDGOALS)"

# The demonstration starts sooner without what only tests and the site need.
$(VENV)/.tests-ready: pyproject.toml constraints.txt
	@echo "first, once: pip installs 150 packages into $(VENV). It fetches 800 MB (PySpark: 456 MB; pyright's Node.js: 62),"
	@echo "less what its cache has: 10 minutes at 10 Mbit/s, 1 at 100. Then: make $(MAKECMDGOALS)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) '.[$(EXTRAS),$(TEST_EXTRAS)]'
	@touch $(READY) $@
	@echo "$(VENV) is ready. Next: make $(MAKECMDGOALS)"

demo: $(READY)  ## the main job: flights resized under fire, audited by Spark, with a report (under 4 minutes)
	@echo "the demonstration: ZooKeeper, three brokers and Spark start, then 336,776 flights; under 4 minutes in all"
	$(COMPILED) $(BIN)/anabranch demo

# Four at once on two processors: Spark, chaos and many of the rest wait for other processes most of the time.
# Tests are compiled once, beside the checks: else each of the four would compile all of them at the same time.
test: $(VENV)/.tests-ready  ## checks, then all tests but the costly ones (9 to 20 minutes on 2 cores)
	@echo "1 of 2: ruff, mypy, import contracts; the tests are compiled meanwhile (a minute, without output until one is done)"
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target check compiled
	@echo "2 of 2: the tests (9 to 20 minutes on 2 cores); \`make test-all\` runs costly ones, too"
	$(COMPILED) $(BIN)/python -m pytest -n 4

test-all: $(VENV)/.tests-ready compiled  ## every test that this machine can run, costly ones too (half an hour on 2 cores)
	$(COMPILED) $(BIN)/python -m pytest -n 4 --costly

test-compiled: $(VENV)/.tests-ready  ## this day's sixth of the tests on a compiled wheel (PART=2/6: another; PART=1/1: all; needs a C compiler)
	$(COMPILED) $(BIN)/python -m tests.compiled_suite $(if $(PART),--part $(PART))

again: $(READY)
	$(COMPILED) $(BIN)/python -m tests.second_run

compiled: $(READY)
	@$(COMPILED) $(BIN)/python -m pytest --collect-only -q | tail -1

check: $(READY)  ## ruff, mypy --strict, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(READY)  ## figures, each beside a peer measured in the same run
	$(BIN)/python -m benchmarks

sim: $(READY)  ## 500 seeded schedules under faults, and every failure of controllers (SEED=n: one, with its story; SCENARIO=resize)
	$(BIN)/python -m tests.sim --scenario $(SCENARIO) $(if $(SEED),$(SEED),--schedules $(SCHEDULES))
ifndef SEED
	ANABRANCH_EVERY_FAILURE=1 $(BIN)/python -m pytest -q -n 2 tests/sim/test_failpoints.py
endif

soak: $(READY)  ## schedules of all protocols, faults and chores for MINUTES=n (60), from the seed FIRST=n, and what they covered
	$(BIN)/python -m tests.sim --scenario swarm --minutes $(MINUTES) --first $(FIRST) --coverage

mutants: $(VENV)/.tests-ready  ## SAMPLE=n (500) changes of the pure cores: which do the tests notice? Goes on where it ended
	$(COMPILED) $(BIN)/python -m tests.mutation --sample $(SAMPLE)

model: $(READY)  ## explicit-state models of resizes, leases and share groups: every state of small instances, every known defect found
	$(BIN)/python -m tests.model

docs: $(READY)  ## write what pages have of the code: the map, the reference, checkers, rules, state diagrams, SUPPORT.md
	$(BIN)/python -m tests.documents
	$(BIN)/python -m anabranch.controller.describe docs/controller.md
	$(BIN)/python -m anabranch.broker.node.support SUPPORT.md

site: $(VENV)/.tests-ready  ## make a searchable site of the pages in out/site; every link is checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

screenshots: $(READY)  ## photograph the dashboard for docs/ and README.md (needs Chromium and its driver)
	$(BIN)/python -m tests.dashboard.screenshots

chaos: $(READY)  ## ten minutes of kills, cuts and expiries on real processes, and a verdict (DURATION=seconds, SEED=n, TOTALS=file)
	$(BIN)/python -m anabranch.chaos run --duration $(DURATION) $(if $(SEED),--seed $(SEED)) $(if $(TOTALS),--totals $(TOTALS))

marathon: $(READY)  ## ten million keyed records through a hundred resizes with kills of every role (RECORDS=n)
	$(BIN)/python -m anabranch.chaos marathon --records $(RECORDS)

interop: $(READY)  ## seven other Kafka clients against processes that get killed, and the matrix of what they can do
	$(BIN)/python -m tests.interop.clients
	ANABRANCH_INTEROP=1 $(BIN)/python -m pytest -m interop

audit-cluster: $(READY)  ## the audit by spark-submit on a standalone cluster of two workers, one of which is killed
	ANABRANCH_SPARK_CLUSTER=1 $(BIN)/python -m pytest -m spark_cluster

up: $(READY)  ## three brokers in one process on 127.0.0.1:9092 (PORT=n for another)
	$(BIN)/anabranch up --port $(PORT)

clean:  ## remove what the targets made
	rm -rf $(VENV) build dist out *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
