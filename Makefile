# The commands of the project. Each sets up what it needs first (scripts/bootstrap).
.DEFAULT_GOAL := help
PYTHON := .venv/bin/python
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Container images often set it: each of the hundreds of processes that tests start would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

NATIVE := $(foreach folder,runtime/native compiler_plugin,"$(folder)/*.cpp" "$(folder)/*.h")

.PHONY: help setup demo demo-llm test-setup test test-all check check-types check-native check-python docs newcomer format bench matrix clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: ## Debian packages, .venv, native module, the shipped tools
	@scripts/bootstrap

demo: setup ## build the instr_count tool, instrument real kernels, prove outputs and counts equal
	@$(PYTHON) examples/demo.py

demo-llm: setup ## let a language model talk above ROCm 6.4, every instruction counted; makes a root of 6 GB with llama.cpp
	@scripts/bootstrap build llm
	@scripts/rocm-stack 6.4 --tests
	@$(PYTHON) examples/language_model/demo.py

test-setup:
	@scripts/bootstrap build dev scons test hip docs

# Threads of NumPy's for matrices wait in a loop when they start, in each of the processes that tests start.
test: export OPENBLAS_NUM_THREADS = 1
test: test-setup ## run the tests, of the largest tables a fixed part in which all values meet
	@$(PYTHON) -m pytest -q -n auto --dist worksteal $(TESTFLAGS)

test-all: export LUTHIER_TEST_ALL = 1
test-all: export LUTHIER_TEST_SHARD = $(SHARD)
test-all: test ## run all the tests; SHARD=3/12: the third of twelve parts

check: setup ## lint, format, types, rules of the house
	@scripts/bootstrap build dev scons docs
	@$(MAKE) --no-print-directory --keep-going --output-sync -j2 check-types check-native check-python

check-types:
	@$(PYTHON) -m mypy

check-native:
	@git ls-files $(NATIVE) | xargs .venv/bin/clang-format --dry-run -Werror
	@$(PYTHON) scripts/lint_native.py

check-python:
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) scripts/house_rules.py
	@$(PYTHON) scripts/size_budget.py
	@$(PYTHON) scripts/draw_packages.py --check
	@$(PYTHON) scripts/api_reference.py --check
	@.venv/bin/lint-imports --no-cache

docs: setup ## make a site of the documents and the Python API, in build/docs
	@scripts/bootstrap build dev scons docs
	@.venv/bin/sphinx-build -q -W --keep-going -b html -c docs -d build/docs.cache . build/docs
	@echo "open build/docs/index.html"

newcomer: ## do what the tutorial says in a clean clone, and tell how long it took
	@scripts/newcomer

format: setup ## format the Python and C++ sources, make the list of tools in docs/tools.md and docs/api.md
	@$(PYTHON) -m ruff check --fix-only -q .
	@$(PYTHON) -m ruff format -q .
	@git ls-files $(NATIVE) | xargs .venv/bin/clang-format -i
	@$(PYTHON) scripts/shipped_tools.py
	@scripts/bootstrap build dev scons docs
	@$(PYTHON) scripts/api_reference.py

bench: setup ## run the benchmarks, with ratios against peers
	@$(PYTHON) benchmarks/run.py

matrix: setup ## run test suites of others above stacks of ROCm: MATRIX="--release 6.4 --target gfx90a --suite rocRAND"
	@$(PYTHON) benchmarks/run_matrix.py $(MATRIX)

clean: ## remove build products, keep .venv
	@rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
