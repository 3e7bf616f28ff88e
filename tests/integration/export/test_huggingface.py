"""Hugging Face folders: the task by the architecture, and answers equal to the library's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import tiny_hf
import torch
from safetensors.torch import save_file

from modelops.api.export import ExportRequest, ExportResult, export
from modelops.artifact import Manifest, open_artifact
from modelops.errors import ExportError, InputError, UsageError
from modelops_exporters.pooling import Dense

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "checkpoint"
    made.mkdir()
    return made


def run(folder: Path, **fields: Any) -> tuple[ExportResult, Manifest, ort.InferenceSession]:
    result = export(ExportRequest(source=str(folder), memory_budget=2**24, **fields))
    session = ort.InferenceSession(result.path / "model.onnx", providers=["CPUExecutionProvider"])
    return result, open_artifact(result.path).manifest, session


def tokens(*lengths: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    width = max(lengths)
    mask = (np.arange(width)[None] < np.array(lengths)[:, None]).astype(np.int64)
    return {
        "input_ids": rng.integers(4, 16, mask.shape) * mask,
        "attention_mask": mask,
        "token_type_ids": np.zeros_like(mask),
    }


def test_text_classification_keeps_its_labels(folder: Path) -> None:
    config = tiny_hf.bert_config(id2label={0: "bad", 1: "good", 2: "ugly"}, num_labels=3)
    model = tiny_hf.save(folder, "BertForSequenceClassification", config)
    _, manifest, session = run(folder)
    assert manifest.task == "text-classification"
    assert manifest.text is not None
    assert manifest.text.labels == ("bad", "good", "ugly")
    assert manifest.signature.dims["sequence"].max == 32
    inputs = tokens(7, 3, 5)
    with torch.inference_mode():
        expected = model(**{k: torch.from_numpy(v) for k, v in inputs.items()}).logits.numpy()
    np.testing.assert_allclose(session.run(["logits"], inputs)[0], expected, atol=1e-5)


def test_token_classification_gives_logits_for_each_token(folder: Path) -> None:
    tiny_hf.save(folder, "BertForTokenClassification", tiny_hf.bert_config(num_labels=4))
    _, manifest, session = run(folder)
    assert manifest.task == "token-classification"
    assert manifest.signature.outputs[0].shape == ("batch", "sequence", 4)
    assert manifest.signature.padding is not None
    assert session.run(None, tokens(6, 2))[0].shape == (2, 6, 4)


FLAGS = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}


@pytest.mark.parametrize(
    "modes",
    [["mean"], ["cls"], ["max"], ["mean_sqrt_len_tokens", "lasttoken"], ["weightedmean"]],
    ids="+".join,
)
def test_pooling_is_that_of_sentence_transformers(folder: Path, modes: list[str]) -> None:
    from sentence_transformers.sentence_transformer.modules import Pooling

    model = tiny_hf.save(folder, "BertModel", tiny_hf.bert_config())
    # Older folders have a flag for each mode, newer ones name them.
    named = {"pooling_mode": modes}
    flags = {f"pooling_mode_{FLAGS[m]}": True for m in modes if m in FLAGS}
    tiny_hf.sentence_modules(folder, ("Pooling", flags or named))
    _, manifest, session = run(folder)
    assert manifest.task == "embedding"
    assert manifest.text is not None
    assert manifest.text.max_tokens == 24
    assert manifest.text.normalized is False
    inputs = tokens(9, 4, 2)
    tensors = {k: torch.from_numpy(v) for k, v in inputs.items()}
    with torch.inference_mode():
        features = {
            "token_embeddings": model(**tensors).last_hidden_state,
            "attention_mask": tensors["attention_mask"],
        }
        theirs = Pooling(16, tuple(modes))(features)["sentence_embedding"]
    np.testing.assert_allclose(session.run(["embedding"], inputs)[0], theirs.numpy(), atol=1e-5)


def test_dense_and_normalize_follow(folder: Path) -> None:
    tiny_hf.save(folder, "BertModel", tiny_hf.bert_config())
    tiny_hf.sentence_modules(
        folder,
        ("Pooling", {"word_embedding_dimension": 16, "pooling_mode": "mean"}),
        (
            "Dense",
            {
                "in_features": 16,
                "out_features": 5,
                "bias": True,
                "activation_function": "torch.nn.modules.activation.Tanh",
            },
        ),
        ("Normalize", {}),
    )
    dense = Dense(16, 5, bias=True, activation=torch.nn.Tanh())
    save_file(dense.state_dict(), folder / "2_Dense" / "model.safetensors")
    _, manifest, session = run(folder)
    assert manifest.text is not None
    assert manifest.text.normalized is True
    found = session.run(["embedding"], tokens(9, 4, 2))[0]
    assert found.shape == (3, 5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)


def test_bfloat16_weights_are_exported_in_float32_and_said(folder: Path) -> None:
    model = tiny_hf.save(folder, "BertModel", tiny_hf.bert_config())
    model.to(torch.bfloat16).save_pretrained(folder)
    result, manifest, _ = run(folder)
    assert manifest.precision.found == "float32"
    assert any("bfloat16; exported in float32" in note for note in result.notes)
    assert manifest.signature.outputs[0].name == "last_hidden_state"


def test_x16_no_path_of_the_trainer_is_carried(folder: Path) -> None:
    tiny_hf.save(folder, "BertModel", tiny_hf.bert_config())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(config | {"_name_or_path": "/mnt/team/secret/run7"})
    )
    result, _, _ = run(folder)
    for path in result.path.rglob("*"):
        if path.is_file():
            assert b"/mnt/team/secret" not in path.read_bytes()
            assert b"/home/somebody" not in path.read_bytes()


def test_roberta_counts_positions_from_the_padding_id(folder: Path) -> None:
    import transformers

    config = transformers.RobertaConfig(
        vocab_size=16,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=20,
        pad_token_id=1,
        type_vocab_size=1,
    )
    tiny_hf.save(folder, "RobertaModel", config)
    _, manifest, _ = run(folder)
    assert manifest.signature.dims["sequence"].max == 18


def test_a_decoder_is_refused_with_what_to_do(folder: Path) -> None:
    import transformers

    config = transformers.GPT2Config(vocab_size=16, n_embd=16, n_layer=1, n_head=2, n_positions=32)
    tiny_hf.save(folder, "GPT2LMHeadModel", config)
    with pytest.raises(ExportError, match="GPT2LMHeadModel") as caught:
        run(folder)
    assert "recipe" in (caught.value.hint or "")


def test_c5_custom_code_in_a_tokenizer_is_refused(folder: Path) -> None:
    tiny_hf.save(folder, "BertModel", tiny_hf.bert_config())
    path = folder / "tokenizer_config.json"
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"auto_map": {"AutoTokenizer": ["x.X", None]}})
    )
    with pytest.raises(InputError, match=r"tokenizer_config\.json"):
        run(folder)


def test_a_folder_without_a_tokenizer_is_told_so(folder: Path) -> None:
    tiny_hf.save(folder, "BertModel", tiny_hf.bert_config())
    (folder / "tokenizer.json").unlink()
    with pytest.raises(InputError, match="tokenizer"):
        run(folder)


def test_a_fixed_sequence_and_a_narrow_batch(folder: Path) -> None:
    from modelops.signature import DimRange

    tiny_hf.save(folder, "BertModel", tiny_hf.bert_config())
    dims = {"sequence": DimRange(min=12, max=12), "batch": DimRange(min=1, max=4)}
    _, manifest, session = run(folder, dims=dims)
    assert manifest.signature.inputs[0].shape == ("batch", 12)
    assert session.run(None, tokens(12, 5))[0].shape == (2, 12, 16)
    with pytest.raises(UsageError, match="--dim frames"):
        run(folder, dims={"frames": DimRange(min=1, max=2)})
