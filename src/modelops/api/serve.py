"""Serving artifacts: from what was asked to a gateway's config, and into the gateway."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, SecretStr, ValidationError

from modelops import registry
from modelops.artifact import find_newest, locate, read_manifest
from modelops.config import (
    AdmissionConfig,
    GatewayConfig,
    LimitsConfig,
    ModelConfig,
    Provider,
    ServerConfig,
)
from modelops.errors import InputError, UsageError
from modelops.progress import Progress, silent
from modelops.signature import Frozen

ARTIFACTS = Path("artifacts")

_ENGINE_OF = {"onnx": "onnxruntime"}
_GATEWAY = "modelops_servers.serve:serve"


class ServeRequest(Frozen):
    """What to serve and how; without ``sources``, the newest artifact in ``./artifacts``."""

    model_config = ConfigDict(hide_input_in_errors=True)

    sources: tuple[Path, ...] = ()
    names: tuple[str, ...] = ()
    """One for each source, in order; empty: the artifacts' own names."""
    engine: str | None = None
    """None: the one that serves the artifact's format."""
    provider: Provider = "auto"
    threads: int | None = None
    max_queue: int = AdmissionConfig().max_queue
    server: ServerConfig = ServerConfig()
    limits: LimitsConfig = LimitsConfig()
    dry_run: bool = False


class ServePlan(Frozen):
    """What would be served; keys are only counted."""

    event: Literal["plan"] = "plan"
    host: str
    port: int
    api_keys: int
    limits: LimitsConfig
    models: tuple[ModelConfig, ...]


def parse_keys(keys: str | None) -> tuple[SecretStr, ...]:
    """Split the value of ``MODELOPS_API_KEYS``: keys separated by commas or spaces."""
    return tuple(SecretStr(k) for k in (keys or "").replace(",", " ").split())


def serve(
    request: ServeRequest,
    progress: Progress = silent,
    on_ready: Callable[[Any], None] = lambda _ready: None,
) -> ServePlan:
    """Serve until a signal ends it, and return what was served.

    ``on_ready`` is called once, with ``url``, ``models`` and ``curl``, when all is ready. With
    ``dry_run`` nothing is loaded and only the plan is returned.

    Raises:
        UsageError: the request cannot be meant so.
        InputError, VerificationError: an artifact is not there or not whole.
        MissingEnvironmentError: the port, the engine or its provider is not to be had.
    """
    config = resolve(request, progress)
    if not request.dry_run:
        registry.load(_GATEWAY, extra="serve")(config, progress, on_ready)
    return ServePlan(
        host=config.server.host,
        port=config.server.port,
        api_keys=len(config.server.api_keys),
        limits=config.limits,
        models=config.models,
    )


def resolve(request: ServeRequest, progress: Progress = silent) -> GatewayConfig:
    """Return the config that ``request`` means; only manifests are read.

    Raises:
        UsageError: a name or option does not fit.
        InputError, IntegrityError: there is no such artifact, or its manifest is off.
    """
    sources = request.sources
    if not sources:
        newest = find_newest(ARTIFACTS, _formats(request.engine))
        progress(f"no source given: serving the newest artifact, {newest}")
        sources = (newest,)
    if request.names and len(request.names) != len(sources):
        raise UsageError(
            f"{len(request.names)} names for {len(sources)} sources",
            hint="give --name once for each source, in the same order, or not at all",
        )
    try:
        return GatewayConfig(
            server=request.server,
            limits=request.limits,
            models=tuple(
                _model(source, request.names[i] if request.names else None, request)
                for i, source in enumerate(sources)
            ),
        )
    except ValidationError as error:
        raise UsageError(explain(error), hint="modelops serve --help") from error


def explain(error: ValidationError) -> str:
    """Say in one line which option is off and why; the values of keys are never shown."""
    said = []
    for item in error.errors(include_url=False, include_input=False):
        where = ".".join(str(part) for part in item["loc"])
        what = item["msg"].removeprefix("Value error, ")
        said.append(f"{where}: {what}" if where else what)
    return "; ".join(said)


def _model(source: Path, name: str | None, request: ServeRequest) -> ModelConfig:
    folder = locate(source)
    manifest = read_manifest(folder)
    engine = request.engine or _ENGINE_OF.get(manifest.format)
    if engine is None:
        raise InputError(
            f"no engine here serves {manifest.format}, the format of {folder}",
            hint="export it again with --to onnx",
        )
    if engine not in registry.names("engines"):
        raise UsageError(
            f"no engine named {engine!r}", hint="one of: " + ", ".join(registry.names("engines"))
        )
    return ModelConfig(
        name=manifest.name if name is None else name,
        # Resolved now, so that what is loaded is what was said, whatever is published meanwhile.
        source=folder,
        engine=engine,
        provider=request.provider,
        threads=request.threads,
        admission=AdmissionConfig(max_queue=request.max_queue),
    )


def _formats(engine: str | None) -> list[str]:
    if engine is None:
        return list(_ENGINE_OF)
    return list(registry.resolve("engines", engine).formats)
