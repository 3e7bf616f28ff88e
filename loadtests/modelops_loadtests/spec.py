"""What one load test is asked to do, checked before anything is sent."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote, urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from modelops.errors import UsageError
from modelops_loadtests.load.sweep import Sweep
from modelops_loadtests.spans import Span

Encoding = Literal["json", "binary"]
Arrivals = Literal["poisson", "constant", "gamma"]
Shape = Literal["users", "rate", "sweep", "trace"]
DEFAULT_USERS = 8


def parse_dims(texts: Iterable[str]) -> dict[str, int]:
    """Read sizes such as ``sequence=64``.

    Raises:
        UsageError: the text is not of this form, or the size is below 1.
    """
    sizes: dict[str, int] = {}
    for text in texts:
        name, _, size = text.partition("=")
        if not name.strip() or not size.strip().isdecimal() or int(size) < 1:
            raise UsageError(f"cannot read {text!r} as a size", hint='write it as "sequence=64"')
        sizes[name.strip()] = int(size)
    return sizes


def parse_weights(text: str) -> dict[str, float]:
    """Read the scenarios and their weights: ``chat``, or ``chat=3,embeddings=1``.

    Raises:
        UsageError: the text is not of this form, a weight is not above 0, a name comes twice.
    """
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, equals, written = (p.strip() for p in part.partition("="))
        try:
            weight = float(written) if equals else 1.0
        except ValueError:
            weight = 0.0
        if not name or name in weights or not 0 < weight < 1e9:
            raise UsageError(
                f"cannot read {text!r} as scenarios", hint='such as "chat" or "chat=3,embeddings=1"'
            )
        weights[name] = weight
    return weights


class RunSpec(BaseModel):
    """One run. Durations are in seconds, rates in requests (or conversations) a second.

    Load is one of ``users`` (closed loop), ``rate`` (open loop), ``sweep`` and ``trace``; without
    any of them it is eight users. The key is left out wherever the spec is written (the report,
    the child's file): it reaches the child in its environment.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    scenario: str
    """One scenario, or several by weight: ``chat=3,embeddings=1``."""
    model: str | None = None
    """The model of every scenario that ``models`` does not name one for."""
    models: dict[str, str] = {}
    """By scenario."""

    users: int | None = Field(default=None, ge=1, le=10_000)
    rate: float | None = Field(default=None, gt=0, le=1e6, allow_inf_nan=False)
    arrivals: Arrivals = "poisson"
    burstiness: float = Field(default=1.0, gt=0, le=1e3, allow_inf_nan=False)
    """Shape of the gamma distribution of gaps: below 1 bursts, 1 is Poisson, above 1 regular."""
    sweep: Sweep | None = None
    trace: Path | None = None
    connections: int | None = Field(default=None, ge=1, le=100_000)
    """At most so many connections of an open loop, over all processes; None: as many as needed."""
    processes: int = Field(default=1, ge=1, le=256)

    duration_s: float = Field(default=20, gt=0, allow_inf_nan=False)
    """How long is measured; of a sweep: in each stage."""
    max_duration_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """How long at most, where a gate is undecided after ``duration_s``."""
    warmup_s: float = Field(default=2, ge=0, allow_inf_nan=False)
    """Of a trace by default 0: all of it is measured (``stages.resolved``)."""
    ramp_s: float = Field(default=0, ge=0, allow_inf_nan=False)
    """Before the warm-up: load grows evenly from nothing to what was asked."""
    timeout_s: float = Field(default=30, gt=0, allow_inf_nan=False)
    drain_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """How long requests in flight at the end are waited for; None: as long as their timeout."""

    slo: tuple[str, ...] = ()
    """Each ``metric=bound``, or a YAML file of them."""
    baseline: Path | None = None
    max_regression: tuple[str, ...] = ()

    data: Path | None = None
    encoding: Encoding = "json"
    batch: int = Field(default=1, ge=1, le=4096)
    """Inputs a request, where the scenario sends several."""
    dims: dict[str, int] = {}
    input_tokens: Span | None = None
    output_tokens: Span | None = None
    shared_prefix: float = Field(default=0, ge=0, le=1, allow_inf_nan=False)
    """Share of each prompt that all prompts have in common."""
    turns: int = Field(default=1, ge=1, le=1000)
    """Requests of one conversation; a later one is due after the reply to the one before."""
    think_s: float = Field(default=0, ge=0, allow_inf_nan=False)
    """Between a reply and the next turn."""
    tokenizer: Path | None = None
    """A tokenizer.json, or a folder with one; None: the server's ``/tokenize``."""
    temperature: float | None = Field(default=None, ge=0, le=10, allow_inf_nan=False)
    stream: bool = True
    """Whether chat and completion ask for streams."""
    ignore_eos: bool | None = None
    """Whether replies run to their asked length; None: where the server is known to take it."""

    seed: int = Field(default=0, ge=0)
    """Of every random choice; ``checked`` draws one where none was given."""
    calibrate: bool = True
    """Measure the client's own error against the built-in mock first; cached for the machine."""
    metrics_url: str | None = None
    """Where the server's Prometheus metrics are; None: ``/metrics`` below ``url``."""
    server_metrics: bool = True
    """Look at them once a second."""
    trace_ids: bool = False
    """Give each request an ``X-Request-Id``, for a server that stamps what it does."""
    output: Path | None = None
    api_key: SecretStr | None = Field(default=None, exclude=True)

    @field_validator("dims", mode="before")
    @classmethod
    def _written_dims(cls, value: Any) -> Any:
        return parse_dims(value) if isinstance(value, list | tuple) else value

    @model_validator(mode="before")
    @classmethod
    def _written_models(cls, value: Any) -> Any:
        """Split models that are written as a list: each ``NAME``, or ``SCENARIO=NAME``."""
        if not isinstance(value, Mapping) or not isinstance(value.get("model"), list | tuple):
            return value
        weights = parse_weights(str(value.get("scenario", "")))
        one: str | None = None
        models = dict(value.get("models") or {})
        for text in value["model"]:
            scenario, equals, name = str(text).partition("=")
            if equals and scenario.strip() in weights:
                models[scenario.strip()] = name.strip()
            elif one is None:
                one = str(text)
            else:
                raise UsageError(
                    f"two models for one scenario: {one} and {text}",
                    hint="name the scenario: --model chat=NAME --model embeddings=NAME",
                )
        return {**value, "model": one, "models": models}

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        weights = self.weights
        if unknown := [name for name in self.models if name not in weights]:
            raise UsageError(f"--model {unknown[0]}=…: there is no such scenario in this run")
        given = [n for n in ("users", "rate", "sweep", "trace") if getattr(self, n) is not None]
        if len(given) > 1:
            raise UsageError(
                f"--{given[0]} and --{given[1]} are two kinds of load",
                hint="--users is a closed loop, --rate an open one; --sweep and --trace set the "
                "load themselves",
            )
        if self.burstiness != 1 and self.arrivals != "gamma":
            raise UsageError("--burstiness shapes gamma arrivals", hint="add --arrivals gamma")
        if self.arrivals != "poisson" and not self.is_open:
            raise UsageError("--arrivals is of an open loop", hint="add --rate")
        if self.connections is not None and not self.is_open:
            raise UsageError(
                "--connections bounds an open loop; a closed loop has one for each user",
                hint="add --rate, or use --users",
            )
        if self.connections is not None and self.connections < self.processes:
            raise UsageError("there are fewer --connections than --processes")
        if self.shape == "users" and self.concurrency < self.processes:
            raise UsageError("there are fewer --users than --processes")
        if self.max_duration_s is not None and self.max_duration_s < self.duration_s:
            raise UsageError("--max-duration is below --duration")
        if self.max_duration_s is not None and (self.sweep or self.trace):
            raise UsageError("--max-duration goes with --users or --rate")
        if self.think_s and self.turns == 1:
            raise UsageError("--think lies between turns", hint="add --turns")
        if self.turns > 1 and (odd := [n for n in weights if n != "chat"]):
            raise UsageError(f"--turns needs the scenario chat; {odd[0]} has no conversation")
        if self.trace is not None and self.ramp_s:
            raise UsageError("--trace says when each request is due; --ramp cannot be kept")
        if self.trace is not None and self.turns > 1:
            raise UsageError("--trace says when each request is due; --turns cannot be kept")
        if self.baseline is not None and self.sweep is not None:
            raise UsageError("--baseline needs one load to compare at; --sweep has several")
        if bool(self.max_regression) != (self.baseline is not None):
            raise UsageError("--baseline and --max-regression go together")
        return self

    @property
    def weights(self) -> dict[str, float]:
        """Each scenario of the run and its weight."""
        return parse_weights(self.scenario)

    @property
    def shape(self) -> Shape:
        """What sets the load."""
        for shape in ("rate", "sweep", "trace"):
            if getattr(self, shape) is not None:
                return shape
        return "users"

    @property
    def is_open(self) -> bool:
        """Whether requests are sent when they are due, whatever became of earlier ones."""
        swept = self.sweep is not None and self.sweep.axis == "rate"
        return self.rate is not None or self.trace is not None or swept

    @property
    def concurrency(self) -> int:
        """Users of a closed loop."""
        return DEFAULT_USERS if self.users is None else self.users

    @property
    def drain(self) -> float:
        """Seconds that requests in flight at the end are waited for."""
        return self.timeout_s if self.drain_s is None else self.drain_s

    @property
    def longest_s(self) -> float:
        """Seconds measured at most in one stage."""
        return max(self.duration_s, self.max_duration_s or 0.0)

    def model_of(self, scenario: str) -> str | None:
        """Return the model that a scenario loads; None where none was named."""
        return self.models.get(scenario, self.model)

    @classmethod
    def checked(cls, options: Mapping[str, Any]) -> Self:
        """Return the spec of ``options``, its paths made absolute and its URL a base.

        Raises:
            UsageError: an option cannot be meant; it is named as it is on the command line.
        """
        given = {name: value for name, value in options.items() if value is not None}
        # The same seed sends the same prompts, which a server that ran before has in its cache.
        given.setdefault("seed", secrets.randbelow(1 << 31))
        try:
            spec = cls.model_validate(given)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0]) if first["loc"] else "the spec"
            raise UsageError(f"--{option_of(name)}: {first['msg'].lower()}") from None
        paths = {
            name: path.absolute()
            for name in ("data", "trace", "tokenizer", "baseline")
            if (path := getattr(spec, name)) is not None
        }
        return spec.model_copy(update={"url": base_url(spec.url), **paths})


def option_of(field: str) -> str:
    """Return the option that sets a field."""
    return field.removesuffix("_s").replace("_", "-")


def base_url(text: str) -> str:
    """Return the server's base URL without a trailing slash or API version.

    Raises:
        UsageError: it is no http(s) URL, or carries credentials, a query or a fragment.
    """
    written = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(written)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"cannot read {text!r} as a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{text!r} is no http URL", hint='such as "http://127.0.0.1:8080"')
    if parts.username or parts.password:
        raise UsageError("the URL carries credentials", hint="give the key with --api-key")
    if parts.query or parts.fragment:
        raise UsageError(f"{text!r} has a query or fragment; give the server's base URL")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = quote(parts.path.rstrip("/"), safe="/%")
    for version in ("/v1", "/v2"):
        path = path.removesuffix(version)
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{path}"
