"""What is told once everything is ready: where, what, and a request to copy."""

from __future__ import annotations

import contextlib
import json
import math
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelops.config import GatewayConfig
from modelops.dtypes import DTYPES
from modelops.signature import TensorSpec
from modelops_servers.supervisor.deployment import Deployment, ServedModel

_EXAMPLE_VALUES = 64
_TOKENIZER = "tokenizer.json"
_TEXT = "text-generation"


@dataclass(frozen=True)
class Ready:
    """What is served; ``models`` as the metadata shows them."""

    url: str
    models: tuple[dict[str, Any], ...]
    curl: str
    admin_url: str | None = None


def announce(
    config: GatewayConfig, models: Iterable[ServedModel], listeners: dict[str, socket.socket]
) -> Ready:
    """Return what to tell the person who started it."""
    served = [(model, d) for model in models for d in model.versions.values()]
    url = _url(listeners["http"])
    ready = [(m, d) for m, d in served if d.is_ready(config.server.fronts)]
    # A copied request has to work; where another model is to be tried, the page shows how.
    model, deployment = (ready or served)[0]
    return Ready(
        url,
        tuple(_summary(config, model, deployment) for model, deployment in served),
        _curl(url, config, model.name, deployment),
        _url(listeners["admin"]) if "admin" in listeners else None,
    )


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _summary(config: GatewayConfig, model: ServedModel, deployment: Deployment) -> dict[str, Any]:
    failure = deployment.failure
    manifest = deployment.manifest
    return {
        "name": model.name,
        "version": deployment.version,
        "source": str(deployment.path or deployment.config.url),
        "task": _TEXT if manifest is None else manifest.task,
        "digest": None if manifest is None else manifest.digest,
        "inline": deployment.config.inline,
        "replicas": deployment.config.replicas,
        "engine": deployment.config.engine,
        "ready": deployment.is_ready(config.server.fronts),
        "why": failure.message if failure is not None else "",
        **deployment.describe,
    }


def _curl(url: str, config: GatewayConfig, name: str, deployment: Deployment) -> str:
    """A request to copy into a terminal, right for this model."""
    key = "-H 'Authorization: Bearer YOUR_KEY' " if config.server.api_keys else ""
    manifest = deployment.manifest
    body: dict[str, Any]
    if manifest is None or deployment.config.is_server:
        path, body = _text_example(name, deployment.path)
    elif manifest.task == "embedding" and _TOKENIZER in manifest.files:
        path, body = "v1/embeddings", {"model": name, "input": "hello world"}
    else:
        sizes = {dim: max(1, allowed.min) for dim, allowed in manifest.signature.dims.items()}
        inputs = [_example(spec, spec.sized(sizes)) for spec in manifest.signature.inputs]
        if None in inputs:  # too large to type, or of a dtype that JSON lacks
            return f"curl {key}{url}/v2/models/{name}"
        path, body = f"v2/models/{name}/infer", {"inputs": inputs}
    return f"curl {key}-H 'Content-Type: application/json' {url}/{path} -d '{json.dumps(body)}'"


def _text_example(name: str, folder: Path | None) -> tuple[str, dict[str, Any]]:
    """One without a chat template only continues text."""
    asked: dict[str, Any] = {"model": name, "max_tokens": 32}
    if folder is not None and not _has_chat_template(folder):
        return "v1/completions", asked | {"prompt": "The capital of France is"}
    content = "What is the capital of France?"
    return "v1/chat/completions", asked | {"messages": [{"role": "user", "content": content}]}


def _has_chat_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file():
        return True
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return "chat_template" in json.loads((folder / "tokenizer_config.json").read_bytes())
    return False


def _example(spec: TensorSpec, shape: tuple[int, ...]) -> dict[str, Any] | None:
    count = math.prod(shape)
    if count > _EXAMPLE_VALUES or spec.dtype in ("float16", "bfloat16"):
        return None
    one: Any = {"bool": True, "string": "text"}.get(spec.dtype, 1)
    if spec.bounds is not None:
        one = min(max(1, spec.bounds[0]), spec.bounds[1])
    datatype = DTYPES[spec.dtype].oip
    return {"name": spec.name, "shape": shape, "datatype": datatype, "data": [one] * count}
