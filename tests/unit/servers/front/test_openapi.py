"""The OpenAPI document: the agreed one, and every route is in it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from fastapi import FastAPI
from fastapi.routing import APIRoute

from modelops_servers.front import gateway
from modelops_servers.front.app import build_framework
from modelops_servers.front.openai.routes import TEXT_ROUTES

GOLDEN = Path(__file__).parents[3] / "golden" / "openapi.json"
# Pages for people, and what other servers offer and this one refuses in plain words.
HIDDEN = {
    "/", "/docs", "/assets/{name}", "/openapi.json", "/v2/logging",
    "/v2/systemsharedmemory/{rest:path}", "/v2/cudasharedmemory/{rest:path}",
    "/v2/trace/setting", "/v2/models/{model}/trace/setting",
}  # fmt: skip


async def exposition() -> str:
    return ""


def framework(*, admin: bool) -> FastAPI:
    nothing = cast(Any, SimpleNamespace())
    return build_framework(nothing, exposition, nothing, admin=admin)


def document(*, admin: bool) -> dict[str, Any]:
    made = framework(admin=admin).openapi()
    made["info"]["version"] = "of the release"
    return made


def routes_of(routes: Iterable[Any]) -> Iterator[Any]:
    for route in routes:
        # What newer versions of the framework include stays a router of its own.
        router = getattr(route, "original_router", None)
        if router is None:
            yield route
        else:
            yield from routes_of(router.routes)


def test_the_document_is_the_agreed_one() -> None:
    """Run with MODELOPS_UPDATE_GOLDEN=1 to accept a change, and say so in the changelog."""
    made = json.dumps(document(admin=True), indent=2) + "\n"
    if os.environ.get("MODELOPS_UPDATE_GOLDEN") == "1":
        GOLDEN.write_text(made, encoding="utf-8")
    assert made == GOLDEN.read_text(encoding="utf-8")


def test_every_route_is_in_the_document_or_is_known_to_be_hidden() -> None:
    paths = document(admin=True)["paths"]
    hot = [route for name, route in vars(gateway).items() if name.endswith("_ROUTE")]
    there = {(path, "post") for path in [*hot, *TEXT_ROUTES]}
    hidden = set()
    for route in routes_of(framework(admin=True).routes):
        if isinstance(route, APIRoute) and route.include_in_schema:
            there |= {(route.path, method.lower()) for method in route.methods}
        else:
            hidden.add(route.path)
    assert {(path, method) for path, methods in paths.items() for method in methods} == there
    assert len(there) > 20
    assert hidden == HIDDEN


def test_the_repository_is_documented_only_where_it_is() -> None:
    whole, public = document(admin=True), document(admin=False)
    assert {p for p in whole["paths"] if p not in public["paths"]} == {
        p for p in whole["paths"] if p.startswith("/v2/repository/")
    }


def test_every_operation_has_a_name_of_its_own_and_says_what_it_answers() -> None:
    operations = [o for methods in document(admin=True)["paths"].values() for o in methods.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    for operation in operations:
        assert "200" in operation["responses"]
        assert "422" not in operation["responses"]
        assert operation["summary"]
        assert operation["tags"]
