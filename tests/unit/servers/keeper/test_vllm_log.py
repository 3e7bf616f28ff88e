"""vLLM's log, as vLLM 0.32 wrote it: stages, figures, and the error that matters."""

from __future__ import annotations

from modelops_servers.keeper.vllm_log import KEPT_LINES, VllmLog

API = "(APIServer pid=5926) INFO 11-30 13:37:00 "
CORE = "(EngineCore pid=28057) INFO 11-30 13:18:57 "
WORKER = "(Worker pid=28157) INFO 11-30 13:19:10 "
START = [
    "Triton is installed, but doesn't include CPU backend. Disabling Triton.",
    API + "[api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0",
    API + "[model.py:733] Resolved architecture: LlamaForCausalLM",
    API + "[model.py:2152] Using max model len 2048",
    CORE + "[core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='/m/smollm2', "
    "speculative_config=None, tokenizer='/m/smollm2', dtype=torch.bfloat16, max_seq_len=2048",
    WORKER + "[cpu_model_runner.py:68] Starting to load model /m/smollm2...",
    "Loading safetensors checkpoint shards:   0% Completed | 0/2 [00:00<?, ?it/s]",
    "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00,  1.19it/s]",
    WORKER + "[default_loader.py:501] Loading weights took 0.85 seconds",
    WORKER + "[cpu_model_runner.py:87] Warming up model for the compilation...",
    WORKER + "[cpu_worker.py:260] Explicitly set (0.5/14.34) GiB for KV cache on node 0.",
    CORE + "[kv_cache_utils.py:2327] CPU KV cache size: 23,296 tokens, Maximum concurrency for "
    "2,048 tokens per request: 11.38x",
    CORE + "[core.py:402] init engine (profile, create kv cache, warmup model) took 1.33 s",
    API + "[entry.py:140] Starting vLLM server on unix:/run/e.sock",
]


def fed(*lines: str) -> VllmLog:
    log = VllmLog()
    for line in lines:
        log.feed(line)
    return log


def test_the_stages_of_a_start_are_told_one_after_the_other() -> None:
    log = VllmLog()
    assert log.progress == "starting vLLM"
    assert [log.progress for line in START if log.feed(line)] == [
        "reading the model's configuration",
        "starting the workers",
        "loading weights",
        "loading weights (0 %)",
        "loading weights (50 %)",
        "measuring memory",
        "compiling",
        "allocating the KV cache",
        "starting to listen",
    ]


def test_no_later_line_leads_back_to_an_earlier_stage() -> None:
    log = fed(*START)
    assert not log.feed(START[5])
    assert log.stage == "starting to listen"


def test_what_the_engine_is_in_is_read_from_it() -> None:
    log = fed(*START)
    assert (log.dtype, log.cache_tokens, log.cache_bytes) == ("bfloat16", 23296, 2**29)


def test_on_a_gpu_the_memory_is_told_otherwise() -> None:
    log = fed(
        "(Worker pid=1) INFO [gpu_worker.py:760] Available KV cache memory: 54.25 GiB",
        "(EngineCore pid=1) INFO [kv_cache_utils.py:2327] GPU KV cache size: 1,234,560 tokens,",
        "Capturing CUDA graphs (decode, FULL):  10%|#  | 1/10",
    )
    assert (log.cache_bytes, log.cache_tokens) == (int(54.25 * 2**30), 1234560)
    assert log.stage == "capturing graphs"


def test_the_error_is_the_cause_not_what_points_to_it() -> None:
    log = fed(
        "(Worker pid=9) ERROR 11-30 13:40:44 [multiproc_executor.py:780] WorkerProc failed.",
        "(Worker pid=9) ERROR 11-30 13:40:44 [multiproc_executor.py:780] ValueError: Available "
        "memory on node 0 (1.0/14.34 GiB) is less than requested",
        "(EngineCore pid=8) RuntimeError: Engine core initialization failed. See root cause above.",
    )
    assert (
        log.error == "ValueError: Available memory on node 0 (1.0/14.34 GiB) is less than requested"
    )
    log.forget_error()
    assert log.error is None


def test_the_errors_of_its_command_line_are_errors_too() -> None:
    log = fed("api_server.py: error: unrecognized arguments: --max-num-seq 4")
    assert log.error == "unrecognized arguments: --max-num-seq 4"


def test_only_the_last_lines_are_kept_and_long_ones_are_cut() -> None:
    log = fed(*(f"line {i} " + "x" * 10_000 for i in range(KEPT_LINES + 50)))
    assert len(log.lines) == KEPT_LINES
    assert log.tail().startswith("the end of its log:\n")
    assert f"line {KEPT_LINES + 49} " in log.tail()
    assert len(log.tail()) < 60_000
    assert VllmLog().tail() == "it logged nothing"
