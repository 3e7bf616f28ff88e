"""Our own unpacking of ggml's blocks is the gguf package's, bit by bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from modelops.checkpoint.gguf_file import TYPES
from modelops_exporters.text.gguf_blocks import KNOWN, unpack

_BY_NAME = {t.name: t for t in TYPES.values()}
# Where a block holds float16 numbers: random bits there would be NaN now and then.
_HALVES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}


@pytest.mark.parametrize("kind", KNOWN)
def test_a_type_means_what_the_library_says(kind: str) -> None:
    block, rows = _BY_NAME[kind], 96
    rng = np.random.default_rng(3)
    data = rng.integers(0, 256, (rows, block.nbytes), dtype=np.uint8)
    if kind in ("F32", "F16"):
        data = rng.standard_normal((rows, 1)).astype("<f4" if kind == "F32" else "<f2").view("u1")
    for at in _HALVES.get(kind, ()):
        data[:, at : at + 2] = rng.standard_normal((rows, 1)).astype("<f2").view("u1")
    theirs = gguf.dequantize(data.copy(), gguf.GGMLQuantizationType[kind])
    np.testing.assert_array_equal(unpack(kind, data, block.nbytes), theirs.reshape(-1))


def test_the_table_of_types_is_the_library_s() -> None:
    sizes = {t.value: (t.name, *gguf.GGML_QUANT_SIZES[t]) for t in gguf.GGMLQuantizationType}
    for number, block in TYPES.items():
        assert sizes[number] == (block.name, block.weights, block.nbytes)
