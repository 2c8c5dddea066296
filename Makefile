# Everything a fresh machine needs is made here: a virtual environment with the package and the
# tools, and Java where Debian can install it. `make demo` and `make test` need nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OLDEST := .venv-oldest
# One at a time: it does not wait for its own lock.
APT := flock Makefile apt-get
FEAST := .venv-feast
OLDEST_SPARK := $(shell sed -n 's/^ *"pyspark>=\([0-9.]*\),.*/\1/p' pyproject.toml)

.PHONY: help demo test test-long kernels test-queries test-views test-spark test-processes test-plain test-oldest quick chaos soak-online lint docs rooms stubs bench-shard bench-backfill bench-views bench-http bench-online bench-consistency java jars redis browser maven postgresql installed bench-console clean

demo: $(READY) ## the whole story: a month backfilled, a view, a stream, features served, and the proof
	$(BIN)/python examples/shop.py

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## /  \1@/p' $(MAKEFILE_LIST) | column -t -s @

# First what is not there yet is installed, several things at a time. Then runs side by side: views in
# two of them, all else that needs Spark, each in one session, what starts processes with sessions of
# their own, and what needs no Spark; the last three once the kernels are compiled. A run by itself
# leaves cores idle. The docs are built by a test too.
test: ## lint, types, the docs and all tests: before a change is merged
	$(MAKE) --jobs=4 --output-sync=target installed
	$(MAKE) --jobs=4 --output-sync=target --keep-going kernels test-views test-queries lint test-spark test-processes test-plain

installed: $(READY) $(FEAST)/.ready redis browser jars

# Compiled kernels stay on disk, beside the sources.
kernels: $(READY) ## compile the kernels, by a few examples of tests that use them
	HYPOTHESIS_PROFILE=quick JAVA_HOME=/nowhere $(BIN)/python -m pytest -q -m 'not spark' \
		tests/algebra tests/features tests/rows tests/test_words.py
	$(BIN)/python -c 'from windrow.online import kernels; kernels.load()'

QUERIES := tests/views/test_queries.py tests/views/test_view_plans.py

test-queries: $(READY) ## of those, written queries as views
	$(BIN)/python -m pytest -m spark $(QUERIES)

test-views: $(READY) ## all other tests of views
	$(BIN)/python -m pytest -m spark tests/views $(QUERIES:%=--ignore=%)

test-spark: $(READY) redis browser | kernels ## all others that need a Spark session
	$(BIN)/python -m pytest -m 'spark and not slow' --ignore=tests/views

test-processes: $(READY) redis | kernels ## clusters, kills and examples, in processes of their own
	$(BIN)/python -m pytest -m 'spark and slow' --ignore=tests/views

test-plain: $(READY) redis | kernels ## all that need no Spark
	$(BIN)/python -m pytest -m 'not spark'

# The same with as many random examples as each test says, instead of at most six, or three with Spark; and with
# all written queries and plans, instead of some of each kind.
test-long: $(READY) ## all tests, with as many random examples as each says
	HYPOTHESIS_PROFILE=long $(MAKE) test

# The tests of views with the oldest Spark that pyproject allows, in an environment of its own. Files
# run one by one, each in a session of its own.
test-oldest: $(OLDEST)/.ready ## the tests of views with the oldest Spark
	for file in tests/views/test_*.py; do $(OLDEST)/bin/python -m pytest -q -m spark $$file || [ $$? -eq 5 ] || exit 1; done

# Every test that needs no Spark, each on a few examples; one that starts Spark all the same fails,
# since there is no Java where it looks.
quick: $(READY) redis lint ## lint, types and tests without Spark
	HYPOTHESIS_PROFILE=quick JAVA_HOME=/nowhere $(BIN)/python -m pytest -q -m 'not spark' -n 2 --dist loadfile

# The long campaigns: damage and kills at random. Each ends with a line of JSON that counts outcomes.
chaos: $(READY) redis ## long campaigns of damage, kills and random views
	$(BIN)/python tests/campaigns/damage.py --faults 2500
	$(BIN)/python tests/campaigns/kills.py --kills 120 shards backfills
	$(BIN)/python tests/campaigns/kills.py --kills 240 tables sources
	$(BIN)/python tests/campaigns/stream_kills.py --kills 100
	$(BIN)/python tests/campaigns/stream_kills.py --kills 100 --kafka
	$(BIN)/python tests/campaigns/online_kills.py --kills 100
	$(BIN)/python tests/campaigns/online_kills.py --kills 100 --redis
	$(BIN)/python tests/campaigns/consistency_kills.py --kills 30
	$(BIN)/python tests/campaigns/views_fuzz.py --examples 500

# Ten minutes of requests, half as many as the machine can answer; about a quarter of an hour in all.
soak-online: $(READY) ## serve under load while a stream ingests and uploads swap
	$(BIN)/python tests/campaigns/soak_online.py --seconds 600

lint: $(READY) ## style, types, direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

docs: $(READY) ## the site, in build/docs
	$(BIN)/python -m sphinx -q -W --keep-going docs build/docs
	@echo The site is build/docs/index.html

# The map in docs/rooms.md, drawn from the imports in the code.
rooms: $(READY) ## draw the map of the code
	$(BIN)/python docs/draw_rooms.py

# What editors know of windrow.agg, from the declarations of aggregates.
stubs: $(READY) ## write what editors know of windrow.agg
	$(BIN)/python -m windrow.algebra.stubs src/windrow/agg.pyi

bench-shard: $(READY) ## shards beside other engines
	$(BIN)/python benchmarks/shard.py

bench-backfill: $(READY) ## backfills beside other engines
	$(BIN)/python benchmarks/backfill.py

bench-online: $(READY) $(FEAST)/.ready jars redis ## features online, beside Feast
	$(BIN)/python benchmarks/online.py

bench-consistency: $(READY) ## the consistency job beside the backfill, and what logging costs
	$(BIN)/python benchmarks/consistency.py

bench-views: $(READY) ## views beside Spark
	$(BIN)/python benchmarks/views.py

bench-http: $(READY) ## the server beside a bare echo
	$(BIN)/python benchmarks/http_load.py

bench-console: $(READY) ## the console's pages, with many views and features
	$(BIN)/python benchmarks/console.py

$(READY): pyproject.toml | java
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $(READY)

$(OLDEST)/.ready: pyproject.toml | java
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --upgrade pip
	$(OLDEST)/bin/python -m pip install --quiet --editable '.[test]' 'pyspark==$(OLDEST_SPARK).*'
	touch $@

# Feast, whose own client reads from our server in a test. It wants other versions of what we use.
$(FEAST)/.ready:
	$(PYTHON) -m venv $(FEAST)
	$(FEAST)/bin/python -m pip install --quiet --upgrade pip
	$(FEAST)/bin/python -m pip install --quiet 'feast[redis]==0.67.*'
	touch $@

# Spark needs a Java runtime, 17 or newer.
java:
	@command -v java >/dev/null || ($(APT) update -q && $(APT) install -qy openjdk-17-jre-headless)

# Tests start a Redis server of their own, on a free port. Installing it is not to start another one:
# what packages ask to be started is refused meanwhile.
POLICY := /usr/sbin/policy-rc.d
redis:
	@command -v redis-server >/dev/null || ( \
		[ -e $(POLICY) ] || { printf '#!/bin/sh\nexit 101\n' > $(POLICY); chmod +x $(POLICY); trap 'rm $(POLICY)' EXIT; }; \
		$(APT) update -q && $(APT) install -qy --no-install-recommends redis-server )

# The console is tested in Debian's Chromium. Where it cannot be had, those tests say so.
browser:
	@command -v chromium >/dev/null || ($(APT) update -q && \
		$(APT) install -qy --no-install-recommends chromium) || echo 'no Chromium: no tests of the console'

# Spark's connector to Kafka for streams; Kafka, and Debezium beside PostgreSQL, for their tests. What
# cannot be had is left out: tests that need it say so.
jars: $(READY) maven postgresql
	-@$(BIN)/python tests/online/streams/fetch_jars.py

maven:
	@command -v mvn >/dev/null || ($(APT) update -q && $(APT) install -qy maven) || echo 'no Maven: no tests of Kafka'

postgresql:
	@test -d /usr/lib/postgresql || ($(APT) update -q && $(APT) install -qy postgresql) || echo 'no test of PostgreSQL'

clean: ## remove what was made
	rm -rf $(VENV) $(OLDEST) $(FEAST) build demo dist .pytest_cache .mypy_cache .ruff_cache .hypothesis \
		.import_linter_cache
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
