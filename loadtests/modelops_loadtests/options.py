"""The options that the plain locustfiles add to locust's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from modelops_loadtests.scenarios.scenario import Settings
from modelops_loadtests.spans import Span
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
    parser.add_argument("--input-tokens", default="", help="tokens of a prompt: 256, or 128..512")
    parser.add_argument("--output-tokens", default="", help="tokens of a reply: 64, or 16..128")
    parser.add_argument("--shared-prefix", type=float, default=0.0, help="share of every prompt")
    parser.add_argument("--tokenizer", default="", help="a tokenizer.json, or its folder")
    parser.add_argument("--temperature", type=float, default=None)
    parser.add_argument("--no-stream", action="store_true", help="ask for whole replies")
    parser.add_argument("--ignore-eos", action="store_true", help="replies of just that length")
    parser.add_argument("--encoding", choices=("json", "binary"), default="json")
    parser.add_argument("--batch", type=int, default=1, help="inputs a request")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE")
    parser.add_argument("--seed", type=int, default=0)


def settings_of(options: Any, model: str) -> Settings:
    """Return the settings that locust's parsed options ask for."""
    data, tokenizer = getattr(options, "data", ""), getattr(options, "tokenizer", "")
    return Settings(
        model=model,
        data=Path(data) if data else None,
        encoding=getattr(options, "encoding", "json"),
        batch=max(1, getattr(options, "batch", 1)),
        dims=parse_dims(getattr(options, "dim", [])),
        seed=getattr(options, "seed", 0),
        input_tokens=_span(getattr(options, "input_tokens", "")),
        output_tokens=_span(getattr(options, "output_tokens", "")),
        shared_prefix=getattr(options, "shared_prefix", 0.0),
        tokenizer=Path(tokenizer) if tokenizer else None,
        temperature=getattr(options, "temperature", None),
        stream=not getattr(options, "no_stream", False),
        ignore_eos=True if getattr(options, "ignore_eos", False) else None,
    )


def _span(written: str) -> Span | None:
    return Span.model_validate(written) if written else None
