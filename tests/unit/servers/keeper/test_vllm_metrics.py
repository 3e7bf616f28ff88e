"""vLLM's metrics, as vLLM 0.32 wrote them, and as it would not."""

from __future__ import annotations

import pytest

from modelops_servers.keeper.vllm_metrics import read_metrics

IDLE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
process_resident_memory_bytes 7.64289024e+08
vllm:num_requests_running{engine="0",model_name="smollm2"} 0.0
vllm:num_requests_waiting{engine="0",model_name="smollm2"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="smollm2",reason="capacity"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="smollm2"} 0.0
vllm:prompt_tokens_total{engine="0",model_name="smollm2"} 10.0
vllm:generation_tokens_total{engine="0",model_name="smollm2"} 9.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="smollm2"} 2.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="smollm2"} 0.0
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="smollm2"} 7.0
vllm:iteration_tokens_total_count{engine="0",model_name="smollm2"} 9.0
vllm:iteration_tokens_total_sum{engine="0",model_name="smollm2"} 19.0
vllm:cache_config_info{block_size="128",cache_dtype="auto",gpu_memory_utilization="0.92",\
kv_cache_memory_bytes="536870912",kv_cache_size_tokens="23296",num_gpu_blocks="182",\
sliding_window="None"} 1.0
"""


def test_what_it_says_of_work_and_cache() -> None:
    reading = read_metrics(IDLE)
    assert (reading.running, reading.waiting) == (0, 0)
    assert (reading.cache_tokens, reading.cache_bytes, reading.block_tokens) == (
        23296,
        536870912,
        128,
    )


def test_what_its_blocks_hold_is_more_than_whole_requests_take() -> None:
    """Five blocks hold two and a half requests of 192 tokens, which are 480: 640 are allocated."""
    short = IDLE.replace('"23296"', '"480"').replace('num_gpu_blocks="182"', 'num_gpu_blocks="5"')
    assert read_metrics(short).cache_tokens == 480
    assert read_metrics(short).allocated_tokens == 640
    unsaid = short.replace('num_gpu_blocks="5"', 'num_gpu_blocks="None"')
    assert read_metrics(unsaid).allocated_tokens == 480


def test_an_older_one_says_blocks_and_leaves_the_rest_to_us() -> None:
    older = IDLE.replace('kv_cache_size_tokens="23296",', "").replace('"536870912"', '"None"')
    reading = read_metrics(older)
    assert reading.cache_tokens == 182 * 128
    assert reading.cache_bytes is None


@pytest.mark.parametrize(
    "name",
    [
        "num_requests_running",
        "kv_cache_usage_perc",
        "generation_tokens_total",
        "iteration_tokens_total_count",
    ],
)
def test_whatever_moves_is_progress(name: str) -> None:
    """A long prompt moves the use of the cache alone."""
    before = next(line for line in IDLE.splitlines() if line.startswith(f"vllm:{name}{{"))
    after = before.rpartition(" ")[0] + " 0.5"
    assert read_metrics(IDLE.replace(before, after)).moving != read_metrics(IDLE).moving
    assert read_metrics(IDLE).moving == read_metrics(IDLE).moving


def test_several_engines_are_added_up() -> None:
    line = 'vllm:num_requests_running{engine="0",model_name="smollm2"} 0.0\n'
    two = line.replace("0.0", "3.0") + line.replace('"0"', '"1"').replace(" 0.0", " 4.0")
    assert read_metrics(IDLE.replace(line, two)).running == 7


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "<html>502 Bad Gateway</html>",
        '{"error": "no"}',
        IDLE.replace("running{", "walking{"),
        IDLE.replace('running{engine="0",model_name="smollm2"} 0.0', "running{} many"),
        "vllm:num_requests_running\n",
        "vllm:",
    ],
)
def test_garbage_is_no_answer(garbage: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever is wrong, it counts as no answer
        read_metrics(garbage)
