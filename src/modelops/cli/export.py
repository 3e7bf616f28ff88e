"""``modelops export`` and ``modelops init``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from modelops.cli import output
from modelops.errors import UsageError

_UNITS = {"kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9, "": 1}


def export(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A folder, org/name, hf://org/name@rev or file.")
    ],
    target: Annotated[
        str,
        typer.Option("--to", metavar="TARGET", help="onnx, torch-export, aoti, tensorrt, vllm."),
    ] = "onnx",
    destination: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Artifact folder [artifacts/NAME]."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the artifact [the folder's].")] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FACTORY", help="The model, where SOURCE is only weights."),
    ] = None,
    model_arg: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="Argument of the factory (repeatable).")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="SPEC", help='"mels=float32[batch,frames,40]".'),
    ] = None,
    dim: Annotated[
        list[str] | None, typer.Option(metavar="NAME=MIN..MAX", help="Range of a dynamic dim.")
    ] = None,
    output_name: Annotated[
        list[str] | None, typer.Option(help="Name of an output, in order (repeatable).")
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with model() and inputs(**dims).")
    ] = None,
    weights_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Where in a training checkpoint to look.")
    ] = None,
    opset: Annotated[
        int | None, typer.Option(help="ONNX opset [20; 23 where the model holds attention].")
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="fp32, fp16, bf16, int8, int8-dynamic or int4 [the source's]."),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Inputs for int8: .npz, .jsonl or a folder of .npz."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your own inputs, to prove parity on too.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION", help="A task metric over --data; higher is better."
        ),
    ] = None,
    max_drop: Annotated[
        float | None, typer.Option(help="How much of the metric may be lost against PyTorch.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="What only this target knows (repeatable)."),
    ] = None,
    memory_budget: Annotated[
        str, typer.Option(metavar="SIZE", help="Memory for the largest size that parity checks.")
    ] = "512MiB",
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    keep_failed: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep what did not pass here, marked unusable."),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what would be done; write nothing.")
    ] = False,
    as_json: output.JsonFlag = False,
) -> None:
    """Export a checkpoint, prove that it computes what PyTorch computes, and publish it.

    Examples:

        modelops export ./all-MiniLM-L6-v2 --to onnx -o artifacts/minilm

        modelops export sentence-transformers/all-MiniLM-L6-v2

        modelops export run7.ckpt --model net:Net --input "mels=float32[batch,frames,40]"
        --dim frames=2..512 --output-name embedding

        modelops export weights.pt --recipe recipe.py --to torch-export

        modelops export SmolLM2-135M-Instruct.Q4_1.gguf --to vllm -o artifacts/smollm2
    """
    from modelops.api import export as api
    from modelops.signature import parse_dim, parse_tensor

    request = api.ExportRequest(
        source=source,
        target=target,
        output=destination,
        name=name,
        model=model,
        model_args=_arguments(model_arg or []),
        inputs=tuple(map(parse_tensor, inputs or [])),
        dims=dict(map(parse_dim, dim or [])),
        output_names=tuple(output_name or []),
        recipe=recipe,
        weights_key=weights_key,
        opset=opset,
        precision=precision,
        calibration=calibration,
        data=data,
        metric=metric,
        max_drop=max_drop,
        options=_options(option or []),
        memory_budget=_nbytes(memory_budget),
        seed=seed,
        keep_failed=keep_failed,
        command=_command(sys.argv[1:]),
    )
    if plan:
        with output.progress() as progress:
            planned = api.plan(request, progress)
        output.emit(planned, as_json=as_json, show=None if as_json else api.plan_lines(planned))
        return
    with output.progress() as progress:
        result = api.export(request, progress)
    output.emit(result, as_json=as_json, show=None if as_json else api.table(result))
    if not as_json:
        output.note(f"published {result.path}  {result.digest}\nreport    {result.report}")


def init(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The checkpoint to look at.")],
    destination: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The recipe to write.")
    ] = Path("recipe.py"),
    as_json: output.JsonFlag = False,
) -> None:
    """Look at a checkpoint and write a recipe to edit, for `modelops export --recipe`.

    Examples:

        modelops init run7.ckpt

        modelops init run7.ckpt -o recipes/run7.py
    """
    from modelops.api import export as api

    with output.progress() as progress:
        api.write_recipe(source, destination, progress)
    output.emit(
        {"recipe": str(destination)},
        as_json=as_json,
        show=f"wrote {destination}: edit it, then\n"
        f"  modelops export {shlex.quote(source)} --recipe {shlex.quote(str(destination))}",
    )


def _arguments(pairs: list[str]) -> dict[str, Any]:
    import yaml

    found: dict[str, Any] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.isidentifier():
            raise UsageError(f"--model-arg {pair!r} is not of the form name=value")
        try:
            found[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise UsageError(f"--model-arg {pair!r} cannot be read: {error}") from error
    return found


def _options(pairs: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise UsageError(f"--option {pair!r} is not of the form name=value")
        if name in found:
            raise UsageError(f"--option {name} was given twice")
        found[name] = value
    return found


def _nbytes(text: str) -> int:
    digits = text.strip().rstrip("bBiIkKmMgG ")
    unit = text.strip()[len(digits) :].strip().lower()
    try:
        size = int(float(digits) * _UNITS[unit])
    except (ValueError, KeyError, OverflowError) as error:
        raise UsageError(
            f"cannot read {text!r} as a size", hint='such as "512MiB" or "2GB"'
        ) from error
    if size < 2**20:
        raise UsageError(f"a memory budget of {text} is under 1 MiB")
    return size


def _command(arguments: list[str]) -> str:
    """The line as typed, where absolute paths keep only their last part."""
    shown = [Path(a).name if Path(a).is_absolute() else a for a in arguments]
    return " ".join(["modelops", *map(shlex.quote, shown)])
