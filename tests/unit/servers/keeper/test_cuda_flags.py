"""All that is emitted for CUDA was once taken by the locked CUDA wheel's own parser.

``make cuda-flags`` asks it again and renews the record; these compare with what it said.
"""

from __future__ import annotations

import cuda_launches
import pytest

from modelops_servers.keeper.kv_cache import BACKEND, FLAG, SPELLED

AGAIN = "run `make cuda-flags`"


def test_the_record_is_of_the_wheel_that_is_installed_on_machines_with_a_gpu() -> None:
    record, locked = cuda_launches.read_record(), cuda_launches.locked_wheel()
    assert (record["version"], record["sha256"]) == (locked.version, locked.sha256), AGAIN
    assert record["platform"] == "cuda"


def test_its_parser_has_seen_every_line_that_is_emitted() -> None:
    lines, variables = cuda_launches.emitted()
    record = cuda_launches.read_record()
    assert record["lines"] == lines, AGAIN
    assert record["variables"] == sorted(variables), AGAIN


def test_its_parser_knows_each_flag_by_its_whole_name_and_every_value() -> None:
    """Also argparse's abbreviations would pass the parser: the names themselves are compared."""
    record = cuda_launches.read_record()
    for line in cuda_launches.emitted()[0]:
        for flag, value in cuda_launches.flags_of(line).items():
            choices = record["flags"][flag]
            assert choices is None or value in choices, (flag, value)


@pytest.mark.parametrize("kind", list(SPELLED))
def test_what_its_parser_made_of_a_kv_cache_is_what_was_asked(kind: str) -> None:
    record = cuda_launches.read_record()
    at = len(record["lines"]) - len(SPELLED) + list(SPELLED).index(kind)
    parsed = record["parsed"][at]
    assert parsed.get("kv_cache_dtype", "auto") == SPELLED[kind]
    assert parsed.get("attention_backend") == (BACKEND if kind == "int8" else None)
    assert parsed["served_model_name"] == ["m", "chat"]
    assert parsed["uds"] == "/run/e.sock"
    assert parsed["tensor_parallel_size"] == parsed["pipeline_parallel_size"] == 2
    assert parsed["distributed_executor_backend"] == "ray"
    assert parsed["kv_cache_memory_bytes"] == 2**29
    assert parsed["speculative_config"]["prompt_lookup_max"] == 5


def test_the_backend_that_int8_is_passed_with_has_it() -> None:
    record = cuda_launches.read_record()
    assert SPELLED["int8"] in record["backends"][BACKEND]
    assert SPELLED["int8"] in record["flags"][FLAG]
