"""A1, X11: an ONNX file reads from its own artifact only, and all that it reads is there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from fake_artifacts import make_artifact, mlp_onnx
from onnx import TensorProto, helper, numpy_helper

from modelops.artifact import Artifact, open_artifact
from modelops.errors import IntegrityError, MissingEnvironmentError


def external(name: str = "w1", dims: tuple[int, ...] = (4, 8), **keys: str) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in ({"location": "model.onnx.data"} | keys).items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def with_external(**keys: str) -> onnx.ModelProto:
    """Return the MLP with its first weight outside; 128 bytes."""
    model = mlp_onnx()
    model.graph.initializer[0].CopyFrom(external(**keys))
    return model


def publish(
    root: Path, model: onnx.ModelProto, files: Mapping[str, bytes] | None = None
) -> Artifact:
    data = {"model.onnx.data": bytes(256)} if files is None else files
    return make_artifact(root, onnx_model=model, files=data)


def test_external_data_inside_the_artifact(tmp_path: Path) -> None:
    import onnxruntime as ort

    artifact = publish(tmp_path / "m", with_external(offset="128", length="128"))
    opened = open_artifact(artifact.path)
    session = ort.InferenceSession(opened.file(), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": np.ones((3, 4), np.float32)})[0].shape == (3, 2)


def test_external_data_below_the_entrys_folder(tmp_path: Path) -> None:
    for location, good in (("weights/w", True), ("onnx/weights/w", False), ("w", False)):
        artifact = make_artifact(
            tmp_path / location.replace("/", "-"),
            entry="onnx/model.onnx",
            files={
                "model.onnx": b"",
                "onnx/model.onnx": with_external(location=location).SerializeToString(),
                "onnx/weights/w": bytes(128),
            },
        )
        if good:
            open_artifact(artifact.path)
        else:
            with pytest.raises(IntegrityError, match="not among the artifact's model files"):
                open_artifact(artifact.path)


_LOCATIONS = [
    "../../etc/passwd",
    "/etc/passwd",
    "..",
    "",
    "./model.onnx.data",
    "a/../model.onnx.data",
    "..\\..\\etc\\passwd",
    "model.onnx.data\0",
    "file:///etc/passwd",
    "*/_ORT_MEM_ADDR_/*",
    "MODEL.ONNX.DATA",
    "model.onnx.data ",
    "modelops.json",
    "report.json",
    "~/x",
    "$HOME/x",
]


@pytest.mark.parametrize("location", _LOCATIONS)
def test_a1_locations_that_lead_out(tmp_path: Path, location: str) -> None:
    files = {"model.onnx.data": bytes(256), "report.json": bytes(256)}
    artifact = publish(tmp_path / "m", with_external(location=location), files)
    with pytest.raises(IntegrityError, match=r"tensor 'w1' reads from") as caught:
        open_artifact(artifact.path)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("link", ["symlink", "hardlink"])
@pytest.mark.parametrize("listed", [True, False])
def test_a1_through_a_link(tmp_path: Path, link: str, listed: bool) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(256))
    location = "model.onnx.data" if listed else "other"
    artifact = publish(tmp_path / "m", with_external(location=location))
    place = artifact.path / location
    place.unlink(missing_ok=True)
    if link == "symlink":
        place.symlink_to(secret)
    else:
        os.link(secret, place)
    with pytest.raises(IntegrityError, match=rf"{location} is a (hard )?link"):
        open_artifact(artifact.path)


def _node(**attributes: Any) -> onnx.NodeProto:
    return helper.make_node("Constant", [], ["c"], **attributes)


def _subgraph(*initializers: TensorProto, nodes: tuple[onnx.NodeProto, ...] = ()) -> Any:
    return helper.make_graph(list(nodes), "sub", [], [], list(initializers))


def _sparse(values: TensorProto, indices: TensorProto) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(values, indices, [10])


_EVIL = external("evil", (2,), location="../../etc/passwd")
_FINE = numpy_helper.from_array(np.ones(2, np.float32), "fine")
_INDEX = numpy_helper.from_array(np.array([0, 1]), "index")


def _function(model: onnx.ModelProto) -> None:
    model.functions.append(
        helper.make_function(
            "local", "f", [], ["c"], [_node(value=_EVIL)], [helper.make_opsetid("", 20)]
        )
    )


def _training(model: onnx.ModelProto) -> None:
    model.training_info.add().algorithm.CopyFrom(_subgraph(_EVIL))


_PLACES: dict[str, Callable[[onnx.ModelProto], Any]] = {
    "initializer": lambda m: m.graph.initializer.append(_EVIL),
    "sparse values": lambda m: m.graph.sparse_initializer.append(_sparse(_EVIL, _INDEX)),
    "sparse indices": lambda m: m.graph.sparse_initializer.append(_sparse(_FINE, _EVIL)),
    "attribute": lambda m: m.graph.node.append(_node(value=_EVIL)),
    "attribute list": lambda m: m.graph.node.append(_node(values=[_FINE, _EVIL])),
    "sparse attribute": lambda m: m.graph.node.append(_node(s=_sparse(_EVIL, _INDEX))),
    "subgraph": lambda m: m.graph.node.append(_node(then_branch=_subgraph(_EVIL))),
    "subgraph list": lambda m: m.graph.node.append(_node(branches=[_subgraph(), _subgraph(_EVIL)])),
    "nested subgraph": lambda m: m.graph.node.append(
        _node(body=_subgraph(nodes=(_node(body=_subgraph(nodes=(_node(value=_EVIL),))),)))
    ),
    "function": _function,
    "training": _training,
}


@pytest.mark.parametrize("place", _PLACES)
def test_a1_wherever_in_the_graph_it_stands(tmp_path: Path, place: str) -> None:
    model = mlp_onnx()
    _PLACES[place](model)
    artifact = publish(tmp_path / "m", model)
    with pytest.raises(IntegrityError, match="tensor 'evil' reads from"):
        open_artifact(artifact.path)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"offset": "129"}, "reads beyond the end"),
        ({"offset": "256"}, "reads beyond the end"),
        ({"offset": "128", "length": "129"}, "needs 128 bytes"),
        ({"length": "64"}, "needs 128 bytes"),
        ({"length": "0"}, "needs 128 bytes"),
        ({"offset": "-1"}, "as the offset"),
        ({"offset": "1e3"}, "as the offset"),
        ({"offset": "٣"}, "as the offset"),
        ({"length": "-128"}, "as the length"),
        ({"offset": str(2**64)}, "as the offset"),
        ({"offset": str(2**63 - 1)}, "reads beyond the end"),
        ({"length": ""}, "as the length"),
    ],
)
def test_a1_ranges_that_are_not_in_the_file(
    tmp_path: Path, keys: dict[str, str], message: str
) -> None:
    artifact = publish(tmp_path / "m", with_external(**keys))
    with pytest.raises(IntegrityError, match=message):
        open_artifact(artifact.path)


def test_a1_ambiguous_external_data(tmp_path: Path) -> None:
    twice = with_external()
    twice.graph.initializer[0].external_data.add(key="location", value="../x")
    inline = mlp_onnx()
    inline.graph.initializer[0].external_data.add(key="location", value="../x")
    negative = mlp_onnx()
    negative.graph.initializer[0].CopyFrom(external(dims=(-1, 8)))
    text = mlp_onnx()
    text.graph.initializer[0].CopyFrom(external())
    text.graph.initializer[0].data_type = TensorProto.STRING
    for number, model in enumerate((twice, inline, negative, text)):
        artifact = publish(tmp_path / str(number) / "m", model)
        with pytest.raises(IntegrityError, match="tensor 'w1'"):
            open_artifact(artifact.path)


def test_a1_every_type_that_can_lie_outside_has_its_size() -> None:
    from modelops.artifact.onnx_data import _BITS

    # How six-bit floats are packed is not settled: outside, they are refused.
    without = {"UNDEFINED", "STRING", "FLOAT6E2M3", "FLOAT6E3M2"}
    assert set(TensorProto.DataType.keys()) - set(_BITS) <= without
    for name, bits in _BITS.items():
        if bits >= 8:
            kind = helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(name))
            assert kind.itemsize * 8 == bits, name


@pytest.mark.parametrize("inside", [False, True])
def test_a1_a_compiled_engine_in_the_graph_is_code(tmp_path: Path, inside: bool) -> None:
    model = mlp_onnx()
    node = helper.make_node(
        "EPContext", [], ["c"], "engine", domain="com.microsoft", ep_cache_context="../engine"
    )
    model.graph.node.append(_node(body=_subgraph(nodes=(node,))) if inside else node)
    artifact = publish(tmp_path / "m", model)
    with pytest.raises(IntegrityError, match="'engine' carries or names a compiled engine"):
        open_artifact(artifact.path)


def test_x11_a_model_moved_without_its_data(tmp_path: Path) -> None:
    artifact = publish(tmp_path / "m", with_external())
    (artifact.path / "model.onnx.data").unlink()
    with pytest.raises(IntegrityError, match=r"model\.onnx\.data is missing"):
        open_artifact(artifact.path)


def test_x11_a_model_published_without_its_data(tmp_path: Path) -> None:
    artifact = publish(tmp_path / "m", with_external(), files={})
    with pytest.raises(IntegrityError, match=r"'model\.onnx\.data', which is not among"):
        open_artifact(artifact.path)


@pytest.mark.parametrize("data", [b"", b"\xff" * 100, b"PK\3\4", b"\x08\x0a"])
def test_what_is_no_onnx_is_refused(tmp_path: Path, data: bytes) -> None:
    artifact = make_artifact(tmp_path / "m", files={"model.onnx": data})
    with pytest.raises(IntegrityError, match="no ONNX model"):
        open_artifact(artifact.path)


def test_without_the_onnx_package_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = publish(tmp_path / "m", mlp_onnx())
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(MissingEnvironmentError) as caught:
        open_artifact(artifact.path)
    assert caught.value.hint == 'pip install "modelops[serve]"'
