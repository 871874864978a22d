# Everything a contributor runs. PYTHON may name another interpreter; ci/setup.sh makes the default one.
PYTHON ?= .venv/bin/python
BUILD = $(PYTHON) setup.py -q build_ext --inplace -j 2
unexport PYTHONDONTWRITEBYTECODE  # the tests start many short processes, each of which would compile the package

.PHONY: all help debug check test crash crash-clean crash-spark crash-tables damage mutants soak asan fuzz-server bench bench-counts bench-page bench-spark docs wheels fmt demo clean

all:                    ## compile what changed, in place
	$(BUILD)

help:                   ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | expand -t 16

debug:                  ## the same with bounds checks and line tracing
	KAFKALOG_DEBUG=1 $(BUILD) --force

check: all              ## under three minutes: style, types (by tests/test_sourcecode.py), quick tests
	$(PYTHON) -m ruff check .
	$(PYTHON) -m pytest -q -n 3 --dist loadfile --quick -m "not interop and not slow"

test:                   ## all there is, as on a fresh machine
	bash ci/test.sh

crash: all              ## the crash machine at length: kills, power cuts, failing calls (CRASH_SEED=, CRASH="--kills 50")
	nice $(PYTHON) -m tests.crash.machine $(if $(CRASH_SEED),--seed $(CRASH_SEED)) $(CRASH)

crash-clean: all        ## the same of cleans alone: by hand (1,000 kills), in the background of a store (300)
	nice $(PYTHON) -m tests.crash.machine --only cleans clean_kills stores store_kills $(if $(CRASH_SEED),--seed $(CRASH_SEED)) $(CRASH)

crash-spark: all        ## a stream into the sink, its driver and workers killed twenty times (CRASH="--kills 50 --seed 2")
	nice $(PYTHON) -m tests.spark.kills $(CRASH)

crash-tables: all       ## syncs, restores, redactions and copies, each killed twenty times (KILLS=20)
	KAFKALOG_KILLS=$(or $(KILLS),20) nice $(PYTHON) -m pytest -q tests/lake/test_kills.py \
	    tests/backup/test_kills.py tests/redact/test_kills.py tests/copy/test_kills.py -m crash

damage: all             ## reads of damaged logs against an oracle (DAMAGE="--reads 200000 --seed 7")
	nice $(PYTHON) -m tests.damage.matrix $(DAMAGE)

mutants: all            ## single-point changes of the sources, tried against the tests (PACKAGE=storage, MUTANTS="--count 40 --seed 1")
	nice $(PYTHON) -m tests.mutants --package $(or $(PACKAGE),storage) $(MUTANTS)

soak: all               ## trials of a replica set for two hours (KAFKALOG_SOAK_S=7200, SOAK="--seed 2 --round 60")
	nice $(PYTHON) -m tests.server.replicated.soak $(SOAK)

asan:                   ## the compiled modules under the sanitizers, random bytes included
	bash ci/asan.sh

fuzz-server:            ## a million mutated requests at a server under the sanitizers (FUZZ="--requests 50000 --seed 2")
	bash ci/fuzz_server.sh $(FUZZ)

bench: all              ## the table of speeds, with ratios against peers run in the same call
	$(PYTHON) -m pip install -q --disable-pip-version-check "aiokafka>=0.12" "lmdb>=1.4" asv
	$(PYTHON) -m asv_benchmarks

bench-counts: all       ## instructions of every hot path against the last release (PROFILE=full, BASE=commit)
	bash ci/bench.sh $(or $(PROFILE),quick) $(BASE)

bench-page: all         ## counts this commit for a release: asv's results and pages, docs/benchmarks.md
	$(PYTHON) -m pip install -q --disable-pip-version-check "asv>=0.6.3"
	$(PYTHON) -m asv_benchmarks.counting --record

bench-spark: all        ## Spark's figures beside its own Kafka source on a real broker (ROWS=, GROUPS="one narrow")
	$(PYTHON) -m asv_benchmarks.spark $(GROUPS)

docs:                   ## the site of docs/ into build/site; a warning fails it
	bash ci/docs.sh

wheels:                 ## sdist and wheels of this commit for every target, each checked, into dist/ (WHEELS="cp313 --twice")
	bash ci/build_wheels.sh $(WHEELS)

fmt:                    ## order imports; lines are laid out by hand, so there is no `ruff format`
	$(PYTHON) -m ruff check --fix-only --select I .

demo:                   ## ten million lines through one log (LINES= sets another count)
	bash ci/demo.sh

clean:                  ## remove what builds have made
	rm -rf build dist *.egg-info kafkalog/_core/*.so kafkalog/_core/*/*.so
