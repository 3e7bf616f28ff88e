"""``tritonclient.http``, unchanged: everything it can ask, and what it makes of the answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gevent
import numpy as np
import pytest
import requests
import tritonclient.http as triton
from fake_artifacts import mlp_reference
from running_server import Server
from server_zoo import ECHOES, random_tensor
from tritonclient.utils import InferenceServerException

from modelops.dtypes import DTYPES, numpy_dtype

VALUES = np.arange(8, dtype=np.float32).reshape(2, 4)
EXPECTED = mlp_reference(VALUES)
NO_JSON = ("float16", "bfloat16")

ASKED_HERE = {
    "async_infer", "close", "generate_request_body", "get_cuda_shared_memory_status",
    "get_inference_statistics", "get_log_settings", "get_model_config", "get_model_metadata",
    "get_server_metadata", "get_system_shared_memory_status", "get_trace_settings", "infer",
    "is_model_ready", "is_server_live", "is_server_ready", "parse_response_body",
    "register_cuda_shared_memory", "register_system_shared_memory",
    "unregister_cuda_shared_memory", "unregister_system_shared_memory", "update_log_settings",
    "update_trace_settings",
}  # fmt: skip
ASKED_IN_TEST_REPOSITORY = {
    "get_model_repository_index", "load_model", "plugin", "register_plugin", "unload_model",
    "unregister_plugin",
}  # fmt: skip


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with triton.InferenceServerClient(server.url.removeprefix("http://"), concurrency=4) as client:
        yield client


def tensor(name: str, array: Any, *, binary: bool = True) -> Any:
    """Return an input; its datatype follows from the array."""
    found = {numpy_dtype(d): DTYPES[d].oip for d in DTYPES}[array.dtype]
    one = triton.InferInput(name, list(array.shape), found)
    return one.set_data_from_numpy(array, binary_data=binary)


def x(values: Any = VALUES, *, binary: bool = True) -> list[Any]:
    return [tensor("x", values, binary=binary)]


def finite(name: str, shape: tuple[int, ...]) -> Any:
    array = random_tensor(name, shape, seed=2)
    if DTYPES[name].is_float:
        small = np.arange(array.size).reshape(shape) * 0.1 - 1
        return small.astype(numpy_dtype(name))
    return array


def test_there_is_nothing_that_it_can_ask_and_is_not_asked() -> None:
    names = {n for n in dir(triton.InferenceServerClient) if not n.startswith("_")}
    assert names == ASKED_HERE | ASKED_IN_TEST_REPOSITORY


def test_health(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready(headers={"X-Anything": "1"}, query_params={"a": ["b", "c"]})
    assert client.is_model_ready("mlp")
    assert client.is_model_ready("mlp", "1")
    assert not client.is_model_ready("mlp", "2")
    assert not client.is_model_ready("nope")


def test_metadata(client: Any) -> None:
    about = client.get_server_metadata()
    assert about["name"] == "modelops"
    assert about["extensions"] == ["binary_tensor_data", "model_configuration", "statistics"]
    for found in (client.get_model_metadata("mlp"), client.get_model_metadata("mlp", "1")):
        assert (found["name"], found["versions"]) == ("mlp", ["1"])
        assert found["platform"] == "onnxruntime_onnx"
        assert [(t["name"], t["datatype"], t["shape"]) for t in found["inputs"]] == [
            ("x", "FP32", [-1, 4])
        ]
        assert [(t["name"], t["datatype"], t["shape"]) for t in found["outputs"]] == [
            ("y", "FP32", [-1, 2])
        ]
    datatypes = [t["datatype"] for t in client.get_model_metadata("echo")["inputs"]]
    assert datatypes == [DTYPES[name].oip for name in ECHOES["echo"]]
    for version in ("2", "latest"):
        with pytest.raises(InferenceServerException, match=r"\[404\].*version 1"):
            client.get_model_metadata("mlp", version)
    with pytest.raises(InferenceServerException, match=r"\[404\].*not served here"):
        client.get_model_metadata("no such model")


def test_model_config_in_the_words_of_triton(client: Any) -> None:
    found = client.get_model_config("mlp", "1")
    assert found == client.get_model_config("mlp")
    assert found["backend"] == "onnxruntime"
    assert found["max_batch_size"] == 64
    assert found["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}]
    assert found["output"] == [{"name": "y", "data_type": "TYPE_FP32", "dims": [2]}]
    assert found["version_policy"] == {"specific": {"versions": [1]}}
    assert found["dynamic_batching"]["max_queue_delay_microseconds"] == 2000
    strings = client.get_model_config("strings")["input"][0]
    assert (strings["data_type"], strings["dims"]) == ("TYPE_STRING", [-1])
    # Its steps are of all rows at once: what has no batch is shown whole.
    slow = client.get_model_config("slow")
    assert slow["max_batch_size"] == 0
    assert slow["input"][0]["dims"] == [-1, 4]
    with pytest.raises(InferenceServerException, match=r"\[404\]"):
        client.get_model_config("mlp", "9")


def test_statistics_count_what_was_asked(client: Any) -> None:
    def counts() -> tuple[int, int, int, int]:
        (found,) = client.get_inference_statistics("ratio")["model_stats"]
        said = found["inference_stats"]
        assert said["queue"]["count"] >= said["success"]["count"]
        return (
            found["inference_count"],
            found["execution_count"],
            said["success"]["count"],
            said["fail"]["count"],
        )

    rows, runs, good, bad = counts()
    pair = np.ones((3, 2), np.float32)
    for _ in range(4):
        client.infer("ratio", [tensor("a", pair), tensor("b", pair)])
    with pytest.raises(InferenceServerException):
        client.infer("ratio", [tensor("a", pair)])
    assert counts() == (rows + 12, runs + 4, good + 4, bad + 1)
    (one,) = client.get_inference_statistics("ratio", "1")["model_stats"]
    assert (one["name"], one["version"]) == ("ratio", "1")
    assert one["inference_stats"]["success"]["ns"] > 0
    assert one["last_inference"] > 1_700_000_000_000
    every = client.get_inference_statistics()["model_stats"]
    assert {"ratio", "mlp", "echo"} <= {m["name"] for m in every}
    for name, version in (("nope", ""), ("ratio", "2")):
        with pytest.raises(InferenceServerException, match=r"\[404\]"):
            client.get_inference_statistics(name, version)


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
def test_infer(client: Any, binary_in: bool, binary_out: bool | None) -> None:
    asked = None
    if binary_out is not None:
        asked = [triton.InferRequestedOutput("y", binary_data=binary_out)]
    result = client.infer(
        "mlp", x(binary=binary_in), outputs=asked, request_id="abc", model_version="1"
    )
    np.testing.assert_allclose(result.as_numpy("y"), EXPECTED, rtol=1e-5)
    answer = result.get_response()
    assert (answer["id"], answer["model_name"], answer["model_version"]) == ("abc", "mlp", "1")
    assert ("binary_data_size" in result.get_output("y").get("parameters", {})) == (
        binary_out is not False
    )
    assert result.get_output("z") is None
    assert result.as_numpy("z") is None
    assert "id" not in client.infer("mlp", x()).get_response()


def test_async_infer_gives_each_its_own(client: Any) -> None:
    inputs = [VALUES + i for i in range(16)]
    asked = [client.async_infer("mlp", x(v), request_id=str(i)) for i, v in enumerate(inputs)]
    wrong = client.async_infer("mlp", [tensor("x", np.zeros((1, 5), np.float32))])
    for i, (value, one) in enumerate(zip(inputs, asked, strict=True)):
        result = one.get_result()
        assert result.get_response()["id"] == str(i)
        np.testing.assert_allclose(result.as_numpy("y"), mlp_reference(value), rtol=1e-4)
    with pytest.raises(InferenceServerException, match=r"\[400\].*'x'"):
        wrong.get_result()


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compression_both_ways(client: Any, coding: str) -> None:
    values = np.arange(4000, dtype=np.float32).reshape(4, 1000)
    both = {"request_compression_algorithm": coding, "response_compression_algorithm": coding}
    for binary in (True, False):
        asked = [triton.InferRequestedOutput("y", binary_data=binary)]
        result = client.infer("floats", x(values, binary=binary), outputs=asked, **both)
        np.testing.assert_array_equal(result.as_numpy("y"), values)
    asynchronous = client.async_infer("floats", x(values), **both).get_result()
    np.testing.assert_array_equal(asynchronous.as_numpy("y"), values)
    # Small answers and errors are not worth it, and are understood all the same.
    np.testing.assert_allclose(client.infer("mlp", x(), **both).as_numpy("y"), EXPECTED, rtol=1e-5)
    with pytest.raises(InferenceServerException, match=r"\[404\].*not served"):
        client.infer("nope", x(), **both)


def test_a_large_compressed_request_and_answer(client: Any) -> None:
    values = np.random.default_rng(0).standard_normal((4, 250_000)).astype(np.float32)
    result = client.infer(
        "floats",
        x(values),
        request_compression_algorithm="gzip",
        response_compression_algorithm="deflate",
    )
    np.testing.assert_array_equal(result.as_numpy("y"), values)


@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (3, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("model", ECHOES)
def test_s23_every_dtype_comes_back_bit_for_bit(
    client: Any, model: str, shape: tuple[int, int]
) -> None:
    sent = {name: random_tensor(name, shape, seed=1) for name in ECHOES[model]}
    result = client.infer(model, [tensor(f"in_{n}", array) for n, array in sent.items()])
    for name, array in sent.items():
        got = result.as_numpy(f"out_{name}")
        assert got.shape == shape
        if name == "string":
            assert got.ravel().tolist() == array.ravel().tolist()
        else:
            assert got.tobytes() == array.tobytes(), name


@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (3, 0)], ids=str)
@pytest.mark.parametrize("model", ECHOES)
def test_every_dtype_that_json_can_hold_goes_through_it(
    client: Any, model: str, shape: tuple[int, int]
) -> None:
    sent = {name: finite(name, shape) for name in ECHOES[model]}
    result = client.infer(
        model,
        [tensor(f"in_{n}", array, binary=n in NO_JSON) for n, array in sent.items()],
        outputs=[triton.InferRequestedOutput(f"out_{n}", binary_data=n in NO_JSON) for n in sent],
    )
    for name, array in sent.items():
        got = result.as_numpy(f"out_{name}")
        if name == "string":
            assert [item.encode() for item in got.ravel()] == array.ravel().tolist()
        else:
            np.testing.assert_array_equal(got, array, err_msg=name)


def test_s23_half_floats_in_json_are_refused_by_name(client: Any) -> None:
    inputs = [tensor(f"in_{n}", finite(n, (1, 1))) for n in ECHOES["echo"]]
    for name in NO_JSON:
        asked = [triton.InferRequestedOutput(f"out_{name}", binary_data=False)]
        with pytest.raises(InferenceServerException, match=rf"\[400\].*'out_{name}'.*binary"):
            client.infer("echo", inputs, outputs=asked)


def test_bytes_that_are_no_text_are_refused_by_name(client: Any) -> None:
    strings = np.array([[b"\xff\xfe"]], dtype=object)
    inputs = [tensor("in_string", strings), tensor("in_int32", np.ones((1, 1), np.int32))]
    with pytest.raises(InferenceServerException, match=r"\[400\].*'in_string'.*UTF-8"):
        client.infer("strings", inputs)


def test_only_the_outputs_asked_for_come_in_the_order_asked(client: Any) -> None:
    inputs = [tensor(f"in_{n}", random_tensor(n, (2, 2))) for n in ECHOES["echo"]]
    asked = [
        triton.InferRequestedOutput("out_int64", binary_data=False),
        triton.InferRequestedOutput("out_bool"),
        triton.InferRequestedOutput("out_uint8", binary_data=True),
    ]
    result = client.infer("echo", inputs, outputs=asked)
    names = [o["name"] for o in result.get_response()["outputs"]]
    assert names == ["out_int64", "out_bool", "out_uint8"]
    for name in ("int64", "bool", "uint8"):
        np.testing.assert_array_equal(result.as_numpy(f"out_{name}"), random_tensor(name, (2, 2)))


def test_the_statics_make_and_read_whole_bodies(server: Server, client: Any) -> None:
    body, length = client.generate_request_body(x(), request_id="made")
    headers = {"Inference-Header-Content-Length": str(length)}
    reply = server.post("/v2/models/mlp/infer", data=body, headers=headers)
    header_length = int(reply.headers["Inference-Header-Content-Length"])
    result = client.parse_response_body(reply.content, header_length=header_length)
    assert result.get_response()["id"] == "made"
    np.testing.assert_allclose(result.as_numpy("y"), EXPECTED, rtol=1e-5)
    body, length = client.generate_request_body(
        x(binary=False), outputs=[triton.InferRequestedOutput("y", binary_data=False)]
    )
    assert length is None
    reply = server.post("/v2/models/mlp/infer", data=body)
    assert "Inference-Header-Content-Length" not in reply.headers
    result = client.parse_response_body(reply.content)
    np.testing.assert_allclose(result.as_numpy("y"), EXPECTED, rtol=1e-5)


def test_what_another_server_may_heed_is_passed_over(client: Any) -> None:
    plain = client.infer("mlp", x()).as_numpy("y")
    for more in (
        {"priority": 7},
        {"sequence_id": 42, "sequence_start": True, "sequence_end": False},
        {"sequence_id": "job", "sequence_end": True},
        {"parameters": {"temperature": 0.5, "mode": "fast", "debug": True}},
    ):
        np.testing.assert_array_equal(client.infer("mlp", x(), **more).as_numpy("y"), plain)


def test_its_timeout_counts_microseconds_and_is_a_deadline(client: Any) -> None:
    steps = tensor("steps", np.array([400_000]))
    one = np.ones((1, 4), np.float32)
    with pytest.raises(InferenceServerException, match=r"\[504\].*deadline"):
        client.infer("slow", [tensor("x", one), steps], timeout=20_000)
    for enough in (0, 60_000_000):
        assert client.infer("mlp", x(), timeout=enough).as_numpy("y").shape == (2, 2)


def test_its_own_network_timeout_harms_nobody(server: Server, client: Any) -> None:
    hasty = triton.InferenceServerClient(
        server.url.removeprefix("http://"), network_timeout=0.05, connection_timeout=5
    )
    slow = [tensor("x", np.ones((1, 4), np.float32)), tensor("steps", np.array([300_000]))]
    with hasty, pytest.raises((gevent.Timeout, TimeoutError, OSError)):
        hasty.infer("slow", slow)
    np.testing.assert_allclose(client.infer("mlp", x()).as_numpy("y"), EXPECTED, rtol=1e-5)


def test_classification_and_shared_memory_tensors_are_refused_by_name(client: Any) -> None:
    shared = triton.InferRequestedOutput("y")
    shared.set_shared_memory("region", 16)
    for asked in (triton.InferRequestedOutput("y", class_count=2), shared):
        with pytest.raises(InferenceServerException, match=r"\[400\].*'y'.*not supported"):
            client.infer("mlp", x(), outputs=[asked])
    lent = triton.InferInput("x", [2, 4], "FP32").set_shared_memory("region", 32)
    with pytest.raises(InferenceServerException, match=r"\[400\].*'x'.*shared memory"):
        client.infer("mlp", [lent])
    with pytest.raises(InferenceServerException, match=r"\[400\].*'x'"):
        client.infer("mlp", [triton.InferInput("x", [2, 4], "FP32")])


@pytest.mark.parametrize(
    ("method", "arguments", "said"),
    [
        ("get_system_shared_memory_status", (), "shared memory"),
        ("get_system_shared_memory_status", ("region",), "shared memory"),
        ("register_system_shared_memory", ("region", "/key", 64), "shared memory"),
        ("unregister_system_shared_memory", (), "shared memory"),
        ("unregister_system_shared_memory", ("region",), "shared memory"),
        ("get_cuda_shared_memory_status", (), "shared memory"),
        ("get_cuda_shared_memory_status", ("region",), "shared memory"),
        ("register_cuda_shared_memory", ("region", "aGFuZGxl", 0, 64), "shared memory"),
        ("unregister_cuda_shared_memory", (), "shared memory"),
        ("unregister_cuda_shared_memory", ("region",), "shared memory"),
        ("get_trace_settings", (), "trace settings"),
        ("get_trace_settings", ("mlp",), "trace settings"),
        ("update_trace_settings", (None, {"trace_level": "OFF"}), "trace settings"),
        ("update_trace_settings", ("mlp", {"trace_level": "OFF"}), "trace settings"),
        ("get_log_settings", (), "log settings"),
        ("update_log_settings", ({"log_verbose_level": 9},), "log settings"),
    ],
)
def test_extensions_that_are_not_there_are_refused_in_words(
    client: Any, method: str, arguments: tuple[Any, ...], said: str
) -> None:
    with pytest.raises(InferenceServerException) as refused:
        getattr(client, method)(*arguments)
    assert refused.value.status() == "404"
    assert refused.value.message().startswith(f"{said} ")
    assert "not offered here" in refused.value.message()


def test_the_repository_is_not_there_without_an_admin_port(client: Any) -> None:
    for ask in (
        client.get_model_repository_index,
        lambda: client.load_model("mlp"),
        lambda: client.unload_model("mlp"),
    ):
        with pytest.raises(InferenceServerException, match=r"\[404\].*no route"):
            ask()
    assert client.is_model_ready("mlp")


def test_errors_arrive_as_its_exception(server: Server, client: Any) -> None:
    with pytest.raises(InferenceServerException, match=r"\[400\].*'x'"):
        client.infer("mlp", [tensor("x", np.zeros((2, 5), np.float32))])
    with pytest.raises(InferenceServerException, match=r"\[404\].*not served"):
        client.infer("nope", x())
    with pytest.raises(InferenceServerException, match=r"\[404\].*version 1"):
        client.infer("mlp", x(), model_version="2")
    big = np.zeros((2, 2**22), np.float32)
    with pytest.raises((InferenceServerException, OSError)):
        client.infer("floats", x(big))
    # That one may have lost its connection while it was still sending; a new one is as ever.
    assert requests.get(server.url + "/v2", timeout=10).ok
    np.testing.assert_allclose(client.infer("mlp", x()).as_numpy("y"), EXPECTED, rtol=1e-5)


def test_a_client_that_is_closed_leaves_the_others_alone(server: Server, client: Any) -> None:
    other = triton.InferenceServerClient(server.url.removeprefix("http://"))
    assert other.is_server_live()
    other.close()
    assert client.is_server_live()
