"""The JSON object that a request's body is, or why it is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from modelops.errors import RequestError


def json_object(
    text: bytes | memoryview, refused: Callable[[str], RequestError] = RequestError
) -> dict[str, Any]:
    """Read ``text``; ``refused`` makes an error of what is wrong.

    Raises:
        RequestError: it is no JSON, or no object.
    """
    try:
        said = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise refused(f"the body is not JSON: {error}") from error
    if not isinstance(said, dict):
        raise refused("the body's JSON is not an object")
    return said
