"""X14: an output folder reached through a planted link is refused; ordinary paths are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_artifacts import make_artifact

from modelops.artifact.output_path import check_output
from modelops.errors import IntegrityError, UsageError


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "outside").mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(
    "typed", ["out", "./out", "artifacts/mlp", "../out", "../../out", "a/b/c/d", ".", "a/../b"]
)
def test_x14_ordinary_relative_paths(work: Path, typed: str) -> None:
    check_output(Path(typed))


def test_x14_an_absolute_path_is_ordinary(work: Path, tmp_path: Path) -> None:
    published = make_artifact(tmp_path / "abs" / "mlp")
    assert published.path == tmp_path / "abs" / "mlp" / "1"


@pytest.mark.parametrize(
    ("link", "typed"),
    [
        ("out", "out"),
        ("artifacts", "artifacts/mlp"),
        ("artifacts", "artifacts/a/b/c/d/e"),
        ("../shared", "../shared/mlp"),
        ("a", "a/../b"),
        ("artifacts", "./artifacts/mlp"),
    ],
)
@pytest.mark.parametrize("there", [True, False], ids=["existing", "dangling"])
def test_x14_a_link_on_a_relative_path(
    work: Path, tmp_path: Path, link: str, typed: str, there: bool
) -> None:
    target = tmp_path / ("outside" if there else "nowhere")
    Path(link).symlink_to(target)

    with pytest.raises(IntegrityError, match="is a link") as caught:
        make_artifact(Path(typed))
    assert caught.value.hint is not None
    assert not target.exists() or list(target.iterdir()) == []


@pytest.mark.parametrize("depth", [0, 1, 2, 5])
def test_x14_a_link_on_an_absolute_path(work: Path, tmp_path: Path, depth: int) -> None:
    link = tmp_path / "planted"
    link.symlink_to(tmp_path / "outside")

    with pytest.raises(IntegrityError, match="planted is a link"):
        check_output(link.joinpath(*"abcde"[:depth]))


def test_x14_a_link_where_no_folder_of_ours_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = tmp_path / "ours"
    ours.mkdir()
    monkeypatch.chdir(ours)
    monkeypatch.setenv("HOME", str(ours))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(ours))
    (tmp_path / "disk").symlink_to(tmp_path)

    check_output(tmp_path / "disk" / "a" / "b" / "c")  # how the machine is arranged
    for end in ("", "a", "a/b"):
        with pytest.raises(IntegrityError, match="disk is a link"):
            check_output(tmp_path / "disk" / end)


def test_x14_a_link_above_the_working_folder_is_the_machines_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real" / "work").mkdir(parents=True)
    (tmp_path / "home").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path / "home" / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "work"))

    check_output(Path("out"))
    check_output(tmp_path / "home" / "work" / "out")
    check_output(Path("../out"))


def test_x14_planted_between_the_check_and_the_export(work: Path, tmp_path: Path) -> None:
    from modelops.artifact import Store

    store = Store(Path("artifacts/mlp"))
    Path("artifacts").symlink_to(tmp_path / "outside")

    with pytest.raises(IntegrityError, match="is a link"), store.staging():
        pass
    assert list((tmp_path / "outside").iterdir()) == []


def test_x14_a_link_to_itself(work: Path) -> None:
    Path("out").symlink_to("out")
    with pytest.raises(IntegrityError, match="is a link"):
        make_artifact(Path("out"))


def test_x14_a_relative_root_is_published(work: Path) -> None:
    assert make_artifact(Path("../out/mlp")).path == Path("../out/mlp/1")
    assert make_artifact(Path("../out/mlp")).version == 2


def test_a_file_on_the_way_is_a_usage_error(work: Path) -> None:
    Path("artifacts").write_text("")
    with pytest.raises(UsageError, match="not a folder"):
        check_output(Path("artifacts/mlp"))
