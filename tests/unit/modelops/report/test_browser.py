"""The page in a real browser: no console message, no request, readable on a phone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modelops.report.export import ExportReport, to_html

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("chromium") and shutil.which("chromedriver")),
        reason="chromium and chromedriver are not installed",
    ),
]

_QUIET = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    selenium = pytest.importorskip("selenium.webdriver")
    options = selenium.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in (*_QUIET.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = selenium.Chrome(
        options=options, service=selenium.ChromeService(shutil.which("chromedriver"))
    )
    yield driver
    driver.quit()


def _open(browser: Any, page: str, folder: Path, width: int) -> str:
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    browser.get_log("performance")
    browser.get(path.as_uri())
    return path.as_uri()


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("which", ["passing", "failing"])
def test_it_opens_quietly_and_fits(
    browser: Any, tmp_path: Path, request: pytest.FixtureRequest, which: str, width: int
) -> None:
    report: ExportReport = request.getfixturevalue(which)
    address = _open(browser, to_html(report), tmp_path, width)
    assert browser.get_log("browser") == []
    sent = [
        e["message"] for e in browser.get_log("performance") if 'requestWillBeSent"' in e["message"]
    ]
    assert sent, "the page itself is a request"
    assert all(address in message or '"url":"data:' in message for message in sent)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    verdict = browser.find_element("css selector", ".verdict strong")
    assert verdict.text == report.verdict.headline
    assert verdict.location["y"] < 300


def test_a_script_in_a_name_does_not_run(
    browser: Any, tmp_path: Path, passing: ExportReport
) -> None:
    name = "</style></title><script>document.title='owned'</script>"
    report = passing.model_copy(update={"name": name})
    _open(browser, to_html(report), tmp_path, 1200)
    assert browser.title == f"✓ {name} → onnx"
    assert browser.find_elements("css selector", "script") == []
