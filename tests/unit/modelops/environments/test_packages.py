"""What pip says, as a person is told it."""

from __future__ import annotations

from pathlib import Path

import pytest

from modelops.environments.catalogue import Lock
from modelops.environments.packages import UnavailableError, _explain
from modelops.errors import IntegrityError, MissingEnvironmentError

_HASHES = """ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.
    toydep==2.0 from file:///w/toydep-2.0-py3-none-any.whl (from -r plain.txt (line 8)):
        Expected sha256 aaaa
             Got        bbbb
"""
_NO_NAME = """WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(
 Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')'
ERROR: Could not find a version that satisfies the requirement torch==1 (from versions: none)
ERROR: No matching distribution found for torch==1
"""
_NOT_THERE = "ERROR: No matching distribution found for torch==1\n"


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        (_HASHES, IntegrityError, r"toydep==2\.0 is not the file that was locked"),
        (_NO_NAME, UnavailableError, "no package index could be reached for torch==1"),
        (_NOT_THERE, UnavailableError, "no index that pip is set to has torch==1"),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on "
            "device\n",
            MissingEnvironmentError,
            "is full",
        ),
        ("ERROR: Exception:\nTraceback\nERROR: it went off\n", MissingEnvironmentError, "it went"),
        ("", MissingEnvironmentError, "it said nothing"),
    ],
    ids=["hash", "network", "absent", "disk", "other", "silence"],
)
def test_the_words_of_pip(tmp_path: Path, said: str, kind: type[Exception], message: str) -> None:
    error = _explain(said, Lock(tmp_path / "plain.txt"), tmp_path / "install.log")
    assert type(error) is kind
    assert error.hint
    with pytest.raises(kind, match=message):
        raise error
