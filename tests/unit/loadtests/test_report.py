from __future__ import annotations

import shlex

from modelops_loadtests.report import command
from modelops_loadtests.spec import RunSpec


def test_the_command_repeats_the_run_and_never_shows_the_key() -> None:
    spec = RunSpec(
        url="http://h:1",
        scenario="embeddings",
        model="my model",
        data="a folder/it's.txt",
        dims={"sequence": 64},
        slo=("error_rate=0.1%",),
        api_key="s3cret-key",
    )
    words = shlex.split(command(spec.model_dump(mode="json")))
    assert words[:3] == ["modelops", "loadtest", "http://h:1"]
    options = dict(zip(words[3::2], words[4::2], strict=True))
    assert options["--model"] == "my model"
    assert options["--data"] == "a folder/it's.txt"
    assert options["--dim"] == "sequence=64"
    assert options["--slo"] == "error_rate=0.1%"
    assert "s3cret-key" not in words
