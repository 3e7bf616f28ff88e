"""Server processes over small real artifacts: shared ones, and those that a test may harm.

Whatever a client can see is the same wherever the engine runs, so what is shared runs both ways.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import Placement, Server, Starter, start
from server_zoo import publish_all

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def starter() -> Iterator[Starter]:
    """Return a function that starts servers which the test's end stops."""
    servers: list[Server] = []

    def begin(*arguments: str, env: dict[str, str] | None = None) -> Server:
        servers.append(start(*arguments, env=env))
        return servers[-1]

    yield begin
    for server in servers:
        server.close()


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Publish one artifact of each kind."""
    return publish_all(tmp_path_factory.mktemp("artifacts"))


@pytest.fixture(scope="session", params=list(Placement), ids=str)
def placement(request: pytest.FixtureRequest) -> Placement:
    """Say where the engines run: first the tests with hosts, then those with inline engines."""
    found: Placement = request.param
    return found


@pytest.fixture(scope="session")
def server(zoo: dict[str, Path], placement: Placement) -> Iterator[Server]:
    """Serve the whole zoo for every test that does not harm it."""
    limits = ("--max-body-mb", "24", "--max-json-mb", "2")
    running = start(*(str(p) for p in zoo.values()), *limits, *placement.flags)
    yield running
    running.close()


@pytest.fixture(scope="session")
def chat_folder(
    tmp_path_factory: pytest.TempPathFactory, minilm_artifact: Path, smollm2_artifact: Path
) -> Path:
    """The examples, beside the artifacts that they serve."""
    made = tmp_path_factory.mktemp("gateway")
    shutil.copytree(EXAMPLES, made / "examples")
    (made / "artifacts").mkdir()
    (made / "artifacts/minilm").symlink_to(minilm_artifact)
    (made / "artifacts/smollm2").symlink_to(smollm2_artifact)
    return made


@pytest.fixture(scope="session")
def gateway(chat_folder: Path, vllm_installed: Path) -> Iterator[Server]:
    """Serve MiniLM and, by a real vLLM, SmolLM2; the tests that harm it stand last."""
    running = start(
        "--config",
        str(chat_folder / "examples/embed-and-chat.yaml"),
        env={"MODELOPS_ENGINES_DIR": str(vllm_installed)},
        seconds=600,
    )
    yield running
    running.close()
