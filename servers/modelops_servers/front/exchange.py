"""What passes between the gateway and its hot endpoints: plain values, no framework."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from modelops.config import LimitsConfig
from modelops.errors import ModelNotFoundError, NotReadyError
from modelops_servers.front.limits import HeaderMap, Receive
from modelops_servers.front.metrics import ModelMetrics
from modelops_servers.loading import Loaded
from modelops_servers.model import ServedModel

_SHOWN = 64


class Call:
    """One request on a hot route; ``model`` is set once it is known, for the metrics."""

    __slots__ = ("deadline", "headers", "model", "receive")

    def __init__(self, receive: Receive, headers: HeaderMap, seconds: float) -> None:
        self.receive = receive
        self.headers = headers
        self.deadline = time.monotonic() + seconds
        self.model = ""


class Reply:
    """One answer: its body in parts, its headers without length and request id."""

    __slots__ = ("headers", "parts", "status")

    def __init__(
        self,
        parts: Sequence[bytes | memoryview],
        headers: list[tuple[bytes, bytes]],
        status: int = 200,
    ) -> None:
        self.parts = parts
        self.headers = headers
        self.status = status


@dataclass
class Served:
    """What the front knows: the models by name, their metric children, the limits."""

    models: dict[str, ServedModel]
    metrics: dict[str, ModelMetrics]
    limits: LimitsConfig
    created: int = field(default_factory=lambda: int(time.time()))

    def model(self, name: str) -> ServedModel:
        """Return the model served as ``name``.

        Raises:
            ModelNotFoundError: there is none; the message lists what is served.
        """
        found = self.models.get(name)
        if found is None:
            shown = repr(name[:_SHOWN]) + ("…" if len(name) > _SHOWN else "")
            raise ModelNotFoundError(
                f"model {shown} is not served here; served: {', '.join(self.models)}"
            )
        return found

    def loaded(self, name: str, version: str | None = None) -> tuple[ServedModel, Loaded]:
        """Return the model and what it is made of, at ``version`` where one is asked for.

        Raises:
            ModelNotFoundError: no such model, or not this version of it.
            NotReadyError: it is not loaded yet.
        """
        model = self.model(name)
        if model.loaded is None:
            health = model.health()
            raise NotReadyError(f"model {name!r} is {health.state}: {health.why}")
        served = str(model.loaded.artifact.version)
        if version is not None and version != served:
            raise ModelNotFoundError(
                f"model {name!r} is served at version {served}, not {version[:_SHOWN]!r}"
            )
        return model, model.loaded
