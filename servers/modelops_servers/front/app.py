"""The FastAPI application: documents, metadata, health, metrics and the page."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, select_autoescape
from starlette.exceptions import HTTPException

from modelops import __version__
from modelops.config import GatewayConfig
from modelops.dtypes import DTYPES
from modelops.errors import ModelopsError
from modelops.signature import TensorSpec
from modelops_servers.front import openapi
from modelops_servers.front.auth import Keys
from modelops_servers.front.exchange import Served
from modelops_servers.front.gateway import ASGIApp, Gateway
from modelops_servers.front.health import model_report, readiness
from modelops_servers.front.metrics import CONTENT_TYPE, Metrics
from modelops_servers.front.status import MethodError, NoRouteError, answer, form_of
from modelops_servers.model import ServedModel

_CSP = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Json(Response):
    """JSON by orjson."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return ``content`` as bytes."""
        return orjson.dumps(content)


def build(config: GatewayConfig, models: dict[str, ServedModel], metrics: Metrics) -> ASGIApp:
    """Return the whole gateway as one ASGI application."""
    served = Served(models, {name: metrics.of(name) for name in models}, config.limits)
    for name, model in models.items():
        metrics.watch(name, model)
    return Gateway(served, metrics, Keys(config.server.api_keys), build_admin(served, metrics))


def build_admin(served: Served, metrics: Metrics) -> FastAPI:
    """Return the framework's part, which no inference request passes through."""
    app = FastAPI(
        title="modelops",
        version=__version__,
        description="Tensors by the Open Inference Protocol v2, embeddings by OpenAI's API.",
        docs_url=None,
        redoc_url=None,
        default_response_class=Json,
    )
    openapi.add_hot_routes(app)
    app.add_exception_handler(ModelopsError, _on_error)
    app.add_exception_handler(HTTPException, _on_framework_error)
    _add_operations(app, served, metrics)
    _add_oip(app, served)
    _add_openai(app, served)
    _add_pages(app, served)
    return app


def _add_operations(app: FastAPI, served: Served, metrics: Metrics) -> None:
    @app.get("/livez", tags=["operations"])
    async def livez() -> Response:
        """The process answers; this never depends on a model."""
        return Json({"status": "live"})

    @app.get("/readyz", tags=["operations"])
    async def readyz() -> Response:
        """200 when every model is ready, else 503: which, why, since when, what happens next."""
        ready, report = readiness(list(served.models.values()))
        return Json(report, status_code=200 if ready else 503)

    @app.get("/metrics", tags=["operations"])
    async def prometheus() -> Response:
        """Prometheus text exposition."""
        return Response(metrics.render(), media_type=CONTENT_TYPE)


def _add_oip(app: FastAPI, served: Served) -> None:
    @app.get("/v2", tags=["Open Inference Protocol"])
    async def server_metadata() -> Response:
        """The server's name, version and protocol extensions."""
        return Json(
            {"name": "modelops", "version": __version__, "extensions": ["binary_tensor_data"]}
        )

    @app.get("/v2/health/live", tags=["Open Inference Protocol"])
    async def server_live() -> Response:
        """Whether the server answers."""
        return Json({"live": True})

    @app.get("/v2/health/ready", tags=["Open Inference Protocol"])
    async def server_ready() -> Response:
        """Whether every model is ready."""
        ready, report = readiness(list(served.models.values()))
        return Json({"ready": ready, **report}, status_code=200 if ready else 503)

    @app.get("/v2/models/{model}", tags=["Open Inference Protocol"])
    @app.get("/v2/models/{model}/versions/{version}", tags=["Open Inference Protocol"])
    async def model_metadata(model: str, version: str | None = None) -> Response:
        """Inputs, outputs, and what really runs the model: provider, threads, precision."""
        return Json(_metadata(served, model, version))

    @app.get("/v2/models/{model}/ready", tags=["Open Inference Protocol"])
    @app.get("/v2/models/{model}/versions/{version}/ready", tags=["Open Inference Protocol"])
    async def model_ready(model: str, version: str | None = None) -> Response:
        """Whether this model is ready, and if not, why."""
        found = served.model(model) if version is None else served.loaded(model, version)[0]
        report = model_report(found)
        ready = report["state"] == "ready"
        return Json({"ready": ready, **report}, status_code=200 if ready else 503)


def _add_openai(app: FastAPI, served: Served) -> None:
    def card(name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": served.created, "owned_by": "modelops"}

    @app.get("/v1/models", tags=["OpenAI"])
    async def list_models() -> Response:
        """The served models."""
        return Json({"object": "list", "data": [card(name) for name in served.models]})

    @app.get("/v1/models/{model}", tags=["OpenAI"])
    async def retrieve_model(model: str) -> Response:
        """One served model."""
        return Json(card(served.model(model).name))


def _add_pages(app: FastAPI, served: Served) -> None:
    templates = Environment(
        loader=PackageLoader("modelops_servers.front", "pages"), autoescape=select_autoescape()
    )
    scripts = {name: templates.get_template(name).render() for name in ("index.js", "docs.js")}
    headers = {"content-security-policy": _CSP, "x-content-type-options": "nosniff"}

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        embeds = {
            name: model.loaded is not None and model.loaded.text is not None
            for name, model in served.models.items()
        }
        page = templates.get_template("index.html.j2").render(version=__version__, embeds=embeds)
        return HTMLResponse(page, headers=headers)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        page = templates.get_template("docs.html.j2").render(version=__version__)
        return HTMLResponse(page, headers=headers)

    @app.get("/assets/{name}", include_in_schema=False)
    async def asset(name: str) -> Response:
        if name not in scripts:
            raise NoRouteError("there is no such asset")
        return Response(scripts[name], media_type="text/javascript", headers=headers)


def _metadata(served: Served, name: str, version: str | None) -> dict[str, Any]:
    model, loaded = served.loaded(name, version)
    manifest = loaded.artifact.manifest
    return {
        "name": name,
        "versions": [str(loaded.artifact.version)],
        "platform": f"{model.config.engine}_{manifest.format}",
        "inputs": [_tensor(t) for t in manifest.signature.inputs],
        "outputs": [_tensor(t) for t in manifest.signature.outputs],
        "parameters": {
            **model.describe(),
            "task": manifest.task,
            "digest": manifest.digest,
            "dims": {d: [r.min, r.max] for d, r in manifest.signature.dims.items()},
            "max_tokens": loaded.text.max_tokens if loaded.text else None,
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


async def _on_error(request: Request, error: Exception) -> Response:
    failure = answer(error, form_of(request.scope["path"]))
    return Response(
        failure.body,
        failure.status,
        {name.decode(): value.decode() for name, value in failure.headers},
    )


async def _on_framework_error(request: Request, error: Exception) -> Response:
    """Turn the router's own refusals into the same forms as every other error."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 405:
        return await _on_error(request, MethodError(request.method, ["GET"]))
    path = request.scope["path"][:128]
    return await _on_error(request, NoRouteError(f"there is no route {path!r}; see /docs"))
