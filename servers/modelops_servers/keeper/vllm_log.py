"""What vLLM's log tells: how far it has come, what it is in, and what went wrong."""

from __future__ import annotations

import re
from collections import deque

KEPT_LINES = 200
_SHOWN_LINES = 25
_LONGEST_LINE = 2000

# In the order in which they come; a later line of an earlier stage does not lead back.
_STAGES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("reading the model's configuration", re.compile(r"Resolved architecture")),
    ("starting the workers", re.compile(r"Initializing a V\d+ LLM engine")),
    ("loading weights", re.compile(r"Starting to load model|Loading .*checkpoint shards")),
    ("measuring memory", re.compile(r"Loading weights took|Model loading took")),
    (
        "compiling",
        re.compile(
            r"Warming up model for the compilation|Dynamo bytecode transform|Compiling a graph"
            r"|torch\.compile (?:takes|took)"
        ),
    ),
    (
        "allocating the KV cache",
        re.compile(r"KV cache memory|for KV cache on node|KV cache size"),
    ),
    ("capturing graphs", re.compile(r"Capturing CUDA graph|Graph capturing")),
    ("starting to listen", re.compile(r"init engine .* took|Starting vLLM server")),
)
_SHARDS = re.compile(r"checkpoint shards:\s+(\d+)% Completed")
_DTYPE = re.compile(r"\bdtype=torch\.(\w+)")
_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")
_GIB = re.compile(
    r"Available KV cache memory: ([\d.]+) GiB"
    r"|(?:Auto|Explicitly) set \(([\d.]+)/[\d.]+\) GiB for KV"
)
_ERROR = re.compile(r"(?:^|\s)(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt)): (.+)$")
_EXITING = re.compile(r"error: (.+)$")
_SECOND_HAND = re.compile(r"See root cause|Engine core initialization failed|WorkerProc init")
_PREFIX = re.compile(
    r"^(?:\([\w ]+ ?pid=\d+\) )?(?:(?:INFO|WARNING|ERROR|DEBUG) \d\d-\d\d [\d:]+ \[[^\]]*\] ?)?"
)


class VllmLog:
    """Fed line by line; keeps the last ones."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.stage = "starting vLLM"
        self.detail = ""
        self.dtype: str | None = None
        """What the engine computes in, such as ``bfloat16``."""
        self.cache_tokens: int | None = None
        self.cache_bytes: int | None = None
        """Of each worker; as the log says it, to a hundredth of a GiB."""
        self._reached = -1
        self._error: str | None = None

    def feed(self, line: str) -> bool:
        """Take a line; return whether the stage is another now."""
        line = line.rstrip()[:_LONGEST_LINE]
        if not line:
            return False
        self.lines.append(line)
        before = (self.stage, self.detail)
        for i, (name, pattern) in enumerate(_STAGES):
            if i > self._reached and pattern.search(line):
                self._reached, self.stage, self.detail = i, name, ""
        if self.stage == "loading weights" and (shards := _SHARDS.search(line)):
            self.detail = f"{shards[1]} %"
        if self.dtype is None and (dtype := _DTYPE.search(line)):
            self.dtype = dtype[1]
        if tokens := _TOKENS.search(line):
            self.cache_tokens = int(tokens[1].replace(",", ""))
        if gib := _GIB.search(line):
            self.cache_bytes = int(float(gib[1] or gib[2]) * 2**30)
        text = _PREFIX.sub("", line)
        if error := _ERROR.search(text):
            if not _SECOND_HAND.search(text):
                self._error = f"{error[1]}: {error[2]}"
        elif error := _EXITING.search(text):
            self._error = error[1]
        return before != (self.stage, self.detail)

    @property
    def progress(self) -> str:
        """How far it has come, for whoever waits."""
        return f"{self.stage} ({self.detail})" if self.detail else self.stage

    @property
    def error(self) -> str | None:
        """The last error that names a cause, without those that only point to another."""
        return self._error

    def forget_error(self) -> None:
        """Leave behind what has gone by."""
        self._error = None

    def tail(self) -> str:
        """Return the last lines, for an error."""
        lines = list(self.lines)[-_SHOWN_LINES:]
        return "the end of its log:\n" + "\n".join(lines) if lines else "it logged nothing"
