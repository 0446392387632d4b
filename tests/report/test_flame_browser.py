"""The flame graph in a real browser: a call is enlarged by mouse and by keys; all bars are there without scripts."""

from __future__ import annotations

import pytest

from tests.report.browser import MISSING, Browser
from tests.report.nights import night, page
from tests.report.sampled import of_keras, write
from tests.report.test_browser import is_still_and_offline

pytestmark = [pytest.mark.live, pytest.mark.skipif(bool(MISSING), reason=MISSING)]
# The text and the share of the width of each bar of the first graph that is visible.
BARS = """
    const picture = document.querySelector(".flame > svg"), whole = picture.getBoundingClientRect();
    return [...picture.children].map((bar) => {
      const box = bar.querySelector("rect").getBoundingClientRect();
      const words = bar.querySelector("title").textContent.split(",")[0].split(":")[0];
      return [words, Math.round(box.width / whole.width * 100),
              getComputedStyle(bar.querySelector("text")).display !== "none"];
    }).filter(([, width]) => width > 0);
"""
KEY = """
    const key = new KeyboardEvent("keydown", {key: arguments[0], bubbles: true, cancelable: true});
    document.activeElement.dispatchEvent(key);
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    run = night(tmp_path_factory.mktemp("report"), minutes=4, stalls=0)
    write(run, 4001, of_keras())
    return page(run)


@pytest.fixture
def browser(leaves_nothing_behind):
    made = Browser()
    yield made
    made.close()


def click(browser: Browser, number: int) -> None:
    left, top = browser.script(
        "const bar = document.querySelectorAll('.flame > svg')[0].children[arguments[0]];"
        "bar.scrollIntoView({block: 'center'}); const b = bar.querySelector('rect').getBoundingClientRect();"
        "return [b.left + b.width / 2, b.top + 8]", number,
    )  # fmt: skip
    browser.mouse("mouseMoved", left, top)
    browser.mouse("mousePressed", left, top)
    browser.mouse("mouseReleased", left, top)


def number_of(browser: Browser, name: str, occurrence: int = 0) -> int:
    found = browser.script(
        "return [...document.querySelector('.flame > svg').children].map((bar, at) => "
        "bar.querySelector('title').textContent.startsWith(arguments[0]) ? at : -1).filter((at) => at >= 0)", name,
    )  # fmt: skip
    return found[occurrence]


def test_a_selected_call_is_enlarged_and_selected_again_all_is_shown(browser, file):
    browser.show(file)
    before = browser.script(BARS)
    assert ["tracing", 12, True] in before

    click(browser, number_of(browser, "tracing"))
    enlarged = browser.script(BARS)
    assert ["tracing", 100, True] in enlarged
    assert ["training thread", 100, True] in enlarged
    assert not [bar for bar in enlarged if bar[0] in ("step", "on_epoch_end()")]
    assert browser.script("return document.querySelector('.flame output').textContent").startswith(
        "tracing: 6.0 s, 12 %"
    )

    click(browser, number_of(browser, "tracing"))
    assert browser.script(BARS) == before
    click(browser, number_of(browser, "tracing"))
    browser.script("document.querySelector('.flame button').click()")
    assert browser.script(BARS) == before
    is_still_and_offline(browser, file)


def test_the_keys_move_between_calls_enlarge_one_and_go_back(browser, file):
    browser.show(file)
    before = browser.script(BARS)
    focusable = """
        const pictures = [...document.querySelectorAll(".flame > svg")];
        return pictures.map((one) => one.querySelectorAll('[tabindex="0"]').length);
    """
    assert browser.script(focusable) == [1, 1]  # one stop of the tab key a graph

    browser.script("document.querySelector('.flame [tabindex=\"0\"]').focus()")
    told = []
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown"):
        browser.script(KEY, key)
        told.append(browser.script("return document.activeElement.getAttribute('aria-label')").split(":")[0])
    assert told == ["step", "tracing", "epoch end", "epoch end", "tracing", "training thread", "step"]
    assert browser.script(focusable) == [1, 1]

    browser.script(KEY, "Enter")
    assert ["step", 100, True] in browser.script(BARS)
    browser.script(KEY, "Escape")
    assert browser.script(BARS) == before


def test_without_scripts_all_bars_and_their_titles_are_there(browser, file):
    browser.show(file)
    alive = browser.script(BARS)
    browser.devtools("Emulation.setScriptExecutionDisabled", value=True)
    browser.devtools("Page.navigate", url=file.as_uri())
    browser.devtools("Emulation.setScriptExecutionDisabled", value=False)

    assert [bar[:2] for bar in browser.script(BARS)] == [bar[:2] for bar in alive]
    assert browser.script("return getComputedStyle(document.querySelector('.flame button')).display") == "none"


def test_text_of_narrow_bars_is_hidden_on_a_phone_and_nothing_is_wider_than_the_page(browser, file):
    browser.show(file, width=390, height=844)

    assert browser.script("return document.documentElement.scrollWidth") == 390
    assert ["epoch end", 8, False] in browser.script(BARS)
    assert ["tracing", 12, True] in browser.script(BARS)
