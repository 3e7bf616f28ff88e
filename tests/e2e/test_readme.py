"""The README, typed as it is written."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from documents import Block, Reader, blocks, commands, missing_line

from modelops import errors

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.usefixtures("vllm_installed")
def test_every_command_of_the_readme_works_as_written(tmp_path: Path) -> None:
    # As `pip install --target` makes it, which is left out.
    (tmp_path / "models").symlink_to(Path(sys.prefix) / "models")
    reader = Reader(tmp_path)
    reader.read(README)
    assert all(re.match(r"pip install |make (demo|test)$", text) for text in reader.left_out)
    for job in (
        "init",
        "export",
        "inspect",
        "verify",
        "bench",
        "serve",
        "config",
        "status",
        "loadtest",
        "engine",
        "trust",
        "doctor",
    ):
        assert any(f"modelops {job}" in text for text in reader.ran), f"no example of {job}"


def test_the_readme_leads_with_what_a_user_types() -> None:
    first = next(b.text for b in blocks(README) if b.language == "console")
    assert first.startswith('$ pip install "modelops[all]"')


def test_the_table_of_exit_codes_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| (\d+) \|", README.read_text(encoding="utf-8"), re.MULTILINE)
    kinds = [v for v in vars(errors).values() if isinstance(v, type)]
    codes = {k.exit_code for k in kinds if issubclass(k, errors.ModelopsError)}
    assert {int(code) for code in rows} == codes | {0}


def test_the_runner_reads_commands_and_promised_output() -> None:
    block = Block("console", "$ one \\\n    --two\nfirst … last\n$ three\n", 1)
    one, three = commands(block)
    assert (one.text, one.output) == ("one --two", ("first … last",))
    assert (three.text, three.output) == ("three", ())


def test_the_runner_sees_what_is_missing() -> None:
    output = "a\nfirst, then last\nz\n"
    assert missing_line(("first … last", "z"), output) is None
    assert missing_line(("z", "first … last"), output) == "first … last"
    assert missing_line(("absent",), output) == "absent"


@pytest.mark.parametrize(
    "text",
    [
        "```console\n$ false\n```\n",
        "```console\n$ echo one\ntwo\n```\n",
        "```python\nraise SystemExit(1)\n```\n",
        "```bash\ntrue\n```\n",
        "```console\n$ echo no end\n",
    ],
)
def test_the_runner_fails_where_the_document_is_wrong(tmp_path: Path, text: str) -> None:
    document = tmp_path / "document.md"
    document.write_text(text)
    with pytest.raises(AssertionError):
        Reader(tmp_path).read(document)
