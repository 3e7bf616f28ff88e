"""JSON answers of the framework's routes."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi.responses import Response


class Json(Response):
    """JSON by orjson."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return ``content`` as bytes."""
        return orjson.dumps(content)
