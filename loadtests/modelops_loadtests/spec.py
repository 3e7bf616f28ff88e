"""What one load test is asked to do, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from modelops.errors import UsageError

Encoding = Literal["json", "binary"]


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


class RunSpec(BaseModel):
    """One run. Durations are in seconds.

    The key is left out wherever the spec is written (the report, the child's file): it reaches
    the child in its environment.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    scenario: str
    model: str | None = None
    users: int = Field(default=8, ge=1, le=10_000)
    duration_s: float = Field(default=20, gt=0, allow_inf_nan=False)
    warmup_s: float = Field(default=2, ge=0, allow_inf_nan=False)
    timeout_s: float = Field(default=30, gt=0, allow_inf_nan=False)
    drain_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """How long requests in flight at the end are waited for; None: as long as their timeout."""
    slo: tuple[str, ...] = ()
    data: Path | None = None
    encoding: Encoding = "json"
    batch: int = Field(default=1, ge=1, le=4096)
    """Inputs a request, where the scenario sends several."""
    dims: dict[str, int] = {}
    seed: int = 0
    output: Path | None = None
    api_key: SecretStr | None = Field(default=None, exclude=True)

    @field_validator("dims", mode="before")
    @classmethod
    def _written_dims(cls, value: Any) -> Any:
        return parse_dims(value) if isinstance(value, list | tuple) else value

    @property
    def drain(self) -> float:
        """Seconds that requests in flight at the end are waited for."""
        return self.timeout_s if self.drain_s is None else self.drain_s


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
    path = parts.path.rstrip("/")
    for version in ("/v1", "/v2"):
        path = path.removesuffix(version)
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{path}"
