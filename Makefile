# `make demo` sets up and runs the main job, `make test` sets up and runs the tests. Both need only Python >= 3.11.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RELEASE := $(VENV)/release

.PHONY: demo test test-all check notebooks bench bench-check bench-suite peers docs release-check clean

demo: $(STAMP)
	$(BIN)/colme run cl_colme
	$(BIN)/colme report results/cl_colme

# One worker per core, each on its own part of the files: neighboring tests use the same compiled kernels.
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal

test: $(STAMP)
	$(PYTEST)

# Also the slow tests, then the network tests one at a time, for they measure: neighbors that hang, links that expire,
# ten minutes of agents that must hardly grow (COLME_SOAK_SECONDS=60: one minute).
test-all: $(STAMP)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --group engines --group docs
	$(PYTEST) -m "not network"
	$(BIN)/python -m pytest -m network tests

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST)

# Runs the notebooks (two minutes) and stores what they print and draw in them.
notebooks: $(STAMP)
	$(BIN)/python -m tests.support.notebooks notebooks/*.ipynb

# Measures everything (a quarter of an hour), writes docs/speed.md, then fails if a ratio dropped by more than a quarter.
# PEER=path make bench: with the AAAI-25 C++ program that is built in this folder, too.
bench: $(STAMP)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks --check --from-results

bench-check: $(STAMP)
	$(BIN)/python -m benchmarks --check

bench-suite: $(STAMP)
	$(BIN)/python -m pytest benchmarks --benchmark-only

# Compares with mixed models and encoders (half an hour of CPU time), goes on after an interruption, writes docs/peers.md.
peers: $(STAMP)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --group peers
	$(BIN)/python -m benchmarks.peers

# Builds the documentation into site/, which works from a folder, and checks every link of it. Warnings are errors.
# The variable silences an advertisement of mkdocs-material.
docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	$(BIN)/python -m tools.site.check_links site

# Builds sdist, wheel and SBOM into dist/, installs the wheel with each extra in clean environments, with the lowest and the
# newest dependencies, on each of python3.11, 3.12 and 3.13 that is on the path, and runs it there (tools/smoke.py).
# ARGUMENTS=--quick: without extras and with all of them, on one Python.
release-check: $(RELEASE)/.installed
	$(RELEASE)/bin/python tools/release_check.py $(ARGUMENTS)

# What builds and checks a release needs nothing of colme, and nothing of colme needs it: an environment of its own.
$(RELEASE)/.installed: pyproject.toml constraints.txt
	test -x $(RELEASE)/bin/python || $(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(RELEASE)/bin/python -m pip install --quiet --no-compile --constraint constraints.txt --group release
	touch $@

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --group dev --editable ".[all]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis results site
