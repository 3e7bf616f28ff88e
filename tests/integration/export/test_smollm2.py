"""SmolLM2-135M-Instruct, from its GGUF file (Q4_1) to a text artifact, by the real command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from modelops.artifact import open_artifact
from modelops_exporters.text.tokens_check import read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(700)]


@pytest.fixture(scope="module")
def version(smollm2_artifact: Path) -> Path:
    return smollm2_artifact / "1"


def test_it_is_proven_and_says_so(version: Path) -> None:
    manifest = open_artifact(version).manifest
    assert (manifest.format, manifest.task) == ("huggingface", "text-generation")
    assert manifest.precision.found == "float32"
    assert manifest.text is not None
    assert manifest.text.max_tokens == 8192
    assert any("Q4_1 × 210" in note for note in manifest.notes)
    assert manifest.parity.passed
    assert len(manifest.parity.points) == 12
    assert len(manifest.parity.checks) == 6
    report = json.loads((version / "report.json").read_text())
    answers = {p["label"]: p["answer"] for p in report["prompts"]}
    assert answers["plain 2"].startswith(" Paris.")
    assert answers["chat 7"].startswith("The capital of France is Paris.<|im_end|>")


def test_its_tokenizer_splits_digits_and_keeps_special_tokens(version: Path) -> None:
    tokenizer = read(version)
    assert tokenizer.tokenize("x =  12, 2024") == [
        *("x", "Ġ=", "ĠĠ", "1", "2", ",", "Ġ", "2", "0", "2", "4"),
    ]
    assert tokenizer("<|im_start|>user\n<|im_end|>")["input_ids"] == [1, 4093, 198, 2]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2)
    asked = [{"role": "user", "content": "Hi"}]
    text = tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_inspect_and_verify_know_it(version: Path, smollm2: Path) -> None:
    def modelops(*arguments: str) -> dict[str, object]:
        command = [sys.executable, "-m", "modelops", *arguments, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        found: dict[str, object] = json.loads(done.stdout)
        return found

    assert modelops("inspect", str(smollm2))["parameters"] == 134_515_008
    assert modelops("inspect", str(version))["kind"] == "artifact"
    assert modelops("verify", str(version))["files"] == 9
