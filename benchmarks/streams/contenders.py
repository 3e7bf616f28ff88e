"""Who passes streams on, with which settings, and how each is started."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gateway.artifacts import RESULTS
from gateway.bodies import Body
from gateway.environments import python_of
from gateway.processes import Running, free_port, note

from streams.wire import MODEL, Script

BENCHMARKS = Path(__file__).parents[1]
PATH = "/v1/chat/completions"
GATEWAY = "modelops"
BARE = "bare pass-through"
LITELLM = "LiteLLM"
ROUTER = "vllm-router"

# A contender that would reach for the network reaches a port where nobody is.
_LOOPBACK_ONLY = {
    "HTTP_PROXY": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "127.0.0.1,localhost",
}


@dataclass(frozen=True)
class Contender:
    """``command`` is given its port and the upstream's URL."""

    name: str
    note: str
    command: Callable[[int, str], list[str]]
    environment: str | None = None
    variables: dict[str, str] = field(default_factory=dict)
    exact: bool = True
    """Whether it passes every byte on as it is; else its tokens are compared, not its JSON."""

    def start(self, upstream: str) -> Running:
        """Start it, and return once it has answered a stream.

        Raises:
            SystemExit: it could not be installed, or did not start; why is its text.
        """
        port = free_port()
        logs = RESULTS / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        log = logs / f"stream-{self.name.replace(' ', '-')}.log"
        note(f"starting {self.name}")
        variables = {"PYTHONPATH": str(BENCHMARKS), **self.variables}
        running = Running(self.name, self.command(port, upstream), port, log, variables)
        running.wait(PATH, Body(Script(2).body))
        return running


def scripted() -> Running:
    """Start the upstream that does what the prompt says."""
    port = free_port()
    command = [sys.executable, "-m", "streams.upstream", str(port)]
    log = RESULTS / "logs" / "stream-upstream.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    running = Running("upstream", command, port, log, {"PYTHONPATH": str(BENCHMARKS)})
    running.wait(PATH, Body(Script(2).body))
    return running


def everyone() -> list[Contender]:
    """Every contender; each is one process that streams, as are its peers."""
    return [
        Contender(BARE, "aiohttp → uvicorn, nothing else", _bare),
        Contender(GATEWAY, "modelops serve, 1 front; supervisor and keeper counted", _modelops),
        Contender(
            ROUTER,
            "Rust; round robin, retries and circuit breaker as they come",
            _router,
            environment="vllm-router",
            variables=_LOOPBACK_ONLY,
        ),
        Contender(
            LITELLM,
            "its proxy, 1 worker, no callbacks, no database, telemetry off",
            _litellm,
            environment="litellm",
            variables=_LOOPBACK_ONLY
            | {
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "LITELLM_TELEMETRY": "False",
                "LITELLM_MODE": "PRODUCTION",
                "LITELLM_LOG": "ERROR",
            },
            exact=False,
        ),
    ]


def _bare(port: int, upstream: str) -> list[str]:
    return [sys.executable, "-m", "streams.bare", str(port), upstream]


def _modelops(port: int, upstream: str) -> list[str]:
    entry = {"name": MODEL, "engine": "openai", "url": f"{upstream}/v1"}
    file = _written("modelops.yaml", {"version": 1, "models": [entry]})
    serve = [sys.executable, "-m", "modelops", "serve", "--config", str(file), "--json"]
    return [*serve, "--port", str(port)]


def _router(port: int, upstream: str) -> list[str]:
    python = python_of("vllm-router")
    launch = [str(python), "-m", "vllm_router.launch_router", "--worker-urls", upstream]
    launch += ["--host", "127.0.0.1", "--port", str(port), "--policy", "round_robin"]
    launch += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())]
    return [*launch, "--log-level", "warning", "--max-concurrent-requests", "1024"]


def _litellm(port: int, upstream: str) -> list[str]:
    engine = {"model": f"hosted_vllm/{MODEL}", "api_base": f"{upstream}/v1", "api_key": "none"}
    settings = {
        "model_list": [{"model_name": MODEL, "litellm_params": engine}],
        "litellm_settings": {"telemetry": False},
    }
    file = _written("litellm.yaml", settings)
    command = [str(python_of("litellm").with_name("litellm")), "--config", str(file)]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    return [*command, "--num_workers", "1", "--telemetry", "False"]


def _written(name: str, content: object) -> Path:
    """Write a configuration; JSON is YAML."""
    folder = RESULTS / "streams"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(json.dumps(content, indent=1))
    return path
