"""Serving artifacts: from what was asked to a gateway's config, and into the gateway."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import ConfigDict, Field

from modelops import registry
from modelops.api.flags import flag, place, validated
from modelops.api.server_settings import limit_settings, server_settings
from modelops.api.sources import local_source
from modelops.api.traced_sources import traced_sources
from modelops.artifact import TEXT_FORMAT, find_newest
from modelops.config import (
    ELSEWHERE,
    GatewayConfig,
    LimitsConfig,
    ModelConfig,
    ModelEntry,
    is_loopback,
)
from modelops.config.file import LoadedFile, read_config
from modelops.errors import InputError, ModelopsError, UsageError
from modelops.progress import Progress, silent
from modelops.resolving import (
    FORMATS,
    check_engine,
    default_engine,
    find_source,
    resolve_model,
    version,
)
from modelops.signature import Frozen

ARTIFACTS = Path("artifacts")

_GATEWAY = "modelops_servers.serve:serve"
_SOCKET = Path("engine.sock")


class ServeRequest(Frozen):
    """What to serve and how: ``config``, or ``sources``; with neither, the newest artifact.

    Attributes:
        config: a ``modelops.yaml``.
        sources: artifacts, versions of them, Hugging Face folders or hub ids; with none, the
            newest in ``./artifacts``.
        recipe: of sources that are only weights, for the engine ``torch``.
        names: one for each source, in order; empty: the artifacts' own names.
        options: of every source, by the flag's name, such as ``{"max_batch": 8}``.
        server: fields of ``ServerConfig``; they override the environment and the file.
        limits: fields of ``LimitsConfig``; they override the file.
        environment: variables; those called MODELOPS_… override the file's ``server``.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    config: Path | None = None
    sources: tuple[Path, ...] = ()
    recipe: Path | None = None
    names: tuple[str, ...] = ()
    options: dict[str, Any] = Field(default_factory=dict)
    server: dict[str, Any] = Field(default_factory=dict)
    limits: dict[str, Any] = Field(default_factory=dict)
    environment: dict[str, str] = Field(default_factory=dict, repr=False)
    dry_run: bool = False


class PlannedModel(ModelConfig):
    """A model's resolved config, which version it is, and how a server of its own is started.

    ``variables`` is what its environment has besides, ``notes`` what was decided for it.
    """

    version: str
    command: tuple[str, ...] = ()
    variables: dict[str, str] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()


class ServePlan(Frozen):
    """What would be served; keys are only counted."""

    event: Literal["plan"] = "plan"
    host: str
    port: int
    admin_port: int | None
    fronts: int
    api_keys: int
    keys_file: Path | None
    drain_seconds: float
    limits: LimitsConfig
    models: tuple[PlannedModel, ...]


def serve(
    request: ServeRequest,
    progress: Progress = silent,
    on_ready: Callable[[Any], None] = lambda _ready: None,
) -> ServePlan:
    """Serve until a signal ends it, and return what was served.

    ``on_ready`` is called once, with ``url``, ``admin_url``, ``models`` and ``curl``, when all is
    ready. With ``dry_run`` nothing is loaded and only the plan is returned.

    Raises:
        UsageError: the request cannot be meant so.
        InputError, VerificationError: the config is off, an artifact is not there or not whole.
        MissingEnvironmentError: the port, the engine or its provider is not to be had.
    """
    with traced_sources(request.sources, request.recipe, request.options, progress) as sources:
        config = resolve(request.model_copy(update={"sources": sources}), progress)
        if not request.dry_run:
            registry.load(_GATEWAY, extra="serve")(config, progress, on_ready)
        return plan(config, _launches(config) if request.dry_run else {})


def plan(
    config: GatewayConfig, launches: Mapping[int, Mapping[str, Any]] = MappingProxyType({})
) -> ServePlan:
    """Return what ``config`` serves, without its keys.

    ``launches`` has ``command``, ``variables`` and ``notes`` by the model's index.
    """
    server = config.server
    return ServePlan(
        host=server.host,
        port=server.port,
        admin_port=server.admin_port,
        fronts=server.fronts,
        api_keys=len(server.api_keys),
        keys_file=server.keys_file,
        drain_seconds=server.drain_seconds,
        limits=config.limits,
        models=tuple(
            PlannedModel(version=str(version(model)), **launches.get(index, {}), **dict(model))
            for index, model in enumerate(config.models)
        ),
    )


def _launches(config: GatewayConfig) -> dict[int, dict[str, Any]]:
    """Return how engines that are servers of their own would be started.

    Raises:
        InputError, MissingEnvironmentError: one cannot be started so.
    """
    found = {}
    for index, model in enumerate(config.models):
        if not model.is_server:
            continue
        engine = registry.resolve("engines", model.engine)
        if model.url is not None:
            engine.check(model)
            continue
        how = engine.preview(model, _SOCKET)
        found[index] = {"command": how.command, "variables": how.told, "notes": how.notes}
    return found


def resolve(request: ServeRequest, progress: Progress = silent) -> GatewayConfig:
    """Return the config that ``request`` means; only the config, manifests and keys are read.

    Raises:
        UsageError: a name, option or environment variable does not fit.
        InputError, IntegrityError: the config is off, there is no such artifact, or its manifest
            is off.
        MissingEnvironmentError: the engine's package cannot be imported (in a dry run).
    """
    file = _read(request)
    server = server_settings(request.server, request.environment, file, progress)
    limits = limit_settings(request.limits, file)
    if file is None:
        models = _from_flags(request, progress)
    else:
        models = _from_file(file, progress, import_engine=request.dry_run)
    _check_versions(models, file)
    only_one = len({m.name for m in models}) == 1
    if request.dry_run and not server.api_keys and not is_loopback(server.host):
        progress(
            f"warning: {server.host} can be reached from other machines, and there is no API key: "
            "serve will refuse until MODELOPS_API_KEYS or keys_file gives one"
        )
    return validated(
        GatewayConfig,
        {
            "server": server,
            "limits": limits,
            "models": [
                m if m.required is not None else m.model_copy(update={"required": only_one})
                for m in models
            ],
        },
    )


def _read(request: ServeRequest) -> LoadedFile | None:
    if request.config is None:
        return None
    named = ["SOURCE"] if request.sources else []
    named += ["--name"] if request.names else []
    named += [flag(option) for option in request.options]
    if named:
        raise UsageError(
            f"--config says which models are served: {', '.join(named)} cannot be given beside it",
            hint=f"write it into {request.config}, or leave --config out",
        )
    return read_config(request.config)


def _from_file(file: LoadedFile, progress: Progress, *, import_engine: bool) -> list[ModelConfig]:
    """Resolve every entry, so that all that is off is told at once."""
    found: list[ModelConfig] = []
    failed: list[ModelopsError] = []
    for index, entry in enumerate(file.config.models):
        try:
            here = entry
            if entry.source is not None:
                source, _ = local_source(entry.source, progress, beside=file.folder)
                here = entry.model_copy(update={"source": source})
            found.append(resolve_model(here, import_engine=import_engine))
        except ModelopsError as error:
            where = file.where(("models", index))
            failed.append(type(error)(f"{where} ({entry.name}): {error.message}", hint=error.hint))
    if failed:
        raise type(failed[0])("\n".join(e.message for e in failed), hint=failed[0].hint)
    return found


def _from_flags(request: ServeRequest, progress: Progress) -> list[ModelConfig]:
    options = place(request.options)
    if engine := request.options.get("engine"):
        try:
            check_engine(engine)
        except InputError as error:
            raise UsageError(error.message, hint=error.hint) from error
    if engine == ELSEWHERE:
        raise UsageError(
            f"--engine {engine} is a server that is there already, and no flag has its address",
            hint="write it into a file for --config: "
            f"models: [{{name: NAME, engine: {engine}, url: http://HOST:8000/v1}}]",
        )
    sources = request.sources
    if not sources:
        newest = find_newest(ARTIFACTS, _formats(engine))
        progress(f"no source given: serving the newest artifact, {newest}")
        sources = (newest,)
    if request.names and len(request.names) != len(sources):
        raise UsageError(
            f"{len(request.names)} names for {len(sources)} sources",
            hint="give --name once for each source, in the same order, or not at all",
        )
    models = []
    for index, source in enumerate(sources):
        source, name = local_source(source, progress)
        folder, manifest = find_source(source)
        if request.names:
            name = request.names[index]
        elif name is None:
            name = folder.absolute().name if manifest is None else manifest.name
        fields = {"name": name, "source": source, **options}
        if engine is None:
            # All options are checked as those of the engine that is chosen.
            fields["engine"] = default_engine(TEXT_FORMAT if manifest is None else manifest.format)
        entry = validated(ModelEntry, fields)
        models.append(resolve_model(entry, import_engine=request.dry_run))
    return models


def _check_versions(models: list[ModelConfig], file: LoadedFile | None) -> None:
    seen: dict[tuple[str, int], ModelConfig] = {}
    for index, model in enumerate(models):
        other = seen.setdefault((model.name, version(model)), model)
        if other is model:
            continue
        what = f"{model.name} version {version(model)} is served twice: "
        what += f"from {other.asked} and from {model.asked}"
        hint = "serve another version, or give one of them another name"
        if file is not None:
            raise InputError(f"{file.where(('models', index))}: {what}", hint=hint)
        raise UsageError(what, hint=hint)


def _formats(engine: str | None) -> list[str]:
    if engine is None:
        return [f for formats in FORMATS.values() for f in formats]
    return list(FORMATS.get(engine) or registry.resolve("engines", engine).formats)
