"""Real exports of small models, by the pipeline that the command uses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import model_zoo
import pytest
import torch

from modelops.api.export import ExportRequest, ExportResult, export
from modelops.signature import parse_dim, parse_tensor

Export = Callable[..., ExportResult]


@pytest.fixture
def export_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Export:
    """Save a model of the zoo and export it; keywords go into the request."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *inputs: str, dims: tuple[str, ...] = (), **fields: Any) -> ExportResult:
        torch.manual_seed(1)
        model = getattr(model_zoo, name)()
        torch.save(model.state_dict(), f"{name}.pt")
        request = ExportRequest(
            source=f"{name}.pt",
            model=f"model_zoo:{name}",
            inputs=tuple(map(parse_tensor, inputs)),
            dims=dict(map(parse_dim, dims)),
            memory_budget=2**24,
            **fields,
        )
        return export(request)

    return run
