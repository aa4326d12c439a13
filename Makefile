# make demo, make test: they install what they need, from Python 3.11+ and the package registry.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
AUDIT_VENV ?= .venv-audit
# Most installed modules are never imported: compiling them would take half of the time.
INSTALL := python -m pip install --quiet --disable-pip-version-check --no-compile
CHECKED := src tests stress mutants benchmarks docs/tools

.PHONY: demo test test-all lint benchmarks reproduce stress soak mutants oldest audit-dependencies docs package gpu-test interpreter-test clean

# A CPU build of torch runs the GPU kernels in Triton's interpreter.
TORCH_ON_CPU ?= torch==2.13.0+cpu

demo: $(VENV)/.demo
	$(BIN)/robustmf demo --page demo.html

# The quick tests, under five minutes on two cores.
test: $(VENV)/.dev
	$(BIN)/pytest -n auto --dist worksteal -m "not slow and not gpu and not pages"

# All tests but those of the GPU backend: environments, clusters, stress tests too. The code of the pages of the
# documentation is executed by make docs, and by itself with pytest -m pages.
test-all: $(VENV)/.dev
	$(BIN)/pytest -n auto --dist worksteal -m "not gpu and not pages"

lint: $(VENV)/.dev
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy
	$(BIN)/lint-imports

# The GPU backend on a GPU; without one, in Triton's interpreter.
gpu-test: $(VENV)/.gpu
	$(BIN)/pytest -n auto --dist worksteal -m gpu

# The same in the interpreter, with a CPU build of torch.
interpreter-test: $(VENV)/.interpreter
	$(BIN)/pytest -n auto --dist worksteal -m gpu

# All benchmarks with their records and the page of tables (hours); one: make benchmarks NAME=irls
benchmarks: $(VENV)/.dev
	$(BIN)/python -m benchmarks $(if $(NAME),$(NAME) --record,all)
	$(BIN)/python -m benchmarks tables

# The tables and figures of the paper (hours, resumable), added to the committed records; QUICK=1 runs a small part of
# them anew, under five minutes, with records and report in build/.
reproduce: $(VENV)/.dev
	$(BIN)/python -m benchmarks reproduce --all $(if $(QUICK),--quick --records build/reproduction)
	$(BIN)/python -m benchmarks report $(if $(QUICK),--records build/reproduction --out build/report,--docs)

# Try to break the library: a table of what was tried and what failed, under 20 minutes.
stress: $(VENV)/.dev
	$(BIN)/python -m stress

# An hour of fits, predictions and files; memory, open files and threads must not grow.
soak: $(VENV)/.dev
	$(BIN)/python -m stress.soak --minutes 60

# Deliberate faults in the code, which selected tests must notice (half an hour); one area: make mutants AREA=losses
mutants: $(VENV)/.dev
	$(BIN)/python -m mutants $(AREA) --jobs 2

# The tests with the oldest releases that pyproject.toml allows, in an environment of their own;
# some of them: make oldest TESTS=tests/losses
oldest:
	.ci/oldest $(PYTHON) $(TESTS)

# Known vulnerabilities of the installed packages, by pip-audit in an environment of its own. It needs
# PyPI's own service, or OSV's: make audit-dependencies OSV_URL=https://.../v1/query
audit-dependencies: $(VENV)/.dev $(AUDIT_VENV)/.audit
	@OSV_URL="$(OSV_URL)" $(AUDIT_VENV)/bin/python .ci/audit.py $(BIN)/python

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

package: $(VENV)/.build
	.ci/package $(PYTHON) $(VENV)

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), f"robustmf needs Python 3.11 or newer, this is {sys.version.split()[0]}; try make PYTHON=python3.12"'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml $(VENV)/bin/python
	$(BIN)/$(INSTALL) -e .
	touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/bin/python
	$(BIN)/$(INSTALL) -e '.[dev]'
	touch $@ $(VENV)/.demo

$(VENV)/.docs: pyproject.toml $(VENV)/bin/python
	$(BIN)/$(INSTALL) -e '.[docs]'
	touch $@ $(VENV)/.demo

$(VENV)/.build: $(VENV)/bin/python
	$(BIN)/$(INSTALL) build hatchling
	touch $@

$(VENV)/.gpu: pyproject.toml $(VENV)/.dev
	$(BIN)/$(INSTALL) -e '.[dev,gpu]'
	touch $@

$(VENV)/.interpreter: pyproject.toml $(VENV)/.dev
	$(BIN)/$(INSTALL) '$(TORCH_ON_CPU)' triton
	touch $@

$(AUDIT_VENV)/.audit:
	$(PYTHON) -m venv $(AUDIT_VENV)
	$(AUDIT_VENV)/bin/$(INSTALL) pip-audit
	touch $@

clean:
	rm -rf $(VENV) $(AUDIT_VENV) .venv-oldest demo.html build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
