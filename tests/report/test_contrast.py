"""Every text of the report has the contrast of WCAG 2.2 AA in both themes: 4.5, and 3 for lines of charts."""

from __future__ import annotations

import re

import pytest

from stallguard.report.html_page import ASSETS

CSS = (ASSETS / "report.css").read_text()
TEXT, GRAPHICS = 4.5, 3.0
INKS = ("ink", "soft", "accent", "good")
LINES = ("data", "second", "third", "fourth", "accent", "redone")
GROUNDS = ("paper", "card")


def theme(selector: str) -> dict[str, str]:
    """Return the colours of a rule, by their names."""
    rule = CSS[CSS.index(selector) :]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6}|#[0-9a-f]{3})\b", rule[: rule.index("}")]))


THEMES = {
    "light": theme(":root {"),
    "dark": theme(':root:not([data-theme="light"]) {'),
    "chosen dark": theme(':root[data-theme="dark"] {'),
}


def luminance(colour: str) -> float:
    """Return the relative luminance of #rrggbb (WCAG 2.2)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_the_formula_is_that_of_the_standard():
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("name", THEMES)
def test_text_can_be_read(name):
    colours = THEMES[name]
    weak = {
        (ink, ground): round(contrast(colours[ink], colours[ground]), 2)
        for ink in INKS
        for ground in GROUNDS
        if contrast(colours[ink], colours[ground]) < TEXT
    }
    # The calls of a flame graph are written on bars.
    weak |= {
        ("ink", bar): round(contrast(colours["ink"], colours[bar]), 2)
        for bar in ("own", "library", "folded", "phase")
        if contrast(colours["ink"], colours[bar]) < TEXT
    }
    assert weak == {}


@pytest.mark.parametrize("name", THEMES)
def test_lines_can_be_seen(name):
    colours = THEMES[name]
    assert {line: contrast(colours[line], colours["paper"]) for line in LINES
            if contrast(colours[line], colours["paper"]) < GRAPHICS} == {}  # fmt: skip


def test_no_text_has_a_colour_of_its_own():
    used = set(re.findall(r"(?<![-\w])color: ([^;}]+)", CSS[CSS.index("* { box-sizing") : CSS.index("@media print")]))
    assert used <= {f"var(--{ink})" for ink in INKS} | {"inherit"}


def test_both_dark_themes_are_the_same():
    assert THEMES["dark"] == THEMES["chosen dark"]
