# Everything a newcomer needs: `make demo` and `make test` set up what they use.
#
# All paths are relative, so the folder may lie anywhere, spaces included. Each stamp
# file in .venv says that one set of packages is installed; it is renewed when
# pyproject.toml changes.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
# Hundreds of processes start in the tests: each would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE
# TensorFlow's notices about instruction sets and missing GPUs help nobody here.
export TF_CPP_MIN_LOG_LEVEL ?= 3

.DEFAULT_GOAL := help
.PHONY: help demo examples time-examples test test-all test-browsergym test-nemo test-openenv test-rllib test-sb3 \
  test-skyrl test-text-games test-trl test-verifiers check lint types docs bench measure tf-agents soak clean

help:
	@echo "make demo      step environments, kill a worker, and learn to walk to a goal"
	@echo "make examples  run all examples, and write examples/README.md with their times"
	@echo "make test      run the test suite"
	@echo "make test-all  the same, and what needs torch, JAX and others, which are large; parts"
	@echo "               of it are test-sb3, test-rllib, test-openenv, test-verifiers,"
	@echo "               test-trl, test-skyrl, test-nemo, test-browsergym and test-text-games,"
	@echo "               each with an environment of its own"
	@echo "make check     formatting, lint, types and docs"
	@echo "make bench     run the benchmarks on a quiet machine, beside other libraries, and write"
	@echo "               benchmarks/RESULTS.md: half an hour with what there is to install"
	@echo "make soak      a million steps amid kills, pauses, forks and floods, and another million"
	@echo "               whose environments continue after kills; and a thousand episodes amid"
	@echo "               kills behind every door: minutes; all must hold. The number of episodes"
	@echo "               is that of ENVKIT_LOST_EPISODES, in make test and make test-all, too"
	@echo "make clean     remove .venv and everything that was built"
	@echo "Another interpreter: make PYTHON=python3.12 test"

demo: $(VENV)/.demo
	@mkdir -p demo_output
	@cd demo_output && "../$(RUN)" ../examples/demo.py
	@cd demo_output && "../$(RUN)" ../examples/dqn_tensorflow.py

# In an environment of its own, with PyTorch, TensorFlow and Ray.
examples:
	@$(MAKE) --no-print-directory VENV="$(VENV)-examples" time-examples

time-examples: $(VENV)/.examples
	@"$(RUN)" tools/time_examples.py

# Several files at a time, in the order of tests/conftest.py: TensorFlow cannot compile
# in a process in which OpenGL without a graphics card has drawn. More than a machine of
# two processors has: nearly half of it is waiting for processes to start and to end.
AT_A_TIME := --dist=loadfile --no-loadscope-reorder --numprocesses

# Two runs: a process that has loaded TensorFlow and games takes twenty times as long to
# fork a worker, and every process loads what its run collects. What looks at all modules
# of envkit, or at all that users write, loads TensorFlow, too.
LOADING := architecture coming_from docs exported_names forgotten_imports tutorial typing_tests
LARGE_TESTS := tests/tf tests/torch tests/jax tests/adapters $(LOADING:%=tests/test_%.py)
LARGE_TESTS += tests/lost/test_tensorflow.py tests/lost/test_torch.py
LARGE := $(LARGE_TESTS) envkit docs README.md
SMALL := tests $(LARGE_TESTS:%=--ignore=%)

# Both runs, even if something fails in the first one. Nothing is run twice.
test: $(VENV)/.test
	@look() { "$(RUN)" -m pytest -m "not heavy" "$$@"; }; \
	failed=0; \
	look $(AT_A_TIME)=4 $(SMALL) || failed=1; \
	look $(AT_A_TIME)=3 $(LARGE) || failed=1; \
	exit $$failed

# The build of PyTorch for processors alone is a tenth of that with CUDA.
TORCH_INDEX := https://download.pytorch.org/whl/cpu

# Some tests need libraries that are too large for every run, and are skipped without;
# here a library that is missing is a failure. And some of the others are too slow for
# every run: they are marked "heavy".
# PLE is in no registry: make test-all PLE=path names a checkout to test with.
test-all: $(VENV)/.test-all
	@"$(RUN)" -m pytest --nothing-missing $(AT_A_TIME)=4 $(SMALL)
	@"$(RUN)" -m pytest --nothing-missing $(AT_A_TIME)=3 $(if $(PLE),--ple="$(PLE)") $(LARGE)
	@$(MAKE) --no-print-directory VENV="$(VENV)-sb3" test-sb3
	@$(MAKE) --no-print-directory VENV="$(VENV)-rllib" test-rllib
	@$(MAKE) --no-print-directory VENV="$(VENV)-openenv" test-openenv
	@$(MAKE) --no-print-directory VENV="$(VENV)-verifiers" test-verifiers
	@$(MAKE) --no-print-directory VENV="$(VENV)-trl" test-trl
	@$(MAKE) --no-print-directory VENV="$(VENV)-skyrl" test-skyrl
	@$(MAKE) --no-print-directory VENV="$(VENV)-nemo" test-nemo
	@$(MAKE) --no-print-directory VENV="$(VENV)-browsergym" test-browsergym
	@$(MAKE) --no-print-directory VENV="$(VENV)-text-games" test-text-games

# What Stable-Baselines3 asks for, PyTorch and versions of others, is no concern of theirs.
test-sb3: $(VENV)/.test-sb3
	@"$(RUN)" -m pytest tests/adapters/sb3_checks.py tests/lost/test_sb3.py \
	  tests/test_examples.py::test_stable_baselines3_learns

# Nor is the one version of Gymnasium that RLlib asks for.
test-rllib: $(VENV)/.test-rllib
	@"$(RUN)" -m pytest tests/adapters/rllib_checks.py

# Nor what OpenEnv's package asks for: gradio, openai and many others.
test-openenv: $(VENV)/.test-openenv
	@"$(RUN)" -m pytest tests/remote/openenv_checks.py tests/lost/test_openenv.py

# Nor what the trainer verifiers asks for, which needs Python 3.11: with an older one they
# are skipped. For each reply of a model it starts a program, so they take minutes.
test-verifiers: $(VENV)/.test-verifiers
	@"$(RUN)" -m pytest -o faulthandler_timeout=3600 tests/remote/verifiers_checks.py \
	  tests/sessions/verifiers_checks.py

# Nor the versions of PyTorch and transformers that TRL asks for.
test-trl: $(VENV)/.test-trl
	@"$(RUN)" -m pytest tests/sessions/trl_checks.py

# Nor what SkyRL's environments ask for. SkyRL's own generator plays them too, where SkyRL
# is installed.
test-skyrl: $(VENV)/.test-skyrl
	@"$(RUN)" -m pytest tests/sessions/test_skyrl.py tests/sessions/skyrl_checks.py

# Nor what NeMo Gym asks for, which needs Python 3.13.14: with an older one they are skipped.
test-nemo: $(VENV)/.test-nemo
	@"$(RUN)" -m pytest tests/sessions/nemo_checks.py

# Nor the one version of Playwright that BrowserGym asks for. Without a Chromium they are
# skipped.
test-browsergym: $(VENV)/.test-browsergym
	@"$(RUN)" -m pytest tests/adapters/browsergym_checks.py

# Nor the one version of Gymnasium that NLE asks for. Jericho needs a compiler.
test-text-games: $(VENV)/.test-text-games
	@"$(RUN)" -m pytest tests/adapters/nle_checks.py tests/adapters/jericho_checks.py \
	  tests/adapters/textworld_checks.py docs/adapters/nle.md docs/adapters/textworld.md

check: lint types docs

lint: $(VENV)/.dev
	@"$(RUN)" -m ruff check .
	@"$(RUN)" -m ruff format --check .
	@"$(RUN)" -m codespell_lib .

types: $(VENV)/.dev
	@"$(RUN)" -m mypy

docs: $(VENV)/.docs
	@"$(RUN)" -m sphinx -q -W --keep-going -b html docs docs/_build
	@echo "docs/_build/index.html"

# In environments of its own, with the libraries that envkit is compared with; those that
# do not install are named. ONLY="startup games" runs some, BUSY=1 writes the figures of
# a machine that does other things, too.
bench:
	@$(MAKE) --no-print-directory VENV="$(VENV)-bench-tf-agents" tf-agents || \
	  echo "TF-Agents does not install here, and is left out: it needs Python 3.11 or older"
	@$(MAKE) --no-print-directory VENV="$(VENV)-bench" measure

measure: $(VENV)/.bench
	@"$(RUN)" tools/run_benchmarks.py $(if $(BUSY),--busy) $(ONLY)

tf-agents: $(VENV)/.tf-agents
	@:

soak: $(VENV)/.test
	@"$(RUN)" -m tests.soak.run
	@"$(RUN)" -m tests.soak.replays
	@ENVKIT_LOST_EPISODES=$${ENVKIT_LOST_EPISODES:-1000} "$(RUN)" -m pytest tests/lost

clean:
	rm -rf "$(VENV)" "$(VENV)-examples" "$(VENV)-sb3" "$(VENV)-rllib" "$(VENV)-openenv" "$(VENV)-browsergym" \
	  "$(VENV)-text-games" "$(VENV)-verifiers" "$(VENV)-trl" "$(VENV)-skyrl" \
	  "$(VENV)-nemo"
	rm -rf "$(VENV)"-bench* docs/_build build *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage

# A folder that was moved or copied takes its .venv along, with paths that point back;
# and another interpreter needs packages of its own. Then .venv is made anew.
HOME_NOW := $(CURDIR) $(shell "$(PYTHON)" -c 'import sys; print(*sys.version_info[:3], sys.base_prefix)' 2>/dev/null)
ifneq ($(shell cat $(VENV)/.home 2>/dev/null),$(HOME_NOW))
.PHONY: $(VENV)/.python
endif

$(VENV)/.python:
	@"$(PYTHON)" -c 'import sys; sys.version_info >= (3, 10) or sys.exit("envkit needs Python 3.10 or newer and found " + sys.version.split()[0] + ". Choose one: make PYTHON=python3.12 ...")'
	@echo "Making a virtual environment in $(VENV)"
	@"$(PYTHON)" tools/make_venv.py "$(VENV)"
	@printf '%s\n' "$(HOME_NOW)" > "$(VENV)/.home"
	@touch "$@"

$(VENV)/.demo: $(VENV)/.python pyproject.toml
	@echo "Installing envkit with TensorFlow, Gymnasium and Matplotlib: a minute or more"
	@"$(RUN)" -m pip install -q -e ".[tf,gymnasium,plot]"
	@touch "$@"

$(VENV)/.examples: $(VENV)/.python pyproject.toml
	@echo "Installing what the examples need, PyTorch, TensorFlow and Ray among it"
	@"$(RUN)" -m pip install -q --index-url "$(TORCH_INDEX)" "torch>=2.4" || \
	  echo "PyTorch comes with CUDA then, which takes longer"
	@"$(RUN)" -m pip install -q -e ".[gymnasium,numba,play,plot,ray,sb3,tf,torch]"
	@touch "$@"

# PySC2 asks for pygame, others for pygame-ce, and both are in one folder: where there are
# both, neither is whole. pyproject.toml has what the tests of PySC2 import besides.
$(VENV)/.test: $(VENV)/.python pyproject.toml
	@echo "Installing envkit with its test requirements"
	@if "$(RUN)" -m pip show -q pygame 2>/dev/null; then \
	  "$(RUN)" -m pip uninstall -q -y pygame pygame-ce; fi
	@"$(RUN)" -m pip install -q -e ".[test]"
	@"$(RUN)" -m pip install -q --no-deps "pysc2>=4.0"
	@touch "$@"

$(VENV)/.test-all: $(VENV)/.test
	@echo "Installing what the heavy tests need"
	@"$(RUN)" -m pip install -q --index-url "$(TORCH_INDEX)" "torch>=2.4" || \
	  echo "PyTorch comes with CUDA then, which takes longer"
	@"$(RUN)" -m pip install -q -e ".[test-all]"
	@touch "$@"

$(VENV)/.test-sb3: $(VENV)/.python pyproject.toml
	@echo "Installing Stable-Baselines3, with PyTorch"
	@"$(RUN)" -m pip install -q -e ".[test-sb3]"
	@touch "$@"

$(VENV)/.test-rllib: $(VENV)/.python pyproject.toml
	@echo "Installing RLlib, with PyTorch"
	@"$(RUN)" -m pip install -q --index-url "$(TORCH_INDEX)" "torch>=2.4" || \
	  echo "PyTorch comes with CUDA then, which takes longer"
	@"$(RUN)" -m pip install -q -e ".[test-rllib]"
	@touch "$@"

$(VENV)/.test-browsergym: $(VENV)/.python pyproject.toml
	@echo "Installing BrowserGym, with Playwright"
	@"$(RUN)" -m pip install -q -e ".[test-browsergym]"
	@touch "$@"

$(VENV)/.test-text-games: $(VENV)/.python pyproject.toml
	@echo "Installing TextWorld, Jericho and NLE, with spaCy"
	@"$(RUN)" -m pip install -q -e ".[test-text-games]"
	@touch "$@"

$(VENV)/.test-openenv: $(VENV)/.python pyproject.toml
	@echo "Installing OpenEnv, with gradio and others"
	@"$(RUN)" -m pip install -q -e ".[test-openenv]"
	@touch "$@"

$(VENV)/.test-verifiers: $(VENV)/.python pyproject.toml
	@echo "Installing the trainer verifiers, with OpenEnv, transformers and others"
	@"$(RUN)" -m pip install -q -e ".[test-verifiers]"
	@touch "$@"

$(VENV)/.test-trl: $(VENV)/.python pyproject.toml
	@echo "Installing the trainer TRL, with PyTorch and transformers"
	@"$(RUN)" -m pip install -q --index-url "$(TORCH_INDEX)" "torch>=2.4" || \
	  echo "PyTorch comes with CUDA then, which takes longer"
	@"$(RUN)" -m pip install -q -e ".[test-trl]"
	@touch "$@"

$(VENV)/.test-skyrl: $(VENV)/.python pyproject.toml
	@echo "Installing SkyRL-Gym"
	@"$(RUN)" -m pip install -q -e ".[test-skyrl]"
	@touch "$@"

$(VENV)/.test-nemo: $(VENV)/.python pyproject.toml
	@echo "Installing NeMo Gym, with Ray and others"
	@"$(RUN)" -m pip install -q -e ".[test-nemo]"
	@touch "$@"

$(VENV)/.dev: $(VENV)/.python pyproject.toml
	@echo "Installing the linter and the type checker"
	@"$(RUN)" -m pip install -q -e ".[dev]"
	@touch "$@"

$(VENV)/.docs: $(VENV)/.python pyproject.toml
	@echo "Installing what builds the documentation"
	@"$(RUN)" -m pip install -q -e ".[docs]"
	@touch "$@"

$(VENV)/.bench: $(VENV)/.python pyproject.toml tools/install_peers.py
	@echo "Installing envkit and what it is compared with: PyTorch, TensorFlow, Ray, others"
	@"$(RUN)" tools/install_peers.py
	@touch "$@"

$(VENV)/.tf-agents: $(VENV)/.python pyproject.toml
	@echo "Installing TF-Agents, with the older TensorFlow that it needs"
	@"$(RUN)" -m pip install -q -e ".[bench-tf-agents]" 2>/dev/null
	@touch "$@"
