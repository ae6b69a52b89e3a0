# The verbs of this project. `make help` lists them; each one sets up what it needs.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# A process for each processor; what needs the machine for itself stays in one of them (tests/conftest.py).
SIDE_BY_SIDE := --numprocesses=auto --maxprocesses=4 --dist=loadgroup --no-loadscope-reorder
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test quick check fix docs bench lab programs lock clean

help: ## list the verbs
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(READY) ## run the main job against a real API server (KEEP=1 leaves it running)
	@$(BIN)/python -m tests.cluster.demo

test: $(READY) ## run every test, those against a real API server included
	@$(BIN)/python -m tests.programs
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) --cov --cov-report=
	$(BIN)/python -m coverage report --include='webhook/core/*,webhook/rules/*' --fail-under=100

quick: $(READY) ## run the tests that need neither an API server nor a node
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m 'not cluster and not node'

check: $(READY) ## what must hold before a commit: style, types, layers, pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(READY) ## mend what a formatter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY) ## write the pages that are made from code and tables
	@$(BIN)/python -m tests.pages docs

bench: $(READY) ## what a decision costs, and how that grows
	@$(BIN)/python -m benchmarks

lab: $(READY) ## run the experiments on a real node and write docs/lab.md (root, Linux, about five minutes once all programs are built)
	@$(BIN)/python -m tests.lab

programs: $(READY) ## find or build etcd, kube-apiserver, kube-controller-manager and kubectl
	@$(BIN)/python -m tests.cluster.programs

lock: $(READY) ## write the lock files anew from pyproject.toml
	$(BIN)/python -m pip install --quiet 'uv>=0.9,<1'
	$(COMPILE) pyproject.toml -o requirements.lock
	$(COMPILE) --extra traces --constraints requirements.lock pyproject.toml -o requirements-traces.lock
	$(COMPILE) --extra traces --group dev pyproject.toml -o requirements-dev.lock

clean: ## remove what the verbs made in this folder
	rm -rf $(VENV) .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info build

$(READY): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Python 3.11 or newer is needed: install it, or say which one with PYTHON=python3.12' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@
