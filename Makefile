# Two commands for a new machine: `make demo` and `make test`. Both make .venv and install into it.
TORCH := torch==2.13.0
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# An environment that has torch already keeps it: `make PYTHON=... TORCH=` installs none.

.PHONY: demo test test-avx2 test-delays mutants check matrix amd amd-report campaign pictures benchmarks torch-tests triton clean tools

demo: $(VENV)/.installed
	@$(BIN)/rocm-tui demo
	@echo
	@echo "For these commands, first put rocm-tui on the PATH of this shell:"
	@echo "  export PATH=\"$(CURDIR)/$(BIN):\$$PATH\""

# Half as many again as cores: tests of screens and of terminals wait most of their time.
WORKERS ?= $(shell cores=$$(nproc 2>/dev/null || echo 2); echo $$((cores + (cores + 1) / 2)))

# Compiled before: where Python is told to write no bytecode, each child would compile us anew.
test: $(VENV)/.installed-test
	$(BIN)/python -m compileall -q backend rocm_tui tests/support
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Tests that depend on the vector units of the CPU, once more as one with AVX2 alone runs them: there
# oneDNN has no bf16 or fp16, and Inductor offers other choices.
AVX2_TESTS ?= $(addprefix tests/torch/,inductor/test_avx2_cpu.py inductor/test_result_checks.py worker/test_verify.py \
	jobs/test_weights.py jobs/test_ops.py pins/test_harms_nobody.py pins/test_graph_ops.py hip/test_out.py hip/test_linear.py)
test-avx2: $(VENV)/.installed-test
	TEST_CPU=avx2 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(AVX2_TESTS)

# With delays at random, in which races show: `make test-delays DELAYED=tests/unit/tui`.
DELAYED ?= tests/unit tests/terminal
test-delays: $(VENV)/.installed-test
	$(BIN)/python -m pytest -p tests.delays -n $(WORKERS) --dist loadfile $(DELAYED)

# How many of N small faults the tests notice: `make mutants N=80 SEED=7 JOBS=2`. The seed is drawn
# and printed where none is given. Fails below 85 %.
N ?= 80
JOBS ?= 2
mutants: $(VENV)/.installed-test
	$(BIN)/python -m tests.mutants --number $(N) --jobs $(JOBS) $(if $(SEED),--seed $(SEED)) $(MUTANTS)

check: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Each supported torch, in an environment of its own (some 40 GB): the table of docs/limits.md.
# TORCHES=/folder takes those that are there already: /folder/2.8.0/bin/python and so on.
matrix: $(VENV)/.installed-test
	$(BIN)/python -m tests.matrix $(if $(TORCHES),--torches $(TORCHES)) $(MATRIX)

# Every template's machine code for AMD GPUs, executed: `make amd AMD="--targets gfx942 --every 4"`.
amd: $(VENV)/.installed-test
	$(BIN)/python -W ignore -m tests.amd_executor $(AMD)

# A report from an AMD GPU (docs/amd.md), in an environment with torch for ROCm:
# `make amd-report AMD_PYTHON=/path/to/python REPORT="--minutes 10 --output FILE"`.
AMD_PYTHON ?= $(PYTHON)
amd-report:
	@$(AMD_PYTHON) -m tests.amd $(REPORT)

# Faults of every kind for MINUTES: docs/data/campaign.csv and docs/limits.md. `make campaign ONLY="kills inputs" SEED=7`.
MINUTES ?= 10
campaign: $(VENV)/.installed-test
	$(BIN)/python -m tests.campaign --minutes $(MINUTES) $(if $(ONLY),--only $(ONLY)) $(if $(SEED),--seed $(SEED)) $(if $(WRITE),--write)

pictures: $(VENV)/.installed-test
	$(BIN)/python -m tests.pictures screenshots

benchmarks: $(VENV)/.installed-test
	for script in benchmarks/bench_*.py; do $(BIN)/python $$script; done

# PyTorch's own tests under stock PyTorch, `run` and `run --templates`; nothing is fetched.
# make torch-tests TESTS=/path/to/pytorch/test/inductor TORCH_PYTHON=/path/to/python
TORCH_PYTHON ?= $(BIN)/python
torch-tests: $(VENV)/.installed-test
	@test -n "$(TESTS)" || { echo "make: say which tests: make torch-tests TESTS=/path/to/pytorch/test/inductor" >&2; exit 1; }
	$(BIN)/python -m tests.torch_own $(TESTS) --python $(TORCH_PYTHON)

$(VENV)/.installed: pyproject.toml Makefile | tools
	@echo "1 of 3: creating $(VENV), some 10 seconds"
	@$(PYTHON) -m venv $(VENV) || { echo "make: $(PYTHON) cannot make a virtual environment; install python3-venv" >&2; exit 1; }
	@if $(BIN)/python -W ignore -c "import torch" 2>/dev/null || test -z "$(TORCH)"; then echo "2 of 3: torch is not installed again"; \
	else echo "2 of 3: installing $(TORCH) (200 MB for CPUs, over 2 GB with CUDA), usually 2 to 4 minutes"; \
	$(BIN)/python -m pip install $(TORCH); fi
	@echo "3 of 3: installing rocm-tui and the packages of its screen (20 MB), usually under a minute"
	@$(BIN)/python -m pip install -q -e .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	@echo "installing the packages of the tests, usually 1 to 2 minutes"
	@$(BIN)/python -m pip install -q -e '.[test,pictures]'
	@touch $@

# A second environment for the tests of the Triton template: with triton in the first, Inductor
# would tune otherwise. Without it those tests are skipped.
triton: .venv-triton/.installed

.venv-triton/.installed: $(VENV)/.installed-test
	@echo "creating .venv-triton with triton 3.9.0 (200 MB), usually 1 to 2 minutes"
	$(PYTHON) -m venv .venv-triton
	.venv-triton/bin/python -m pip install -q triton==3.9.0 numpy
	@ours=$$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))"); \
	theirs=$$(.venv-triton/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))"); \
	echo "import site; site.addsitedir('$$ours')" > $$theirs/base.pth
	@touch $@

tools:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { echo "make: Python 3.10 or newer is missing ($(PYTHON)); install python3, or say make PYTHON=/path/to/python3" >&2; exit 1; }
	@command -v g++ >/dev/null || { echo "make: g++ is missing; Inductor compiles its CPU kernels with it: install g++" >&2; exit 1; }

clean:
	rm -rf $(VENV) .venv-triton .venv-torches build dist *.egg-info
