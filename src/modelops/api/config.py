"""A configuration checked without serving it, and the description of its format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from modelops.api.serve import ServePlan, ServeRequest, plan, resolve
from modelops.config import file
from modelops.progress import Progress, silent

schema = file.schema


def check(path: Path, environment: Mapping[str, str], progress: Progress = silent) -> ServePlan:
    """Return what ``modelops serve --config`` would serve from ``path`` in this environment.

    Sources, engines, formats, ports and the keys file are looked at; nothing is loaded and no
    port is tried.

    Raises:
        UsageError: an environment variable cannot be meant.
        InputError: the configuration is off, or what it names is not there or does not fit.
        IntegrityError: the manifest of a source is off.
        MissingEnvironmentError: the package of an engine cannot be imported.
    """
    request = ServeRequest(config=path, environment=dict(environment), dry_run=True)
    return plan(resolve(request, progress))
