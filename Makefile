# Every target sets up what it needs in .venv and is fast the second time. `make help` lists them.
#   TF=cpu|gpu   which TensorFlow to install, where .venv has none yet
#   PYTHON=...   which Python makes .venv
#   WORKERS=2    how many tests run at a time
#   ARGS=...     more arguments for pytest or the program that the target runs

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

TF ?= cpu
WORKERS ?= 2
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
LIBRARY := tf_ext/ops/_ops.so
SOURCES := CMakeLists.txt $(shell find cmake custom_ops -name '*.cc' -o -name '*.h' -o -name '*.in' -o -name '*.map' -o -name '*.cmake' -o -name CMakeLists.txt)

PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := $(BIN)/python -m pytest
say = @printf '\033[1m== %s\033[0m\n' "$(1)"

# TensorFlow tells every start about the processor; warnings and errors still come through.
export TF_CPP_MIN_LOG_LEVEL ?= 1

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z][a-z0-9.-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9.-]+):.*## /\1\t/' | expand -t 20

# --- set-up ----------------------------------------------------------------------------------------------------------

$(STAMPS)/venv:
	@command -v g++ >/dev/null || { echo "g++ is needed to build the operators. Install it: apt-get install g++" >&2; exit 1; }
	$(call say,Making $(VENV))
	@python=$$(.ci/find_python) && { [ -x $(BIN)/python ] || "$$python" -m venv $(VENV); }
	@$(PIP) install --upgrade pip
	@mkdir -p $(STAMPS) && touch $@

# An editable install with no library of its own: `make` builds it in the tree, where a change of one C++ file compiles
# one file. Only the path of the tree is kept of it: the import hook that comes with it slows every start of Python, and
# would prefer this tree to the one that a command is run in.
EDITABLE := --no-build-isolation -C wheel.cmake=false -C editable.mode=inplace -e
KEEP_PATH_ONLY := sed -i '/^import/d' $(VENV)/lib/python*/site-packages/_editable_skbc_tf_ext.pth

$(STAMPS)/install: pyproject.toml cmake/tensorflow_requirements.py $(STAMPS)/venv
	$(call say,Installing TensorFlow and what the tests need (minutes the first time))
	@$(PIP) install 'scikit-build-core>=1.1' 'cmake>=3.25' 'ninja>=1.11'
	@extras=test; $(BIN)/python tf_ext/ops/_installed.py | grep -q root || extras=$(TF),test; \
	  $(PIP) install $(EDITABLE) ".[$$extras]"
	@$(KEEP_PATH_ONLY)
	@touch $@

$(STAMPS)/ops: $(SOURCES) $(STAMPS)/install
	$(call say,Building the operators for the installed TensorFlow)
	@$(BIN)/python -m tf_ext.ops.build
	@touch $@

$(STAMPS)/dev $(STAMPS)/docs: $(STAMPS)/%: $(STAMPS)/install
	$(call say,Installing what the target $* needs)
	@$(PIP) install $(EDITABLE) ".[$*]"
	@$(KEEP_PATH_ONLY)
	@touch $@

# A peer in the benchmarks. The build for CPUs where it is to be had: the usual one brings gigabytes for GPUs.
$(STAMPS)/bench: $(STAMPS)/install
	$(call say,Installing PyTorch to compare with, and matplotlib to draw)
	@$(PIP) install 'torch==2.13.0+cpu' 2>/dev/null || $(PIP) install 'torch>=2.5'
	@$(PIP) install matplotlib
	@touch $@

.PHONY: setup
setup: $(STAMPS)/ops ## make .venv, install TensorFlow and the test tools, build the operators

# --- what people run -------------------------------------------------------------------------------------------------

.PHONY: demo demo-recursion demo-tuner demo-lite
demo: $(STAMPS)/ops ## the examples in short: syntax trees of the standard library, a search on digits, networks on a photograph
	$(call say,Recursion: naming functions of the standard library by the trees of their bodies)
	@$(BIN)/python -m examples.ast_names --seconds 40 $(ARGS)
	$(call say,Tuner: twelve schedules for a CNN on handwritten digits; what they have in common is trained once)
	@$(BIN)/python -m examples.digits_schedule --seconds 40
	$(call say,Lite: eight networks at once on a photograph; the picture and a trace are written to build/ar)
	@$(BIN)/python -m examples.ar --seconds 30

demo-recursion: $(STAMPS)/ops ## the example on syntax trees in full
	@$(BIN)/python -m examples.ast_names $(ARGS)

demo-tuner: $(STAMPS)/ops ## the search on digits in full, also with a Keras Tuner that builds each model anew
	@$(BIN)/python -m examples.digits_schedule $(ARGS)

demo-lite: $(STAMPS)/ops ## the networks on a photograph in full
	@$(BIN)/python -m examples.ar $(ARGS)

# pytest ends with 5 where nothing was selected, which is no failure of the second run.
.PHONY: test test-full
test: $(STAMPS)/ops ## run the tests, without the slow ones
	$(call say,Tests)
	@$(PYTEST) -n $(WORKERS) --dist loadfile -q -m 'not slow and not serial' $(ARGS)
	@$(PYTEST) -q -m 'serial and not slow' $(ARGS) || [ $$? = 5 ]

test-full: $(STAMPS)/ops ## run all tests, the slow ones too
	$(call say,All tests)
	@$(PYTEST) -n $(WORKERS) --dist loadfile -q -m 'not serial' $(ARGS)
	@$(PYTEST) -q -m 'serial' $(ARGS) || [ $$? = 5 ]

.PHONY: lint
lint: $(STAMPS)/dev ## ruff and mypy
	$(call say,ruff)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	$(call say,mypy)
	@$(BIN)/mypy

.PHONY: format
format: $(STAMPS)/dev ## let ruff lay out the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: bench
bench: $(STAMPS)/ops ## run the benchmarks; JSON lines
	$(call say,Benchmarks)
	@$(BIN)/python -m benchmarks.recursion $(ARGS)

.PHONY: docs
docs: $(STAMPS)/docs ## build the documentation into site/, warnings are errors
	$(call say,Documentation)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

.PHONY: clean
clean: ## remove what was built; .venv stays
	@rm -rf build dist site $(LIBRARY) tf_ext/lite/_lite.so $(STAMPS)/ops

include .ci/lanes.mk
