# `make` alone prints what can be made.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
LOG ?= sqlite
PORT ?= 8080
STAMP := .venv/.installed

help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: $(STAMP) ## create .venv with the pinned packages

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

run: setup $(if $(filter kafka,$(LOG)),kafka) ## show it: weather alarms, price bands (LOG=kafka: on a broker, then Spark)
	$(BIN)/python deploy/demo/run.py --log $(LOG) --port $(PORT)

kafka: setup ## start a real broker on 127.0.0.1:9092, fetched into .kafka (Java 17)
	@$(BIN)/python -m deploy.kafka.broker start

jars: setup ## fetch what the tests need of Kafka and Spark, into .kafka
	@$(BIN)/python -m deploy.kafka.broker fetch
	@$(BIN)/python -m spark_connector.jars .kafka/spark-jars

kafka-stop: ## end that broker
	@$(BIN)/python -m deploy.kafka.broker stop

test: setup jars ## run everything: lint, types, imports, all tests on a real broker, Spark and Prometheus
	$(MAKE) --no-print-directory lint
	$(BIN)/python -m tests.kernels
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --durations 15

check: setup lint ## the fast part: lint, types, imports, unit tests
	$(BIN)/python -m pytest -q tests/unit tests/engine tests/runtime tests/index/test_contract.py

soak: setup jars ## the nightly run: memory under churn (CHURN= minutes, 10); then a million random operations on the engine against its oracle (SEED=, FROM=, MINUTES=), an hour or two; then ten minutes without a broker; then half an hour of random kills; then the contract of the indexes without the JIT and with every array access checked
	$(BIN)/python -m tests.faults.churn --minutes $(or $(CHURN),10)
	@$(BIN)/python -m tests.engine.soak $(if $(SEED),--seed $(SEED)) $(if $(FROM),--from $(FROM)) $(if $(MINUTES),--minutes $(MINUTES))
	FAULTS_AWAY_S=600 $(BIN)/python -m pytest -q tests/faults/test_outage.py -k away
	FAULTS_SECONDS=1800 $(BIN)/python -m pytest -q -s tests/faults/test_kills.py
	RANGEWATCH_INDEX_SUITE=small NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q tests/index/test_contract.py -k "not answers_are_of_one_state"
	RANGEWATCH_INDEX_SUITE=small NUMBA_BOUNDSCHECK=1 $(BIN)/python -m pytest -q tests/index/test_contract.py

lint: setup ## format, lint, types, direction of imports
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## format the code
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --fix --quiet .

bench: setup ## measure: all of docs/benchmarks anew, what features cost the others, from Kafka to Kafka against a bare pass-through, the start with a large file, and very large changes
	$(BIN)/rangewatch bench --out docs/benchmarks
	$(BIN)/python -m tests.bench.bench_features
	$(BIN)/python -m tests.bench.bench_formats
	$(BIN)/python -m tests.bench.bench_throughput
	$(BIN)/python -m tests.bench.bench_workers
	$(BIN)/python -m tests.bench.bench_ready
	$(BIN)/python -m tests.bench.bench_huge

audit: ## look the locked packages up in the advisories (needs a network)
	$(PYTHON) -m venv .venv/audit
	.venv/audit/bin/python -m pip install --quiet --require-hashes --requirement deploy/audit-requirements.lock
	.venv/audit/bin/pip-audit --strict --progress-spinner off --disable-pip --require-hashes --requirement requirements.lock

COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

lock: ## pin the packages anew, with hashes
	$(COMPILE) --all-extras --output-file requirements.lock pyproject.toml deploy/build-requirements.in
	$(COMPILE) --output-file deploy/audit-requirements.lock deploy/audit-requirements.in

.PHONY: help setup run kafka kafka-stop jars test check soak lint format bench audit lock
