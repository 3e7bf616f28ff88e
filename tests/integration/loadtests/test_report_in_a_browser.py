"""The report opens offline in a real browser, draws every plot, and logs no error."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from modelops_loadtests.runner import run

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("chromium") and shutil.which("chromedriver")),
        reason="needs Chromium and chromedriver",
    ),
]
PLOTS = {"latency-over-time", "latency-histogram", "latency-ecdf", "throughput", "client-health"}


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *("--window-size=1200,2600", f"--user-data-dir={tmp_path / 'profile'}"),
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=str(shutil.which("chromedriver")))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


def look(browser: Any, page: Path) -> dict[str, Any]:
    browser.get(page.absolute().as_uri())
    found: dict[str, Any] = browser.execute_script("""
        const plots = {};
        for (const div of document.querySelectorAll(".plot > div")) {
            plots[div.id] = {
                marks: div.querySelectorAll(
                    ".scatterlayer path.point, .barlayer path, .scatterlayer path.js-line").length,
                width: div.querySelector("svg.main-svg")?.clientWidth ?? 0,
                height: div.querySelector("svg.main-svg")?.clientHeight ?? 0,
            };
        }
        return {plots, text: document.body.innerText, ink: getComputedStyle(document.body).color,
                tick: getComputedStyle(document.querySelector(".xtick text")).fill,
                wider: document.documentElement.scrollWidth > innerWidth};
    """)
    return found


def severe(browser: Any) -> list[Any]:
    return [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_every_plot_is_drawn_and_nothing_is_fetched(
    upstream: Callable[..., str], browser: Any, tmp_path: Path
) -> None:
    result = run(
        {
            "url": upstream("mixed", "--latency-ms", "20"),
            "scenario": "embeddings",
            "users": 4,
            "duration_s": 3,
            "warmup_s": 0.5,
            "slo": ("e2e_p95_ms=300", "error_rate=0.01", "qps=5"),
            "output": tmp_path / "report",
        }
    )
    assert result["verdict"] == "FAIL"
    seen = look(browser, tmp_path / "report" / "report.html")
    assert seen["plots"].keys() == PLOTS
    for name, plot in seen["plots"].items():
        assert plot["marks"] > 0, name
        assert plot["width"] > 200, name
        assert plot["height"] > 150, name
    assert seen["plots"]["latency-over-time"]["marks"] > 100
    assert "FAIL: an objective did not hold" in seen["text"]
    assert "http_503" in seen["text"]
    assert not seen["wider"]
    assert severe(browser) == []
    fetched = browser.execute_script(
        "return performance.getEntriesByType('resource').map(r => r.name)"
    )
    assert [name for name in fetched if not name.startswith(("data:", "blob:"))] == []
    browser.save_screenshot(str(tmp_path / "report.png"))
    assert (tmp_path / "report.png").stat().st_size > 50_000


def test_dark_mode_recolours_the_plots(
    upstream: Callable[..., str], browser: Any, tmp_path: Path
) -> None:
    run(
        {
            "url": upstream("fixed"),
            "scenario": "embeddings",
            "users": 2,
            "duration_s": 1,
            "warmup_s": 0,
            "output": tmp_path / "report",
        }
    )
    light = look(browser, tmp_path / "report" / "report.html")
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": "dark"}]},
    )
    dark = look(browser, tmp_path / "report" / "report.html")
    assert light["tick"] != dark["tick"]
    assert light["ink"] != dark["ink"]
    assert severe(browser) == []
