"""The JSON object that a request's body is, or why it is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from modelops.errors import RequestError
from modelops_servers.front.status import FieldError


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


def body_error(message: str) -> FieldError:
    """Make the error that OpenAI's clients get for a body that is no JSON object."""
    return FieldError(message, param="body")
