"""The options that the plain locustfiles add to locust's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from modelops_loadtests.scenarios.scenario import Settings
from modelops_loadtests.spec import parse_dims


def add_options(parser: Any) -> None:
    """Add them; a listener for locust's ``init_command_line_parser``."""
    parser.add_argument("--model", default="", env_var="MODELOPS_MODEL", help="the model to load")
    parser.add_argument(
        "--api-key",
        default="",
        env_var="MODELOPS_API_KEY",
        is_secret=True,
        include_in_web_ui=False,
        help="sent as a bearer token",
    )
    parser.add_argument("--data", default="", help="a file of texts, one a line, or .jsonl")
    parser.add_argument("--encoding", choices=("json", "binary"), default="json")
    parser.add_argument("--batch", type=int, default=1, help="inputs a request")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE")
    parser.add_argument("--seed", type=int, default=0)


def settings_of(options: Any, model: str) -> Settings:
    """Return the settings that locust's parsed options ask for."""
    data = getattr(options, "data", "")
    return Settings(
        model=model,
        data=Path(data) if data else None,
        encoding=getattr(options, "encoding", "json"),
        batch=max(1, getattr(options, "batch", 1)),
        dims=parse_dims(getattr(options, "dim", [])),
        seed=getattr(options, "seed", 0),
    )
