"""The KV cache's type: refused before a start where it cannot be, found out after one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modelops.config import VllmOptions
from modelops.environments import EngineEnvironment
from modelops.errors import EngineError, InputError, MissingEnvironmentError
from modelops_servers.keeper import kv_cache
from modelops_servers.keeper.geometry import Geometry, geometry_of, read_geometry
from modelops_servers.keeper.kv_cache import Allocated

SMOLLM2 = Geometry(30, 3, 64, latent=False, alike=True, dtype="bfloat16")
AVX512 = {"fpu", "avx2", "avx512f"}
GIB = 2**30

MakeEnvironment = Callable[..., EngineEnvironment]


def refusal(
    environment: EngineEnvironment,
    asked: str,
    geometry: Geometry = SMOLLM2,
    cpu: set[str] | None = None,
    engine_args: tuple[str, ...] = (),
) -> tuple[str, str | None] | None:
    options = VllmOptions.model_validate({"kv_cache_dtype": asked, "engine_args": engine_args})
    try:
        kv_cache.check(options, environment, geometry, lambda: AVX512 if cpu is None else cpu)
    except MissingEnvironmentError as error:
        return error.message, error.hint
    return None


def test_int8_is_refused_on_a_cpu_with_the_reason_and_what_is_possible(
    environment: MakeEnvironment,
) -> None:
    message, hint = refusal(environment("cpu"), "int8") or ("", "")
    assert "int8_per_token_head" in message
    assert "vLLM 0.32.0 (cpu-community)" in message
    assert "cpu" in message
    assert hint == "kv_cache_dtype can be auto, bf16, fp8"


def test_int8_is_passed_on_cuda_with_the_backend_that_has_it(environment: MakeEnvironment) -> None:
    assert refusal(environment("cuda"), "int8") is None
    told = kv_cache.arguments(VllmOptions(kv_cache_dtype="int8"))
    assert told == [
        "--kv-cache-dtype", "int8_per_token_head", "--attention-backend", "TRITON_ATTN",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("geometry", "engine_args", "says"),
    [
        (Geometry(30, 3, 16, latent=False, alike=True, dtype=None), (), "16 values"),
        (Geometry(30, 3, None, latent=False, alike=True, dtype=None), (), "does not say"),
        (Geometry(30, 3, 64, latent=True, alike=True, dtype=None), (), "MLA"),
        (SMOLLM2, ("--attention-backend", "FLASH_ATTN"), "FLASH_ATTN"),
        (SMOLLM2, ("--attention_backend=FLASHINFER",), "FLASHINFER"),
        (SMOLLM2, ("--block-size", "24"), "24"),
    ],
)
def test_int8_is_refused_on_cuda_where_the_model_or_arguments_do_not_have_it(
    environment: MakeEnvironment, geometry: Geometry, engine_args: tuple[str, ...], says: str
) -> None:
    message, hint = refusal(environment("cuda"), "int8", geometry, None, engine_args) or ("", "")
    assert says in message
    assert hint == "kv_cache_dtype can be auto, bf16, fp8"


def test_int8_is_not_passed_to_a_vllm_that_has_no_such_choice(environment: MakeEnvironment) -> None:
    old = environment("cuda", flags={"--kv-cache-dtype": ("auto", "fp8")})
    message, hint = refusal(old, "int8") or ("", "")
    assert "has no int8_per_token_head" in message
    assert hint == "kv_cache_dtype can be auto, fp8"


@pytest.mark.parametrize("platform", ["rocm", "xpu", "tpu"])
def test_int8_is_not_guessed_at_elsewhere(environment: MakeEnvironment, platform: str) -> None:
    assert platform in (refusal(environment(platform), "int8") or ("", ""))[0]


def test_fp8_on_a_cpu_needs_avx512_or_amx(environment: MakeEnvironment) -> None:
    assert refusal(environment("cpu"), "fp8", cpu={"avx512f"}) is None
    assert refusal(environment("cpu"), "fp8", cpu={"amx_tile"}) is None
    message, hint = refusal(environment("cpu"), "fp8", cpu={"avx2"}) or ("", "")
    assert "AVX-512 or AMX" in message
    assert hint == "kv_cache_dtype can be auto, bf16"
    assert refusal(environment("cuda"), "fp8", cpu=set()) is None


def test_fp8_on_a_cpu_needs_heads_that_it_takes(environment: MakeEnvironment) -> None:
    odd = Geometry(30, 3, 80, latent=False, alike=True, dtype=None)
    assert "80 values" in (refusal(environment("cpu"), "fp8", odd) or ("", ""))[0]


def test_this_machines_cpu_is_read() -> None:
    assert kv_cache.read_cpu_flags()


# After a start.


def in_use(asked: str, allocated: Allocated, geometry: Geometry = SMOLLM2, **o: Any) -> Any:
    options = VllmOptions.model_validate({"kv_cache_dtype": asked, **o})
    return kv_cache.found(options, geometry, allocated, "bfloat16")


def test_the_width_is_what_was_allocated_for_a_token() -> None:
    """46,592 and 93,184 tokens a GiB is what vLLM 0.32 allocates for SmolLM2-135M on a CPU."""
    plain = in_use("auto", Allocated(GIB, 46592, 128))
    assert plain["bytes_per_value"] == 2.0
    assert plain["bytes_per_token"] == pytest.approx(30 * 3 * 2 * 64 * 2, rel=0.001)
    assert plain["tokens_per_gib"] == 46592
    assert in_use("fp8", Allocated(GIB, 93184, 128))["bytes_per_value"] == 1.0


@pytest.mark.parametrize(("asked", "tokens"), [("fp8", 46592), ("auto", 93184), ("int8", 46592)])
def test_what_contradicts_what_was_asked_is_an_error(asked: str, tokens: int) -> None:
    with pytest.raises(EngineError, match=f"asked for a KV cache of {asked}"):
        in_use(asked, Allocated(GIB, tokens, 128))


def test_int8_has_a_scale_for_each_token_and_head() -> None:
    per_token = 30 * 3 * 2 * (64 + 4)
    said = in_use("int8", Allocated(GIB, GIB // per_token))
    assert said["bytes_per_value"] == pytest.approx(1.0625, abs=0.001)


def test_rounded_figures_of_a_log_are_no_contradiction() -> None:
    exact = 30 * 3 * 2 * 64 * 2
    real = int(0.254 * GIB)
    said = in_use("bf16", Allocated(int(0.25 * GIB), real // exact, 16, int(0.01 * GIB)))
    assert said["bytes_per_value"] == pytest.approx(2, rel=0.05)


def test_devices_that_share_the_model_share_the_cache() -> None:
    half = in_use(
        "auto",
        Allocated(GIB, 2 * 46592 * 3, 128),
        pipeline_parallel_size=2,
        tensor_parallel_size=3,
    )
    assert half["bytes_per_value"] == 2.0


@pytest.mark.parametrize(
    "geometry",
    [
        Geometry(30, 3, 64, latent=False, alike=False, dtype=None),
        Geometry(30, 3, 64, latent=True, alike=True, dtype=None),
        Geometry(None, 3, 64, latent=False, alike=True, dtype=None),
    ],
)
def test_where_a_tokens_size_does_not_follow_no_width_is_claimed(geometry: Geometry) -> None:
    said = in_use("fp8", Allocated(GIB, 46592), geometry)
    assert said["bytes_per_value"] is None
    assert said["bytes_per_token"] > 0


def test_an_engine_that_does_not_say_is_believed_nothing() -> None:
    assert in_use("fp8", Allocated(None, None))["bytes_per_value"] is None


# The model's own config.


def test_a_plain_models_geometry() -> None:
    found = geometry_of(
        {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "dtype": "float16"}
    )
    assert found == Geometry(2, 4, 32, latent=False, alike=True, dtype="float16", heads=4)


@pytest.mark.parametrize(
    "extra",
    [
        {"layer_types": ["full_attention", "sliding_attention"]},
        {"sliding_window": 4096},
        {"mamba_d_state": 16},
    ],
)
def test_layers_that_differ_are_told_apart(extra: dict[str, Any]) -> None:
    assert not geometry_of({"num_hidden_layers": 2, **extra}).alike


@pytest.mark.parametrize(
    "extra",
    [
        {"layer_types": ["full_attention"] * 2, "sliding_window": 4096},
        {"sliding_window": 4096, "use_sliding_window": False},
        {"sliding_window": None},
    ],
)
def test_windows_that_are_not_used_make_no_difference(extra: dict[str, Any]) -> None:
    assert geometry_of({"num_hidden_layers": 2, **extra}).alike


def test_a_model_of_several_kinds_has_a_text_part() -> None:
    text = {"num_hidden_layers": 7, "head_dim": 64, "num_key_value_heads": 2}
    found = geometry_of({"text_config": text, "torch_dtype": "bfloat16"})
    assert (found.layers, found.kv_heads, found.head_size) == (7, 2, 64)
    assert found.dtype == "bfloat16"


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_what_is_no_config_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match=r"config\.json"):
        read_geometry(tmp_path)


def test_odd_values_are_not_believed(tmp_path: Path) -> None:
    odd = {"num_hidden_layers": True, "head_dim": -3, "num_key_value_heads": "3"}
    (tmp_path / "config.json").write_text(json.dumps(odd))
    found = read_geometry(tmp_path)
    assert (found.layers, found.kv_heads, found.head_size) == (None, None, None)
