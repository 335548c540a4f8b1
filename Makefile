# Everything a developer or a CI machine runs. `make` alone lists it.

PY := .venv/bin/python
UV := .venv/bin/uv
CAN_SERVE := .venv/can-serve
READY := .venv/ready
JS_READY := sdk_js/node_modules/ready
JS_BUILT := sdk_js/dist/ready
DEMO_BUILT := sdk_js/demo/dist/ready

# The cache lives with the environment, so that the wheel tests can install offline from it.
export UV_CACHE_DIR := $(CURDIR)/.venv/uv-cache

STARTED := $(shell date +%s)
step = @printf '\n== %s\n' '$(1)'

# The servers themselves are started by those who need them: see tools/services.
define install-services
@tools/install-debian java openjdk-17-jre-headless
@tools/install-debian mvn maven
@tools/install-debian redis-server redis-server
endef

# Clients in JavaScript, a clock that jumps, and hosts of a network.
define install-cluster
@tools/install-debian node nodejs npm
@tools/install-debian cc gcc libc6-dev
@tools/install-debian ip iproute2
endef

.PHONY: help setup serve demo test test-waiting test-computing quick check fmt bench bench-core bench-gateway bench-replicated bench-cluster bench-js bench-spark bench-usage bench-pairs sim powerloss faults crash stress outages outages-cluster retention-kills soak services lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

setup: $(READY) ## create .venv with everything that developers need

# What a lock names, checked by hash; then both distributions, editable, built with the hatchling
# just installed. A server needs little of what developers do: it has a lock of its own, with the
# same versions.
install = $(UV) pip install --quiet --python $(PY)
install-editable = $(install) --no-deps --no-build-isolation -e sdk_py -e .

$(CAN_SERVE): pyproject.toml sdk_py/pyproject.toml requirements-serve.lock
	$(call step,setup of the server)
	@test -x $(UV) || tools/bootstrap
	$(install) --require-hashes -r requirements-serve.lock
	$(install-editable)
	@touch $@

$(READY): $(CAN_SERVE) requirements-dev.lock
	$(call step,setup for developers)
	$(install) --exact --require-hashes -r requirements-dev.lock
	$(install-editable)
	@touch $@

# The JavaScript SDK's tools, exactly as the lock names them, and what it is published as.
$(JS_READY): sdk_js/package.json sdk_js/package-lock.json
	$(call step,setup of the JavaScript SDK)
	@tools/install-debian node nodejs npm
	cd sdk_js && npm ci --silent --ignore-scripts
	@touch $@

$(JS_BUILT): $(JS_READY) $(shell find sdk_js/src sdk_js/scripts -type f) $(wildcard sdk_js/tsconfig*)
	cd sdk_js && npm run --silent build
	@touch $@

# The page of the demo, which loads the SDK's bundle.
$(DEMO_BUILT): $(JS_BUILT) $(shell find sdk_js/demo -type f -not -path '*/dist*') sdk_js/scripts/demo.mjs
	cd sdk_js && npm run --silent demo
	@touch $@

serve: $(CAN_SERVE) ## run the server; installs only what it needs
	.venv/bin/pushlane serve

demo: $(CAN_SERVE) $(DEMO_BUILT) ## run a server and a page that shows it at work; PORT=8430 DATA=folder
	@exec $(PY) -m tools.demo $(if $(PORT),--port $(PORT)) $(if $(DATA),--data $(DATA))

.PHONY: demo-cluster
demo-cluster: setup $(DEMO_BUILT) ## the same on a cluster, on a Cassandra and a Redis; NODES=3 PORT=8430 DATA=folder
	$(install-services)
	@exec $(PY) -m tools.demo --nodes $(or $(NODES),3) $(if $(PORT),--port $(PORT)) \
		$(if $(DATA),--data $(DATA))

.PHONY: cluster
cluster: setup ## run servers on a Cassandra and a Redis; NODES=3 RING=3 PORT=8420 FOLDER=folder
	$(install-services)
	@exec $(PY) -m tools.cluster $(if $(NODES),--nodes $(NODES)) $(if $(RING),--ring $(RING)) \
		$(if $(PORT),--port $(PORT)) $(if $(FOLDER),--folder $(FOLDER))

.PHONY: package
package: $(CAN_SERVE) $(JS_BUILT) ## build wheels, sdists and the npm package into dist/
	@$(PY) -m tools.package

# Cassandra's jars are fetched when they are first needed.
services: setup ## run Cassandra and Redis; CASSANDRA_PORT=9042 REDIS_PORT=6379 RING=3
	$(install-services)
	@exec $(PY) -m tools.services $(if $(RING),--ring $(RING)) \
		$(if $(CASSANDRA_PORT),--cassandra-port $(CASSANDRA_PORT)) \
		$(if $(REDIS_PORT),--redis-port $(REDIS_PORT))

test: check $(DEMO_BUILT) ## check, then run all tests
	$(install-services)
	$(install-cluster)
	@tools/install-debian chromium chromium
	$(call step,tests of the core: they alone must cover it)
	$(PY) -m pytest -n 2 --cov --cov-report=term tests/dispatcher/core
	$(call step,all other tests)
	$(PY) -m tools.retrying -n 4 --dist worksteal --durations=15 --ignore=tests/dispatcher/core --ignore=tests/outages --ignore=tests/spark
	$(call step,what mostly waits; what computes beside it is shown afterwards)
	@tools/side-by-side 'make --no-print-directory test-waiting' 'make --no-print-directory test-computing'
	@printf '\n== all passed in %s s\n' $$(( $$(date +%s) - $(STARTED) ))

# The last two parts of `make test`: they run side by side.
test-waiting: setup $(DEMO_BUILT) ## part of test: the JavaScript SDK, crashes, stress, outages
	$(call step,the JavaScript SDK)
	cd sdk_js && npm run --silent test
	$(call step,crashes)
	$(PY) -m tests.crash --rounds 8 --stops 2
	$(call step,stress)
	$(PY) -m tests.stress --minutes 1
	$(call step,outages of Cassandra Redis and gateways)
	$(PY) -m tools.retrying --times 1 tests/outages

test-computing: setup ## part of test: the Spark jobs, power loss, failing disks, the simulation
	$(call step,the Spark jobs)
	$(PY) -m tools.retrying -n 2 --durations=15 --dist loadfile --no-loadscope-reorder tests/spark
	$(call step,power loss)
	$(PY) -m tests.powerloss
	$(call step,failing disks)
	$(PY) -m tests.faults
	$(call step,the simulation)
	$(PY) -m tests.simulation

# Only what needs no service and starts no process: see tests/quick.py.
quick: check ## the daily round: check, the core, all fast tests, 200 seeds; under 4 minutes
	$(call step,tests of the core: they alone must cover it)
	$(PY) -m pytest -n 2 -q --cov --cov-report=term tests/dispatcher/core
	$(call step,the fast ones of all other tests)
	$(PY) -m pytest -n 2 -q -p tests.quick --ignore=tests/dispatcher/core --ignore=tests/simulation --ignore=tests/spark
	$(call step,the simulation)
	$(PY) -m tests.simulation --seeds 200 --store memory
	@printf '\n== all passed in %s s\n' $$(( $$(date +%s) - $(STARTED) ))

check: setup $(JS_READY) ## formatting, lint, types and import contracts
	$(call step,format)
	.venv/bin/ruff format --check .
	$(call step,lint)
	.venv/bin/ruff check .
	$(call step,import contracts)
	.venv/bin/lint-imports --no-logo
	$(call step,JavaScript; types of Python beside it)
	@tools/side-by-side 'cd sdk_js && npm run --silent check' .venv/bin/mypy

fmt: setup $(JS_READY) ## format, and fix what can be fixed
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .
	cd sdk_js && npm run --silent format

bench: bench-core bench-gateway bench-replicated bench-cluster bench-js bench-spark bench-usage ## run all benchmarks

bench-core: setup ## benchmark the dispatcher's core and the embedded store
	$(PY) -m bench.core
	$(PY) -m bench.embedded

bench-gateway: setup ## benchmark the server beside other queues; QUICK=1, ONLY="pushlane idle"
	@tools/install-debian node nodejs npm
	$(PY) -m bench.gateway $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

bench-replicated: setup ## benchmark the server on Cassandra and Redis; QUICK=1, ONLY="rate opening"
	$(install-services)
	@tools/install-debian node nodejs npm
	$(PY) -m bench.replicated $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

bench-cluster: setup ## benchmark failover and forwarding; QUICK=1, ONLY="kill cost"
	$(install-services)
	$(PY) -m bench.cluster $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

bench-usage: setup ## benchmark what counting usage costs
	@tools/install-debian node nodejs npm
	$(PY) -m bench.usage

bench-pairs: setup ## compare with an earlier commit in pairs of runs; BASE=commit, PAIRS=5
	@tools/install-debian node nodejs npm
	$(PY) -m bench.pairs $(or $(BASE),HEAD~1) --pairs $(or $(PAIRS),5)

bench-js: setup $(JS_BUILT) ## benchmark the JavaScript SDK beside raw frames and nats.js
	$(PY) -m bench.javascript

bench-spark: setup ## benchmark the Spark jobs on 5,000,000 messages; QUICK=1, ONLY="read audit"
	$(install-services)
	$(PY) -m bench.spark $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

sim: setup ## simulate; SEED=n replays one run, STORE=sqlite|cassandra|cluster
	$(PY) -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(STORE),--store $(STORE))

powerloss: setup ## cut the power of the embedded store, 2,000 times
	@tools/install-debian cc gcc libc6-dev
	$(PY) -m tests.powerloss

faults: setup ## make the disk of the embedded store fail; CASES=n of each seed, SEEDS=n
	@tools/install-debian cc gcc libc6-dev
	$(PY) -m tests.faults $(if $(CASES),--cases $(CASES)) $(if $(SEEDS),--seeds $(SEEDS))

crash: setup ## kill -9 a server under load 100 times, stop it or its clients 20 times; SEED=n
	$(PY) -m tests.crash $(if $(SEED),--seed $(SEED))

stress: setup ## do everything at random to a server that is killed, for MINUTES (15); SEED=n
	$(PY) -m tests.stress --minutes $(or $(MINUTES),15) $(if $(SEED),--seed $(SEED))

outages: setup ## break Cassandra, Redis and gateways under load; TIMES=3 each, SEED=n
	$(install-services)
	$(PY) -m tests.outages $(if $(TIMES),--times $(TIMES)) $(if $(SEED),--seed $(SEED))
	$(PY) -m tests.outages --plants

outages-cluster: setup $(JS_BUILT) ## break a cluster for MINUTES (10); SEED=n; LONG=1 as root
	$(install-services)
	$(install-cluster)
	$(PY) -m tests.outages --cluster $(if $(LONG),--long --times 1) \
		--minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))
	$(PY) -m tests.outages --cluster --plants

retention-kills: setup ## kill the retention job KILLS (10) times on each store beside load; SEED=n
	$(install-services)
	RETENTION_KILLS=$(or $(KILLS),10) $(if $(SEED),RETENTION_SEED=$(SEED)) $(PY) -m pytest -q tests/spark/retaining/test_kill.py

soak: setup $(JS_BUILT) ## simulate, break a cluster: MINUTES (10) each; all crashes
	$(install-services)
	$(install-cluster)
	$(PY) -m tests.simulation --minutes $(or $(MINUTES),10) $(if $(STORE),--store $(STORE))
	$(PY) -m tests.crash --seed $$(date +%s)
	$(PY) -m tests.outages --cluster --long --times 1 --minutes $(or $(MINUTES),10) --seed $$(date +%s)
	ALL_PLACES=1 $(PY) -m tools.retrying -n 2 --dist worksteal tests/behaviour
	$(call step,whole clusters in the simulation)
	$(PY) -m tests.simulation --store cluster --first 1000 --seeds 1000

# The second lock takes its versions from the first.
compile = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-emit-package pushlane

lock: setup ## write both lock files again; UPGRADE=1 takes the newest versions
	$(compile) $(if $(UPGRADE),--upgrade) --all-extras --group dev \
		--output-file requirements-dev.lock pyproject.toml
	$(compile) --constraint requirements-dev.lock --group build \
		--output-file requirements-serve.lock pyproject.toml

clean: ## remove everything that make created
	rm -rf .venv .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	rm -rf dist sdk_py/dist sdk_js/dist sdk_js/demo/dist sdk_js/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
