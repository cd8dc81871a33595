# SPDX-License-Identifier: GPL-2.0-only
"""The report's page in a real browser, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import PROGRAM, Browser
from matplotlib.image import imread

from nodrop.report import files, page, summary

RESULTS = Path(__file__).resolve().parents[2] / "results"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed"),
]
WIDTHS = "[document.documentElement.scrollWidth, innerWidth]"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as found:
        yield found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parts = []
    for name in ("tap", "guard", "multiflow", "nullvpn"):
        directory = files.load(RESULTS / name)
        parts.append(page.Part(directory, summary.summarise(directory)))
    path = tmp_path_factory.mktemp("page") / "all.html"
    page.write(parts, path)
    return path


def ink(path: Path) -> tuple[float, int]:
    """Return the share of an image that is no background, and how many colours it has."""
    image: Any = (imread(path)[:, :, :3] * 255).astype("uint32")
    colours = image[:, :, 0] << 16 | image[:, :, 1] << 8 | image[:, :, 2]
    return float((colours != colours[0, 0]).mean()), len(set(colours.ravel().tolist()))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_it_fits_and_asks_for_nothing(
    browser: Browser, report: Path, tmp_path: Path, width: int, dark: bool
) -> None:
    browser.load(report, width, dark=dark)
    assert browser.requests == [report.as_uri()]
    wide, window = browser.value(WIDTHS)
    assert window == width
    assert wide <= window
    browser.screenshot(tmp_path / "page.png")
    share, colours = ink(tmp_path / "page.png")
    assert 0.02 < share < 0.6
    assert colours > 50
    back = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") is not dark
    pictures = browser.value(
        "[...document.querySelectorAll('svg')].map(one => one.getBoundingClientRect())"
        ".filter(box => box.width > 300 && box.height > 200).length"
    )
    assert pictures == 7


def test_on_paper_it_is_light_and_nothing_is_cut_off(browser: Browser, report: Path) -> None:
    # A4 less its margins, in pixels.
    browser.load(report, 703, dark=True, media="print")
    back = browser.value("getComputedStyle(document.body).backgroundColor")
    assert back == "rgb(255, 255, 255)"
    widest = "Math.max(...[...document.querySelectorAll('table, svg, pre')].map(%s))"
    assert browser.value(widest % "one => one.getBoundingClientRect().right") <= 704
    assert browser.value("getComputedStyle(document.querySelector('.scroll')).overflowX") == (
        "visible"
    )


def test_a_page_that_asks_and_overflows_would_be_noticed(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text('<img src="http://127.0.0.1:9/x"><p style="width: 900px">a</p>')
    browser.load(path, 400)
    assert "http://127.0.0.1:9/x" in browser.requests
    wide, window = browser.value(WIDTHS)
    assert wide > window
    path.write_text("<!DOCTYPE html><p>a")
    browser.load(path, 400)
    browser.screenshot(tmp_path / "blank.png")
    assert ink(tmp_path / "blank.png")[0] < 0.02
