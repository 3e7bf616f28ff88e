"""``/v1/embeddings`` and ``/v1/models``, by plain requests and by the unchanged openai client."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from typing import Any

import numpy as np
import openai
import pytest
from running_server import Server

TEXTS = ["the cat sat on the mat", "cat", "a mat on a mat", "sat", "on the mat the cat sat", "a"]


def embed(server: Server, value: Any, **fields: Any) -> Any:
    return server.post("/v1/embeddings", json={"model": "embedder", "input": value, **fields})


def vectors(reply: Any) -> np.ndarray:
    assert reply.status_code == 200, reply.text
    data = reply.json()["data"]
    assert [d["index"] for d in data] == list(range(len(data)))
    return np.array([d["embedding"] for d in data], "f4")


def test_a_batch_gives_each_text_what_it_gets_alone_and_in_order(server: Server) -> None:
    together = vectors(embed(server, TEXTS))
    alone = np.concatenate([vectors(embed(server, text)) for text in TEXTS])
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-6)
    assert len({tuple(row) for row in alone.tolist()}) == len(TEXTS)


def test_usage_counts_the_tokens_really_read(server: Server) -> None:
    assert embed(server, ["cat", "the cat sat"]).json()["usage"] == {
        "prompt_tokens": 3 + 5,
        "total_tokens": 8,
    }


def test_token_ids_are_taken_as_they_are(server: Server) -> None:
    text = vectors(embed(server, "the cat"))
    np.testing.assert_array_equal(vectors(embed(server, [1, 4, 5, 2])), text)
    both = embed(server, [[1, 4, 5, 2], [1, 5, 2]])
    np.testing.assert_allclose(vectors(both)[0], text[0], rtol=1e-6)
    assert both.json()["usage"]["prompt_tokens"] == 7


def test_one_token_id_is_padded_to_the_smallest_size_without_being_seen(server: Server) -> None:
    one = vectors(embed(server, [5]))
    np.testing.assert_allclose(one, vectors(embed(server, [[5], [5, 5]]))[:1], rtol=1e-6)


def test_base64_is_little_endian_float32(server: Server) -> None:
    plain = vectors(embed(server, "cat", encoding_format="float"))
    coded = embed(server, "cat", encoding_format="base64").json()["data"][0]["embedding"]
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(coded), "<f4"), plain[0])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("", "empty string"),
        (["cat", ""], "input[1]"),
        ([], "empty list"),
        ([[]], "empty list"),
        (None, "input"),
        (7, "input"),
        ({"text": "cat"}, "input"),
        (["cat", 5], "mixes"),
        ([1.5], "mixes"),
        ([True], "mixes"),
        ([[1, "2"]], "input[0]"),
        ([[1, True]], "input[0]"),
        ([1, 10], "outside 0..9"),
        ([1, -1], "outside 0..9"),
        ([10**18], "outside 0..9"),
        (["cat"] * 2049, "2049"),
    ],
)
def test_bad_input_is_400_as_openai_has_it(server: Server, value: Any, said: str) -> None:
    reply = embed(server, value)
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert said in error["message"]


@pytest.mark.parametrize("value", ["cat " * 15, ["cat", "cat " * 15], [5] * 17])
def test_s22_too_long_is_400_with_the_counts_never_cut(server: Server, value: Any) -> None:
    reply = embed(server, value)
    assert reply.status_code == 400
    assert "maximum context length is 16 tokens" in reply.json()["error"]["message"]
    assert "17" in reply.json()["error"]["message"]
    assert embed(server, "cat " * 14).status_code == 200


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"encoding_format": "int8"}, "encoding_format"),
        ({"dimensions": 3}, "dimensions"),
        ({"dimensions": "4"}, "dimensions"),
        ({"dimensions": True}, "dimensions"),
        ({"model": None}, "model"),
        ({"model": "mlp"}, "model"),
    ],
)
def test_bad_options_are_400_and_named(server: Server, fields: dict[str, Any], param: str) -> None:
    reply = embed(server, "cat", **fields)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param


def test_its_own_dimensions_are_fine_and_an_unknown_model_is_404(server: Server) -> None:
    assert embed(server, "cat", dimensions=4).status_code == 200
    reply = embed(server, "cat", model="gpt")
    assert reply.status_code == 404
    assert reply.json()["error"]["code"] == "model_not_found"
    assert "embedder" in reply.json()["error"]["message"]


def test_curl_as_the_readme_types_it(server: Server) -> None:
    body = '{"model": "embedder", "input": "Where is my parcel?"}'
    done = subprocess.run(
        f"curl -s {server.url}/v1/embeddings -H 'Content-Type: application/json' -d '{body}'",
        shell=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["data"]
    expected = vectors(embed(server, "Where is my parcel?"))[0]
    np.testing.assert_array_equal(np.array(found["embedding"], "f4"), expected)


class TestOpenaiClient:
    """The ``openai`` package, unchanged."""

    @pytest.fixture
    def client(self, server: Server) -> Any:
        with openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0) as client:
            yield client

    def test_embeddings_by_default_and_as_floats(self, client: Any, server: Server) -> None:
        default = client.embeddings.create(model="embedder", input=TEXTS)
        floats = client.embeddings.create(model="embedder", input=TEXTS, encoding_format="float")
        expected = vectors(embed(server, TEXTS))
        for answer in (default, floats):
            got = np.array([d.embedding for d in answer.data], "f4")
            np.testing.assert_allclose(got, expected, rtol=1e-6)
        assert default.usage.prompt_tokens == floats.usage.prompt_tokens > 0

    def test_what_else_it_may_send(self, client: Any, server: Server) -> None:
        expected = vectors(embed(server, "the cat"))[0]
        for more in (
            {"user": "somebody"},
            {"dimensions": 4},
            {"extra_body": {"truncate": "END", "priority": 3}},
            {"extra_headers": {"X-Request-Id": "seven"}, "extra_query": {"a": "b"}},
            {"timeout": 20.0},
        ):
            answer = client.embeddings.create(model="embedder", input="the cat", **more)
            np.testing.assert_allclose(answer.data[0].embedding, expected, rtol=1e-6)
        tokens = client.embeddings.create(model="embedder", input=[[1, 4, 5, 2], [1, 5, 2]])
        np.testing.assert_allclose(tokens.data[0].embedding, expected, rtol=1e-6)
        coded = client.embeddings.create(
            model="embedder", input="the cat", encoding_format="base64"
        ).data[0]
        np.testing.assert_array_equal(
            np.frombuffer(base64.b64decode(str(coded.embedding)), "<f4"), expected
        )
        raw = client.embeddings.with_raw_response.create(model="embedder", input="cat")
        assert raw.headers["X-Request-Id"]
        assert raw.parse().usage.total_tokens == 3

    def test_asynchronously_and_all_at_once(self, server: Server) -> None:
        async def ask() -> list[Any]:
            async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="x") as client:
                asked = [client.embeddings.create(model="embedder", input=t) for t in TEXTS * 5]
                return await asyncio.gather(*asked)

        answers = asyncio.run(ask())
        expected = vectors(embed(server, TEXTS))
        for i, answer in enumerate(answers):
            (found,) = answer.data
            np.testing.assert_allclose(
                found.embedding, expected[i % len(TEXTS)], rtol=1e-5, atol=1e-6
            )

    def test_models(self, client: Any) -> None:
        assert "embedder" in [m.id for m in client.models.list()]
        assert client.models.retrieve("embedder").id == "embedder"

    def test_errors(self, client: Any) -> None:
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="nope", input="cat")
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("nope")
        with pytest.raises(openai.BadRequestError, match="makes no text"):
            client.chat.completions.create(model="embedder", messages=[])
        with pytest.raises(openai.BadRequestError, match="empty string") as refused:
            client.embeddings.create(model="embedder", input="")
        assert refused.value.param == "input"
        assert refused.value.type == "invalid_request_error"
