# `make demo` sets up and runs the main job, `make test` sets up and passes the tests. Both need only Python >= 3.11.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-network check bench bench-check bench-suite clean

demo: $(STAMP)
	$(BIN)/colme run cl_colme
	$(BIN)/colme report results/cl_colme

test: $(STAMP)
	$(BIN)/python -m pytest -n auto

# Also what takes long: neighbors that hang, links that expire, ten minutes of agents that must hardly grow
# (COLME_SOAK_SECONDS=60: one minute). One at a time, for they measure.
test-network: $(STAMP)
	$(BIN)/python -m pytest -m "network or not network" tests/node

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n auto

# Measures everything (a quarter of an hour), writes docs/speed.md, then fails if a ratio dropped by more than a quarter.
bench: $(STAMP)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks --check --from-results

bench-check: $(STAMP)
	$(BIN)/python -m benchmarks --check

bench-suite: $(STAMP)
	$(BIN)/python -m pytest benchmarks --benchmark-only

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev --editable ".[all]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis results
