"""From a model's config to an engine that is ready: integrity, the runtime, warm-up, batching."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from modelops import registry
from modelops.artifact import Artifact, open_artifact
from modelops.config import ModelConfig
from modelops.errors import UsageError
from modelops.protocols import SideBySide, TensorEngine
from modelops.signature import Signature
from modelops_servers.batching import (
    Batcher,
    ItemMaker,
    padding_slack,
    row_limit,
    rows_are_independent,
)
from modelops_servers.engines.warmup import golden_inputs, warm_up

# The shortest call that is worth handing the turn from thread to thread.
_WORTH_A_LANE_SECONDS = 0.001


@dataclass(frozen=True)
class Prepared:
    """A started engine, and how requests share its calls."""

    config: ModelConfig
    artifact: Artifact
    engine: TensorEngine
    apart: str | None
    """Why requests never share a call; None: they do."""
    slack: int
    """How many padded positions are cheaper than one more call, as measured here."""
    lanes: int = 1
    """How many calls run side by side."""

    @property
    def signature(self) -> Signature:
        """The inputs and outputs, as the manifest has them."""
        return self.artifact.manifest.signature

    @cached_property
    def make_item(self) -> ItemMaker:
        """Makes requests for the batcher."""
        return ItemMaker(self.signature)

    @property
    def max_batch_size(self) -> int:
        """The most rows that several requests share in one call."""
        return 1 if self.apart is not None else row_limit(self.signature, self.config.batching)

    def batcher(self) -> Batcher:
        """Return an empty queue for this engine."""
        return Batcher(
            self.signature,
            self.config.batching,
            together=self.apart is None,
            slack=self.slack,
        )

    def describe(self) -> dict[str, Any]:
        """Return what is really in use."""
        return {
            **self.engine.describe(),
            "lanes": self.lanes,
            "batching": "on" if self.apart is None else f"off: {self.apart}",
            "max_batch_size": self.max_batch_size,
        }


def prepare(config: ModelConfig) -> Prepared:
    """Check the artifact wholly, start its engine, warm up every size class, and look at rows.

    Raises:
        InputError, VerificationError: the artifact is not there or not whole.
        UsageError: the engine does not serve this artifact's format, or runs no lanes.
        MissingEnvironmentError: the engine's package is not installed.
        EngineError: the runtime cannot load or run the model.
    """
    assert config.source is not None  # noqa: S101 - the config sees to it
    artifact = open_artifact(config.source)
    manifest = artifact.manifest
    factory = registry.resolve("engines", config.engine)
    if manifest.format not in factory.formats:
        raise UsageError(
            f"the engine {config.engine!r} serves {', '.join(factory.formats)}, and "
            f"{config.source} is {manifest.format}",
            hint="leave --engine out to take the one that serves it",
        )
    # Only an engine that has options is asked to take them.
    more = {} if config.options is None else {"options": config.options}
    engine: TensorEngine = factory(
        artifact, provider=config.provider, threads=config.threads, **more
    )
    engine.start()
    signature = manifest.signature
    timings = warm_up(engine.infer, signature, config.batching)
    lanes = config.lanes or 1
    if isinstance(engine, SideBySide):
        if config.lanes is None and timings[0][1] >= _WORTH_A_LANE_SECONDS:
            lanes = engine.lanes
        if lanes > 1:
            # The slack is for when many wait, and then all lanes are in use.
            timings = warm_up(engine.side_by_side(lanes), signature, config.batching)
    elif lanes > 1:
        raise UsageError(
            f"lanes is {lanes}, but the engine {config.engine!r} runs one inference at a time",
            hint="use replicas: a process each",
        )
    apart: str | None = "batching.max_size is 1"
    if config.batching.max_size > 1:
        apart = rows_are_independent(engine, signature, golden_inputs(artifact))
    return Prepared(config, artifact, engine, apart, padding_slack(timings), lanes)
