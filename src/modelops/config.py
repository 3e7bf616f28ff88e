"""What the gateway is told: a validated, immutable description of one serving process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, SecretStr, model_validator

from modelops.signature import Frozen

Provider = Literal["auto", "cpu", "cuda", "tensorrt"]

_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,127}\Z")
MIN_KEY_LENGTH = 8


def _model_name(value: str) -> str:
    if not _MODEL_NAME.match(value):
        raise ValueError(
            f"{value!r} is no model name: letters, digits, '.', '_' and '-', at most 128"
        )
    return value


def _api_key(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if len(text) < MIN_KEY_LENGTH or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(
            f"an API key is at least {MIN_KEY_LENGTH} printable ASCII characters without spaces"
        )
    return value


ModelName = Annotated[str, AfterValidator(_model_name)]
ApiKey = Annotated[SecretStr, AfterValidator(_api_key)]


class ServerConfig(Frozen):
    """Where the gateway listens, who may call it, and how it leaves."""

    # A refused key must not be quoted.
    model_config = ConfigDict(hide_input_in_errors=True)

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    """TCP port; 0 picks a free one."""
    drain_seconds: float = Field(default=30, ge=0)
    """How long requests in flight may take to finish after SIGTERM."""
    api_keys: tuple[ApiKey, ...] = ()
    """Any of these, as ``Authorization: Bearer``, opens the gateway; none: keys are off."""


class LimitsConfig(Frozen):
    """What one request may ask of the gateway."""

    max_body_mb: float = Field(default=256, gt=0)
    """Largest request body, after decompression, in MiB."""
    max_json_mb: float = Field(default=16, gt=0)
    """Largest JSON in a request, in MiB; the rest of a body is binary tensors."""
    request_seconds: float = Field(default=600, gt=0)
    """How long one request may take before it is answered with 504."""

    @property
    def max_body_bytes(self) -> int:
        """``max_body_mb`` in bytes."""
        return int(self.max_body_mb * 2**20)

    @property
    def max_json_bytes(self) -> int:
        """``max_json_mb`` in bytes, never more than a whole body."""
        return min(int(self.max_json_mb * 2**20), self.max_body_bytes)


class AdmissionConfig(Frozen):
    """How much work may wait for one model."""

    max_queue: int = Field(default=256, ge=1)
    """Requests that may wait; one more is answered with 503 and Retry-After."""


class ModelConfig(Frozen):
    """One served model: which artifact, by which engine, and with what."""

    name: ModelName
    source: Path
    """An artifact's folder (its newest version) or one version of it."""
    engine: str
    """A name in the registry of engines, such as ``onnxruntime``."""
    provider: Provider = "auto"
    """The execution provider; ``auto`` takes CUDA where it works and the CPU elsewhere."""
    threads: int | None = Field(default=None, ge=1)
    """Threads for one inference; None: the cores this process may use."""
    admission: AdmissionConfig = AdmissionConfig()


class GatewayConfig(Frozen):
    """Everything that one gateway process is told."""

    model_config = ConfigDict(hide_input_in_errors=True)

    server: ServerConfig = ServerConfig()
    limits: LimitsConfig = LimitsConfig()
    models: tuple[ModelConfig, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [m.name for m in self.models]
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise ValueError(f"two models are named {', '.join(twice)}")
        return self
