from __future__ import annotations

from pathlib import Path

from rich.console import Console, RenderableType

from modelops.artifact.manifest import FileEntry, Manifest
from modelops.checkpoint.inspection import Inspection, TensorInfo
from modelops.report.export import ExportReport
from modelops.report.inspection import artifact_view, checkpoint_view
from modelops.report.table import export_table

ESCAPES = "[red]x[/red]\x1b]0;owned\x07\u202egpj"


def shown(what: RenderableType, width: int = 120) -> str:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def manifest(report: ExportReport) -> Manifest:
    return Manifest(
        name=report.name,
        digest="",
        format="onnx",
        task="embedding",
        entry="model.onnx",
        signature=report.signature,
        source=report.source,
        toolchain=report.toolchain,
        precision=report.precision,
        opset=23,
        text=report.text,
        parity=report.parity,
        notes=report.notes,
        files={"model.onnx": FileEntry(size=1_120_332, sha256="0" * 64, role="model")},
    ).sealed()


def inspection(**update: object) -> Inspection:
    values: dict[str, object] = {
        "name": "model.pt",
        "format": "torch",
        "files": {"model.pt": 90_900_000},
        "tensors": [
            TensorInfo(name=f"layer.{i}.weight", dtype="float32", shape=(384, 384))
            for i in range(30)
        ],
        "parameters": 22_713_216,
        "bytes": 90_852_864,
        "dtypes": {"float32": 30},
        "prefixes": {"module.": 30},
        "containers": {"model_state": 30},
        "progress": {"step": 1200},
        "trainer": "Lightning",
    }
    return Inspection.model_validate({**values, **update})


def test_the_export_table_leads_with_the_verdict(passing: ExportReport) -> None:
    text = shown(export_table(passing))
    assert text.startswith("✓ Right: equal to eager PyTorch at 9 points")
    assert text.count("✓ ") == 11
    assert "padding does not change an item's answer" in text
    assert "parity 3.9 s" in text
    assert "29%" in text
    assert "modelops verify artifacts/minilm" in text


def test_the_export_table_shows_a_failure(failing: ExportReport) -> None:
    text = shown(export_table(failing))
    assert text.startswith("✗ NOT RIGHT: embedding is off by 1.52")
    assert "NaN where eager is finite" in text
    assert "modelops serve" not in text


def test_it_fits_a_narrow_terminal(passing: ExportReport) -> None:
    assert max(len(line) for line in shown(export_table(passing), width=60).splitlines()) <= 60


def test_an_artifact_is_shown_with_its_proof(passing: ExportReport) -> None:
    made = manifest(passing)
    text = shown(artifact_view(made, 2, Path("artifacts/minilm/2")))
    assert "minilm, version 2" in text
    assert made.digest in text
    assert "Right: equal to eager PyTorch at 9 points" in text
    assert "[batch, 384]" in text
    assert "1 to 64" in text
    assert "model.onnx" in text
    assert "runs code" not in text
    assert "runs code" in shown(
        artifact_view(made.model_copy(update={"executable": True}), 2, Path("a"))
    )


def test_a_checkpoint_is_shown_with_what_it_would_run() -> None:
    text = shown(
        checkpoint_view(inspection(refused="it names posix.system", would_run=("posix.system",)))
    )
    assert "would be refused: it names posix.system" in text
    assert "a careless load would run posix.system" in text
    assert "22,713,216" in text
    assert "… and 10 more" in text
    assert "step" in text
    assert "opens as data" in shown(checkpoint_view(inspection()))


def test_a_state_dict_at_the_root_of_its_file_has_a_readable_name() -> None:
    text = shown(checkpoint_view(inspection(containers={"": 2, "ema.shadow": 1200})))
    assert "top level (2 tensors), ema.shadow (1,200 tensors)" in text


def test_names_at_the_terminal_are_shown_and_never_obeyed(passing: ExportReport) -> None:
    hostile = inspection(
        name=ESCAPES,
        format=ESCAPES,
        files={ESCAPES: 1},
        tensors=[TensorInfo(name=ESCAPES, dtype=ESCAPES, shape=(1,))],
        prefixes={ESCAPES: 1},
        trainer=ESCAPES,
        would_run=(ESCAPES,),
        refused=ESCAPES,
        notes=(ESCAPES,),
    )
    output = (
        passing.parity.points[0].outputs[0].model_copy(update={"output": ESCAPES, "why": ESCAPES})
    )
    point = passing.parity.points[0].model_copy(update={"dims": {ESCAPES: 1}, "outputs": (output,)})
    report = passing.model_copy(
        update={
            "name": ESCAPES,
            "parity": passing.parity.model_copy(update={"points": (point,), "checks": (ESCAPES,)}),
            "notes": (ESCAPES,),
            "location": ESCAPES,
            "chain": (passing.chain[0].model_copy(update={"name": ESCAPES}),),
        }
    )
    for text in (shown(checkpoint_view(hostile)), shown(export_table(report))):
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "\u202e" not in text
        assert "[red]x[/red]\\x1b" in text
