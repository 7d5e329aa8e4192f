# One command plans, one shows the whole loop (`make demo KEEP=DIR` keeps its folder), one formats,
# one checks everything. `make PYTHON=python3.12 test` picks a Python.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BASE := $(VENV)/.stamp-base
LOOP := $(VENV)/.stamp-loop
DEV := $(VENV)/.stamp-dev
CHECKED := k31ctl tests docs benchmarks demo
# The release that the tests use; where pip finds a build of it for CPUs, it prefers that.
TORCH := torch==2.13.0
# Oracles of which single files are read: what else they require contradicts pyproject.toml.
ALONE := mlx-vlm==0.7.10 nemo-automodel==0.7.0

.PHONY: plan demo test lint format clean

plan: $(BASE)
	$(BIN)/k31ctl plan

demo: $(LOOP)
	@$(BIN)/python -m demo $(if $(KEEP),--keep "$(KEEP)")

# Half of a test is waiting for a process or a server: two workers for each of two cores.
test: lint
	$(BIN)/pytest -n 4 --dist loadfile

lint: $(DEV)
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy --strict k31ctl tests demo
	$(BIN)/lint-imports

format: $(DEV)
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

.PHONY: docs
docs: $(DEV)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find $(CHECKED) -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(BASE): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	$(BIN)/python -m compileall -q k31ctl
	touch $@

$(LOOP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[engine,measure]' $(TORCH)
	$(BIN)/python -m compileall -q k31ctl
	touch $@ $(BASE)

# pip compiles one file after another, for longer than a minute; here every core does.
$(DEV): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[dev,engine,kernels,oracles]'
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --no-deps $(ALONE)
	$(BIN)/python -m compileall -qq --workers 0 $(VENV) || true  # some files need a newer Python
	$(BIN)/python -m compileall -q k31ctl
	touch $@ $(BASE) $(LOOP)
