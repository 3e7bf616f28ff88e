"""The real embedding model, exported by the real exporter and served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import openai
import pytest
from running_server import Server, start

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(minilm_artifact: Path) -> Iterator[Server]:
    server = start(str(minilm_artifact))
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
