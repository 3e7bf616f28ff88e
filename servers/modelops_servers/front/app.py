"""The FastAPI application: documents, metadata, health, metrics and the page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, select_autoescape
from starlette.exceptions import HTTPException

from modelops import __version__
from modelops.config import ServerConfig
from modelops.errors import ModelopsError
from modelops_servers.front import openapi
from modelops_servers.front.auth import Keys
from modelops_servers.front.gateway import Gateway
from modelops_servers.front.health import readiness
from modelops_servers.front.json_response import Json
from modelops_servers.front.metrics import CONTENT_TYPE, Metrics, Now
from modelops_servers.front.metrics_merge import merge
from modelops_servers.front.models import Model, Models
from modelops_servers.front.oip_routes import oip_routes
from modelops_servers.front.openai import engine_metrics
from modelops_servers.front.openai.endpoint import TextEndpoint
from modelops_servers.front.repository import repository_routes
from modelops_servers.front.status import MethodError, NoRouteError, answer, form_of
from modelops_servers.front.supervisor_link import SupervisorLink
from modelops_servers.front.version import Version

_CSP = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def build(
    server: ServerConfig,
    models: Models,
    metrics: Metrics,
    link: SupervisorLink,
    *,
    fronts: int,
    admin: bool,
) -> Gateway:
    """Return the whole gateway as one ASGI application; with the repository where ``admin``."""
    metrics.now = lambda: _now(models)

    async def exposition() -> str:
        own = metrics.render().decode()
        if fronts == 1:
            return own
        others = await link.ask("metrics")
        return merge([own, *others["texts"]]).decode()

    app = build_framework(models, exposition, link, admin=admin)
    text = TextEndpoint(models.find_text, models.limits, models.json)
    return Gateway(models, metrics, Keys(server.api_keys), app, text)


def build_framework(
    models: Models,
    exposition: Callable[[], Awaitable[str]],
    link: SupervisorLink,
    *,
    admin: bool,
) -> FastAPI:
    """Return the framework's part, which no inference request passes through."""
    app = FastAPI(
        title="modelops",
        version=__version__,
        description="Tensors by the Open Inference Protocol v2, the rest by OpenAI's API.",
        docs_url=None,
        redoc_url=None,
        # A redirect would be built from the Host that the client sent.
        redirect_slashes=False,
        generate_unique_id_function=openapi.operation_id,
        default_response_class=Json,
    )
    openapi.add_hot_routes(app)
    app.add_exception_handler(ModelopsError, _on_error)
    app.add_exception_handler(HTTPException, _on_framework_error)
    _add_operations(app, models, exposition)
    app.include_router(oip_routes(models, exposition, admin=admin))
    if admin:
        app.include_router(repository_routes(models, link))
    _add_openai(app, models)
    _add_pages(app, models)
    return app


def _now(models: Models) -> list[Now]:
    return [
        Now(
            model.name,
            sum(v.in_flight for v in model.versions.values()),
            any(v.replicas for v in model.versions.values()),
            sum(s.restarts for v in model.versions.values() for s in v.standings.values()),
        )
        for model in models
    ]


def _add_operations(app: FastAPI, models: Models, exposition: Callable[[], Awaitable[str]]) -> None:
    @app.get("/livez", tags=["operations"])
    async def livez() -> Response:
        """The process answers; this never depends on a model."""
        return Json({"status": "live"})

    @app.get("/readyz", tags=["operations"])
    async def readyz() -> Response:
        """200 when every required model is ready, else 503; which, why, since when, what next."""
        ready, report = readiness(models)
        return Json(report, status_code=200 if ready else 503)

    @app.get("/metrics", tags=["operations"])
    async def prometheus() -> Response:
        """Prometheus text exposition, of all fronts together and of the engines' own servers."""
        texts = [v for m in models for v in m.versions.values() if not isinstance(v, Version)]
        ours, engines = await asyncio.gather(exposition(), engine_metrics.ask(texts))
        return Response(ours + engine_metrics.render(engines), media_type=CONTENT_TYPE)


def _add_openai(app: FastAPI, models: Models) -> None:
    def card(model: Model) -> dict[str, Any]:
        known = {"id": model.name, "object": "model", "created": models.created}
        version = model.versions.get(model.default or "")
        if version is not None and not isinstance(version, Version):
            known["max_model_len"] = version.context
        return {**known, "owned_by": "modelops"}

    @app.get("/v1/models", tags=["OpenAI"])
    async def list_models() -> Response:
        """The served models."""
        return Json({"object": "list", "data": [card(m) for m in models]})

    @app.get("/v1/models/{model}", tags=["OpenAI"])
    async def retrieve_model(model: str) -> Response:
        """One served model."""
        return Json(card(models.model(model)))


def _add_pages(app: FastAPI, models: Models) -> None:
    templates = Environment(
        loader=PackageLoader("modelops_servers.front", "pages"), autoescape=select_autoescape()
    )
    scripts = {name: templates.get_template(name).render() for name in ("index.js", "docs.js")}
    headers = {"content-security-policy": _CSP, "x-content-type-options": "nosniff"}

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        makes = {model.name: _makes(model) for model in models}
        page = templates.get_template("index.html.j2").render(version=__version__, makes=makes)
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


def _makes(model: Model) -> str:
    """Return what a model makes: ``text``, ``embeddings``, ``tensors``."""
    for version in model.versions.values():
        if not isinstance(version, Version):
            return "text"
        if version.text is not None:
            return "embeddings"
    return "tensors"


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
        allowed = (getattr(error, "headers", None) or {}).get("Allow", "GET").split(", ")
        return await _on_error(request, MethodError(request.method, allowed))
    path = request.scope["path"][:128]
    return await _on_error(request, NoRouteError(f"there is no route {path!r}; see /docs"))
