# Everything a person or CI does here. `make` alone lists it.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
TESTS ?=
unexport PYTHONDONTWRITEBYTECODE  # hundreds of processes start here, in half the time with bytecode

.PHONY: help setup demo test test-of browser kernels check soak fuzz lint types bench bench-check pages windows lock clean

help:                ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 10

setup: $(READY)      ## a virtual environment from the lock file, and a Java runtime found or provided

$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "nearcast needs Python 3.11 or newer; none was found on PATH"; exit 1; }
	@echo "setting up $(VENV) with $$($(PYTHON) --version)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m nearcast.spark.java
	@touch $@

demo: $(READY)       ## a generated city on Spark, served, on a live map; without Spark: EMBEDDED=1
	@$(BIN)/nearcast demo $(if $(EMBEDDED),--embedded)

test: browser check  ## set up, then everything CI runs

browser:             # for tests of the live map: found, or installed where that may be done
	@tools/browser.sh

$(VENV)/spark.jsa: $(READY)
	@$(BIN)/python tools/spark_classes.py $@

kernels: $(READY)
	@$(BIN)/nearcast warmup

check: lint          ## format, lint, types, tests, doctests
	@$(MAKE) --no-print-directory -j 3 kernels types $(VENV)/spark.jsa
	@$(BIN)/python -m pytest -n 3 --dist loadgroup $(TESTS)   # more than cores: Spark and browsers often wait

P ?= engine
test-of: $(READY)    ## the doctests and tests of one package: make test-of P=partition
	@$(BIN)/python -m pytest -n 2 --dist loadgroup src/nearcast/$(P) tests/$(P)

KILLS ?= 24
soak: $(READY)       ## what takes long: kernels uncompiled and with checked bounds, and processes killed KILLS times
	@NEARCAST_SOAK=1 NEARCAST_KILLS=$(KILLS) $(BIN)/python -m pytest -n 2 --dist loadgroup -m soak tests
	@NEARCAST_SOAK=1 NEARCAST_KILLS=$(KILLS) $(BIN)/python -m pytest tests/service/test_serve_command.py tests/cli/test_cli.py
	@NEARCAST_SOAK=1 $(BIN)/python -m pytest -n 2 tests/properties tests/contracts tests/jobs tests/window \
		tests/engine/test_replica_planner.py tests/service/test_spark_backend.py tests/spark/test_served.py

FUZZ_SECONDS ?= 120
fuzz: $(READY)       ## search all parsers and edges for bad input that is not refused, FUZZ_SECONDS of CPU per property; an hour
	@NEARCAST_SOAK=1 NEARCAST_FUZZ_SECONDS=$(FUZZ_SECONDS) $(BIN)/python -m pytest $(or $(TESTS),tests/fuzz)

lint: $(READY)       ## ruff, format and rules
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: $(READY)      ## mypy
	@$(BIN)/mypy

bench: $(READY)      ## measure all questions of experiments/ and generate docs/benchmarks; an hour
	@$(BIN)/python -m experiments all
	@$(BIN)/python -m experiments.pages

bench-check: $(READY)  ## measure the headline again, or NAMES, and compare with the committed data
	@$(BIN)/python -m experiments.check $(NAMES)

pages: $(READY)      ## generate docs/benchmarks and the figures of the README from experiments/data
	@$(BIN)/python -m experiments.pages

windows: $(READY)    ## top-k at the paper's size: 1 M subscriptions, windows of 1 to 4 M; an hour, and 4 GB of memory
	@$(BIN)/python -m experiments topk-windows
	@$(BIN)/python -m experiments.pages topk-windows

lock: $(READY)       ## pin the newest versions again (needs uv)
	uv pip compile pyproject.toml --group dev --extra hypergraph --extra java --extra service --extra spark --universal \
		--python-version 3.11 --upgrade --generate-hashes --no-emit-index-url --no-annotate --no-header \
		-o requirements.lock

clean:               ## remove what setup and the tools made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build src/*.egg-info
