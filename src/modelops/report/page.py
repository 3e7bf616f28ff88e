"""Self-contained HTML pages from jinja2 templates that extend ``base.html.j2``."""

from __future__ import annotations

from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup

from modelops.report import units
from modelops.report.names import printable

_HERE = "modelops.report"


@cache
def _environment(package: str) -> jinja2.Environment:
    packages = dict.fromkeys((package, _HERE))
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name) for name in packages]),
        autoescape=True,  # always: the names in a report are whatever a stranger called things
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        nbytes=units.nbytes, seconds=units.seconds, number=units.number, thousands=units.thousands
    )
    return environment


def _shown(value: Any) -> Any:
    # Markup is what macros made of values that came through here already.
    is_plain = isinstance(value, str) and not isinstance(value, Markup)
    return printable(value) if is_plain else value


def render(template: str, *, package: str = _HERE, **context: Any) -> str:
    """Render ``template`` of the folder ``templates`` in ``package``; return the whole page.

    The template may extend ``base.html.j2`` (blocks ``title``, ``style``, ``policy``, ``body``,
    ``foot``) and import the macros of ``parts.html.j2``. Filters: ``nbytes`` (of bytes),
    ``seconds`` (of seconds), ``number`` (three significant digits), ``thousands`` (a whole number).

    Raises:
        jinja2.UndefinedError: the template asks for something that ``context`` does not hold.
    """
    return _environment(package).get_template(template).render(**context)
