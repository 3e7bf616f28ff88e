"""The proof as a whole, on runtimes that are right, wrong, or wrong only sometimes."""

from pathlib import Path

import numpy as np
import pytest

from modelops.artifact.manifest import Parity
from modelops.errors import IntegrityError
from modelops.parity import (
    RandomInputs,
    check_parity,
    choose_points,
    example_sizes,
    read_samples,
    recheck_samples,
    tolerance_for,
    write_samples,
)
from modelops.parity.check import Sample
from modelops.parity.inputs import Arrays
from modelops.signature import DimRange, Padding, Signature, TensorSpec

SIGNATURE = Signature(
    inputs=(
        TensorSpec(name="ids", dtype="int64", shape=("batch", "sequence"), bounds=(0, 49)),
        TensorSpec(name="mask", dtype="int64", shape=("batch", "sequence"), bounds=(0, 1)),
    ),
    outputs=(TensorSpec(name="vector", dtype="float32", shape=("batch", 4)),),
    dims={"batch": DimRange(min=1, max=16), "sequence": DimRange(min=2, max=64)},
    padding=Padding(dim="sequence", mask="mask", values={"ids": 0, "mask": 0}),
)
TABLE = np.random.default_rng(1).standard_normal((50, 4)).astype(np.float32)


class Mean:
    """Mean of table rows under the mask, with a fault to order."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def run(self, inputs: Arrays) -> Arrays:
        ids, mask = inputs["ids"], inputs["mask"].astype(np.float32)
        if self.fault == "mask dropped":
            mask = np.ones_like(mask)
        count = mask.sum(1, keepdims=True)
        if self.fault == "sequence baked" and ids.shape[1] != 7:
            count = np.full_like(count, 7)
        vector = (TABLE[ids] * mask[..., None]).sum(1) / count
        if self.fault == "leaks across the batch" and len(ids) > 1:
            vector = vector + 1e-2 * vector.mean(0)
        if self.fault == "nan on one token":
            vector = np.where(mask.sum(1, keepdims=True) == 1, np.nan, vector)
        return {"vector": vector.astype(np.float32)}


class Maker(RandomInputs):
    def random(self, dims: dict[str, int], *, padded: bool) -> Arrays:
        return self.make(dims, padded=padded)

    def realistic(self, dims: dict[str, int]) -> Arrays | None:
        inputs = self.make({**dims, "sequence": 9}, padded=True)
        return {name: array[:3] for name, array in inputs.items()}


def prove(artifact: Mean, eager: Mean | None = None) -> tuple[Parity, list[Sample]]:
    points = choose_points(
        SIGNATURE.dims,
        example=example_sizes(SIGNATURE.dims),
        nbytes=SIGNATURE.nbytes,
        budget=2**30,
    )
    return check_parity(
        SIGNATURE,
        eager or Mean(),
        artifact,
        maker=Maker(SIGNATURE, 0),
        points=points,
        tolerance=tolerance_for("float32"),
        seed=0,
        budget=2**30,
    )


def test_a_right_artifact_passes_padded_and_unpadded() -> None:
    parity, _ = prove(Mean())
    assert parity.passed
    assert {p.padded for p in parity.points} == {True, False}
    assert {p.inputs for p in parity.points} == {"random", "realistic"}
    assert len({tuple(p.dims.items()) for p in parity.points if p.inputs == "random"}) >= 4


@pytest.mark.parametrize("fault", ["mask dropped", "sequence baked", "nan on one token"])
def test_a_wrong_artifact_fails(fault: str) -> None:
    parity, _ = prove(Mean(fault))
    assert not parity.passed


def test_a_model_whose_items_see_each_other_fails_alone_against_padded() -> None:
    leaky = Mean("leaks across the batch")
    parity, _ = prove(leaky, leaky)
    assert [p.label for p in parity.points if not p.passed] == ["alone or padded"]


def test_no_point_is_no_proof() -> None:
    parity, _ = prove(Mean())
    assert not parity.model_copy(update={"points": ()}).passed


def test_samples_survive_the_disk_and_find_another_answer(tmp_path: Path) -> None:
    parity, samples = prove(Mean())
    path = tmp_path / "samples.safetensors"
    assert write_samples(path, samples) == [s.label for s in samples]
    read = read_samples(path)
    again = recheck_samples(SIGNATURE, Mean(), read, parity.tolerance)
    assert all(p.passed for p in again)
    wrong = recheck_samples(SIGNATURE, Mean("mask dropped"), read, parity.tolerance)
    assert not all(p.passed for p in wrong)


def test_large_samples_are_left_out_not_cut(tmp_path: Path) -> None:
    big = Sample("largest-random", {"x": np.zeros(40 * 2**20, np.uint8)}, {"y": np.zeros(1)})
    small = Sample("minimum-random", {"x": np.zeros(1)}, {"y": np.zeros(1)})
    assert write_samples(tmp_path / "s", [big, small]) == ["minimum-random"]
    assert [s.label for s in read_samples(tmp_path / "s")] == ["minimum-random"]


def test_what_is_no_samples_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b"\x08" + b"\0" * 7 + b'{"a":1} ')
    with pytest.raises(IntegrityError, match="no golden samples"):
        read_samples(tmp_path / "s")


def test_inputs_are_distinct_and_repeatable() -> None:
    maker = RandomInputs(SIGNATURE, 5)
    dims = {"batch": 4, "sequence": 6}
    first, second = maker.make(dims, padded=True), maker.make(dims, padded=True)
    assert all(np.array_equal(first[n], second[n]) for n in first)
    lengths = first["mask"].sum(1)
    assert lengths[0] == 6
    assert lengths[-1] == 1
    assert (first["ids"][first["mask"] == 0] == 0).all()


def test_bool_inputs_hold_a_fully_masked_row() -> None:
    signature = Signature(
        inputs=(TensorSpec(name="mask", dtype="bool", shape=("batch", 1, 5, 5)),),
        outputs=(),
        dims={"batch": DimRange(min=1, max=4)},
    )
    mask = RandomInputs(signature, 0).make({"batch": 2})["mask"].reshape(-1, 5)
    assert not mask[0].any()
    assert mask[-1].all()
