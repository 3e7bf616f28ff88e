"""From a model's config to an engine that is ready to start: integrity first, then the runtime."""

from __future__ import annotations

from dataclasses import dataclass

from modelops import registry
from modelops.artifact import Artifact, open_artifact
from modelops.config import ModelConfig
from modelops.errors import UsageError
from modelops.protocols import TensorEngine
from modelops_servers.text import TextInputs


@dataclass(frozen=True)
class Loaded:
    """What one served model is made of; ``text`` where it takes text and carries a tokenizer."""

    artifact: Artifact
    engine: TensorEngine
    text: TextInputs | None


def load(config: ModelConfig) -> Loaded:
    """Check the artifact wholly and build its engine, not yet started.

    Raises:
        InputError, VerificationError: the artifact is not there or not whole.
        UsageError: the engine does not serve this artifact's format.
        MissingEnvironmentError: the engine's package is not installed.
    """
    artifact = open_artifact(config.source)
    factory = registry.resolve("engines", config.engine)
    if artifact.manifest.format not in factory.formats:
        raise UsageError(
            f"the engine {config.engine!r} serves {', '.join(factory.formats)}, and "
            f"{config.source} is {artifact.manifest.format}",
            hint="leave --engine out to take the one that serves it",
        )
    engine: TensorEngine = factory(artifact, provider=config.provider, threads=config.threads)
    return Loaded(artifact, engine, TextInputs.of(artifact))
