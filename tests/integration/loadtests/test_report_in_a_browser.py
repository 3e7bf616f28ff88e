"""The report in a real browser, wide and narrow, in light and dark: whole, without an error."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import loadtest_results
import pytest

from modelops_loadtests.report import write
from modelops_loadtests.runner import run

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("chromium") and shutil.which("chromedriver")),
        reason="needs Chromium and chromedriver",
    ),
]
HEIGHT = 800
LOOK = """
    const plots = {};
    for (const div of document.querySelectorAll(".canvas")) {
        const svg = div.querySelector("svg.main-svg");
        plots[div.id] = {
            marks: div.querySelectorAll(".scatterlayer :is(path.point, path.js-line)").length,
            width: svg?.clientWidth ?? 0, height: svg?.clientHeight ?? 0,
            right: div.getBoundingClientRect().right,
            ticks: [...div.querySelectorAll(".xtick text")].map(t => t.getBoundingClientRect())
                .map(r => [r.left, r.right]),
        };
    }
    const bottom = selector => document.querySelector(selector)?.getBoundingClientRect().bottom;
    return {
        plots, text: document.body.innerText, width: innerWidth,
        wide: document.documentElement.scrollWidth,
        hidden: [...document.querySelectorAll(".scroll, pre")]
            .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.innerText.slice(0, 80)),
        verdict: bottom(".verdict"), gate: bottom(".gates tbody tr"),
        ink: getComputedStyle(document.body).color,
        tick: getComputedStyle(document.querySelector(".xtick text")).fill,
        fetched: performance.getEntriesByType("resource").map(r => r.name),
    };
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    profile = tmp_path_factory.mktemp("profile")
    for flag in (
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *("--hide-scrollbars", f"--user-data-dir={profile}"),
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=str(shutil.which("chromedriver")))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


def paint(browser: Any, theme: str) -> None:
    scheme = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)


def open_page(browser: Any, page: Path, width: int = 1280) -> None:
    size = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(page.absolute().as_uri())


def look(browser: Any) -> dict[str, Any]:
    found: dict[str, Any] = browser.execute_script(LOOK)
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert [name for name in found["fetched"] if not name.startswith(("data:", "blob:"))] == []
    return found


def check(seen: dict[str, Any]) -> None:
    """Every plot is drawn and within the page, which needs no scrolling to its side."""
    assert seen["wide"] <= seen["width"]
    assert seen["hidden"] == []
    assert seen["verdict"] < HEIGHT
    assert seen["plots"]
    for name, plot in seen["plots"].items():
        assert plot["marks"] > 0, name
        assert plot["width"] >= 300, name
        assert plot["height"] > 100, name
        assert plot["right"] <= seen["width"], name
        assert all(a[1] <= b[0] for a, b in pairwise(sorted(plot["ticks"]))), name


@pytest.mark.parametrize("name", ["chat", "sweep"])
def test_it_is_whole_at_every_width_and_in_the_dark(
    browser: Any, tmp_path: Path, name: str
) -> None:
    result, samples = getattr(loadtest_results, name)(tmp_path)
    write(result, samples, tmp_path)
    inks = set()
    for width in (1280, 400):
        paint(browser, "light")
        open_page(browser, tmp_path / "report.html", width)
        for theme in ("light", "dark"):
            paint(browser, theme)
            seen = look(browser)
            check(seen)
            assert seen["gate"] < HEIGHT
            inks.add((theme, seen["ink"], seen["tick"]))
            shot = tmp_path / f"{width}-{theme}.png"
            browser.save_screenshot(str(shot))
            assert shot.stat().st_size > 10_000
    assert len(inks) == 2, "the plots follow the page into the dark"
    assert len({tick for _, _, tick in inks}) == 2
    wanted = {"chat": {"itl-histogram", "server-requests"}, "sweep": {"sweep-latency"}}
    assert wanted[name] <= seen["plots"].keys()
    lines = {"chat": "FAIL: 1 of 5", "sweep": "PASS: all 4 objectives held up to 8 requests/s"}
    assert lines[name] in seen["text"]


def test_without_javascript_the_verdict_and_the_tables_are_there(
    browser: Any, tmp_path: Path
) -> None:
    result, samples = loadtest_results.chat(tmp_path)
    write(result, samples, tmp_path)
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get((tmp_path / "report.html").as_uri())
        text = browser.find_element("tag name", "body").text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    for words in ("FAIL: 1 of 5 objectives", "error_in_stream", "Plots need JavaScript", "TPOT"):
        assert words in text


def test_a_real_run_opens(upstream: Callable[..., str], browser: Any, tmp_path: Path) -> None:
    result = run(
        {
            "url": upstream("status", fault_every=2, ttft_ms=20),
            "scenario": "embeddings",
            "users": 4,
            "duration_s": 3,
            "warmup_s": 0.5,
            "slo": ("e2e_p95_ms=300", "error_rate=0.01", "qps=5"),
            "calibrate": False,
            "output": tmp_path / "report",
        }
    )
    assert result["verdict"] == "FAIL"
    open_page(browser, tmp_path / "report" / "report.html")
    seen = look(browser)
    check(seen)
    assert {"latency-over-time", "throughput-qps", "e2e-histogram", "client-lag"} <= seen[
        "plots"
    ].keys()
    assert seen["plots"]["latency-over-time"]["marks"] > 100
    assert "FAIL: " in seen["text"]
    assert "http_503" in seen["text"]
