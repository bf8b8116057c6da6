# Headwater: `make help` says what there is.
PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
STAMP := .venv/.installed

# Spark's workers and our own processes are started again and again: they must not compile everything they import.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo check test prove servers bench soak screenshots lock clean

help: ## this list
	@echo 'Usage: make TARGET [ARGS="options of the command"] [PYTHON=python3.12]'
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  \1\t\2/p' Makefile | expand -t 14

setup: $(STAMP) ## a .venv with the pinned dependencies; quick when nothing changed
	@:

$(STAMP): requirements.lock pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo 'error: Python 3.11 or newer is needed: install it, or name it: make setup PYTHON=python3.12' >&2; exit 2; }
	@{ [ -n "$$JAVA_HOME" ] && [ -x "$$JAVA_HOME/bin/java" ]; } || command -v java >/dev/null || \
		{ echo 'error: Java 17 or newer is needed by Spark: install it (Debian: apt install openjdk-17-jre-headless), or set JAVA_HOME' >&2; exit 2; }
	@rm -f $(STAMP)
	@echo 'installing into .venv (once; Spark is a big download)'
	@"$(PYTHON)" -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --requirement requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

demo: setup ## a live PostgreSQL mirrored into a lake: make demo ARGS="--seconds 20 --dir shop"
	@$(BIN)/python -m headwater demo $(ARGS)

check: setup ## static checks: format, lint, types, import contracts, manifests
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/python -m mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m tools.manifests

test: check ## static checks, then the tests: make test ARGS="-k config"
	@$(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder -m "not long" $(ARGS)

prove: setup ## the tests that take long, and all that may run on Iceberg on it
	@$(BIN)/python -m pytest -m long $(ARGS)
	@echo 'the same promises on Iceberg'
	@HEADWATER_LAKE=iceberg $(BIN)/python -m pytest tests/flow tests/verify tests/proof/test_killed_anywhere.py tests/proof/test_carried_property.py \
		tests/proof/test_replaced_property.py tests/proof/test_fold_property.py tests/proof/test_money.py $(ARGS)

servers: setup ## the tests that depend on PostgreSQL's version, on every version this machine has
	@set -e; for version in $$($(BIN)/python -c 'from headwater.testing.postgres import installed; print(*sorted(installed()))'); do \
		echo "PostgreSQL $$version"; \
		HEADWATER_POSTGRES=$$version $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder \
			tests/source tests/capture tests/copy tests/flow tests/log tests/state tests/verify tests/values tests/supervise tests/status \
			tests/proof/test_carried_property.py tests/proof/test_killed_anywhere.py $(ARGS); \
	done

bench: setup ## measure the speed table of the design
	@$(BIN)/python -m bench $(ARGS)

soak: setup ## run long, break things on purpose, verify at the end
	@$(BIN)/python -m soak $(ARGS)

screenshots: setup ## draw the pictures of the documentation from what the demo prints
	@$(BIN)/python -m tools.screenshots

lock: ## pin the newest dependencies again (needs uv; the only target that does)
	@uv pip compile --quiet --upgrade --universal --python-version 3.11 --all-extras --no-annotate --custom-compile-command "make lock" \
		pyproject.toml --output-file requirements.lock

clean: ## remove .venv and everything that was built
	rm -rf .venv build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
