"""Environments made by the real pip from local wheels; what must never pass as a whole one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_engine import Toy, lock, wheel

from modelops.environments import catalogue, find_environment, installing, place
from modelops.environments.finding import engine_statuses
from modelops.environments.installing import Installed, install_engine
from modelops.environments.record import Record
from modelops.environments.removing import remove_engine
from modelops.errors import (
    InputError,
    IntegrityError,
    MissingEnvironmentError,
    UnsafeInputError,
    UsageError,
)

pytestmark = pytest.mark.slow


def state() -> tuple[str, str | None]:
    (status,) = [s for s in engine_statuses() if s.engine == "toy"]
    return status.state, status.problem


def root() -> Path:
    return place.Place("toy").root


def folders() -> list[Path]:
    return place.Place("toy").leftovers()


def test_an_environment_is_whole_isolated_and_made_once(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    done = install_engine("toy", progress=steps.append)

    assert (done.already, done.record.build, done.record.version) == (False, "plain", "1.0")
    assert any("the plain build: this machine has no GPU" in step for step in steps)
    assert any(step.startswith("fetching packages: ") for step in steps)
    assert "checking: importing toyengine" in steps
    assert state() == ("ready", None)
    found = find_environment("toy")
    assert (found.engine, found.build, found.platform, found.current) == (
        "toy", "plain", "cpu", True,
    )  # fmt: skip
    assert {"toyengine": "1.0", "toydep": "2.0"}.items() <= dict(found.versions).items()
    assert found.flags == {"--level": ("low", "high"), "--name": None}
    variables = found.environment({"PYTHONPATH": "/x", "PYTHONHOME": "/y", "KEPT": "1"})
    assert not {"PYTHONPATH", "PYTHONHOME"} & set(variables)
    assert (variables["TOY"], variables["KEPT"]) == ("1", "1")
    assert variables["PATH"].startswith(str(found.python.parent))
    code = "import toyengine, sys; print(toyengine.__file__, sys.prefix)"
    said = subprocess.run(
        [found.python, "-c", code], env=variables, capture_output=True, text=True, check=True
    )
    assert all(str(root()) in word for word in said.stdout.split())
    assert (Path(done.record.site) / "mended.txt").read_text() == "plain"
    assert not (Path(done.record.folder) / "tmp").exists()
    assert "toyengine" not in sys.modules

    monkeypatch.setattr(installing, "install_lock", lambda *_: pytest.fail("installed again"))
    again = install_engine("toy")
    assert again.already
    assert again.record == done.record
    assert folders() == [Path(done.record.folder)]


def test_variables_meant_for_other_projects_change_nothing(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "constraints.txt").write_text("toydep<1\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "constraints.txt"))
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "toydep.py").write_text("raise SystemExit('not this one')\n")
    install_engine("toy")
    assert state() == ("ready", None)
    assert not (tmp_path / "elsewhere").exists()


def test_new_pins_make_it_outdated_and_a_failed_update_keeps_what_was_there(
    toy: Toy, installed: Record
) -> None:
    before = installed
    digest = wheel(toy.wheels, "toydep", "2.1", {"toydep/__init__.py": "value = 2\n"})
    main = {"toyengine==1.0": toy.pins["toyengine==1.0"]}
    lock(toy.plain, main | {"toydep==2.1": "0" * 64})
    assert state()[0] == "outdated"
    assert not find_environment("toy").current

    with pytest.raises(IntegrityError, match=r"toydep==2\.1 is not the file that was locked"):
        install_engine("toy")
    assert find_environment("toy").python == Path(before.python)
    assert folders() == [Path(before.folder)]

    lock(toy.plain, main | {"toydep==2.1": digest})
    after = install_engine("toy").record
    assert after.versions["toydep"] == "2.1"
    assert folders() == [Path(after.folder)]
    assert not Path(before.folder).exists()


def test_a_build_that_is_not_to_be_had_gives_way_and_it_is_said(toy: Toy) -> None:
    lock(toy.best, {"toyengine==9.9": "0" * 64})
    steps: list[str] = []
    done = install_engine("toy", progress=steps.append)
    assert done.record.build == "plain"
    assert "the best build was not to be had (no index that pip is set to has" in done.record.why
    assert install_engine("toy").already


def test_where_no_build_is_to_be_had_nothing_stays(toy: Toy) -> None:
    lock(toy.plain, {"toyengine==9.9": "0" * 64})
    with pytest.raises(MissingEnvironmentError, match=r"has toyengine==9\.9") as error:
        install_engine("toy")
    assert "install.log" in str(error.value.hint)
    assert "No matching distribution" in (root() / "install.log").read_text()
    assert folders() == []
    assert state() == ("absent", None)


def test_an_index_that_cannot_be_reached_is_told_as_that(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(MissingEnvironmentError, match="no package index could be reached"):
        install_engine("toy")
    assert folders() == []


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("VERSION = '1.0'\nPLATFORM = 'tpu'\n", "runs on tpu, not cpu"),
        ("raise ImportError('libtoy.so is missing')\n", r"\(starting it\).*libtoy\.so is missing"),
        ("import os; os.kill(os.getpid(), 11)\n", "crashed"),
    ],
)
def test_an_engine_that_cannot_be_used_is_not_installed(toy: Toy, code: str, said: str) -> None:
    digest = wheel(toy.wheels, "toyengine", "1.0", {"toyengine/__init__.py": code})
    lock(toy.plain, toy.pins | {"toyengine==1.0": digest})
    with pytest.raises(MissingEnvironmentError, match=said) as error:
        install_engine("toy")
    assert error.value.hint
    assert state() == ("absent", None)
    assert folders() == []


@pytest.mark.parametrize("damaged", ["toydep/", "toydep-2.0.dist-info/", "toyengine/part.py"])
def test_what_breaks_later_is_seen_and_mended(installed: Record, damaged: str) -> None:
    victim = Path(installed.site) / damaged
    if victim.is_dir():
        shutil.rmtree(victim)
        assert state()[0] == "broken"
        with pytest.raises(MissingEnvironmentError, match=r"broken: toydep.* missing") as error:
            find_environment("toy")
        assert error.value.hint == "modelops engine install toy"
    else:
        victim.write_text("part = 1234567\n")  # no list of folders shows this
    steps: list[str] = []
    mended = install_engine("toy", progress=steps.append)
    assert not mended.already
    assert any(step.startswith("making it anew: ") for step in steps)
    assert state() == ("ready", None)
    assert folders() == [Path(mended.record.folder)]


def test_an_environment_whose_python_is_gone_or_that_was_moved_is_broken(
    installed: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = Path(installed.python)
    target = python.readlink()
    python.unlink()
    python.symlink_to("/nowhere/python")
    assert state() == ("broken", f"its interpreter {python} links to a Python that is gone")
    python.unlink()
    python.symlink_to(target)
    assert state()[0] == "ready"
    shutil.copytree(root().parent, tmp_path / "moved", symlinks=True)
    monkeypatch.setenv("MODELOPS_ENGINES_DIR", str(tmp_path / "moved"))
    assert state()[0] == "broken"
    assert "cannot be moved" in str(state()[1])


@pytest.fixture
def silent_index() -> Iterator[str]:
    """Yield an index that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/simple"


def start(toy: Toy, index: str, *more: str) -> tuple[subprocess.Popen[str], int]:
    """Start an installation that gets as far as pip; return it, and pip's process id."""
    process = subprocess.Popen(
        toy.command("engine", "install", "toy", *more),
        env={**os.environ, "PIP_NO_INDEX": "", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": index},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in map(int, children):
            if b"require-hashes" in Path(f"/proc/{child}/cmdline").read_bytes():
                time.sleep(0.5)
                return process, child
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    process.kill()
    pytest.fail(f"pip was not started: {process.communicate()[0]}")


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


def test_killed_half_way_it_is_never_taken_for_whole(toy: Toy, silent_index: str) -> None:
    process, pip = start(toy, silent_index)
    process.kill()
    process.communicate()

    assert gone(pip)
    assert state() == ("half-made", "an installation was cut short")
    with pytest.raises(MissingEnvironmentError, match="toy is half-made") as error:
        find_environment("toy")
    assert error.value.hint == "modelops engine install toy"
    (left,) = folders()

    done = install_engine("toy")
    assert not left.exists()
    assert folders() == [Path(done.record.folder)]
    assert state() == ("ready", None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "term"])
def test_interrupted_it_ends_at_once_and_what_was_there_stays(
    toy: Toy, installed: Record, silent_index: str, number: int
) -> None:
    before = installed
    process, pip = start(toy, silent_index, "--reinstall")
    os.killpg(process.pid, number)
    said, _ = process.communicate(timeout=30)

    assert gone(pip)
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGTERM)
    assert "Traceback" not in said
    assert find_environment("toy").python == Path(before.python)
    assert state() == ("ready", None)
    if number == signal.SIGINT:
        assert folders() == [Path(before.folder)]
    assert install_engine("toy").already
    assert folders() == [Path(before.folder)]


def test_two_at_once_make_one(toy: Toy) -> None:
    done: list[Installed] = []
    steps: list[str] = []
    threads = [
        threading.Thread(target=lambda: done.append(install_engine("toy", progress=steps.append)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(d.already for d in done) == [False, True]
    assert done[0].record == done[1].record
    assert any("waiting: another command" in step for step in steps)
    assert len(folders()) == 1


def test_what_is_in_use_is_neither_replaced_under_it_nor_removed(installed: Record) -> None:
    # Only what it has loaded tells, as of the workers of vLLM, which rename themselves.
    code = (
        "import mmap, sys, time; f = open(sys.argv[1]); "
        "m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ); print('up', flush=True); "
        "time.sleep(60)"
    )
    part = f"{installed.site}/toyengine/part.py"
    argv = [sys.executable, "-c", code, part]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout is not None
        try:
            assert user.stdout.readline() == "up\n"
            assert place.processes_in(Path(installed.folder)) == [user.pid]
            with pytest.raises(MissingEnvironmentError, match=f"in use by process {user.pid}"):
                remove_engine("toy")
            after = install_engine("toy", reinstall=True).record
            assert folders() == sorted([Path(installed.folder), Path(after.folder)])
            assert find_environment("toy").python == Path(after.python)
        finally:
            user.kill()
    assert install_engine("toy").already
    assert folders() == [Path(after.folder)]
    remove_engine("toy")
    assert not root().exists()
    with pytest.raises(InputError, match="toy is not installed"):
        remove_engine("toy")


def test_removal_takes_what_was_made_and_nothing_else(installed: Record) -> None:
    record = installed
    mine = root() / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("keep")
    linked = root() / "linked"
    linked.symlink_to(mine)

    removed = remove_engine("toy")

    assert removed.folders == (record.folder,)
    assert not Path(record.folder).exists()
    assert (linked / "notes.txt").read_text() == "keep"
    assert state() == ("absent", None)
    with pytest.raises(InputError, match="toy is not installed"):
        remove_engine("toy")


@pytest.fixture
def own(toy: Toy, tmp_path: Path) -> Path:
    """Return the interpreter of an environment that a user made."""
    folder = tmp_path / "own"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/*/site-packages")
    for file in toy.wheels.glob("*.whl"):
        with zipfile.ZipFile(file) as archive:
            archive.extractall(site)
    return python


def contents(folder: Path) -> dict[str, int]:
    return {
        str(p): p.lstat().st_mtime_ns
        for p in folder.rglob("*")
        if "__pycache__" not in p.parts and not p.is_dir()
    }


def test_an_environment_of_ones_own_is_noted_and_never_changed(toy: Toy, own: Path) -> None:
    folder = own.parent.parent
    before = contents(folder)
    record = install_engine("toy", python=own).record
    assert (record.kind, record.python, record.version) == ("own", str(own), "1.0")
    assert find_environment("toy").python == own
    assert install_engine("toy").already

    removed = remove_engine("toy")
    assert (removed.folders, removed.own) == ((), str(folder))
    assert contents(folder) == before

    assert install_engine("toy", python=folder).record.python == str(own)
    (next(Path(record.site).glob("toyengine-*")) / "METADATA").unlink()
    next(Path(record.site).glob("toyengine-*")).rename(Path(record.site) / "toyengine-3.dist-info")
    assert state()[0] == "broken"
    with pytest.raises(MissingEnvironmentError, match="your own environment has changed") as error:
        find_environment("toy")
    assert error.value.hint == f"modelops engine install toy --python {own}"


def test_a_python_that_will_not_do_is_refused(toy: Toy, tmp_path: Path) -> None:
    with pytest.raises(MissingEnvironmentError, match="has no toy"):
        install_engine("toy", python=Path(sys.executable))
    with pytest.raises(MissingEnvironmentError, match=r"is no Python 3\.11 or newer"):
        install_engine("toy", python=tmp_path / "nowhere" / "python")
    with pytest.raises(MissingEnvironmentError, match=r"is no Python 3\.11 or newer"):
        install_engine("toy", python=Path("/bin/true"))
    with pytest.raises(UsageError, match="your own"):
        install_engine("toy", python=Path(sys.executable), reinstall=True)
    assert state() == ("absent", None)


def test_a_place_that_cannot_be_written_is_told_with_a_way_out(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MODELOPS_ENGINES_DIR", str(tmp_path / "file" / "engines"))
    with pytest.raises(MissingEnvironmentError, match="cannot write to") as error:
        install_engine("toy")
    assert "MODELOPS_ENGINES_DIR" in str(error.value.hint)
    assert state() == ("absent", None)
    with pytest.raises(MissingEnvironmentError, match="not installed in"):
        find_environment("toy")


def test_a_record_that_others_could_write_is_not_relied_on(installed: Record) -> None:
    record = root() / "environment.json"
    record.chmod(0o666)
    with pytest.raises(UnsafeInputError, match="others may write to it"):
        find_environment("toy")
    assert state()[0] == "broken"
    record.chmod(0o644)
    root().chmod(0o777)
    with pytest.raises(UnsafeInputError, match="anybody may write"):
        find_environment("toy")
    with pytest.raises(UnsafeInputError):
        install_engine("toy")
    root().chmod(0o755)
    record.write_text("{}")
    with pytest.raises(IntegrityError, match="damaged") as error:
        find_environment("toy")
    assert error.value.hint == "modelops engine install toy --reinstall"
    assert not install_engine("toy").already
    assert state() == ("ready", None)


def test_the_command_speaks_json_with_its_exit_code(toy: Toy, tmp_path: Path) -> None:
    def run(*arguments: str) -> tuple[int, dict[str, object], str]:
        done = subprocess.run(
            toy.command("engine", *arguments, "--json"), capture_output=True, text=True, timeout=120
        )
        return done.returncode, json.loads(done.stdout), done.stderr

    elsewhere = str(tmp_path / "elsewhere")
    code, result, said = run("install", "toy", "--engines-dir", elsewhere)
    assert (code, result["build"], result["already"]) == (0, "plain", False), said
    assert str(result["python"]).startswith(elsewhere)
    code, result, _ = run("list", "--engines-dir", elsewhere)
    assert code == 0
    listed = {e["engine"]: e for e in result["engines"]}  # type: ignore[attr-defined]
    assert listed["toy"]["state"] == "ready"
    assert listed["toy"]["size_bytes"] > 10**4
    assert listed["vllm"]["state"] == "absent"
    code, result, _ = run("remove", "toy", "--engines-dir", elsewhere)
    assert (code, len(result["folders"])) == (0, 1)  # type: ignore[arg-type]
    code, result, said = run("remove", "toy", "--engines-dir", elsewhere)
    assert (code, "Traceback" in said) == (3, False)


def test_the_catalogue_is_as_it_was() -> None:
    assert "toy" not in catalogue.ENGINES
