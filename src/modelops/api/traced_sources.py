"""Models that PyTorch serves as they are: traced and proven for as long as they are served."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from modelops import registry
from modelops.api.sources import local_source
from modelops.artifact import MANIFEST, versions
from modelops.errors import UsageError
from modelops.progress import Progress
from modelops.requests import ExportRequest

_ENGINE = "torch"
_EXPORT = "modelops_exporters.pipeline:run"


@contextmanager
def traced_sources(
    sources: Sequence[Path], recipe: Path | None, options: Mapping[str, Any], progress: Progress
) -> Iterator[tuple[Path, ...]]:
    """Yield ``sources``, those that are no artifacts traced into a folder that goes at the end.

    Only where the engine ``torch`` was asked for; for others they are left as they are.

    Raises:
        UsageError: a recipe was given that nothing needs.
        InputError, VerificationError: a source is bad, or its trace not what it computes.
        MissingEnvironmentError: the extra ``export`` is missing.
    """
    untraced = [s for s in sources if not (s / MANIFEST).exists() and not versions(s)]
    if options.get("engine") != _ENGINE or not untraced:
        if recipe is not None:
            raise UsageError(
                "--recipe is for a SOURCE that is only weights, served with --engine torch"
            )
        yield tuple(sources)
        return
    with tempfile.TemporaryDirectory(prefix="modelops-traced-") as place:
        export = registry.load(_EXPORT, extra="export")
        found = []
        for index, source in enumerate(sources):
            if source not in untraced:
                found.append(source)
                continue
            path, name = local_source(source, progress)
            name = name or (path.absolute().name if path.is_dir() else path.stem)
            name = re.sub(r"[^A-Za-z0-9._\-]", "-", name)
            progress(f"{source} is no artifact yet: tracing it for PyTorch")
            request = ExportRequest(
                source=str(path),
                recipe=recipe,
                target="torch-export",
                name=name,
                output=Path(place, str(index), name),
            )
            found.append(export(request, progress).path)
        yield tuple(found)
