"""The protocol's repository extension: what may be served, load, unload. Only for operators."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from modelops.errors import EngineError, ModelNotFoundError, ModelopsError, RequestError
from modelops_servers.front.health import model_reports
from modelops_servers.front.json_object import json_object
from modelops_servers.front.json_response import Json
from modelops_servers.front.limits import BodyTooLargeError, ClientLeftError, read_body
from modelops_servers.front.models import Models
from modelops_servers.front.supervisor_link import SupervisorLink

_BODY_LIMIT = 2**16
# tritonclient writes this one whenever it unloads.
_IGNORED = {"unload_dependents"}
_NOT_SENT = (
    "a model's configuration and files come from the gateway's own configuration; "
    "they cannot be sent"
)
_LEFT = 499  # nobody reads it

_log = logging.getLogger(__name__)


class LoadError(EngineError):
    """The request to load was right, but what is to be loaded is not."""


def repository_routes(models: Models, link: SupervisorLink) -> APIRouter:
    """Return the routes; the supervisor does the work, the front only asks for it."""
    router = APIRouter(tags=["Repository (admin)"])

    async def ask(op: str, model: str, request: Request) -> Response:
        try:
            given = (await _body(request, models)).get("parameters")
        except ClientLeftError:
            return Response(status_code=_LEFT)
        if given is not None and (not isinstance(given, dict) or given.keys() - _IGNORED):
            raise RequestError(_NOT_SENT)
        await link.ask(op, model=model)
        return Json({})

    @router.post("/v2/repository/index")
    async def index(request: Request) -> Response:
        """Every model of the configuration and its state; ``{"ready": true}`` lists the ready."""
        try:
            only_ready = (await _body(request, models)).get("ready", False)
        except ClientLeftError:
            return Response(status_code=_LEFT)
        if not isinstance(only_ready, bool):
            raise RequestError('"ready" is true or false')
        entries = [_entry(report) for model in models for report in model_reports(model)]
        return Json([e for e in entries if e["state"] == "READY" or not only_ready])

    @router.post("/v2/repository/models/{model}/load")
    async def load(model: str, request: Request) -> Response:
        """Serve what the configuration means now, such as the newest version of an artifact.

        Until that is ready the old version serves, and where it fails the old version stays.
        """
        try:
            return await ask("load", model, request)
        except RequestError:
            raise
        except ModelopsError as error:
            raise _not_loaded(models, model, error) from error

    @router.post("/v2/repository/models/{model}/unload")
    async def unload(model: str, request: Request) -> Response:
        """Stop serving a model, once what is in flight is answered."""
        return await ask("unload", model, request)

    return router


def _entry(report: dict[str, Any]) -> dict[str, Any]:
    ready = report["state"] == "ready"
    entry = {"name": report["name"], "state": "READY" if ready else "UNAVAILABLE"}
    if report["version"] is not None:
        entry["version"] = report["version"]
    if not ready:
        entry["reason"] = f"{report['state']}: {report['why']}"
    return entry


def _not_loaded(models: Models, name: str, error: ModelopsError) -> LoadError:
    try:
        still = models.model(name).default
    except ModelNotFoundError:
        still = None
    serves = "nothing of it is served" if still is None else f"version {still} is still served"
    message = f"model {name!r} cannot be loaded: {error.message}; {serves}"
    _log.warning("%s", message)
    return LoadError(message, hint=error.hint)


async def _body(request: Request, models: Models) -> dict[str, Any]:
    headers = dict(request.scope["headers"])
    seconds = models.limits.request_seconds
    try:
        text = await read_body(request.receive, headers, _BODY_LIMIT, seconds)
    except BodyTooLargeError as error:
        raise BodyTooLargeError(f"{error.message}; {_NOT_SENT}") from error
    if not bytes(text).strip():
        return {}
    return json_object(text)
