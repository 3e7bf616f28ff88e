"""Loading and unloading while others are served: the operator's port, with engines both ways."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import requests
import tritonclient.http as triton
from fake_artifacts import make_artifact, mlp_reference
from running_server import Placement, Server, Starter, start
from server_zoo import float_echo, slow, tiny_embedder
from tritonclient.utils import InferenceServerException

VALUES = [0.5, -1.0, 2.0, 3.0]
X = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": VALUES}
SEEDS = {"1": 7, "2": 8, "3": 9}
KEY = "k3y-of-the-operator-0123"
ROUTES = [("index", ""), ("load", "models/a/load"), ("unload", "models/a/unload")]


class Repository:
    """A gateway over artifacts that grow new versions."""

    def __init__(self, root: Path, placement: Placement) -> None:
        self.root = root
        for name in "abcde":
            self.publish(name, 1)
        slow(root / "slow")
        float_echo(root / "floats", "floats")
        tiny_embedder(root / "embedder")
        folders = [str(root / name) for name in [*"abcde", "slow", "floats", "embedder"]]
        self.server = start(*folders, "--admin-port", "0", *placement.flags)

    def publish(self, name: str, version: int) -> Path:
        """Publish the MLP whose weights are those of ``version``."""
        made = make_artifact(self.root / name, seed=SEEDS[str(version)], name=name)
        return made.path

    def ask(self, what: str, name: str = "", **body: Any) -> requests.Response:
        path = "index" if what == "index" else f"models/{name}/{what}"
        url = f"{self.server.admin_url}/v2/repository/{path}"
        return requests.post(url, json=body, timeout=120)

    def index(self, name: str) -> list[dict[str, Any]]:
        return [entry for entry in self.ask("index").json() if entry["name"] == name]

    def answer(self, name: str, version: str | None = None) -> requests.Response:
        at = "" if version is None else f"/versions/{version}"
        body = {"inputs": [X]}
        return self.server.post(f"/v2/models/{name}{at}/infer", json=body)

    def serves(self, name: str, version: str) -> bool:
        """Whether ``version``, and no other, is what answers for ``name``."""
        reply = self.answer(name)
        assert reply.status_code == 200, reply.text
        found = reply.json()
        expected = mlp_reference(np.array([VALUES], np.float32), SEEDS[version])
        same = np.allclose(found["outputs"][0]["data"], expected.ravel(), rtol=1e-4)
        metadata = self.server.get(f"/v2/models/{name}").json()
        assert metadata["versions"] == [found["model_version"]]
        return bool(found["model_version"] == version and same)


@pytest.fixture(scope="module")
def repository(
    tmp_path_factory: pytest.TempPathFactory, placement: Placement
) -> Iterator[Repository]:
    running = Repository(tmp_path_factory.mktemp("repository"), placement)
    yield running
    running.server.close()


@pytest.fixture
def operator(repository: Repository) -> Iterator[Any]:
    address = repository.server.admin_url.removeprefix("http://")
    with triton.InferenceServerClient(address, network_timeout=120) as client:
        yield client


@contextmanager
def hammering(repository: Repository, name: str) -> Iterator[list[tuple[int, str]]]:
    """Ask ``name`` all the time from two sides; yield the statuses and versions seen."""
    seen: list[tuple[int, str]] = []
    stop = threading.Event()

    def hammer() -> None:
        with requests.Session() as session:
            while not stop.is_set():
                url = f"{repository.server.url}/v2/models/{name}/infer"
                reply = session.post(url, json={"inputs": [X]}, timeout=60)
                seen.append((reply.status_code, reply.json().get("model_version", reply.text)))

    def watch() -> None:
        with requests.Session() as session:
            while not stop.wait(0.02):
                reply = session.get(f"{repository.server.url}/readyz", timeout=60)
                if reply.status_code != 200:
                    seen.append((reply.status_code, reply.text))

    threads = [threading.Thread(target=work) for work in (hammer, hammer, watch)]
    for thread in threads:
        thread.start()
    try:
        yield seen
        time.sleep(0.3)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_new_version_takes_over_without_a_failed_request(
    repository: Repository, operator: Any
) -> None:
    assert repository.serves("a", "1")
    repository.publish("a", 2)
    assert repository.serves("a", "1"), "what is published is not served before it is asked for"
    with hammering(repository, "a") as seen:
        time.sleep(0.3)
        operator.load_model("a")
        assert repository.serves("a", "2")
    assert {status for status, _ in seen} == {200}, [s for s in seen if s[0] != 200][:3]
    versions = [version for _, version in seen]
    assert set(versions) == {"1", "2"}
    assert "2" in versions[-2:]
    assert repository.index("a") == [{"name": "a", "state": "READY", "version": "2"}]
    for path in ("", "/ready", "/config", "/stats"):
        assert repository.server.get(f"/v2/models/a/versions/1{path}").status_code == 404
    assert repository.answer("a", "1").status_code == 404
    assert "version 2" in repository.answer("a", "1").json()["error"]
    assert repository.answer("a", "2").ok
    for name in "bcde":
        assert repository.serves(name, "1")


def test_a_request_that_began_before_the_new_version_is_answered(repository: Repository) -> None:
    body = json.dumps({"inputs": [X]}).encode()
    head = f"POST /v2/models/b/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", repository.server.port), timeout=60) as link:
        link.sendall(head.encode() + b"Connection: close\r\n\r\n" + body[:20])
        time.sleep(0.2)
        repository.publish("b", 2)
        assert repository.ask("load", "b").status_code == 200
        assert repository.serves("b", "2")
        link.sendall(body[20:])
        reply = b""
        while part := link.recv(65536):
            reply += part
    assert reply.split(b" ", 2)[1] == b"200", reply


def test_a_large_upload_that_began_before_the_new_version_is_answered(
    repository: Repository,
) -> None:
    """Its tensor may lie in memory that was shared with the engine which is let go meanwhile."""
    values = np.arange(400_000, dtype=np.float32).reshape(1, -1)
    one = triton.InferInput("x", list(values.shape), "FP32").set_data_from_numpy(values)
    body, length = triton.InferenceServerClient.generate_request_body([one])
    head = (
        "POST /v2/models/floats/infer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\nInference-Header-Content-Length: {length}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", repository.server.port), timeout=60) as link:
        link.sendall(head.encode() + body[:900_000])
        time.sleep(0.2)
        float_echo(repository.root / "floats", "floats")
        assert repository.ask("load", "floats").ok
        assert repository.index("floats")[0]["version"] == "2"
        time.sleep(0.2)
        link.sendall(body[900_000:])
        reply = b""
        while part := link.recv(2**20):
            reply += part
    assert reply.split(b" ", 2)[1] == b"200", reply[:500]
    assert reply.endswith(values.tobytes())
    assert repository.server.get("/readyz").json()["models"][0]["in_flight"] == 0


def test_a_damaged_version_is_refused_by_name_and_the_old_one_serves(
    repository: Repository, operator: Any
) -> None:
    path = repository.publish("c", 2)
    model = path / "model.onnx"
    data = bytearray(model.read_bytes())
    data[len(data) // 2] ^= 1
    model.write_bytes(data)
    with hammering(repository, "c") as seen, pytest.raises(InferenceServerException) as refused:
        operator.load_model("c")
    # The request was right; the artifact on this side is not.
    assert refused.value.status() == "502"
    assert "model.onnx is altered" in refused.value.message()
    assert "version 1 is still served" in refused.value.message()
    assert set(seen) == {(200, "1")}
    assert repository.serves("c", "1")
    assert repository.index("c") == [{"name": "c", "state": "READY", "version": "1"}]
    assert repository.server.get("/v2/models/c/versions/2").status_code == 404
    (path / "modelops.json").write_text("{")
    reply = repository.ask("load", "c")
    assert reply.status_code == 502
    assert "modelops.json" in reply.json()["error"]
    assert repository.serves("c", "1")
    shutil.rmtree(path)
    assert repository.ask("load", "c").ok, "what was there before is there still"
    assert repository.serves("c", "1")
    repository.publish("c", 2)
    assert repository.ask("load", "c").ok
    assert repository.serves("c", "2")


def test_a_damaged_tokenizer_stops_no_front(repository: Repository) -> None:
    front = repository.server.front.pid
    path = tiny_embedder(repository.root / "embedder")
    with (path / "tokenizer.json").open("ab") as file:
        file.write(b" ")
    reply = repository.ask("load", "embedder")
    assert reply.status_code == 502, reply.text
    assert "tokenizer.json is altered" in reply.json()["error"]
    assert repository.server.front.pid == front
    answer = repository.server.post("/v1/embeddings", json={"model": "embedder", "input": "cat"})
    assert answer.ok
    assert repository.server.get("/readyz").ok


def test_artifacts_that_are_gone_are_told_and_what_is_loaded_serves(repository: Repository) -> None:
    folder = repository.root / "d"
    away = folder.rename(repository.root / "away")
    reply = repository.ask("load", "d")
    away.rename(folder)
    assert reply.status_code == 502, reply.text
    assert str(folder) in reply.json()["error"]
    assert repository.serves("d", "1")


def test_unload_and_load_again(repository: Repository, operator: Any) -> None:
    began = time.time()
    operator.unload_model("d", unload_dependents=True)
    for reply in (repository.answer("d"), repository.answer("d", "1")):
        assert reply.status_code == 503, reply.text
        assert "unloaded" in reply.json()["error"]
        assert int(reply.headers["Retry-After"]) >= 1
    ready = repository.server.get("/v2/models/d/ready")
    assert ready.status_code == 503
    assert "unloaded" in ready.json()["why"]
    since = ready.json()["since"]
    assert repository.server.get("/v2/models/d/ready").json()["since"] == since
    assert began - 1 < datetime.fromisoformat(since).timestamp() <= time.time()
    (entry,) = repository.index("d")
    assert (entry["name"], entry["state"]) == ("d", "UNAVAILABLE")
    assert "unloaded" in entry["reason"]
    listed = {e["name"] for e in repository.ask("index", ready=True).json()}
    assert "d" not in listed
    assert "a" in listed
    # No model here is required: the gateway is ready without it, and says what it lacks.
    whole = repository.server.get("/readyz")
    assert whole.ok
    assert whole.json()["not_ready"] == ["d"]
    operator.unload_model("d")
    operator.load_model("d")
    assert repository.serves("d", "1")
    assert repository.index("d") == [{"name": "d", "state": "READY", "version": "1"}]
    assert repository.server.get("/readyz").json()["not_ready"] == []


def test_loading_what_is_served_already_changes_nothing(repository: Repository) -> None:
    with hammering(repository, "e") as seen:
        assert repository.ask("load", "e").json() == {}
    assert set(seen) == {(200, "1")}


def test_operators_at_cross_purposes_end_in_one_state(repository: Repository) -> None:
    repository.publish("e", 2)
    asked = ["load", "unload", "load", "unload", "load", "load"]
    with ThreadPoolExecutor(len(asked)) as pool:
        replies = list(pool.map(lambda what: repository.ask(what, "e"), asked))
    assert [r.status_code for r in replies] == [200] * len(asked)
    assert repository.ask("load", "e").ok
    assert repository.serves("e", "2")


def test_what_is_being_answered_is_answered_before_the_model_goes(repository: Repository) -> None:
    def steps(count: int) -> dict[str, Any]:
        return {"name": "steps", "datatype": "INT64", "shape": [1], "data": [count]}

    began = time.monotonic()
    assert repository.server.infer("slow", X, steps(100_000)).ok
    count = int(100_000 / (time.monotonic() - began))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(repository.server.infer, "slow", X, steps(count))
        time.sleep(0.4)
        assert repository.ask("unload", "slow").ok
        assert not answer.done()
        assert repository.server.infer("slow", X, steps(1)).status_code == 503
        assert answer.result().status_code == 200


def test_what_is_not_in_the_configuration_is_404(repository: Repository, operator: Any) -> None:
    for ask in (operator.load_model, operator.unload_model):
        with pytest.raises(InferenceServerException, match=r"\[404\].*'nope'.*configuration"):
            ask("nope")
    for name in ("..", "a%2F1", "%00", "a" * 1000, "A", "/etc"):
        assert repository.ask("load", name).status_code == 404, name


def test_nothing_can_be_smuggled_into_a_load(repository: Repository, operator: Any) -> None:
    small, large = b"weights", bytes(2**20)
    for config, files in (("{}", None), (None, {"file:1/model.onnx": small}), ("{}", {})):
        if files:
            config = "{}"
        with pytest.raises(InferenceServerException, match=r"\[400\].*cannot be sent"):
            operator.load_model("a", config=config, files=files)
    # Whether it reads why depends on how much of it was on its way.
    with pytest.raises((InferenceServerException, OSError)) as refused:
        operator.load_model("a", config="{}", files={"file:1/model.onnx": large})
    if isinstance(refused.value, InferenceServerException):
        assert refused.value.status() == "413"
        assert "cannot be sent" in refused.value.message()
    assert repository.answer("a").ok


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 200),
        (b"  ", 200),
        (b"{}", 200),
        (b'{"parameters": null}', 200),
        (b'{"parameters": {"unload_dependents": true}}', 200),
        (b"{", 400),
        (b"[]", 400),
        (b"null", 400),
        (b'"load"', 400),
        (b"\xff", 400),
        (b'{"parameters": []}', 400),
        (b'{"parameters": {"config": "{}"}}', 400),
        (b"[" * 10_000, 400),
        (b" " * 70_000, 413),
    ],
)
def test_bodies_of_a_load(repository: Repository, body: bytes, status: int) -> None:
    url = f"{repository.server.admin_url}/v2/repository/models/a/load"
    reply = requests.post(url, data=body, timeout=60)
    assert reply.status_code == status, reply.text
    assert ("error" in reply.json()) == (status != 200)
    if status != 200:
        asked = requests.post(
            f"{repository.server.admin_url}/v2/repository/index", data=body, timeout=60
        )
        assert asked.status_code in (200, status)


def test_bodies_of_an_index(repository: Repository) -> None:
    assert repository.ask("index", ready="yes").status_code == 400
    assert len(repository.ask("index", ready=False).json()) == 8


def test_the_admin_port_answers_all_else_too_and_says_how_it_is_asked(
    repository: Repository,
) -> None:
    admin, public = repository.server.admin_url, repository.server.url
    assert admin != public
    metadata = requests.get(f"{admin}/v2", timeout=10).json()
    assert "model_repository" in metadata["extensions"]
    assert "model_repository" not in requests.get(f"{public}/v2", timeout=10).json()["extensions"]
    infer = f"{admin}/v2/models/b/infer"
    assert requests.post(infer, json={"inputs": [X]}, timeout=10).ok
    for _, path in ROUTES:
        wrong = requests.get(f"{admin}/v2/repository/{path or 'index'}", timeout=10)
        assert wrong.status_code == 405
        assert wrong.headers["Allow"] == "POST"
        assert "takes POST" in wrong.json()["error"]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "HEAD", "OPTIONS"])
@pytest.mark.parametrize(
    "path",
    [
        "/v2/repository/index",
        "/v2/repository/models/mlp/load",
        "/v2/repository/models/mlp/unload",
        "/v2/repository/models/mlp/unload/",
        "//v2/repository/index",
        "/v2/repository%2Findex",
        "/%76%32/repository/models/mlp/unload",
        "/v2/./repository/models/mlp/unload",
        "/v2/models/../repository/models/mlp/unload",
    ],
)
def test_without_an_admin_port_nothing_of_it_is_there(
    server: Server, method: str, path: str
) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as link:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        link.sendall(f"{head}Content-Length: 2\r\n\r\n{{}}".encode())
        reply = b""
        while part := link.recv(65536):
            reply += part
    assert reply.split(b" ", 2)[1] == b"404", reply[:200]
    assert server.get("/v2/models/mlp/ready").ok
    assert server.ready["admin_url"] is None


def test_with_keys_on_the_operator_needs_one_too(
    starter: Starter, tmp_path: Path, placement: Placement
) -> None:
    make_artifact(tmp_path / "a", name="a")
    server = starter(
        str(tmp_path / "a"),
        "--admin-port",
        "0",
        *placement.flags,
        env={"MODELOPS_API_KEYS": KEY},
    )
    for _, path in ROUTES:
        url = f"{server.admin_url}/v2/repository/{path or 'index'}"
        for headers in ({}, {"Authorization": f"Bearer {KEY}x"}, {"X-Api-Key": KEY}):
            reply = requests.post(url, headers=headers, timeout=10)
            assert reply.status_code == 401
            assert reply.headers["WWW-Authenticate"] == "Bearer"
    good = {"Authorization": f"Bearer {KEY}"}
    assert server.get("/v2/models/a/ready", headers=good).ok, "nobody has unloaded it"
    make_artifact(tmp_path / "a", name="a", seed=SEEDS["2"])

    class WithKey:
        """A plugin of the client, which its methods know nothing of."""

        def __call__(self, request: Any) -> None:
            request.headers["Authorization"] = f"Bearer {KEY}"

    with triton.InferenceServerClient(server.admin_url.removeprefix("http://")) as client:
        with pytest.raises(InferenceServerException, match=r"\[401\].*API key"):
            client.get_model_repository_index()
        assert client.get_model_repository_index(headers=dict(good))[0]["version"] == "1"
        plugin = WithKey()
        client.register_plugin(plugin)
        assert client.plugin() is plugin
        client.load_model("a")
        assert client.get_model_repository_index()[0]["version"] == "2"
        client.unload_model("a")
        assert not client.is_model_ready("a")
        client.unregister_plugin()
        with pytest.raises(InferenceServerException, match=r"\[401\]"):
            client.load_model("a")
    with openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0) as client:
        assert [m.id for m in client.models.list()] == ["a"]
    with (
        openai.OpenAI(base_url=server.url + "/v1", api_key=KEY[:-1], max_retries=0) as client,
        pytest.raises(openai.AuthenticationError, match="API key"),
    ):
        client.models.list()
    assert KEY not in "".join(server.log)
