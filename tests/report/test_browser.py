"""The HTML report in a real browser: drawn, still, offline, and readable on a phone, in the dark and on paper."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallguard.storage.paths import RunDir
from tests.report.browser import MISSING, Browser
from tests.report.hostile import EVIL, hostile
from tests.report.nights import night, page

pytestmark = [pytest.mark.live, pytest.mark.skipif(bool(MISSING), reason=MISSING)]
PANEL = '[data-panel="rate"]'


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An ordinary night and a hostile one."""
    place = tmp_path_factory.mktemp("reports")
    ordinary = night(place / "a", minutes=40, rate=50, stalls=2)
    return {"ordinary": page(ordinary),
            "hostile": page(hostile(place / "b"))}  # fmt: skip


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

    texts = browser.script("return [...document.querySelectorAll('.panel output')].map((output) => output.textContent)")

    assert "batches a second 5" in next(text for text in texts if "second" in text)
    assert all("up to" not in text for text in texts)


def hover(browser: Browser, second: float) -> dict[str, str]:
    """Move the mouse to a time of the run; return what each chart says of it, and the lane."""
    left, top = browser.script("""
        const over = document.querySelector(arguments[0] + " .u-over");
        over.scrollIntoView({block: "center"});
        const box = over.getBoundingClientRect();
        const data = JSON.parse(document.getElementById("data").textContent);
        return [box.left + box.width * arguments[1] / data.seconds, box.top + box.height / 2];
    """, PANEL, second)  # fmt: skip
    browser.mouse("mouseMoved", left, top)
    return browser.script("""
        return Object.fromEntries([...document.querySelectorAll(".panel")].map((panel) =>
          [panel.dataset.panel || panel.id, [...panel.querySelectorAll("output > span")].map(
            (one) => one.textContent).join(" · ")]));
    """)  # fmt: skip


def test_the_first_screen_has_what_a_user_asks_first(browser, files):
    browser.show(files["ordinary"], width=1280, height=800)

    lowest = browser.script("""
        return Object.fromEntries(["#badge", "#effective", ".where-time", "#wrong", "#next", "#command", "#lane"].map(
          (one) => [one, document.querySelector(one).getBoundingClientRect().bottom]));
    """)  # fmt: skip

    assert max(lowest.values()) < 640, lowest
    assert browser.script("return document.getElementById('badge').textContent") == "recovered"
    assert browser.script("return document.getElementById('effective').textContent").endswith(" %")
    assert "train.py:88 in step" in browser.script("return document.getElementById('wrong').textContent")
    shares = browser.script("""
        const bar = document.querySelector(".where-time").getBoundingClientRect();
        return [...document.querySelectorAll(".where-time rect")].reduce(
          (sum, part) => sum + part.getBoundingClientRect().width, 0) / bar.width;
    """)  # fmt: skip
    assert shares == pytest.approx(1.0, abs=0.01)


def test_values_inside_a_stall_are_those_of_the_stall(browser, files):
    browser.show(files["ordinary"])
    inside, before = hover(browser, 600), hover(browser, 500)  # the first stall begins after 559 s

    assert "stall 1: no progress for " in inside["lane"]
    assert 30 < float(inside["lane"].split("no progress for ")[1].split(" s")[0]) < 50
    assert inside["loss"].startswith("loss none in the stall · val_loss 2")
    assert inside["batch"] == "mean none in the stall · longest pause none in the stall"
    assert inside["rate"] == "batches a second 0"
    assert inside["gpu"] == "busy 0 %"
    assert before["lane"].endswith("training · epoch 2 · attempt 1")
    assert before["batch"].startswith("mean 1")


def test_batches_that_are_trained_again_are_marked_and_named(browser, files):
    browser.show(files["ordinary"])

    assert "batches trained again" in hover(browser, 700)["lane"]
    assert "trained again" in browser.script("return document.querySelector('#lane .key').textContent")


def has_line(browser: Browser, key: str, second: float) -> bool:
    """Return whether a chart has a pixel of its first line's colour at a time of the run."""
    return browser.script("""
        const figure = document.querySelector(`[data-panel="${arguments[0]}"]`);
        const canvas = figure.querySelector("canvas");
        const over = figure.querySelector(".u-over").getBoundingClientRect(), box = canvas.getBoundingClientRect();
        const data = JSON.parse(document.getElementById("data").textContent);
        const x = over.left - box.left + over.width * arguments[1] / data.seconds;
        const high = Math.floor(over.bottom - box.top) - 6;  // above the marks of the epochs
        const pixels = canvas.getContext("2d").getImageData(Math.round(x), 0, 1, high).data;
        const ink = getComputedStyle(document.documentElement).getPropertyValue("--data").trim();
        const want = [1, 3, 5].map((at) => parseInt(ink.slice(at, at + 2), 16));
        for (let at = 0; at < pixels.length; at += 4)
          if (pixels[at + 3] > 60 && want.every((part, n) => Math.abs(part - pixels[at + n]) < 50)) return true;
        return false;
    """, key, second)  # fmt: skip


def test_no_line_crosses_a_stall_or_a_restart(browser, files):
    browser.show(files["ordinary"])

    for key in ("loss", "batch"):
        seen = [has_line(browser, key, second) for second in (500, 575, 600, 630, 645, 700)]
        assert seen == [True, False, False, False, False, True], key
    assert has_line(browser, "idle", 600)  # the machine's own readings go on


def test_the_command_and_an_incident_can_be_copied(browser, files):
    browser.show(files["ordinary"])
    browser.click("[data-copy=command]")
    assert browser.clipboard() == browser.script("return document.getElementById('command').textContent") != ""
    assert browser.script("return document.querySelector('[data-copy=command]').textContent") == "Copied"

    browser.click("[data-copy=issue-1]")
    text = browser.clipboard()
    assert text.startswith("### Stall 1: Stalled: no progress for 80 s")
    assert "train.py:88 in step" in text


def test_the_timeline_obeys_the_keyboard(browser, files):
    browser.show(files["ordinary"])
    whole = browser.pixels(PANEL)
    says = "return document.querySelector('#lane output').textContent"
    browser.script("document.getElementById('lane').focus()")

    browser.key("n")
    assert "stall 1" in browser.script(says)
    assert browser.script("return !document.getElementById('all').hidden")
    browser.key("n")
    assert "stall 2" in browser.script(says)
    browser.key("p")
    assert "stall 1" in browser.script(says)
    before = browser.script(says)
    browser.key("ArrowRight")
    assert browser.script(says) != before
    browser.key("Escape")
    assert browser.script("return document.getElementById('all').hidden")
    browser.script("document.querySelector('#lane .u-over').dispatchEvent(new MouseEvent('mouseleave'))")
    assert browser.pixels(PANEL) == whole
    browser.key("+")
    zoomed = browser.pixels(PANEL)
    assert zoomed != whole
    browser.key("-")
    assert browser.pixels(PANEL) != zoomed
    is_still_and_offline(browser, files["ordinary"])


def test_a_zoom_stays_when_the_window_changes(browser, files):
    browser.show(files["ordinary"])
    browser.script("document.querySelector('[data-zoom]').click()")
    browser.devtools("Emulation.setDeviceMetricsOverride", width=900, height=700, deviceScaleFactor=1, mobile=False)
    browser.script("requestAnimationFrame(() => requestAnimationFrame(arguments[arguments.length - 1]))", wait=True)

    assert browser.script("return !document.getElementById('all').hidden")
    assert has_ink(browser, PANEL)


def test_links_to_the_evidence_lead_to_files_and_only_beside_the_run(browser, files, tmp_path):
    browser.show(files["ordinary"])
    links = browser.script("return [...document.querySelectorAll('.files a')].map((link) => link.getAttribute('href'))")

    assert "incidents/1/stacks.txt" in links
    assert all((files["ordinary"].parent / link).is_file() for link in links)
    elsewhere = page(RunDir(files["ordinary"].parent), tmp_path / "shared.html")
    assert "incidents/1/stacks.txt" not in elsewhere.read_text()


def test_the_sections_can_be_reached(browser, files):
    browser.show(files["ordinary"])

    assert browser.script("""
        const links = [...document.querySelectorAll("nav a")].map((link) => link.getAttribute("href"));
        return links.every((link) => document.querySelector(link));
    """)  # fmt: skip
    browser.click("nav a[href='#incidents']")
    assert browser.script("return document.getElementById('incidents').getBoundingClientRect().top") < 100


def test_a_phone_cuts_no_number_of_a_chart_and_no_cell_of_a_table(browser, files):
    browser.before_each_page("""
        window.cut = [];
        const fill = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...more) {
          const wide = this.measureText(text).width, at = this.getTransform().transformPoint({x, y});
          const left = at.x - {left: 0, start: 0, center: wide / 2, right: wide, end: wide}[this.textAlign];
          if (text && (left < -1 || left + wide > this.canvas.width + 1)) window.cut.push([text, left, wide]);
          return fill.call(this, text, x, y, ...more);
        };
    """)
    for name in files:
        browser.show(files[name], width=400, height=800)
        assert browser.script("return window.cut") == []
        hidden = browser.script("""
            return [...document.querySelectorAll("td, dd, .times li, output span")].filter(
              (one) => one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.textContent);
        """)  # fmt: skip
        assert hidden == []


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


def test_it_prints_on_a_few_pages_with_its_timeline(browser, tmp_path):
    file = page(night(tmp_path, minutes=100, stalls=10))
    browser.show(file)

    pages = browser.paper().count(b"/Type /Page\n")

    assert 2 <= pages <= 9
    browser.devtools("Emulation.setEmulatedMedia", media="print")
    lane = """
        const shown = (one) => one.getBoundingClientRect().height;
        const colours = [...document.querySelectorAll("#lane rect")].map((one) => getComputedStyle(one).fill);
        return [shown(document.querySelector("#lane svg")), shown(document.querySelector("#lane .key")),
                new Set(colours).size, document.querySelectorAll("#lane rect.silence").length];
    """
    height, key, colours, stalls = browser.script(lane)
    assert height > 20
    assert key > 5
    assert (colours >= 4, stalls) == (True, 10)
    assert not browser.script("return [...document.querySelectorAll('.uplot')].some((one) => one.offsetHeight)")


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
