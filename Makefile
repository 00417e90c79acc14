# The project's commands. Each first runs scripts/bootstrap.
.DEFAULT_GOAL := help
PYTHON := .venv/bin/python
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Container images often set it; each of the hundreds of processes in tests would then compile all of its imports.
unexport PYTHONDONTWRITEBYTECODE

NATIVE := $(foreach folder,runtime/native compiler_plugin,"$(folder)/*.cpp" "$(folder)/*.h")

.PHONY: help setup demo demo-llm test-setup test test-all check check-types check-native check-python docs newcomer format bench matrix clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: ## install Debian packages, .venv, the native module and the shipped tools
	@scripts/bootstrap

demo: setup ## build the instr_count tool, instrument kernels, and compare outputs and counts
	@$(PYTHON) examples/demo.py

demo-llm: setup ## run a language model on ROCm 6.4 and count every instruction; makes a root folder of 6 GB with llama.cpp
	@scripts/bootstrap build llm
	@scripts/rocm-stack 6.4 --tests
	@$(PYTHON) examples/language_model/demo.py

test-setup:
	@scripts/bootstrap build dev scons test hip docs

# NumPy's threads for matrices start with a busy loop in each process.
test: export OPENBLAS_NUM_THREADS = 1
test: test-setup ## run the tests, with a fixed covering selection of the largest tables
	@$(PYTHON) -m pytest -q -n auto --dist worksteal $(TESTFLAGS)

test-all: export LUTHIER_TEST_ALL = 1
test-all: export LUTHIER_TEST_SHARD = $(SHARD)
test-all: test ## run all tests; SHARD=3/12: the third of twelve parts

check: setup ## check lint, format, types and the rules of the project
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
	@$(PYTHON) scripts/draw_place.py --check
	@$(PYTHON) scripts/api_reference.py --check
	@.venv/bin/lint-imports --no-cache

docs: setup ## build the web site of the documents and the Python API in build/docs
	@scripts/bootstrap build dev scons docs
	@.venv/bin/sphinx-build -q -W --keep-going -b html -c docs -d build/docs.cache . build/docs
	@echo "open build/docs/index.html"

newcomer: ## run the tutorial in a clean clone, and print the time it takes
	@scripts/newcomer

format: setup ## format the Python and C++ sources; write docs/api.md and the table in docs/tools.md
	@$(PYTHON) -m ruff check --fix-only -q .
	@$(PYTHON) -m ruff format -q .
	@git ls-files $(NATIVE) | xargs .venv/bin/clang-format -i
	@$(PYTHON) scripts/shipped_tools.py
	@scripts/bootstrap build dev scons docs
	@$(PYTHON) scripts/api_reference.py

bench: setup ## run the benchmarks and compare with peers
	@$(PYTHON) benchmarks/run.py

matrix: setup ## run test suites of ROCm's libraries: MATRIX="--release 6.4 --target gfx90a --suite rocRAND"
	@$(PYTHON) benchmarks/run_matrix.py $(MATRIX)

clean: ## remove build products, keep .venv
	@rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
