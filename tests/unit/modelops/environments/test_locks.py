"""The locks that modelops carries: pinned, hashed, without an address, in known-good versions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from modelops.environments.catalogue import ENGINES, Build
from modelops.environments.lockfile import lock_digest, read_lock

FOLDER = Path(__file__).parents[4] / "src" / "modelops" / "environments" / "locks"
LOCKS = sorted(FOLDER.glob("*.txt"))
_ENTRY = re.compile(
    r"[a-z0-9][\w.-]*==[\w.+!]+(?: ; python_version[^\n\\]*)?"
    r"(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n"
)


def pins(path: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", path.read_text(), re.MULTILINE):
        found.setdefault(name, set()).add(version)
    return found


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version.split("+")[0]))


@pytest.mark.parametrize("path", LOCKS, ids=lambda p: p.stem)
def test_every_package_is_pinned_with_hashes_and_nothing_else_is_in_a_lock(path: Path) -> None:
    text = path.read_text()
    head, body = [], text
    while body.startswith("#"):
        line, _, body = body.partition("\n")
        head.append(line)
    assert len(head) == 5
    assert _ENTRY.sub("", body) == ""
    assert "/" not in text
    assert "://" not in text


@pytest.mark.parametrize("path", LOCKS, ids=lambda p: p.stem)
def test_a_lock_says_what_it_is_for(path: Path) -> None:
    facts = read_lock(path)
    assert (facts.system, facts.machine) == ("linux", "x86_64")
    assert facts.pythons == ("3.11", "3.12", "3.13")
    assert (2, 17) <= facts.glibc <= (2, 39)
    assert facts.download > 10**8
    assert facts.packages == len(_ENTRY.findall(path.read_text()))


def builds() -> list[Build]:
    return [b for engine in ENGINES.values() for b in engine.builds if b.locked]


@pytest.mark.parametrize("build", builds(), ids=lambda b: b.name)
def test_a_build_is_what_its_locks_pin(build: Build) -> None:
    pinned: dict[str, set[str]] = {}
    for lock in build.locks:
        pinned |= pins(lock.path)
    assert pinned[build.distribution] == {build.version}
    # Past these, the server of vLLM does not start.
    assert max(map(numbers, pinned["fastapi"])) < (0, 137)
    assert max(map(numbers, pinned["transformers"])) < (5, 20)
    if build.platform == "cpu":
        assert pinned["torch"] == {"2.13.0+cpu"}
        assert not {"torchvision", "torchaudio", "torchcodec"} & set(pinned)
        assert not [n for n in pinned if n.startswith("nvidia-")]


def test_the_builds_of_one_engine_are_of_one_version() -> None:
    for engine in ENGINES.values():
        assert len({b.version.split("+")[0] for b in engine.builds}) == 1


def test_a_digest_changes_with_the_lock_and_with_the_build(tmp_path: Path) -> None:
    from dataclasses import replace

    from modelops.environments.catalogue import Lock

    build = builds()[0]
    copy = tmp_path / "copy.txt"
    copy.write_bytes(build.locks[0].path.read_bytes())
    alike = replace(build, locks=(Lock(copy), *build.locks[1:]))
    assert lock_digest(alike) == lock_digest(build)
    assert lock_digest(replace(build, name="other")) != lock_digest(build)
    with copy.open("a") as file:
        file.write("# changed\n")
    assert lock_digest(alike) != lock_digest(build)
