"""Open Inference Protocol v2 over HTTP, as bytes, against a real server."""

from __future__ import annotations

import gzip
import io
import json
import shlex
import subprocess
import zlib
from typing import Any

import numpy as np
import pytest
import requests
from fake_artifacts import mlp_reference
from running_server import Server
from server_zoo import ECHOES, random_tensor

from modelops.dtypes import DTYPES
from modelops_servers.front.tensor_codec import to_binary

X = {"name": "x", "datatype": "FP32", "shape": [2, 4], "data": [0.0, 1, 2, 3, 4, 5, 6, 7]}
EXPECTED = mlp_reference(np.arange(8, dtype=np.float32).reshape(2, 4))


def echo_request(model: str, shape: tuple[int, int]) -> tuple[bytes, int, dict[str, bytes]]:
    inputs, blobs = [], {}
    for name in ECHOES[model]:
        blob = bytes(to_binary(random_tensor(name, shape)))
        blobs[name] = blob
        inputs.append(
            {
                "name": f"in_{name}",
                "datatype": DTYPES[name].oip,
                "shape": list(shape),
                "parameters": {"binary_data_size": len(blob)},
            }
        )
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return head + b"".join(blobs.values()), len(head), blobs


@pytest.mark.parametrize("shape", [(2, 3), (1, 1), (0, 3), (3, 0)])
@pytest.mark.parametrize("model", ECHOES)
def test_s23_every_dtype_goes_through_binary_bit_for_bit(
    server: Server, model: str, shape: tuple[int, int]
) -> None:
    body, length, blobs = echo_request(model, shape)
    reply = server.post(
        f"/v2/models/{model}/infer",
        data=body,
        headers={"Inference-Header-Content-Length": str(length)},
    )
    assert reply.status_code == 200, reply.text
    head_length = int(reply.headers["Inference-Header-Content-Length"])
    head = json.loads(reply.content[:head_length])
    offset = head_length
    for output in head["outputs"]:
        name = output["name"].removeprefix("out_")
        size = output["parameters"]["binary_data_size"]
        assert output["datatype"] == DTYPES[name].oip
        assert output["shape"] == list(shape)
        assert reply.content[offset : offset + size] == blobs[name], name
        offset += size
    assert offset == len(reply.content)


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_s23_a_hundred_thousand_strings_go_through(server: Server, binary: bool) -> None:
    words = [f"{i:x}" * (i % 3) for i in range(100_000)]
    body, length = strings_request(words, binary=binary)
    reply = server.post(
        "/v2/models/strings/infer",
        data=body,
        headers={"Inference-Header-Content-Length": str(length)},
    )
    assert reply.status_code == 200, reply.text
    if binary:
        assert reply.content.endswith(body[length:-400_000])
    else:
        [output] = reply.json()["outputs"]
        assert output["shape"] == [1, 100_000]
        assert output["data"] == words


@pytest.mark.parametrize("count", [3, 100_000])
@pytest.mark.parametrize("cut", [1, 4, 5])
def test_h3_strings_that_are_not_all_there_are_400(server: Server, count: int, cut: int) -> None:
    body, length = strings_request(["ab"] * count, cut=cut)
    reply = server.post(
        "/v2/models/strings/infer",
        data=body,
        headers={"Inference-Header-Content-Length": str(length)},
    )
    assert reply.status_code == 400
    assert "in_string" in reply.json()["error"]


def strings_request(words: list[str], *, binary: bool = True, cut: int = 0) -> tuple[bytes, int]:
    """A request of ``words``, whose binary data lacks the last ``cut`` bytes."""
    array = np.array([word.encode() for word in words], dtype=object)
    blob = bytes(to_binary(array))
    blob = blob[: len(blob) - cut]
    blobs = {"in_string": ("BYTES", blob), "in_int32": ("INT32", bytes(4 * len(words)))}
    inputs = [
        {
            "name": name,
            "datatype": datatype,
            "shape": [1, len(words)],
            "parameters": {"binary_data_size": len(part)},
        }
        for name, (datatype, part) in blobs.items()
    ]
    outputs = [{"name": "out_string", "parameters": {"binary_data": binary}}]
    head = json.dumps({"inputs": inputs, "outputs": outputs}).encode()
    return b"".join([head, *(part for _, part in blobs.values())]), len(head)


@pytest.mark.parametrize("oip", ["FP16", "BF16"])
def test_s23_half_floats_in_json_are_400(server: Server, oip: str) -> None:
    name = {"FP16": "float16", "BF16": "bfloat16"}[oip]
    reply = server.infer(
        "echo", {"name": f"in_{name}", "datatype": oip, "shape": [1, 1], "data": [1.0]}
    )
    assert reply.status_code == 400
    assert f"in_{name}" in reply.json()["error"]


def test_json_answers_with_id_version_and_shape(server: Server) -> None:
    reply = server.infer("mlp", X, id="seven")
    assert reply.status_code == 200
    answer = reply.json()
    assert answer["id"] == "seven"
    assert answer["model_name"] == "mlp"
    assert answer["model_version"] == "1"
    (output,) = answer["outputs"]
    assert output["shape"] == [2, 2]
    np.testing.assert_allclose(output["data"], EXPECTED.ravel(), rtol=1e-5)


def test_nested_json_means_the_same_as_flat(server: Server) -> None:
    nested = {**X, "data": np.reshape(X["data"], (2, 4)).tolist()}
    assert server.infer("mlp", nested).json() == server.infer("mlp", X).json()


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        ([{**X, "datatype": "FP64"}], "'x'"),
        ([{**X, "datatype": "FP31"}], "'x'"),
        ([{**X, "shape": [2, 5]}], "'x'"),
        ([{**X, "shape": [8]}], "'x'"),
        ([{**X, "shape": [2, -4]}], "'x'"),
        ([{**X, "shape": [2, 4.0]}], "'x'"),
        ([{**X, "shape": [0, 10**18]}], "'x'"),
        ([{**X, "shape": [2**62, 2**62]}], "'x'"),
        ([{**X, "data": X["data"][:-1]}], "'x'"),
        ([{**X, "data": [*X["data"][:-1], "7"]}], "'x'"),
        ([{**X, "data": [*X["data"][:-1], None]}], "'x'"),
        ([{**X, "data": [*X["data"][:-1], True]}], "'x'"),
        ([{**X, "data": [*X["data"][:-1], 1e300]}], "'x'"),
        ([{**X, "data": [[0, 1, 2], [3, 4, 5, 6, 7]]}], "'x'"),
        ([{**X, "data": 7}], "'x'"),
        ([X, X], "'x'"),
        ([X, {**X, "name": "z"}], "'z'"),
        ([{**X, "name": "z"}], "'z'"),
        ([{**X, "name": ["x"]}], "name"),
        ([{**X, "shape": [65, 4], "data": [0] * 260}], "batch=65"),
        ([], "inputs"),
        (["x"], "object"),
    ],
)
def test_h3_what_does_not_fit_is_400_and_named(
    server: Server, inputs: list[Any], named: str
) -> None:
    reply = server.post("/v2/models/mlp/infer", json={"inputs": inputs})
    assert reply.status_code == 400, reply.text
    assert list(reply.json()) == ["error"]
    assert named in reply.json()["error"]


def test_h3_a_missing_input_is_400_and_named(server: Server) -> None:
    a = {"name": "a", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    reply = server.infer("ratio", a)
    assert reply.status_code == 400
    assert "'b' is missing" in reply.json()["error"]


@pytest.mark.parametrize("sent", [31, 33, 0])
def test_h3_a_byte_count_that_disagrees_is_400(server: Server, sent: int) -> None:
    for claimed in (sent, 32):
        spec = {k: v for k, v in X.items() if k != "data"}
        head = json.dumps(
            {"inputs": [{**spec, "parameters": {"binary_data_size": claimed}}]}
        ).encode()
        reply = server.post(
            "/v2/models/mlp/infer",
            data=head + bytes(sent),
            headers={"Inference-Header-Content-Length": str(len(head))},
        )
        assert reply.status_code == 400, (sent, claimed)
        assert "'x'" in reply.json()["error"] or "bytes" in reply.json()["error"]


@pytest.mark.parametrize("length", ["x", "-1", "999999", "1e3", ""])
def test_h3_an_impossible_json_length_is_400(server: Server, length: str) -> None:
    reply = server.post(
        "/v2/models/mlp/infer",
        data=json.dumps({"inputs": [X]}),
        headers={"Inference-Header-Content-Length": length},
    )
    assert reply.status_code == 400


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_h5_non_finite_json_input_is_400(server: Server, value: str) -> None:
    body = json.dumps({"inputs": [X]}).replace("7]", value + "]")
    assert value in body
    reply = server.post("/v2/models/mlp/infer", data=body)
    assert reply.status_code == 400
    assert "error" in reply.json()


def test_h5_non_finite_outputs_are_null_in_json_and_exact_in_binary(server: Server) -> None:
    a = {"name": "a", "datatype": "FP32", "shape": [2, 2], "data": [-1, 0, 1, 4]}
    b = {"name": "b", "datatype": "FP32", "shape": [2, 2], "data": [0, 0, 0, 2]}
    reply = server.infer("ratio", a, b)
    assert reply.status_code == 200
    assert reply.json()["outputs"][0]["data"] == [None, None, None, 2.0]
    reply = server.infer("ratio", a, b, parameters={"binary_data_output": True})
    head = int(reply.headers["Inference-Header-Content-Length"])
    with np.errstate(all="ignore"):
        expected = np.array([-1, 0, 1, 4], "f4") / np.array([0, 0, 0, 2], "f4")
    np.testing.assert_array_equal(np.frombuffer(reply.content[head:], "f4"), expected)


def test_a_raw_body_is_the_only_input(server: Server) -> None:
    reply = server.post(
        "/v2/models/floats/infer",
        data=np.arange(5, dtype="f4").tobytes(),
        headers={"Inference-Header-Content-Length": "0"},
    )
    assert reply.status_code == 200
    head = int(reply.headers["Inference-Header-Content-Length"])
    assert json.loads(reply.content[:head])["outputs"][0]["shape"] == [1, 5]
    assert reply.content[head:] == np.arange(5, dtype="f4").tobytes()


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compressed_requests_are_read(server: Server, coding: str) -> None:
    pack = {"gzip": gzip.compress, "deflate": zlib.compress}[coding]
    body = pack(json.dumps({"inputs": [X]}).encode())
    headers = {"Content-Encoding": coding}
    assert server.post("/v2/models/mlp/infer", data=body, headers=headers).status_code == 200
    cut = server.post("/v2/models/mlp/infer", data=body[:-6], headers=headers)
    assert cut.status_code == 400
    bomb = server.post("/v2/models/mlp/infer", data=pack(bytes(2**26)), headers=headers)
    assert bomb.status_code == 413


def test_unknown_and_twice_requested_outputs_are_400(server: Server) -> None:
    for outputs in ([{"name": "z"}], [{"name": "y"}, {"name": "y"}], [{}], "y"):
        assert server.infer("mlp", X, outputs=outputs).status_code == 400


def test_the_protocol_timeout_is_a_deadline(server: Server) -> None:
    x = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    steps = {"name": "steps", "datatype": "INT64", "shape": [1], "data": [400_000]}
    reply = server.infer("slow", x, steps, parameters={"timeout": 20_000})
    assert reply.status_code == 504, reply.text
    assert reply.elapsed.total_seconds() < 5


def test_versions_and_metadata(server: Server) -> None:
    meta = server.get("/v2/models/mlp").json()
    assert meta["versions"] == ["1"]
    assert meta["inputs"] == [
        {"name": "x", "datatype": "FP32", "shape": [-1, 4], "parameters": {"shape": ["batch", 4]}}
    ]
    facts = meta["parameters"]
    assert facts["provider"] == "cpu"
    assert facts["threads"] >= 1
    assert facts["precision"] == "float32"
    assert facts["digest"].startswith("sha256:")
    assert server.get("/v2/models/mlp/versions/1").json() == meta
    assert server.get("/v2/models/mlp/versions/1/ready").json()["ready"] is True
    assert server.post("/v2/models/mlp/versions/1/infer", json={"inputs": [X]}).ok
    for path in ("/v2/models/mlp/versions/2", "/v2/models/mlp/versions/2/ready"):
        assert server.get(path).status_code == 404
    reply = server.post("/v2/models/mlp/versions/2/infer", json={"inputs": [X]})
    assert reply.status_code == 404
    assert "version 1" in reply.json()["error"]


def curl(server: Server, *arguments: str, stdin: bytes = b"") -> tuple[int, bytes]:
    """Run curl; return the status and the body."""
    done = subprocess.run(
        ["curl", "-sS", "-w", "\n%{http_code}", *arguments],
        input=stdin,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    body, _, status = done.stdout.rpartition(b"\n")
    return int(status), body


def test_the_request_that_a_start_prints_is_answered(server: Server) -> None:
    text = server.ready["curl"]
    assert text.startswith("curl ")
    status, body = curl(server, *shlex.split(text)[1:])
    assert status == 200, body
    (output,) = json.loads(body)["outputs"]
    np.testing.assert_allclose(output["data"], mlp_reference(np.ones((1, 4), np.float32))[0], 1e-5)


def test_curl_in_the_ways_that_it_sends_bodies(server: Server) -> None:
    infer = f"{server.url}/v2/models/mlp/infer"
    body = json.dumps({"inputs": [X]}).encode()
    for more in (
        ["-d", "@-"],
        ["--data-binary", "@-", "-H", "Transfer-Encoding: chunked"],
        ["--data-binary", "@-", "-H", "Expect: 100-continue"],
        ["--data-binary", "@-", "--http1.0"],
        ["--data-binary", "@-", "--compressed"],
        ["-X", "POST", "-T", "-"],
    ):
        status, answer = curl(server, infer, *more, stdin=body)
        assert status == 200, (more, answer)
        np.testing.assert_allclose(
            json.loads(answer)["outputs"][0]["data"], EXPECTED.ravel(), rtol=1e-5
        )
    # From a megabyte on it asks first whether it may.
    many = {**X, "shape": [4, 50_000], "data": list(range(200_000))}
    status, answer = curl(
        server,
        f"{server.url}/v2/models/floats/infer",
        "-d",
        "@-",
        stdin=json.dumps({"inputs": [many]}).encode(),
    )
    assert status == 200
    assert json.loads(answer)["outputs"][0]["data"] == many["data"]
    status, answer = curl(server, infer, "--data-binary", "@-", stdin=bytes(5 * 2**20))
    assert status == 413
    assert "limit" in json.loads(answer)["error"]
    assert curl(server, "-I", f"{server.url}/v2/health/ready")[0] == 200


def test_requests_with_a_session_and_every_form_of_body(server: Server) -> None:
    body = json.dumps({"inputs": [X]}).encode()
    url = f"{server.url}/v2/models/mlp/infer"
    with requests.Session() as session:
        for data in (body, iter([body[:9], body[9:]]), io.BytesIO(body)):
            reply = session.post(url, data=data, timeout=10)
            assert reply.ok, reply.text
            assert reply.headers["Content-Type"] == "application/json"
        assert session.post(url, json={"inputs": [X]}, timeout=10).json()["model_name"] == "mlp"
        refused = session.post(url, timeout=10)
        assert refused.status_code == 400
        assert "JSON" in refused.json()["error"]
        with session.get(f"{server.url}/openapi.json", stream=True, timeout=10) as reply:
            assert b"".join(reply.iter_content(1000)) == session.get(reply.url, timeout=10).content


def test_routes_that_take_another_method_say_which(server: Server) -> None:
    for path in ("/v2", "/v2/models/mlp", "/v2/models/mlp/ready", "/livez", "/metrics"):
        reply = server.post(path, data=b"{}")
        assert reply.status_code == 405
        assert "GET" in reply.headers["Allow"]
