"""Before the run: is the server there, does it take the key, and which model is meant."""

from __future__ import annotations

import difflib
import http.client
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import orjson

from modelops import registry
from modelops.errors import InputError, MeasurementError, ModelNotFoundError, UsageError
from modelops.progress import Progress
from modelops_loadtests.scenarios.mix import prepare_mix
from modelops_loadtests.scenarios.scenario import Get, Scenario, Settings, error_text
from modelops_loadtests.spec import RunSpec

_MOST_BYTES = 64 << 20


def key_headers(api_key: str | None) -> dict[str, str]:
    """Return the headers that carry the key; none without one.

    Raises:
        UsageError: the key has characters that no header can carry.
    """
    if not api_key:
        return {}
    if not api_key.isascii() or not api_key.isprintable():
        raise UsageError("the API key has characters that an HTTP header cannot carry")
    return {"Authorization": f"Bearer {api_key}"}


def http_get(base: str, headers: Mapping[str, str], *, timeout: float) -> Get:
    """Return a function that asks for a path below ``base``, without proxies or redirects.

    It raises MeasurementError where the server cannot be reached, and InputError where it refuses
    the key.
    """
    parts = urlsplit(base)
    https = parts.scheme == "https"
    kind = http.client.HTTPSConnection if https else http.client.HTTPConnection

    def get(path: str, body: Any = None, /) -> tuple[int, Any]:
        connection = kind(parts.hostname or "", parts.port, timeout=timeout)
        sent, told = None, dict(headers)
        if body is not None:
            sent, told["Content-Type"] = orjson.dumps(body), "application/json"
        try:
            connection.request("GET" if sent is None else "POST", parts.path + path, sent, told)
            response = connection.getresponse()
            status, said = response.status, _body(response, time.monotonic() + timeout)
        except (OSError, http.client.HTTPException) as error:
            raise MeasurementError(
                f"nothing was measured: {base} cannot be reached ({error})",
                hint="start the server, or check the address; then run this again",
            ) from error
        finally:
            connection.close()
        try:
            parsed = orjson.loads(said)
        except orjson.JSONDecodeError:
            parsed = None
        if status in (401, 403):
            why = f": {error_text(parsed)}" if parsed is not None else ""
            given = "the key that was given" if headers else "a request without a key"
            raise InputError(
                f"{base} refused {given} ({status}){why}",
                hint="give the key with --api-key or MODELOPS_API_KEY",
            )
        return status, parsed

    return get


def _body(response: http.client.HTTPResponse, until: float) -> bytes:
    """Read a reply that ends in time and has a bound: the timeout of a socket is of one read."""
    pieces, size = [], 0
    while piece := response.read1(1 << 16):
        pieces.append(piece)
        size += len(piece)
        if size > _MOST_BYTES:
            raise http.client.HTTPException(f"it sent more than {_MOST_BYTES >> 20} MB")
        if time.monotonic() > until:
            raise TimeoutError("timed out")
    if response.length:
        raise http.client.IncompleteRead(b"".join(pieces), response.length)
    return b"".join(pieces)


def settings_of(spec: RunSpec, scenario: str) -> Settings:
    """Return what a scenario of the run is to be prepared with."""
    return Settings(
        model=spec.model_of(scenario) or "",
        data=spec.data,
        encoding=spec.encoding,
        batch=spec.batch,
        dims=dict(spec.dims),
        seed=spec.seed,
        input_tokens=spec.input_tokens,
        output_tokens=spec.output_tokens,
        shared_prefix=spec.shared_prefix,
        tokenizer=spec.tokenizer,
        temperature=spec.temperature,
        stream=spec.stream,
        ignore_eos=spec.ignore_eos,
    )


def look(spec: RunSpec, progress: Progress) -> RunSpec:
    """Find each scenario's model and let it read what it needs, before a process is started.

    Returns the spec with the models named.

    Raises:
        ModelopsError: what is wrong with the server, the key, a model or a scenario's options.
    """
    progress(f"looking at {spec.url}")
    key = spec.api_key.get_secret_value() if spec.api_key else None
    get = http_get(spec.url, key_headers(key), timeout=min(10.0, spec.timeout_s))
    for name in spec.weights:
        registry.resolve("scenarios", name)
    models = {name: resolve_model(get, spec.model_of(name)) for name in spec.weights}
    one = next(iter(models.values())) if len(set(models.values())) == 1 else None
    spec = spec.model_copy(update={"model": one, "models": {} if one else models})
    scenario = prepare(spec, get)
    if (spec.input_tokens or spec.output_tokens) and not hasattr(scenario, "sized"):
        raise UsageError(
            f"the scenario {spec.scenario} generates no text of which lengths could be asked",
            hint="leave out --input-tokens and --output-tokens; a trace may have at alone",
        )
    if spec.turns > 1 and not hasattr(scenario, "next_turn"):
        raise UsageError(f"--turns: the scenario {spec.scenario} has no conversations")
    return spec


def prepare(spec: RunSpec, get: Get) -> Scenario:
    """Return the run's scenario, or its scenarios as one.

    Raises:
        ModelopsError: what a scenario misses or refuses.
    """
    weights = spec.weights
    if len(weights) > 1:
        return prepare_mix(weights, lambda name: settings_of(spec, name), get)
    (name,) = weights
    scenario: Scenario = registry.resolve("scenarios", name).prepare(settings_of(spec, name), get)
    return scenario


def resolve_model(get: Get, asked: str | None) -> str:
    """Return the model to load: the one asked for, else the only one that is served and ready.

    A name that is not listed may be an alias, which a server knows when it is asked for it.

    Raises:
        ModelNotFoundError: the server lists its models and this one is not among them, or none is.
        UsageError: none was asked for, and the server has several or does not list them.
    """
    status, body = get("/v1/models")
    listed = _names(body) if status == 200 else None
    if asked is not None:
        if listed is not None and asked not in listed and not _is_alias(get, asked):
            near = difflib.get_close_matches(asked, listed, n=1)
            raise ModelNotFoundError(
                f"no model {asked!r} is served there",
                hint=(f"did you mean {near[0]!r}? " if near else "")
                + f"served: {', '.join(listed) or 'none'}",
            )
        return asked
    if listed is None:
        raise UsageError(
            f"the server does not list its models (GET /v1/models: {status})",
            hint="name one with --model",
        )
    if not listed:
        raise ModelNotFoundError("the server serves no model")
    if len(listed) == 1:
        return listed[0]
    ready = [m for m in listed if get(f"/v2/models/{quote(m, safe='')}/ready")[0] == 200]
    if len(ready) == 1:
        return ready[0]
    raise UsageError(
        f"the server has {len(listed)} models; which one is meant?",
        hint="--model " + " | ".join(listed),
    )


def _is_alias(get: Get, asked: str) -> bool:
    return get(f"/v1/models/{quote(asked, safe='/')}")[0] == 200


def _names(body: Any) -> list[str] | None:
    data = body.get("data") if isinstance(body, dict) else None
    if not isinstance(data, list):
        return None
    return [str(m["id"]) for m in data if isinstance(m, dict) and "id" in m]
