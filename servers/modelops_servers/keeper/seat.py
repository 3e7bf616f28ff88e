"""The engines that are servers of their own, as the registry names them: checked before a start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from modelops.artifact import TEXT_FORMAT
from modelops.config import ModelConfig
from modelops.errors import MissingEnvironmentError
from modelops_servers.keeper.vllm_command import Launch


class Vllm:
    """vLLM, in an environment of its own."""

    formats: ClassVar[tuple[str, ...]] = (TEXT_FORMAT,)

    @staticmethod
    def check(config: ModelConfig) -> None:
        """Refuse, before anything is started, what cannot be started so.

        Raises:
            InputError: an argument or the model's folder is off.
            MissingEnvironmentError: vLLM is not installed, or it or this machine lacks something
                that was asked for.
        """
        _, lacking = Vllm._look(config, Path("engine.sock"))
        if lacking is not None:
            raise lacking

    @staticmethod
    def preview(config: ModelConfig, socket: Path) -> Launch:
        """Return how it would be started, to listen on ``socket``; raises as ``check``.

        Of a Hugging Face folder, all that would be read is looked at; an artifact's bytes are not.
        Several workers may be meant for another machine: what this one lacks for them is a note.
        """
        from modelops.resolving import find_source
        from modelops_servers.keeper.model_folder import check_source

        how, lacking = Vllm._look(config, socket)
        assert config.source is not None  # noqa: S101 - the config sees to it
        if find_source(config.source)[1] is None:
            check_source(config)
        if lacking is None:
            return how
        hint = f" ({lacking.hint})" if lacking.hint else ""
        return replace(how, notes=(f"it cannot start here: {lacking.message}{hint}", *how.notes))

    @staticmethod
    def _look(config: ModelConfig, socket: Path) -> tuple[Launch, MissingEnvironmentError | None]:
        from modelops.environments import find_environment
        from modelops_servers.keeper import kv_cache, parallel
        from modelops_servers.keeper.geometry import read_geometry
        from modelops_servers.keeper.vllm_command import launch, options_of

        environment = find_environment(config.engine)
        assert config.source is not None  # noqa: S101 - the config sees to it
        options, geometry = options_of(config), read_geometry(config.source)
        kv_cache.check(options, environment, geometry)
        parallel.check(options, geometry)
        return launch(config, environment, socket), parallel.lacking(options, environment)


class OpenAIServer:
    """Any server of the OpenAI API that is already there."""

    formats: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def check(config: ModelConfig) -> None:
        """Look whether its key is there; the server itself is looked for later.

        Raises:
            MissingEnvironmentError: the variable that is to hold its key is not set.
        """
        from modelops_servers.keeper.remote_key import key_of

        key_of(config)
