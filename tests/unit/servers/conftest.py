"""A real HTTP server over a scripted application, and a connection to it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from raw_http import App, Running, running


@pytest.fixture(scope="module")
def app() -> App:
    return App()


@pytest.fixture(scope="module")
def server(app: App) -> Iterator[Running]:
    with running(app) as server:
        yield server


@pytest.fixture
def link(server: Running, app: App) -> Iterator[socket.socket]:
    app.events.clear()
    app.views.clear()
    app.release.clear()
    with server.connect() as link:
        yield link
    app.release.set()
