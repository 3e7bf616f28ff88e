"""Text artifacts of tiny models: what is written is the source, or nothing is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_llm
import torch
from safetensors.torch import load_file, save_file

from modelops.api.export import ExportRequest, ExportResult, export
from modelops.api.inspect import inspect
from modelops.api.verify import verify
from modelops.artifact import find_newest, is_text, open_artifact
from modelops.errors import (
    CheckpointError,
    ExportError,
    InputError,
    ParityError,
    UnsafeInputError,
    UsageError,
)
from modelops_exporters.text import writing
from modelops_exporters.text.tokens_check import read as read_tokenizer

pytestmark = pytest.mark.slow

Run = Callable[..., ExportResult]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def made(source: Path, **fields: Any) -> ExportResult:
        request = {"source": str(source), "target": "vllm", "output": Path("out/tiny"), **fields}
        return export(ExportRequest(**request))

    return made


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def weights(model: Any) -> dict[str, torch.Tensor]:
    """Return a model's state as a folder holds it: a tied head is left out."""
    state = dict(model.state_dict())
    if model.config.tie_word_embeddings:
        del state["lm_head.weight"]
    return state


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_folder_is_copied_bit_by_bit_and_proven(
    run: Run, tmp_path: Path, dtype: torch.dtype
) -> None:
    model = tiny_llm.model(dtype=dtype, tie_word_embeddings=dtype == torch.float32)
    folder = tiny_llm.folder(tmp_path / "tiny", model)
    settings = {"eos_token_id": [2, 0], "repetition_penalty": 1.3, "max_length": 7}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    result = run(folder)
    manifest = open_artifact(result.path).manifest
    assert (manifest.format, manifest.task) == ("huggingface", "text-generation")
    assert is_text(manifest)
    assert not manifest.executable
    assert manifest.precision.found == str(dtype).removeprefix("torch.")
    assert manifest.text is not None
    assert manifest.text.max_tokens == 128
    assert same(load_file(result.path / "model.safetensors"), weights(model))
    assert json.loads((result.path / "generation_config.json").read_text()) == settings
    assert "somebody" not in "".join(p.read_text() for p in result.path.glob("*.json"))
    assert {p.inputs for p in manifest.parity.points} == {"realistic", "random"}
    assert max(o.max_abs or 0 for p in manifest.parity.points for o in p.outputs) < 1e-4
    report = json.loads((result.path / "report.json").read_text())
    chat = next(p for p in report["prompts"] if p["label"].startswith("chat"))
    assert chat["prompt"].endswith("<|start|>assistant\n")
    assert len(chat["tokens"]) == 16
    page = (result.path / "report.html").read_text()
    assert "Prompts and answers" in page
    assert "The capital of France is" in page
    assert "--engine vllm" in page
    # Engines take every such file beside the config for weights.
    assert [p.name for p in result.path.glob("*.safetensors")] == ["model.safetensors"]
    checked = verify(result.path)
    assert len(checked.parity.points) == len(manifest.parity.points)
    assert inspect(str(result.path)).manifest == manifest
    assert find_newest(Path("out"), {"huggingface"}) == Path("out/tiny/1")
    assert run(folder).digest == result.digest


def test_the_greedy_tokens_are_the_models_own(run: Run, tmp_path: Path) -> None:
    model = tiny_llm.model()
    result = run(tiny_llm.folder(tmp_path / "tiny", model))
    samples = load_file(result.path / "evidence" / "samples.safetensors")
    for number in range(5):
        text = samples[f"{number}.in.input_ids"][None]
        tokens = text[:, :-16]
        for _ in range(16):
            with torch.inference_mode():
                new = model(input_ids=tokens).logits[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, new], dim=1)
        assert torch.equal(tokens, text)


def test_safetensors_beside_a_config_and_a_torch_file_in_a_folder(run: Run, tmp_path: Path) -> None:
    model = tiny_llm.model()
    folder = tiny_llm.folder(tmp_path / "tiny", model)
    (folder / "model.safetensors").rename(folder / "epoch7.safetensors")
    first = run(folder / "epoch7.safetensors")
    (folder / "epoch7.safetensors").unlink()
    wrapped = {f"module.{k}": v for k, v in model.state_dict().items()}
    torch.save(wrapped, folder / "pytorch_model.bin")
    second = run(folder)
    for result in (first, second):
        assert same(load_file(result.path / "model.safetensors"), weights(model))
        assert not list(result.path.glob("*.bin"))


def test_experts_keep_the_names_that_engines_know(run: Run, tmp_path: Path) -> None:
    model = tiny_llm.model("mixtral", num_local_experts=2, num_experts_per_tok=1)
    folder = tiny_llm.folder(tmp_path / "tiny", model)
    result = run(folder)
    written = load_file(result.path / "model.safetensors")
    assert same(written, load_file(folder / "model.safetensors"))
    assert "model.layers.0.block_sparse_moe.experts.1.w2.weight" in written


def test_a_snapshot_of_the_hub_is_named_by_its_revision(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "1234567890abcdef1234567890abcdef12345678"
    cache = tmp_path / "hub" / "models--org--tiny"
    tiny_llm.folder(cache / "snapshots" / commit, tiny_llm.model())
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    manifest = open_artifact(run(Path("org/tiny")).path).manifest
    assert (manifest.source.name, manifest.source.revision) == ("tiny", commit)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_gguf_becomes_the_very_model_that_it_was_made_from(
    run: Run, tmp_path: Path, kind: str, tied: bool
) -> None:
    model = tiny_llm.model(kind, tie_word_embeddings=tied)
    result = run(tiny_llm.gguf_file(tmp_path / "tiny.gguf", model, kind))
    assert same(load_file(result.path / "model.safetensors"), weights(model))
    config = json.loads((result.path / "config.json").read_text())
    assert config["architectures"] == [type(model).__name__]
    assert config["tie_word_embeddings"] is tied
    assert config["rope_parameters"]["rope_theta"] == 50_000.0
    manifest = open_artifact(result.path).manifest
    assert manifest.source.format == "gguf"
    assert any("second reading" in check for check in manifest.parity.checks)
    tokenizer = read_tokenizer(result.path)
    assert tokenizer.chat_template == tiny_llm.TEMPLATE
    assert tokenizer("<|start|>hello the<|stop|>")["input_ids"] == [
        1,
        *map(tiny_llm.vocabulary().index, ("hello", "Ġthe")),
        2,
    ]
    # Every digit is a piece of its own, split off before the spaces beside it are.
    assert tokenizer.tokenize("  12") == ["Ġ", "Ġ", "1", "2"]


@pytest.mark.parametrize(
    ("types", "dtype"),
    [
        (("F16",), "float16"),
        (("BF16",), "bfloat16"),
        (("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"), "float32"),
    ],
)
def test_every_value_is_kept_in_the_narrowest_type(
    run: Run, tmp_path: Path, types: tuple[str, ...], dtype: str
) -> None:
    model = tiny_llm.model(dtype=torch.bfloat16 if dtype == "bfloat16" else torch.float32)
    if dtype == "float16":
        model.half().float()
    result = run(tiny_llm.gguf_file(tmp_path / "tiny.gguf", model, types=types))
    manifest = open_artifact(result.path).manifest
    assert manifest.precision.found == dtype
    assert any(types[0] in note and dtype in note for note in manifest.notes)


def test_without_a_chat_template_it_is_said(run: Run, tmp_path: Path) -> None:
    model = tiny_llm.model()
    for source in (
        tiny_llm.folder(tmp_path / "tiny", model, template=None),
        tiny_llm.gguf_file(tmp_path / "tiny.gguf", model, template=None),
    ):
        result = run(source)
        assert any("no chat template" in note for note in result.notes)
        assert not (result.path / "chat_template.jinja").exists()


BAD_GGUF: dict[str, tuple[dict[str, Any], type[InputError], str]] = {
    "unknown tensor": ({"extra": {}, "leave_out": ()}, ExportError, "rope_freqs"),
    "scaled rope": ({"extra": {"llama.rope.scaling.type": "yarn"}}, ExportError, "rope.scaling"),
    "experts": ({"extra": {"llama.expert_count": 8}}, ExportError, "expert_count"),
    "sliding window": ({"extra": {"llama.attention.sliding_window": 64}}, ExportError, "sliding"),
    "no tokenizer": ({"leave_out": ("tokenizer",)}, CheckpointError, "no tokenizer"),
    "a weight is missing": (
        {"leave_out": ("model.layers.1.mlp.up_proj.weight",)},
        CheckpointError,
        "layers.1.mlp.up_proj",
    ),
    "broken template": ({"template": "{% for %}"}, InputError, "chat template"),
}


@pytest.mark.parametrize("case", BAD_GGUF)
def test_a_gguf_that_is_not_wholly_understood_is_refused(
    run: Run, tmp_path: Path, case: str
) -> None:
    fields, error, why = BAD_GGUF[case]
    model = tiny_llm.model()
    if case == "unknown tensor":
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(tiny_llm._GGUF_NAMES, "norm", "rope_freqs")
            source = tiny_llm.gguf_file(tmp_path / "tiny.gguf", model)
    else:
        source = tiny_llm.gguf_file(tmp_path / "tiny.gguf", model, **fields)
    with pytest.raises(error, match=why):
        run(source)
    assert not Path("out/tiny").exists()


def patched(source: Path, old: bytes, new: bytes) -> Path:
    content = source.read_bytes()
    assert content.count(old) == 1
    source.write_bytes(content.replace(old, new))
    return source


def test_other_architectures_quantisations_and_vocabularies_are_named(
    run: Run, tmp_path: Path
) -> None:
    model = tiny_llm.model()
    source = tiny_llm.gguf_file(tmp_path / "a.gguf", model, "gemma2")
    with pytest.raises(ExportError, match=r"'gemma2'; llama, qwen2, qwen3 are read"):
        run(source)
    # A table that says TQ2_0 (66 bytes for 256 weights) where the data are as long.
    source = tiny_llm.gguf_file(tmp_path / "b.gguf", model, types=("F32",))
    from modelops_exporters.text import from_gguf

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(from_gguf, "KNOWN", ("F16",))
        with pytest.raises(ExportError, match="type F32; F16 are read"):
            run(source)
    source = patched(tiny_llm.gguf_file(tmp_path / "c.gguf", model), b"smollm", b"wonder")
    with pytest.raises(ExportError, match="'wonder'"):
        run(source)
    with pytest.raises(ExportError, match="text engine only"):
        run(tiny_llm.gguf_file(tmp_path / "e.gguf", model), target="onnx")
    truncated = tiny_llm.gguf_file(tmp_path / "d.gguf", model)
    truncated.write_bytes(truncated.read_bytes()[:-4096])
    with pytest.raises(CheckpointError, match="truncated"):
        run(truncated)


def test_nan_in_a_gguf_is_refused(run: Run, tmp_path: Path) -> None:
    model = tiny_llm.model()
    with torch.no_grad():
        model.model.norm.weight[3] = float("nan")
    with pytest.raises(CheckpointError, match=r"output_norm.*NaN"):
        run(tiny_llm.gguf_file(tmp_path / "tiny.gguf", model))


def test_folders_that_are_no_whole_language_model_are_refused(run: Run, tmp_path: Path) -> None:
    folder = tiny_llm.folder(tmp_path / "tiny", tiny_llm.model())
    config = json.loads((folder / "config.json").read_text())

    def says(**fields: Any) -> None:
        (folder / "config.json").write_text(json.dumps({**config, **fields}))

    says(architectures=["BertModel"])
    with pytest.raises(ExportError, match="BertModel is no language model"):
        run(folder)
    says(auto_map={"AutoModelForCausalLM": "evil.Model"})
    with pytest.raises(UnsafeInputError, match="auto_map"):
        run(folder)
    says(quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(ExportError, match=r"quantised already \(gptq"):
        run(folder)
    says(num_hidden_layers=3)
    with pytest.raises(CheckpointError, match=r"missing: model\.layers\.2"):
        run(folder)
    says()
    (folder / "tokenizer.json").rename(folder / "elsewhere")
    with pytest.raises(InputError, match="no tokenizer"):
        run(folder)
    (folder / "elsewhere").rename(folder / "tokenizer.json")
    with pytest.raises(UsageError, match="--opset"):
        run(folder, opset=20)
    for asked in ({"data": Path("own.npz")}, {"precision": "int8"}, {"max_drop": 0.1}):
        with pytest.raises(UsageError, match="means nothing for --to"):
            run(folder, **asked)
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        run(folder / "model.safetensors")
    assert not Path("out/tiny").exists()


def test_x_a_folder_that_is_not_the_source_is_not_published(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One weight off by a little, one off by much, and a token renamed: each is found."""
    source = tiny_llm.folder(tmp_path / "tiny", tiny_llm.model())
    write = writing.write

    def spoil(how: Callable[[Path], None]) -> None:
        def spoilt(source: Any, folder: Path) -> None:
            write(source, folder)
            how(folder)

        monkeypatch.setattr("modelops_exporters.text.pipeline.write", spoilt)

    def scale(folder: Path) -> None:
        path = folder / "model.safetensors"
        held = load_file(path)
        held["model.layers.1.mlp.up_proj.weight"] *= 1.01
        save_file(held, path, {"format": "pt"})

    def rename(folder: Path) -> None:
        path = folder / "tokenizer.json"
        path.write_text(path.read_text().replace('"hello": ', '"hullo": '))

    spoil(scale)
    with pytest.raises(ParityError, match=r"greedy_tokens.*and \d+ more"):
        run(source, keep_failed=tmp_path / "kept")
    assert (tmp_path / "kept" / "failed-1" / "report.html").exists()
    with pytest.raises(ParityError, match="did not pass"):
        open_artifact(tmp_path / "kept" / "failed-1")
    spoil(rename)
    with pytest.raises(ParityError):
        run(source)
    gguf_source = tiny_llm.gguf_file(tmp_path / "tiny.gguf", tiny_llm.model())
    spoil(scale)
    with pytest.raises(ParityError, match=r"the weight model\.layers\.1\.mlp\.up_proj"):
        run(gguf_source)
    assert not Path("out/tiny").exists()


def test_a_text_artifact_with_code_in_it_is_not_opened(run: Run, tmp_path: Path) -> None:
    from modelops.artifact import hash_files
    from modelops.artifact.integrity import render

    result = run(tiny_llm.folder(tmp_path / "tiny", tiny_llm.model()))

    def seal(name: str, content: str) -> None:
        """Do what whoever can write the folder can do."""
        (result.path / name).write_text(content)
        manifest = json.loads((result.path / "modelops.json").read_text())
        (result.path / "modelops.json").unlink()
        from modelops.artifact import Manifest

        files = hash_files(result.path, lambda _: "model")
        made = Manifest.model_validate_json(json.dumps(manifest))
        made = made.model_copy(update={"files": files}).sealed()
        (result.path / "modelops.json").write_bytes(render(made))

    config = (result.path / "config.json").read_text()
    seal("config.json", config.replace("{", '{"auto_map": {"AutoModel": "evil.Model"},', 1))
    with pytest.raises(UnsafeInputError, match="auto_map"):
        open_artifact(result.path)
    seal("config.json", config)
    open_artifact(result.path)
    seal("modeling_evil.py", "print()")
    with pytest.raises(UnsafeInputError, match=r"modeling_evil\.py"):
        open_artifact(result.path)


def test_a_full_disk_publishes_nothing(tmp_path: Path) -> None:
    tiny_llm.folder(tmp_path / "tiny", tiny_llm.model())
    code = (
        "import resource, sys\n"
        "from modelops.cli.main import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "main(sys.argv[1:])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "export", "tiny", "--to", "vllm"],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 5, done.stderr
    assert "nothing was published" in done.stderr
    assert not (tmp_path / "artifacts" / "tiny").exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_export_leaves_nothing_that_the_next_does_not_remove(
    tmp_path: Path, how: signal.Signals
) -> None:
    tiny_llm.folder(tmp_path / "tiny", tiny_llm.model())
    # SIGINT is ignored by whoever was started in the background.
    code = (
        "import signal, sys\n"
        "from modelops.cli.main import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "main(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", code, "export", "tiny", "--to", "vllm", "-o", "out"]
    child = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    with child.stderr:
        for line in child.stderr:
            if line.startswith("parity, source 1/"):
                break
        child.send_signal(how)
        child.stderr.read()
    assert child.wait(60) != 0
    assert bool(list(tmp_path.glob("out/.staging-*"))) is (how == signal.SIGKILL)
    subprocess.run(command, cwd=tmp_path, check=True, timeout=200)
    assert [p.name for p in (tmp_path / "out").iterdir() if p.is_dir()] == ["1"]


def test_long_prompts_are_cut_to_what_the_model_takes(run: Run, tmp_path: Path) -> None:
    model = tiny_llm.model(max_position_embeddings=40)
    result = run(tiny_llm.folder(tmp_path / "tiny", model))
    lengths = [p.dims["sequence"] for p in open_artifact(result.path).manifest.parity.points]
    assert max(lengths) == 40
    assert min(lengths) == 17
    assert np.unique(lengths).size > 2
