"""The installed packages of each extra: new enough, importable, not in each other's way."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import metadata

from modelops.doctor import probe
from modelops.doctor.findings import Finding, Machine

EXTRAS = ("export", "serve", "loadtest")
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[.*?\])?\s*(?P<spec>[^;]*)")
_CPU_TORCH = "https://download.pytorch.org/whl/cpu"


def requirements() -> dict[str, dict[str, str]]:
    """Return the packages of each extra with their lowest version, from modelops's metadata."""
    found: dict[str, dict[str, str]] = {extra: {} for extra in EXTRAS}
    for line in metadata.requires("modelops") or []:
        extra = re.search(r"extra\s*==\s*['\"](\w+)['\"]", line)
        match = _REQUIREMENT.match(line)
        if extra and match and extra[1] in found:
            lowest = re.search(r">=\s*([\d.]+)", match["spec"])
            found[extra[1]][match["name"]] = lowest[1] if lowest else "0"
    return found


def installed() -> dict[str, str]:
    """Return the version of every installed distribution, by its normalised name."""
    return {_normal(d.name): d.version for d in metadata.distributions() if d.name}


def package_findings(machine: Machine) -> Iterator[Finding]:
    """Yield the state of each extra, then of what is known to break them."""
    there = installed()
    needed = {e: {_normal(n): v for n, v in r.items()} for e, r in requirements().items()}
    present = {n for names in needed.values() for n in names if n in there}
    # locust patches the standard library, so whatever came after it would not be itself.
    wanted = sorted(present, key=lambda n: (n == "locust", n))
    looked = (
        probe.run("imports", *(n.replace("-", "_") for n in wanted)) if wanted else probe.Probe()
    )
    for extra, packages in needed.items():
        yield _extra(extra, packages, there, looked.errors)
    if "torch" in there:
        yield from torch_findings(machine, there, looked.facts.get("torch"))
    yield from onnxruntime_findings(machine, there)


def _extra(
    extra: str, packages: Mapping[str, str], there: Mapping[str, str], errors: Mapping[str, str]
) -> Finding:
    install = f'pip install "modelops[{extra}]"'
    missing = [n for n in packages if n not in there]
    if missing:
        value = f"not installed: {', '.join(missing)} missing"
        return Finding(area="extra", name=extra, status="absent", value=value, fix=install)
    old = [f"{n} {there[n]} < {v}" for n, v in packages.items() if _numbers(there[n]) < _numbers(v)]
    failed = [f"{n}: {e}" for n, e in errors.items() if _normal(n) in packages or n == "start"]
    if old or failed:
        value = "; ".join([*old, *failed])
        fix = f'pip install --upgrade "modelops[{extra}]"'
        return Finding(area="extra", name=extra, status="broken", value=value, fix=fix)
    value = ", ".join(f"{n} {there[n]}" for n in packages)
    return Finding(area="extra", name=extra, status="ok", value=value)


def torch_findings(machine: Machine, there: Mapping[str, str], fact: object) -> Iterator[Finding]:
    """Yield whether torch's build fits the machine, and its companions fit torch."""
    if not isinstance(fact, dict):
        return  # it does not import, which its extra has said
    version, cuda = there["torch"], fact["cuda"]
    build = f"{version}, built for {f'CUDA {cuda}' if cuda else 'CPU'}"
    if machine.gpus and not fact["gpu"]:
        why = "cannot use the GPU" if cuda else "there is a GPU"
        fix = "pip install --force-reinstall torch"
        yield Finding(
            area="package", name="torch", status="warning", value=f"{build}; {why}", fix=fix
        )
    else:
        yield Finding(area="package", name="torch", status="ok", value=build)
    companions = [n for n in ("torchvision", "torchaudio", "torchcodec") if n in there]
    failed = probe.run("imports", *companions).errors if companions else {}
    if failed:
        yield Finding(
            area="package",
            name=", ".join(failed),
            status="broken",
            value="do not fit this torch, and transformers fails with them: "
            + next(iter(failed.values())),
            fix=f"pip uninstall -y {' '.join(failed)}",
        )


def onnxruntime_findings(machine: Machine, there: Mapping[str, str]) -> Iterator[Finding]:
    """Yield which execution providers truly make a session here, whatever the package lists."""
    builds = [n for n in there if re.fullmatch(r"onnxruntime(-\w+)?", n) and "ep-" not in n]
    right = "onnxruntime-gpu" if machine.gpus else "onnxruntime"
    mend = f"pip uninstall -y {' '.join(builds)} && pip install {right}"
    if not builds:
        return
    if len(builds) > 1:
        yield Finding(
            area="package",
            name="onnxruntime",
            status="broken",
            value=f"{' and '.join(sorted(builds))} lie in one folder and break each other",
            fix=mend,
        )
    looked = probe.run("providers")
    for provider, works in looked.facts.items():
        yield Finding(
            area="provider",
            name=provider,
            status="ok" if works else "warning",
            value="makes a session"
            if works
            else "is listed, but a session that asks for it runs on the CPU",
            fix=None if works else _provider_fix(machine, mend),
        )
    for step, error in looked.errors.items():
        basic = step in ("start", "onnxruntime", "CPUExecutionProvider")
        yield Finding(
            area="provider",
            name=step,
            status="broken" if basic else "warning",
            value=error,
            fix=mend if basic else _provider_fix(machine, mend),
        )


def _provider_fix(machine: Machine, mend: str) -> str:
    if machine.gpus:
        return 'pip install "onnxruntime-gpu[cuda,cudnn]"'
    return mend


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(n) for n in release[0].split(".")] if release else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
