# make demo, make test: everything else they need they make themselves, from Python 3.11+ and the package registry.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
AUDIT_VENV ?= .venv-audit

.PHONY: demo test lint bench stress soak oldest audit-dependencies docs package gpu-test interpreter-test clean

# a CPU build of torch, which is enough to run the card's kernels in Triton's interpreter; pip must be told where to find one
TORCH_ON_CPU ?= torch==2.13.0+cpu

demo: $(VENV)/.demo
	$(BIN)/robustmf demo --page demo.html

test: $(VENV)/.dev
	$(BIN)/pytest -n auto

lint: $(VENV)/.dev
	$(BIN)/ruff check src tests stress benchmarks docs/tools
	$(BIN)/ruff format --check src tests stress benchmarks docs/tools
	$(BIN)/mypy
	$(BIN)/lint-imports

# the card's operations on a GPU; without one, in Triton's interpreter
gpu-test: $(VENV)/.gpu
	$(BIN)/pytest -n auto -m gpu

# the same in the interpreter, with a CPU build of torch: CI's way
interpreter-test: $(VENV)/.interpreter
	$(BIN)/pytest -n auto -m gpu

bench: $(VENV)/.dev
	$(BIN)/robustmf bench mm

# try to break it: a table of what was tried and what failed, under 20 minutes
stress: $(VENV)/.dev
	$(BIN)/python -m stress

# an hour of fits, predictions and files; memory, open files and threads must not grow
soak: $(VENV)/.dev
	$(BIN)/python -m stress.soak --minutes 60

# the tests with the oldest release of everything that pyproject.toml allows, in an environment of its own (.venv-oldest);
# some of them: make oldest TESTS=tests/test_losses.py
oldest:
	.ci/oldest $(PYTHON) $(TESTS)

# known weaknesses of what is installed, by pip-audit, which has an environment of its own; needs PyPI's own service, which mirrors do not
# offer, or OSV's, which may be a mirror: make audit-dependencies OSV_URL=https://.../v1/query
audit-dependencies: $(VENV)/.dev $(AUDIT_VENV)/.audit
	@OSV_URL="$(OSV_URL)" $(AUDIT_VENV)/bin/python .ci/audit.py $(BIN)/python

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

package: $(VENV)/bin/python
	.ci/package $(PYTHON) $(VENV)

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), f"robustmf needs Python 3.11 or newer, this is {sys.version.split()[0]}; try make PYTHON=python3.12"'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[plot]'
	touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@ $(VENV)/.demo

$(VENV)/.docs: pyproject.toml $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $@ $(VENV)/.demo

$(VENV)/.gpu: pyproject.toml $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,gpu]'
	touch $@

$(VENV)/.interpreter: pyproject.toml $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check '$(TORCH_ON_CPU)' triton
	touch $@

$(AUDIT_VENV)/.audit:
	$(PYTHON) -m venv $(AUDIT_VENV)
	$(AUDIT_VENV)/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	touch $@

clean:
	rm -rf $(VENV) $(AUDIT_VENV) .venv-oldest demo.html build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
