"""The real embedding model, exported by the real exporter and served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import openai
import pytest
import tritonclient.http as triton
from running_server import Placement, Server, start

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(minilm_artifact: Path, placement: Placement) -> Iterator[Server]:
    server = start(str(minilm_artifact), *placement.flags)
    yield server
    server.close()


def test_the_embedding_means_something_and_clients_see_no_difference(served: Server) -> None:
    texts = ["A cat sat on the mat.", "A feline rested on the rug.", "Revenue grew by 8%."]
    with openai.OpenAI(base_url=served.url + "/v1", api_key="unused") as client:
        answer = client.embeddings.create(model="minilm", input=texts)
        vectors = np.array([d.embedding for d in answer.data])
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-4)
        close, far = vectors[0] @ vectors[1], vectors[0] @ vectors[2]
        assert close > far + 0.3
        alone = client.embeddings.create(model="minilm", input=texts[1]).data[0].embedding
        np.testing.assert_allclose(vectors[1], alone, atol=1e-5)
        with pytest.raises(openai.BadRequestError, match="maximum context length"):
            client.embeddings.create(model="minilm", input="hello " * 2000)
    facts = served.get("/v2/models/minilm").json()["parameters"]
    assert facts["provider"] == "cpu"
    assert facts["task"] == "embedding"


def test_the_tensors_behind_it_as_the_readme_asks_for_them(served: Server) -> None:
    ids = np.array([[101, 7592, 2088, 102]])
    inputs = []
    for name, values in {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "token_type_ids": np.zeros_like(ids),
    }.items():
        inputs.append(triton.InferInput(name, values.shape, "INT64"))
        inputs[-1].set_data_from_numpy(values)
    with triton.InferenceServerClient(served.url.removeprefix("http://")) as client:
        vector = client.infer("minilm", inputs).as_numpy("embedding")
    assert vector.shape == (1, 384)
    with openai.OpenAI(base_url=served.url + "/v1", api_key="unused") as client:
        same = client.embeddings.create(model="minilm", input="hello world").data[0].embedding
    np.testing.assert_allclose(vector[0], same, atol=1e-5)
