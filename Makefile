# Everything a fresh machine needs is made here: a virtual environment with the package and the
# tools, and Java where Debian can install it. `make demo` and `make test` need nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint bench-shard bench-backfill java clean

demo: $(READY)
	$(BIN)/python examples/shop.py

test: $(READY) lint
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench-shard: $(READY)
	$(BIN)/python benchmarks/shard.py

bench-backfill: $(READY)
	$(BIN)/python benchmarks/backfill.py

$(READY): pyproject.toml | java
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $(READY)

# Spark needs a Java runtime, 17 or newer.
java:
	@command -v java >/dev/null || (apt-get update -q && apt-get install -qy openjdk-17-jre-headless)

clean:
	rm -rf $(VENV) build demo dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
