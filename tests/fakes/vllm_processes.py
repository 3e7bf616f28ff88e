"""The real vLLM behind a running gateway: its processes, and what it says over its own socket."""

from __future__ import annotations

import http.client
import json
import re
import socket
from typing import Any

import psutil
import requests
from running_server import Server

MODULE = "vllm.entrypoints.openai.api_server"
WORKER = "VLLM::Worker"


def engine_of(server: Server) -> psutil.Process:
    """vLLM's own server."""
    children = psutil.Process(server.process.pid).children(recursive=True)
    (found,) = (p for p in children if MODULE in p.cmdline())
    return found


def family_of(server: Server) -> list[psutil.Process]:
    """vLLM's own server, and all that runs under it."""
    engine = engine_of(server)
    return [engine, *engine.children(recursive=True)]


def named(processes: list[psutil.Process], title: str) -> list[psutil.Process]:
    """Those whose title begins so."""
    return [p for p in processes if " ".join(p.cmdline()).startswith(title)]


def worker_of(server: Server) -> psutil.Process:
    (found,) = named(family_of(server), WORKER)
    return found


def directly(server: Server, method: str, path: str, body: Any = None) -> bytes:
    """What the engine itself answers."""
    arguments = engine_of(server).cmdline()
    connection = http.client.HTTPConnection("engine", timeout=120)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(arguments[arguments.index("--uds") + 1])
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"})
        return connection.getresponse().read()
    finally:
        connection.close()


def in_engine(server: Server) -> int:
    """Requests that the engine works on."""
    said = directly(server, "GET", "/metrics").decode()
    found = re.findall(r"^vllm:num_requests_(?:running|waiting)\{.*\} (\S+)$", said, re.M)
    return int(sum(map(float, found)))


def complete(server: Server, model: str, prompt: str, tokens: int) -> str:
    """Return what the model makes of ``prompt``, greedily."""
    asked = {"model": model, "prompt": prompt, "temperature": 0, "max_tokens": tokens}
    said = requests.post(f"{server.url}/v1/completions", json=asked, timeout=600)
    assert said.status_code == 200, said.text
    text: str = said.json()["choices"][0]["text"]
    return text
