"""The Open Inference Protocol's routes beside infer: metadata, health, config, statistics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from modelops import __version__
from modelops.dtypes import DTYPES
from modelops.signature import TensorSpec
from modelops_servers.front.health import model_report, readiness
from modelops_servers.front.inference_statistics import statistics
from modelops_servers.front.json_response import Json
from modelops_servers.front.models import Models
from modelops_servers.front.status import NoRouteError
from modelops_servers.front.version import Version

_TAG = "Open Inference Protocol"
_EXTENSIONS = ["binary_tensor_data", "model_configuration", "statistics"]
# Clients have calls for these extensions too, and are told in plain words that they are not here.
_SHARED_MEMORY = "shared memory is not offered here: send the tensors in the request"
_TRACE = "trace settings are not offered here"
_NOT_OFFERED = {
    "/v2/systemsharedmemory/{rest:path}": _SHARED_MEMORY,
    "/v2/cudasharedmemory/{rest:path}": _SHARED_MEMORY,
    "/v2/trace/setting": _TRACE,
    "/v2/models/{model}/trace/setting": _TRACE,
    "/v2/logging": "log settings are not offered here",
}


async def _version(request: Request) -> str | None:
    found: str | None = request.path_params.get("version")
    return found


InPath = Annotated[str | None, Depends(_version)]
"""The version that the path names; a query never does."""


def oip_routes(models: Models, metrics: Any, *, admin: bool) -> APIRouter:
    """Return the routes; ``admin`` says whether the repository's are there beside them."""
    router = APIRouter(tags=[_TAG])
    extensions = [*_EXTENSIONS, "model_repository"] if admin else _EXTENSIONS

    @router.get("/v2")
    async def server_metadata() -> Response:
        """The server's name, version and protocol extensions."""
        return Json({"name": "modelops", "version": __version__, "extensions": extensions})

    @router.get("/v2/health/live")
    async def server_live() -> Response:
        """Whether the server answers."""
        return Json({"live": True})

    @router.get("/v2/health/ready")
    async def server_ready() -> Response:
        """Whether every required model is ready."""
        ready, report = readiness(models)
        return Json({"ready": ready, **report}, status_code=200 if ready else 503)

    @router.get("/v2/models/stats")
    async def all_statistics() -> Response:
        """Counts and times of every model since the gateway started."""
        text = await metrics()
        stats = [s for m in models for s in statistics(m, text)]
        return Json({"model_stats": stats})

    @router.get("/v2/models/{model}")
    @router.get("/v2/models/{model}/versions/{version}")
    async def model_metadata(model: str, version: InPath) -> Response:
        """Inputs, outputs, and what really runs the model: provider, threads, precision."""
        return Json(_metadata(models, model, version))

    @router.get("/v2/models/{model}/ready")
    @router.get("/v2/models/{model}/versions/{version}/ready")
    async def model_ready(model: str, version: InPath) -> Response:
        """Whether this model is ready, and if not, why."""
        found = models.model(model)
        if version is not None:
            models.served(model, version)
        report = model_report(found, version)
        ready = report["state"] == "ready"
        return Json({"ready": ready, **report}, status_code=200 if ready else 503)

    @router.get("/v2/models/{model}/config")
    @router.get("/v2/models/{model}/versions/{version}/config")
    async def model_config(model: str, version: InPath) -> Response:
        """The model's configuration, in the words of Triton's model configuration."""
        return Json(_config(models, model, version))

    @router.get("/v2/models/{model}/stats")
    @router.get("/v2/models/{model}/versions/{version}/stats")
    async def model_statistics(model: str, version: InPath) -> Response:
        """Counts and times of one model since the gateway started."""
        found = models.model(model)
        number = None if version is None else models.served(model, version).number
        return Json({"model_stats": statistics(found, await metrics(), number)})

    for path, why in _NOT_OFFERED.items():
        router.add_api_route(path, _refusal(why), methods=["GET", "POST"], include_in_schema=False)
    return router


def _refusal(why: str) -> Callable[[], Awaitable[Response]]:
    async def refuse() -> Response:
        raise NoRouteError(why)

    return refuse


def _metadata(models: Models, name: str, version: str | None) -> dict[str, Any]:
    found = models.served(name, version)
    versions = list(models.model(name).versions)
    if not isinstance(found, Version):
        # Text goes through OpenAI's routes: there are no tensors to name.
        return {
            "name": name,
            "versions": versions,
            "platform": found.config.engine,
            "inputs": [],
            "outputs": [],
            "parameters": {
                **found.describe(),
                "task": "text-generation",
                "replicas": len(found.replicas),
                "max_tokens": found.context,
            },
        }
    manifest = found.artifact.manifest
    return {
        "name": name,
        "versions": versions,
        "platform": f"{found.config.engine}_{manifest.format}",
        "inputs": [_tensor(t) for t in manifest.signature.inputs],
        "outputs": [_tensor(t) for t in manifest.signature.outputs],
        "parameters": {
            **found.describe(),
            "task": manifest.task,
            "digest": manifest.digest,
            "inline": found.config.inline,
            "replicas": len(found.replicas),
            "dims": {d: [r.min, r.max] for d, r in manifest.signature.dims.items()},
            "max_tokens": found.text.max_tokens if found.text else None,
        },
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "datatype": DTYPES[spec.dtype].oip,
        "shape": [d if isinstance(d, int) else -1 for d in spec.shape],
        "parameters": {
            "shape": list(spec.shape),
            **({"bounds": list(spec.bounds)} if spec.bounds is not None else {}),
        },
    }


def _config(models: Models, name: str, version: str | None) -> dict[str, Any]:
    found = models.find(name, version)
    manifest, config = found.artifact.manifest, found.config
    signature = manifest.signature
    batched = signature.batch_dim is not None and signature.dims[signature.batch_dim].min <= 1
    most = signature.dims[signature.batch_dim].max if batched and signature.batch_dim else 0
    answer: dict[str, Any] = {
        "name": name,
        "platform": f"{config.engine}_{manifest.format}",
        "backend": config.engine,
        "version_policy": {"specific": {"versions": [int(found.number)]}},
        "max_batch_size": most,
        "input": _tensors(signature.inputs, batched),
        "output": _tensors(signature.outputs, batched),
        "instance_group": [
            {"name": name, "count": config.replicas, "kind": _kind(found.describe())}
        ],
    }
    if batched and config.batching.max_size > 1:
        answer["dynamic_batching"] = {
            "preferred_batch_size": [min(most, config.batching.max_size)],
            "max_queue_delay_microseconds": int(config.batching.max_delay_ms * 1000),
        }
    return answer


def _tensors(specs: tuple[TensorSpec, ...], batched: bool) -> list[dict[str, Any]]:
    return [
        {
            "name": t.name,
            "data_type": f"TYPE_{_triton(DTYPES[t.dtype].oip)}",
            "dims": [d if isinstance(d, int) else -1 for d in t.shape[1 if batched else 0 :]],
        }
        for t in specs
    ]


def _triton(oip: str) -> str:
    return "STRING" if oip == "BYTES" else oip


def _kind(described: dict[str, Any]) -> str:
    return "KIND_CPU" if described.get("provider") in (None, "cpu") else "KIND_GPU"
