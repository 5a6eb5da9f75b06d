# Two commands do everything: `make demo` and `make test`.
# Needs python3 (>= 3.10), gcc and iproute2; the rest comes from PyPI.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
RUNS   := $(VENV)/.runs
STAMP  := $(VENV)/.installed
MUTANTS := $(VENV)/.mutants
RELEASE := $(VENV)/.release
DEMO   := build/demo
# Two more than cores: tests wait for labs, jobs and clocks for a quarter of their time.
WORKERS ?= $(shell echo $$(($$(nproc) + 2)))
export PATH := $(abspath $(BIN)):$(PATH)
# Tests are compiled once, not in each process of each run.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all lint types unit docs mutants soak figures gpu
.PHONY: constraints wheels release clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## make .venv and install CloudColl with all it needs

# What users have; contributors' tools come on top.
$(RUNS): setup.cfg setup.py pyproject.toml $(wildcard cloudcoll/*/*.[ch] cloudcoll/*/*/*.[ch] cloudcoll/*/*/*/*.[ch] cloudcoll/*/*/*/*/*.[ch])
	@command -v ip >/dev/null || { echo "make: the lab needs iproute2: apt-get install iproute2" >&2; exit 1; }
	@command -v $${CC:-cc} >/dev/null || { echo "make: a C compiler is needed: apt-get install gcc" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[mpi,report]'
	@touch $@

$(STAMP): $(RUNS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

$(RELEASE): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[release]'
	@touch $@

$(MUTANTS): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[mutants]'
	@touch $@

demo: $(RUNS) ## emulate a data centre, probe it, reorder real MPI ranks, measure the gain
	$(BIN)/python benchmarks/demo.py --output $(DEMO)

test: $(STAMP) ## ruff, mypy --strict and the tests, but for those that are slow
	@$(MAKE) --no-print-directory -j3 lint types unit

test-all: $(STAMP) ## the same with the slow ones
	@$(MAKE) --no-print-directory -j3 lint types unit PYTEST_ARGS='-m "not soak" $(PYTEST_ARGS)'

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

docs: $(STAMP) ## the documents as pages, in build/docs: open build/docs/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

mutants: $(MUTANTS) ## change MODULE=cloudcoll/model/cost.py in small ways: do its tests notice?
	$(BIN)/python tests/mutants.py $(MODULE) $(if $(MOST),--most $(MOST)) $(if $(SEED),--seed $(SEED)) $(if $(TESTS),--tests $(TESTS))

figures: $(STAMP) ## measure what the record lacks of README's and docs' figures; Ctrl-C keeps what is there
	$(BIN)/python -m benchmarks.figures --measure

gpu: $(RUNS) ## NCCL with up to 16 ranks on this machine's GPU, in a lab: build/gpu.json
	@mkdir -p build
	$(BIN)/python benchmarks/gpu --output build/gpu.json $(GPU_ARGS)

soak: $(STAMP) ## matrices, fuzzers and campaigns of faults, for some hours
	$(BIN)/python tests/soak $(SOAK_ARGS)

constraints: $(RELEASE) ## write constraints.txt: the versions that are installed, which tests ran with
	$(BIN)/python .ci/release.py constraints

wheels: $(RELEASE) ## build dist/: the sdist, and wheels for x86_64 and aarch64
	.ci/wheels

release: $(RELEASE) ## VERSION=0.2.0: the changelog's section, commit, tag, dist/; uploads nothing
	$(BIN)/python .ci/release.py tag $(VERSION)
	.ci/wheels

clean: ## remove what the targets above made
	rm -rf $(VENV) build dist *.egg-info cloudcoll/lab/wire cloudcoll/engine/kernel cloudcoll/launch/shim/preload cloudcoll/launch/shim/*/preload cloudcoll/launch/shim/nccl/tuner/plugin
