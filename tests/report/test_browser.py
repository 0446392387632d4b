"""The HTML report in a real browser: drawn, still, offline, and readable on a phone, in the dark and on paper."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallguard.report import html_page
from tests.report.browser import MISSING, Browser
from tests.report.hostile import EVIL, hostile
from tests.report.nights import night

pytestmark = [pytest.mark.live, pytest.mark.skipif(bool(MISSING), reason=MISSING)]
PANEL = '[data-panel="rate"]'


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An ordinary night and a hostile one."""
    place = tmp_path_factory.mktemp("reports")
    ordinary = night(place / "a", minutes=40, rate=50, stalls=2)
    return {"ordinary": html_page.write(ordinary.path, environment={}),
            "hostile": html_page.write(hostile(place / "b").path, environment={})}  # fmt: skip


@pytest.fixture
def browser(leaves_nothing_behind):
    made = Browser()
    yield made
    made.close()


def is_still_and_offline(browser: Browser, file: Path) -> None:
    assert browser.complaints() == []
    assert browser.requests(file) == {file.as_uri()}


def has_ink(browser: Browser, selector: str) -> bool:
    return browser.script("""
        const canvas = document.querySelector(`${arguments[0]} canvas`);
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const seen = new Set();
        for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 0) seen.add(data.slice(i, i + 4).join());
        return canvas.width > 100 && seen.size > 5;
    """, selector)  # fmt: skip


def test_charts_are_drawn_and_a_zoom_redraws_all_of_them(browser, files):
    browser.show(files["ordinary"])
    panels = [f'[data-panel="{key}"]' for key in browser.script(
        "return [...document.querySelectorAll('[data-panel]')].map((panel) => panel.dataset.panel)")]  # fmt: skip
    assert {'[data-panel="batch"]', PANEL, '[data-panel="gpu"]', '[data-panel="memory"]'} <= set(panels)
    assert all(has_ink(browser, panel) for panel in [*panels, "#lane"])

    whole = {panel: browser.pixels(panel) for panel in [*panels, "#lane"]}
    browser.drag(f"{PANEL} .u-over", 0.2, 0.5)
    assert [panel for panel, picture in whole.items() if browser.pixels(panel) == picture] == []
    assert browser.script("return !document.getElementById('all').hidden")

    browser.script("document.getElementById('all').click()")
    assert [panel for panel, picture in whole.items() if browser.pixels(panel) != picture] == []
    is_still_and_offline(browser, files["ordinary"])


def test_the_cursor_is_shared_and_tells_the_values(browser, files):
    browser.show(files["ordinary"])
    browser.drag(f"{PANEL} .u-over", 0.45, 0.45)

    texts = browser.script(
        "return [...document.querySelectorAll('.panel output')].map((output) => output.textContent)"
    )

    assert "batches a second 5" in next(text for text in texts if "second" in text)
    assert all("up to" not in text for text in texts)


def test_an_incident_can_be_looked_at(browser, files):
    browser.show(files["ordinary"])
    before = browser.pixels(PANEL)
    browser.script("document.querySelector('[data-zoom]').click()")

    assert browser.pixels(PANEL) != before


def test_dark_is_dark_and_can_be_changed(browser, files):
    paper = "return getComputedStyle(document.documentElement).backgroundColor"
    browser.show(files["ordinary"], scheme="light")
    light, drawn = browser.script(paper), browser.pixels(PANEL)
    browser.show(files["ordinary"], scheme="dark")
    dark = browser.script(paper)

    assert (light, dark) == ("rgb(252, 251, 249)", "rgb(22, 21, 19)")
    assert browser.pixels(PANEL) != drawn
    browser.script("document.getElementById('theme').click()")
    assert browser.script(paper) == light
    browser.script("try { localStorage.clear(); } catch {}")


@pytest.mark.parametrize("file", ["ordinary", "hostile"])
def test_a_phone_shows_all_of_it_without_sideways_scrolling(browser, files, file):
    browser.show(files[file], width=390, height=844)

    assert browser.script("return document.documentElement.scrollWidth") == 390
    assert has_ink(browser, PANEL)
    is_still_and_offline(browser, files[file])


def test_hostile_text_is_shown_and_never_run(browser, files):
    browser.show(files["hostile"])
    browser.script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")

    assert browser.script("return window.hacked === undefined && document.images.length === 0")
    assert browser.script("return document.body.innerText").count(EVIL) >= 6
    assert "<img src=x onerror=window.hacked=2>.py" in browser.script("return document.title")
    is_still_and_offline(browser, files["hostile"])


def test_it_prints_on_a_few_pages(browser, files):
    browser.show(files["ordinary"])

    pages = browser.paper().count(b"/Type /Page\n")

    assert 2 <= pages <= 8


def test_without_scripts_the_charts_are_still_there(browser, files):
    browser.devtools("Emulation.setScriptExecutionDisabled", value=True)
    browser.devtools("Page.navigate", url=files["ordinary"].as_uri())
    browser.devtools("Emulation.setScriptExecutionDisabled", value=False)

    shown = browser.script("""
        const drawings = [...document.querySelectorAll(".panel svg")];
        return drawings.filter((svg) => svg.getBoundingClientRect().height > 50).length;
    """)  # fmt: skip
    assert shown >= 6
    assert "22:30:00 to 23:10:00" in browser.script("return document.body.innerText")
