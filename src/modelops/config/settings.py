"""Every option of the gateway: as ``modelops.yaml`` writes it, and as the gateway is given it.

An *entry* is what an operator wrote; a *config* is an entry with all that was left to us filled in.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError, to_json

from modelops.config.engine_options import OPTIONS, SERVERS, EngineOptions, Url
from modelops.signature import Frozen

Provider = Literal["auto", "cpu", "cuda", "tensorrt"]

MIN_KEY_LENGTH = 8
_MODEL_NAME = r"[A-Za-z0-9][A-Za-z0-9._\-]{0,127}"
# Bounds that no use reaches: what lies beyond would overflow a timer or a size in bytes.
_WEEK = 7 * 24 * 3600
_TIB_IN_MIB = 2**20
_MANY = 1_000_000

ELSEWHERE = "openai"
"""The engine that somebody else runs: all that is known of it is a URL."""
# What an engine that is a server of its own decides for itself.
_OF_TENSORS = ("provider", "threads", "lanes", "inline", "batching")
_IN_FLIGHT = 64
_TEXTS_IN_FLIGHT = 256  # as many sequences as vLLM runs by default


def _model_name(value: str) -> str:
    if not re.fullmatch(_MODEL_NAME, value):
        raise ValueError(
            f"{value[:128]!r} is no model name: letters, digits, '.', '_' and '-', at most 128"
        )
    return value


def _api_key(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if len(text) < MIN_KEY_LENGTH or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(
            f"an API key is at least {MIN_KEY_LENGTH} printable ASCII characters without spaces"
        )
    return value


def _host(value: str) -> str:
    if not value or set(value) & set("/ \t@") or not value.isprintable():
        raise ValueError(f"{value[:128]!r} is no host: a name or an IP address, and nothing else")
    return value


def _format(value: object) -> object:
    # True equals 1, and would pass for it.
    if type(value) is not int or value != 1:
        raise ValueError("only version 1 of this format is read here")
    return value


def _not_yet(value: object) -> object:
    if value is not None:
        raise ValueError("gRPC is not there yet: leave it out, or null")
    return value


def _local_path(value: object) -> object:
    if isinstance(value, str) and "://" in value.removeprefix("hf://"):
        raise ValueError("an artifact's folder is served, not an address: modelops export first")
    if value == "":
        raise ValueError("an empty path")
    return value


ModelName = Annotated[
    str,
    AfterValidator(_model_name),
    WithJsonSchema({"type": "string", "pattern": f"^{_MODEL_NAME}$"}),
]
ApiKey = Annotated[SecretStr, AfterValidator(_api_key)]


class _Settings(Frozen):
    # Whatever is refused could be a secret in the wrong place: no error quotes it.
    model_config = ConfigDict(
        use_attribute_docstrings=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class ServerEntry(_Settings):
    """Where the gateway listens, who may call it, and how it leaves."""

    host: Annotated[str, AfterValidator(_host)] = "127.0.0.1"
    """Name or IP address to listen on; other than loopback needs an API key."""
    port: int = Field(default=8080, ge=0, le=65535)
    """TCP port; 0 picks a free one."""
    grpc_port: Annotated[None, BeforeValidator(_not_yet)] = None
    """TCP port for gRPC, which is not there yet: null."""
    fronts: int = Field(default=1, ge=1, le=64)
    """HTTP processes that share the port."""
    admin_port: int | None = Field(default=None, ge=0, le=65535)
    """TCP port, on the same host, that also answers the repository routes; null: admin is off."""
    keys_file: Path | None = None
    """A file with one API key a line, relative to the configuration's folder; blank lines and
    lines that begin with # are skipped. null: keys come from MODELOPS_API_KEYS, or are off."""
    drain_seconds: float = Field(default=30, ge=0, le=_WEEK)
    """How long requests in flight may take to finish after SIGTERM."""

    @model_validator(mode="after")
    def _two_ports(self) -> Self:
        if self.port and self.port == self.admin_port:
            raise ValueError(f"port and admin_port are both {self.port}")
        return self


class ServerConfig(ServerEntry):
    """The same, with the keys themselves."""

    api_keys: tuple[ApiKey, ...] = ()
    """Any of these, as ``Authorization: Bearer``, opens the gateway; none: keys are off."""


class LimitsConfig(_Settings):
    """What one request may ask of the gateway."""

    max_body_mb: float = Field(default=256, gt=0, le=_TIB_IN_MIB)
    """Largest request body, after decompression, in MiB."""
    max_json_mb: float = Field(default=16, gt=0, le=_TIB_IN_MIB)
    """Largest JSON in a request, in MiB; the rest of a body is binary tensors."""
    header_seconds: float = Field(default=10, gt=0, le=_WEEK)
    """How long the headers of one request may take to arrive, and a new connection to begin."""
    request_seconds: float = Field(default=600, gt=0, le=_WEEK)
    """How long one request may take before it is answered with 504."""

    @property
    def max_body_bytes(self) -> int:
        """``max_body_mb`` in bytes."""
        return int(self.max_body_mb * 2**20)

    @property
    def max_json_bytes(self) -> int:
        """``max_json_mb`` in bytes, never more than a whole body."""
        return min(int(self.max_json_mb * 2**20), self.max_body_bytes)


class BatchingConfig(_Settings):
    """How requests are gathered into one call of the engine while it is busy."""

    max_size: int = Field(default=32, ge=1, le=_MANY)
    """Most items (rows) in one call; 1 turns batching off."""
    max_delay_ms: float = Field(default=2, ge=0, le=60_000)
    """How long a request may be passed over for a batch that fills better, in milliseconds."""


class AdmissionConfig(_Settings):
    """How much work one model takes on before it says 503 with Retry-After."""

    max_in_flight: int | None = Field(default=None, ge=1, le=_MANY)
    """Requests that the engine may have been given at once, of all fronts together; null: 64, and
    256 for engines of text, which work on as many side by side."""
    max_queue: int = Field(default=256, ge=1, le=_MANY)
    """Requests that may wait beyond those; one more is refused."""
    queue_seconds: float = Field(default=5, gt=0, le=_WEEK)
    """Longest wait for the engine; a request that waited longer is refused."""
    max_tokens_in_flight: int | None = Field(default=None, ge=1, le=_MANY * 1000)
    """For engines of text: tokens that the requests given to the engine at once may come to. A
    prompt is taken for a token in four bytes; an answer for max_tokens, or, where the client has
    not said, for what is left of the context. null: as many as come."""


class TimeoutsConfig(_Settings):
    """How long an engine of text may take for each step; request_seconds bounds the whole."""

    connect_seconds: float = Field(default=5, gt=0, le=_WEEK)
    """How long it may take to accept a connection."""
    first_byte_seconds: float = Field(default=300, gt=0, le=_WEEK)
    """How long it may take to the first byte of a stream: its own queue, and the prompt."""
    idle_seconds: float = Field(default=120, gt=0, le=_WEEK)
    """How long it may take between two pieces of an answer that has begun."""


class ModelEntry(_Settings):
    """One model to serve: which artifact, by which engine, and with what.

    Several entries may share a name where each serves another version of it.
    """

    name: ModelName
    """What clients call it: letters, digits, '.', '_' and '-', at most 128."""
    aliases: tuple[ModelName, ...] = ()
    """Further names under which it is served; no other model's name or alias."""
    engine: str | None = None
    """A name in the registry of engines, such as ``onnxruntime`` or ``vllm``; null: by the
    artifact's format. ``openai`` is a server that is already there, of vLLM or another maker."""
    source: Annotated[Path | None, BeforeValidator(_local_path)] = Field(
        default=None, validate_default=True
    )
    """An artifact's folder (its newest version) or one version of it, relative to the
    configuration's folder; for ``vllm`` also a Hugging Face folder, or hf://org/name@revision,
    which is fetched from the hub. Left out for ``openai``."""
    url: Url | None = Field(default=None, validate_default=True)
    """For ``openai``: the server's address, such as http://llm.internal:8000/v1."""
    options: EngineOptions | None = Field(default=None, validate_default=True)
    """How the engine is started, where it has options: ``vllm``, ``openai``, ``torch``."""
    provider: Provider = "auto"
    """The execution provider; ``auto`` takes CUDA where it works and the CPU elsewhere."""
    threads: int | None = Field(default=None, ge=1, le=4096)
    """Threads of the engine; null: the cores this process may use."""
    lanes: int | None = Field(default=None, ge=1, le=64)
    """Inferences that run side by side, sharing those threads; null: on CPUs one a thread, where an
    inference is long enough for it to pay, and the model small enough to be held twice."""
    inline: bool = False
    """Run the engine inside each front: lowest latency, no isolation."""
    replicas: int = Field(default=1, ge=1, le=64)
    """Engine processes that share the model's requests."""
    batching: BatchingConfig = BatchingConfig()
    """How requests are gathered into one call of the engine while it is busy."""
    admission: AdmissionConfig = AdmissionConfig()
    """How much work the model takes on before it says 503 with Retry-After."""
    timeouts: TimeoutsConfig = TimeoutsConfig()
    """How long an engine of text may take for each step; request_seconds bounds the whole."""
    load_seconds: float = Field(default=600, gt=0, le=_WEEK)
    """How long loading and warming up may take before it counts as failed."""
    required: bool | None = None
    """Whether the gateway is ready only when this model is; null: where it is the only one."""

    @field_validator("source", "url")
    @classmethod
    def _where_it_is(cls, value: Path | str | None, info: ValidationInfo) -> Path | str | None:
        """Ask for the one of the two that the engine needs."""
        elsewhere = info.data.get("engine") == ELSEWHERE
        if "engine" not in info.data or (value is not None) == (
            elsewhere == (info.field_name == "url")
        ):
            return value
        if value is None:
            raise PydanticKnownError("missing")
        if elsewhere:
            raise ValueError(f"the engine {ELSEWHERE!r} has a url, and no source")
        raise ValueError(f"only the engine {ELSEWHERE!r} has a url: others run here")

    @field_validator("options", mode="wrap")
    @classmethod
    def _of_the_engine(cls, value: Any, _handler: Any, info: ValidationInfo) -> Any:
        """Read the options as those of the entry's engine, so that mistakes are told as its."""
        kind = OPTIONS.get(info.data.get("engine") or "")
        if kind is None:
            if value is None or "engine" not in info.data:
                return None
            raise ValueError("there are options for: engine: " + ", engine: ".join(OPTIONS))
        if isinstance(value, kind):
            return value
        if info.mode == "json":
            return kind.model_validate_json(to_json(value or {}), strict=True)
        return kind.model_validate(value or {})

    @model_validator(mode="after")
    def _fits_the_engine(self) -> Self:
        if self.inline and self.replicas > 1:
            raise ValueError("inline runs one engine in each front: replicas must be 1")
        if self.engine == ELSEWHERE and self.replicas > 1:
            raise ValueError(f"the engine {ELSEWHERE!r} runs elsewhere: replicas must be 1")
        if self.is_server:
            for name in _OF_TENSORS:
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(
                        f"{name} is for engines of tensors: {self.engine} sees to that itself"
                    )
        elif self.engine is not None:
            for name, given in (
                ("timeouts", self.timeouts != TimeoutsConfig()),
                ("max_tokens_in_flight", self.admission.max_tokens_in_flight is not None),
            ):
                if given:
                    raise ValueError(f"{name} is for engines of text, and {self.engine} is none")
        return self

    @property
    def max_in_flight(self) -> int:
        """``admission.max_in_flight``, or what it is for this kind of engine."""
        usual = _TEXTS_IN_FLIGHT if self.is_server else _IN_FLIGHT
        return self.admission.max_in_flight or usual

    @property
    def is_server(self) -> bool:
        """Whether its engine is an HTTP server of its own, not a library in one of ours."""
        return self.engine in SERVERS


class ModelConfig(ModelEntry):
    """One served model, found: ``source`` is the version's folder, ``engine`` is chosen."""

    engine: str
    asked: Path | None = None
    """``source`` as it was asked for; what a reload looks at again for the newest version."""


class ConfigFile(_Settings):
    """The contents of a ``modelops.yaml``."""

    version: Annotated[Literal[1], BeforeValidator(_format)]
    """Of this format: 1."""
    server: ServerEntry = ServerEntry()
    """Where the gateway listens, who may call it, and how it leaves. The environment variables
    MODELOPS_HOST, _PORT, _FRONTS, _ADMIN_PORT, _KEYS_FILE and _DRAIN_SECONDS override it."""
    limits: LimitsConfig = LimitsConfig()
    """What one request may ask of the gateway."""
    models: tuple[ModelEntry, ...] = Field(min_length=1)
    """What is served."""

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        check_names(self.models)
        return self


class GatewayConfig(_Settings):
    """Everything that one ``modelops serve`` is told."""

    server: ServerConfig = ServerConfig()
    limits: LimitsConfig = LimitsConfig()
    models: tuple[ModelConfig, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        check_names(self.models)
        return self


def check_names(models: Sequence[ModelEntry]) -> None:
    """Check that a request's model can mean one thing only; raise ValueError where not.

    Two versions of one model are not told apart here: only the artifact on disk says its version.
    """
    owner: dict[str, str] = {}
    seen: dict[tuple[str, Path | str | None], str] = {}
    for index, model in enumerate(models):
        here = f"models[{index}]"
        place = model.source or model.url
        if other := seen.get((model.name, place)):
            raise ValueError(f"{other} and {here} are both {model.name} from {place}")
        seen[model.name, place] = here
        owner.setdefault(model.name, f"the name of {here}")
    for index, model in enumerate(models):
        for alias in model.aliases:
            here = f"models[{index}]"
            if alias in owner:
                raise ValueError(f"the alias {alias!r} of {here} is also {owner[alias]}")
            owner[alias] = f"an alias of {here}"


def is_loopback(host: str) -> bool:
    """Whether ``host`` can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
