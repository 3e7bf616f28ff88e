"""How a running gateway is: its ``/readyz``, asked over HTTP and understood."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import urllib.error
import urllib.request
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from modelops.config import is_loopback
from modelops.errors import InputError, MissingEnvironmentError, UsageError

DEFAULT_URL = "http://127.0.0.1:8080"
_TIMEOUT_SECONDS = 5.0
_MAX_BYTES = 4 * 2**20


class _Told(BaseModel):
    # A newer gateway may tell more than is known here: it is kept, and shown by --json.
    model_config = ConfigDict(frozen=True, extra="allow")


class ReplicaStatus(_Told):
    """One engine process of a model."""

    id: str
    state: str
    why: str = ""
    since: datetime | None = None
    restarts: int = 0


class ModelStatus(_Told):
    """One version of a model, as the gateway sees it."""

    name: str
    version: str | None = None
    state: str
    why: str = ""
    since: datetime | None = None
    next: str = ""
    replicas: tuple[ReplicaStatus, ...] = ()


class FrontStatus(_Told):
    """One HTTP process of the gateway."""

    index: int
    state: str
    why: str = ""
    since: datetime | None = None
    next: str = ""
    restarts: int = 0


class GatewayStatus(_Told):
    """What a gateway says of itself; ``now`` is by its own clock where it told the time."""

    url: str
    ready: bool
    now: datetime
    models: tuple[ModelStatus, ...]
    fronts: tuple[FrontStatus, ...] = ()


def status(url: str = DEFAULT_URL, api_key: SecretStr | None = None) -> GatewayStatus:
    """Ask the gateway at ``url`` whether it is ready, and why not.

    Raises:
        UsageError: ``url`` is no address of HTTP.
        MissingEnvironmentError: nothing answers there, with the likely cause.
        InputError: what answers is no gateway of ours, or wants a key.
    """
    base = base_url(url)
    code, headers, body = _get(f"{base}/readyz", api_key)
    try:
        told = json.loads(body)
        if code not in (200, 503) or not isinstance(told["status"], str):
            raise ValueError(code)
        models = tuple(ModelStatus.model_validate(model) for model in told["models"])
        fronts = tuple(FrontStatus.model_validate(front) for front in told.get("fronts", ()))
    except (ValueError, KeyError, TypeError, RecursionError, ValidationError) as error:
        raise _not_ours(base, code) from error
    ready = code == 200 and told["status"] == "ready"
    now = _now(headers)
    return GatewayStatus(url=base, ready=ready, now=now, models=models, fronts=fronts)


def base_url(text: str) -> str:
    """Return ``text`` as a gateway's base URL: with its scheme, without ``/readyz``.

    Raises:
        UsageError: it is no http or https URL with a host.
    """
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid or not url.isascii() or not url.isprintable() or " " in url or parts.query:
        raise UsageError(f"{text!r} is no URL of a gateway", hint=f"such as {DEFAULT_URL}")
    if parts.username is not None:
        raise UsageError("a URL with a password in it", hint="give the key with MODELOPS_API_KEY")
    path = parts.path.rstrip("/").removesuffix("/readyz").rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A gateway never redirects, and a key must not follow to another host."""

    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


def _get(url: str, api_key: SecretStr | None) -> tuple[int, Any, bytes]:
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310
    if api_key is not None:
        request.add_unredirected_header("Authorization", f"Bearer {api_key.get_secret_value()}")
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if is_loopback(urlsplit(url).hostname or ""):
        # A proxy would look for the gateway on itself.
        handlers.append(urllib.request.ProxyHandler({}))
    opener = urllib.request.build_opener(*handlers)
    try:
        try:
            with opener.open(request, timeout=_TIMEOUT_SECONDS) as reply:
                return reply.status, reply.headers, reply.read(_MAX_BYTES)
        except urllib.error.HTTPError as reply:
            with reply:
                return reply.code, reply.headers, reply.read(_MAX_BYTES)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _unreachable(url.removesuffix("/readyz"), error) from error


def _unreachable(base: str, error: Exception) -> MissingEnvironmentError:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    plain = "http://" + base.removeprefix("https://")
    hint: str | None = None
    match cause:
        case ssl.SSLCertVerificationError():
            why = f"its certificate is not trusted here: {cause.verify_message}"
        case ssl.SSLError():
            why = "what listens there does not speak TLS"
            hint = f"modelops status {plain}"
        case ConnectionRefusedError():
            why = "nothing listens there"
            hint = "start it with: modelops serve --config modelops.yaml"
        case socket.gaierror():
            why = "there is no host of this name"
        case TimeoutError():
            why = f"no answer within {_TIMEOUT_SECONDS:g} s"
        case http.client.HTTPException() | ConnectionError():
            why = "what listens there closes the connection, or does not speak HTTP"
            if base.startswith("http://"):
                hint = f"if it speaks TLS: modelops status https://{base.removeprefix('http://')}"
        case _:
            why = str(getattr(cause, "strerror", None) or cause)
    return MissingEnvironmentError(f"{base} cannot be reached: {why}", hint=hint)


def _not_ours(base: str, code: int) -> InputError:
    if code in (401, 403):
        return InputError(
            f"{base} asks for another key (HTTP {code})", hint="set MODELOPS_API_KEY, or --api-key"
        )
    what = "something else listens there, or a proxy before it"
    return InputError(f"{base}/readyz is no answer of modelops (HTTP {code}): {what}")


def _now(headers: Any) -> datetime:
    """Return the gateway's own time, so that clocks that differ do not make ages wrong."""
    try:
        return parsedate_to_datetime(headers["Date"]).astimezone(UTC)
    except (TypeError, ValueError):
        return datetime.now(UTC)
