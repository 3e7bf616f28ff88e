"""The engines that are servers of their own, as the registry names them: checked before a start."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from modelops.artifact import TEXT_FORMAT
from modelops.config import ModelConfig
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
        Vllm.launch(config, Path("engine.sock"))

    @staticmethod
    def launch(config: ModelConfig, socket: Path) -> Launch:
        """Return how it would be started, to listen on ``socket``; raises as ``check``."""
        from modelops.environments import find_environment
        from modelops_servers.keeper import kv_cache
        from modelops_servers.keeper.geometry import read_geometry
        from modelops_servers.keeper.vllm_command import launch, options_of

        environment = find_environment(config.engine)
        assert config.source is not None  # noqa: S101 - the config sees to it
        kv_cache.check(options_of(config), environment, read_geometry(config.source))
        return launch(config, environment, socket)


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
