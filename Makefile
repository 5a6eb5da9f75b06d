# Two commands do everything: `make demo` and `make test`.
# Needs python3 (>= 3.10), gcc and iproute2; the rest comes from PyPI.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
RUNS   := $(VENV)/.runs
STAMP  := $(VENV)/.installed
DEMO   := build/demo
export PATH := $(abspath $(BIN)):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help install demo test lint types unit bench clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## make .venv and install CloudColl with all it needs

# What users have; contributors' tools come on top.
$(RUNS): setup.cfg setup.py pyproject.toml $(wildcard cloudcoll/*/*.[ch] cloudcoll/*/*/*.[ch] cloudcoll/*/*/*/*.[ch])
	@command -v ip >/dev/null || { echo "make: the lab needs iproute2: apt-get install iproute2" >&2; exit 1; }
	@command -v $${CC:-cc} >/dev/null || { echo "make: a C compiler is needed: apt-get install gcc" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[mpi,report]'
	@touch $@

$(STAMP): $(RUNS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

demo: $(RUNS) ## emulate a data centre, probe it, reorder real MPI ranks, measure the gain
	$(BIN)/python benchmarks/demo.py --output $(DEMO)

test: lint types unit ## ruff, mypy --strict and the whole test suite

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

bench: $(STAMP) ## measure what the record lacks of the figures in README and docs (hours)
	$(BIN)/python -m benchmarks.figures --measure

clean: ## remove what the targets above made
	rm -rf $(VENV) build dist *.egg-info cloudcoll/lab/wire cloudcoll/solve/engine/kernel cloudcoll/launch/shim/preload cloudcoll/launch/shim/*/preload
