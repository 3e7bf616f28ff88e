"""The options of engines that have some of their own, by the engine's name."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from modelops.signature import Frozen

KvCacheDtype = Literal["auto", "bf16", "fp8", "int8"]

_MANY = 1_000_000_000
_TIB_IN_GIB = 1024
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# What the keeper itself says to vLLM, or what would take the engine out of its sight.
_KEPT = {
    "--uds": "the gateway reaches the engine over a socket of its own",
    "--host": "the gateway reaches the engine over a socket of its own",
    "--port": "the gateway reaches the engine over a socket of its own",
    "--grpc": "the gateway reaches the engine over a socket of its own",
    "--grpc-port": "the gateway reaches the engine over a socket of its own",
    "--api-key": "keys are the gateway's: MODELOPS_API_KEYS or keys_file",
    "--ssl-*": "the engine is reached over a socket that only this machine has",
    "--root-path": "the gateway has the routes",
    "--model": "it is the entry's source",
    "--tokenizer": "it is in the entry's source",
    "--served-model-name": "it is the entry's name",
    "--config": "a file could say anything: name the arguments",
    "--headless": "the gateway asks the engine itself",
    "--api-server-count": "fronts are the gateway's: server.fronts",
    "--data-parallel-*": "replicas are the gateway's: replicas",
    "--disable-log-stats": "the engine's metrics show whether it makes progress",
    "--enable-server-load-tracking": "it is always on",
    "--disable-uvicorn-access-log": "it is always on",
    "--kv-cache-dtype": "it is the option kv_cache_dtype, which is checked before it is passed on",
    "--max-model-len": "it is the option max_model_len",
    "--gpu-memory-utilization": "it is the option gpu_memory_utilization",
    "--kv-cache-memory-bytes": "it is the option kv_cache_gib",
    "--tensor-parallel-size": "it is the option tensor_parallel_size",
    "--pipeline-parallel-size": "it is the option pipeline_parallel_size",
    "--distributed-executor-backend": "it is the option distributed_executor_backend",
    "--speculative-config": "it is the option speculative",
    "--quantization": "it is the option quantization",
    "--load-format": "weights are looked at before vLLM reads them, and no others are read",
    "--dtype": "it is the option dtype",
    "--enforce-eager": "it is the option enforce_eager",
    "--help": "it starts nothing",
}


def _refused(flag: str) -> str | None:
    """Return why an engine argument may not be given; None where it may."""
    for pattern, why in _KEPT.items():
        # Its parser also takes the keys of an argument one by one, and the opposite of a switch.
        names = (pattern, pattern.replace("--", "--no-", 1))
        for name in names:
            if flag == name or flag.startswith(f"{name}."):
                return why
            if name.endswith("*") and flag.startswith(name[:-1]):
                return why
            # argparse takes an argument's first letters for the whole.
            if name.startswith(flag) and len(flag) > len("--"):
                return f"vLLM could take it for {name}: {why}"
    return None


def _engine_arguments(values: tuple[str, ...]) -> tuple[str, ...]:
    expects_flag = True
    for value in values:
        if not value or not value.isprintable():
            raise ValueError(f"{value[:64]!r} is no argument: empty, or with control characters")
        if value.startswith("--"):
            # vLLM's parser takes either spelling.
            flag = value.partition("=")[0].replace("_", "-")
            if why := _refused(flag):
                raise ValueError(f"{flag} cannot be given: {why}")
        elif re.match(r"-[A-Za-z]", value):
            raise ValueError(f"{value[:64]!r}: write the argument's long name")
        elif expects_flag:
            raise ValueError(f"{value[:64]!r} is no argument: one begins with --")
        expects_flag = False
    return values


def _variable(value: str) -> str:
    # The name only: whatever else was written there could be the key itself.
    if not _VARIABLE.fullmatch(value):
        raise ValueError("not the name of an environment variable")
    return value


def _url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an http:// or https:// address, such as http://llm.internal:8000/v1")
    try:
        parts.port  # noqa: B018 - reading it checks it
    except ValueError:
        raise ValueError("a port is a number up to 65535") from None
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("only scheme, host, port and path; a key goes into options.key_variable")
    return value.rstrip("/")


Url = Annotated[str, AfterValidator(_url)]
"""A server's address, down to the path before ``/chat/completions``."""


class _Options(Frozen):
    model_config = ConfigDict(
        use_attribute_docstrings=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class NgramSpeculation(_Options):
    """Speculative decoding without a second model: the prompt's own words are proposed."""

    method: Literal["ngram"] = "ngram"
    """How tokens are proposed: ``ngram``."""
    tokens: int = Field(default=4, ge=1, le=64)
    """How many tokens are proposed at once."""
    lookup_max: int = Field(default=4, ge=1, le=64)
    """The longest run of tokens that is looked up in the prompt."""
    lookup_min: int = Field(default=2, ge=1, le=64)
    """The shortest run of tokens that is looked up in the prompt."""

    @model_validator(mode="after")
    def _ordered(self) -> NgramSpeculation:
        if self.lookup_min > self.lookup_max:
            raise ValueError(
                f"lookup_min is {self.lookup_min}, beyond lookup_max, {self.lookup_max}"
            )
        return self


class VllmOptions(_Options):
    """How vLLM is started; what is left out is vLLM's own choice."""

    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """What the weights are computed in; auto: what the model says."""
    kv_cache_dtype: KvCacheDtype = "auto"
    """What keys and values are kept in; auto: what the weights are computed in. ``int8`` has a
    scale for each token and head. Refused before the start where this machine cannot do it."""
    kv_cache_gib: float | None = Field(default=None, gt=0, le=_TIB_IN_GIB)
    """Memory for keys and values of each worker, in GiB; null: what vLLM finds free."""
    max_model_len: int | None = Field(default=None, ge=1, le=_MANY)
    """The most tokens of one request, prompt and answer together; null: the model's own limit."""
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    """The share of a device's memory (on CPUs, of main memory) that vLLM may take, up to 1; what
    the weights leave of it is for keys and values, unless kv_cache_gib says how much is."""
    tensor_parallel_size: int = Field(default=1, ge=1, le=1024)
    """How many devices share the work of each layer."""
    pipeline_parallel_size: int = Field(default=1, ge=1, le=1024)
    """How many devices, or groups of them, the layers are divided among."""
    distributed_executor_backend: Literal["mp", "ray"] | None = None
    """What starts the workers; null: vLLM chooses. ``ray`` reaches other machines."""
    speculative: NgramSpeculation | None = None
    """Speculative decoding; null: off."""
    quantization: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_\-]{1,64}$")
    """How the weights are quantised, by vLLM's name for it; null: what the model says."""
    enforce_eager: bool = False
    """Start sooner and answer slower: nothing is compiled, and no graph captured."""
    engine_args: Annotated[tuple[str, ...], AfterValidator(_engine_arguments)] = ()
    """Further arguments for vLLM's server, a list such as ["--max-num-seqs", "16"]; none that
    an option here stands for, and none that the gateway needs for itself."""


class OpenAIOptions(_Options):
    """How a server that is already there is spoken with."""

    model: str | None = Field(default=None, min_length=1, max_length=512)
    """What that server calls the model; null: the only one that it lists, else the entry's name."""
    key_variable: Annotated[str, AfterValidator(_variable)] | None = None
    """The environment variable that holds the key of that server, which is sent as
    ``Authorization: Bearer``; null: it asks for none."""


class TorchOptions(_Options):
    """How PyTorch runs a program."""

    compile: bool = False
    """Compile it with ``torch.compile`` when it is loaded, which needs a C++ compiler."""


EngineOptions = VllmOptions | OpenAIOptions | TorchOptions

OPTIONS: dict[str, type[VllmOptions | OpenAIOptions | TorchOptions]] = {
    "vllm": VllmOptions,
    "openai": OpenAIOptions,
    "torch": TorchOptions,
}
"""The engines that have options, and of which kind."""

SERVERS = frozenset({"vllm", "openai"})
"""The engines that are HTTP servers of their own, not a library in one of our processes."""
