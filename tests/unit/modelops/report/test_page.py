from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pytest

from modelops.report.page import render


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Another package with a template of its own that extends the base."""
    name = "someones_reports"
    templates = tmp_path / name / "templates"
    templates.mkdir(parents=True)
    (tmp_path / name / "__init__.py").write_text("")
    (templates / "mine.html.j2").write_text(
        '{% extends "base.html.j2" %}{% import "parts.html.j2" as parts %}'
        "{% block body %}{{ parts.verdict('good', title) }}{{ size|nbytes }}{% endblock %}"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


def test_another_package_extends_the_base(package: str) -> None:
    page = render("mine.html.j2", package=package, title="a < b", size=1500)
    assert page.startswith("<!doctype html>")
    assert "a &lt; b" in page
    assert "1.5 kB" in page
    assert "prefers-color-scheme: dark" in page


def test_a_forgotten_value_is_an_error(package: str) -> None:
    with pytest.raises(jinja2.UndefinedError, match="size"):
        render("mine.html.j2", package=package, title="x")
