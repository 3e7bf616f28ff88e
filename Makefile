# What a person types in this repository. PYTHON chooses the interpreter of .venv.
.DEFAULT_GOAL := help
.PHONY: help demo test lint format bench locks cuda-flags tensorrt-names trainers gpu-evidence clean venv
export PYTHON
BIN := .venv/bin

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

demo: venv ## Export, verify, serve and load-test a real model, from nothing
	@echo "Running examples/demo.py: export → verify → serve → load-test, all-MiniLM-L6-v2."
	@$(BIN)/python examples/demo.py

test: venv ## Run every test that needs no GPU (ARGS="-k name" narrows it)
	@echo "Running the tests that need no GPU."
	@bash scripts/run_tests.sh $(ARGS)

lint: venv ## Check style, types and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: venv ## Format the code and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: venv ## Measure export, inference and the gateway beside their peers (40 minutes)
	@echo "Measuring; keep the machine idle. Results go to benchmarks/results/."
	$(BIN)/python benchmarks/bench_checkpoint.py
	$(BIN)/python benchmarks/bench_export.py
	$(BIN)/python benchmarks/bench_inference.py
	$(BIN)/python benchmarks/bench_gateway.py
	$(BIN)/python benchmarks/bench_stages.py
	$(BIN)/python benchmarks/bench_tensors.py
	$(BIN)/python benchmarks/bench_stream.py
	$(BIN)/python benchmarks/bench_vllm.py
	$(BIN)/python benchmarks/bench_loadtest.py
	$(BIN)/python benchmarks/bench_gates.py
	$(BIN)/python benchmarks/soak.py

locks: venv ## Renew the locked versions of the engine environments (needs the network)
	$(BIN)/python scripts/lock_engines.py

cuda-flags: venv ## Ask vLLM's wheel for CUDA whether it takes what is emitted (fetches 0.3 GB)
	MODELOPS_UPDATE_GOLDEN=1 $(BIN)/python -m pytest -m cuda_wheel tests/integration/servers
	$(BIN)/python -m pytest -q tests/unit/servers/keeper/test_cuda_flags.py

trainers: venv ## Train with DeepSpeed and Lightning, and read what they save (fetches them)
	$(BIN)/python -m pytest -m trainers tests/integration/checkpoint

tensorrt-names: venv ## Ask TensorRT's bindings, 10.x and 11.x, which names they have
	$(BIN)/python scripts/tensorrt_names.py
	$(BIN)/python -m pytest -q tests/unit/exporters/trt/test_names.py

gpu-evidence: ## On a machine with an NVIDIA GPU: measure the INT8 KV cache, keep all of it (MODEL=…)
	@python3 scripts/gpu_evidence.py

clean: ## Remove builds and caches (artifacts/, reports/ and .venv stay)
	rm -rf build dist .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf ./*.egg-info src/*.egg-info .coverage
	find src exporters servers loadtests tests benchmarks examples -name __pycache__ -prune \
		-exec rm -rf {} + 2>/dev/null || true

venv: ## Make .venv, or bring it up to date (seconds when nothing changed)
	@bash scripts/make_venv.sh
