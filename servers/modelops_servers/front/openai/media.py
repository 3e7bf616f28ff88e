"""No request makes an engine fetch from where the client cannot reach itself.

An engine that takes images loads their URLs from inside the network: loopback, metadata services,
its own files. So media come as data, in the request.
"""

from __future__ import annotations

from typing import Any

from modelops_servers.front.status import FieldError

# These hold schemas, which may describe a field of any name.
_SCHEMAS = frozenset({
    "tools", "functions", "response_format", "structured_outputs", "guided_json", "text",
    "metadata", "chat_template_kwargs",
})  # fmt: skip
_SHOWN = 64


def check_media(data: dict[str, Any]) -> None:
    """Look through a decoded request.

    Raises:
        FieldError: it names a URL of media that is not ``data:``.
    """
    tools = data.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            _check(tool)
    waiting: list[Any] = [v for k, v in data.items() if k not in _SCHEMAS and _holds(v)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            _check(value)
            waiting += filter(_holds, value.values())
        else:
            waiting += filter(_holds, value)


def _holds(value: Any) -> bool:
    return isinstance(value, dict | list)


def _check(part: dict[str, Any]) -> None:
    for key, value in part.items():
        if not isinstance(key, str) or not key.endswith("url"):
            continue
        if key == "url" and part.get("type") != "url":
            continue
        url = value.get("url") if isinstance(value, dict) else value
        if isinstance(url, str) and not url.lstrip().lower().startswith("data:"):
            raise FieldError(
                f"{key} {url[:_SHOWN]!r} is not fetched here: send the content itself, "
                "as data:image/png;base64,… or the like",
                param=key,
            )
