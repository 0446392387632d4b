"""The HTML report is one file that fetches nothing, executes nothing foreign and tells no secret."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from stallguard.core.diagnosis import known_problems
from stallguard.report import document, html_page
from stallguard.report.timeline import Mark, Timeline
from tests.report.hostile import EVIL, HEBREW, SECRET, hostile
from tests.report.nights import night, page


class Page(HTMLParser):
    """What a browser would see: elements, attributes, and the text of each script and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements, self.attributes, self.raw = [], [], {"script": [], "style": []}
        self.words = []
        self._inside = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        self._inside = tag if tag in self.raw else None
        if self._inside:
            self.raw[tag].append("")

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside:
            self.raw[self._inside][-1] += data
        else:
            self.words.append(data)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Page:
    run = night(tmp_path_factory.mktemp("night"), minutes=20, stalls=4)
    return Page(page(run).read_text())


@pytest.fixture(scope="module")
def attacked(tmp_path_factory) -> Page:
    run = hostile(tmp_path_factory.mktemp("hostile"))
    return Page(page(run).read_text())


def test_nothing_is_fetched(written):
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(written.elements)
    assert not [(tag, name) for tag, name, _ in written.attributes if name in ("src", "srcset", "style")]
    # Links are followed by a click alone: into the page, to files beside it, to public reports.
    reports = {row.address for row in known_problems.table()}
    links = {value for _, name, value in written.attributes if name == "href"} - reports
    assert [link for link in links if not re.match(r"#[a-z]+\Z|incidents/\d/[a-z.]+\Z", link)] == []
    assert not re.search(r"@import|url\(", "".join(written.raw["style"]))


def test_an_incident_has_its_name_its_history_and_a_link_to_the_report_that_it_looks_like(written):
    text = " ".join(written.words)
    assert re.search(r"\bwait-[0-9a-f]{6}\b", text)
    assert "Seen for the first time" in text or "seen for the first time" in text
    links = [value for tag, name, value in written.attributes if (tag, name) == ("a", "href")]
    assert links
    assert {link for link in links if link.startswith("http")} == {
        "https://github.com/tensorflow/tensorflow/issues/50395"
    }


def test_the_policy_forbids_requests_and_allows_exactly_the_scripts_and_the_style_that_are_there(written):
    [policy] = [
        value for tag, name, value in written.attributes if name == "content" and value.startswith("default-src")
    ]
    assert policy.startswith("default-src 'none'; ")
    data, code = written.raw["script"].index(next(s for s in written.raw["script"] if s.startswith("{"))), []
    for number, text in enumerate(written.raw["script"]):
        if number != data:
            code.append(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'")
    assert f"script-src {' '.join(code)};" in policy
    [style] = written.raw["style"]
    assert base64.b64encode(hashlib.sha256(style.encode()).digest()).decode() in policy
    assert "unsafe" not in policy


def test_no_handler_is_an_attribute(written, attacked):
    assert not [name for page in (written, attacked) for _, name, _ in page.attributes if name.startswith("on")]


def test_the_theme_is_chosen_before_anything_is_painted(written):
    assert written.elements.index("script") < written.elements.index("style") < written.elements.index("body")


def test_foreign_text_is_text(written, attacked):
    assert set(attacked.elements) <= set(written.elements) | {"pre"}
    assert len(attacked.raw["script"]) == len(written.raw["script"]) == 4
    labels = "".join(attacked.words)
    assert labels.count(EVIL) >= 6  # title, place, evidence, deeds, stack, output
    assert "\u241b[2J" in labels
    assert "<U+202E>txt.exe" in labels
    assert HEBREW in labels
    assert "\ufffd\ufffd broken" in labels
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028]", labels)


def test_secrets_of_the_command_line_are_nowhere(attacked, tmp_path):
    run = hostile(tmp_path)
    assert SECRET in run.asked.read_text()

    text = page(run).read_text()

    assert SECRET not in text
    assert "[removed: secret]" in text
    assert "secrets were removed" in text.lower()
    assert SECRET not in msgspec.json.encode(document.make(run, {})).decode()


def test_data_can_hold_no_markup():
    evil = "</script><!--<script>&amp;\u2028\u2029"
    timeline = Timeline(0.0, 0.0, 0.0, [], [], [], [Mark("stall", 0.0, evil)], [])

    text = html_page.data(timeline)

    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text)["marks"][0]["label"] == evil


def test_every_chart_is_drawn_without_a_script_too(written):
    # Two panels have two lines; the first pictures are the bar of where the time went, and the lane of phases.
    assert written.elements.count("svg") - 2 == written.elements.count("path") - 2 > 5


def test_all_ten_kinds_of_content_are_there(written):
    labels = " ".join(" ".join(written.words).split())
    for piece in (
        "The training finished after", "It stalled 4 times", "for it", "against it", "It hung at",
        "train.py:88 in step", "Starting the training again", "10 threads alike", "starting", "What helps",
        "tf.config.set_visible_devices",
        "Attempts", "killed by SIGTERM", "Evidence kept in incidents/1", "it did not end in time",
    ):  # fmt: skip
        assert piece in labels, piece


def test_the_licence_of_the_chart_library_is_in_the_package():
    assets = Path(html_page.__file__).parent / "assets"
    assert "MIT" in (assets / "uPlot.LICENSE").read_text()
    assert "1.6.32" in (assets / "uPlot.iife.min.js").read_text()[:200]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return document.make(night(tmp_path_factory.mktemp("night"), minutes=10, stalls=2), {})


def test_an_issue_has_what_its_reader_asks_for(made):
    text = html_page.incident(made, made.incidents[0])

    for piece in (
        "### Stall 1: Stalled: no progress for 80 s", "It hung at `train.py:88 in step`.", "`train.py --epochs 100`",
        "tensorflow-metal 1.2.0", "(very likely, 81%)", "- for it: ", "- against it: ", "main thread",
        "train.py:140", "What was done:", "Epoch 1/100",
    ):  # fmt: skip
        assert piece in text, piece
    assert text.index("train.py:88") < text.index("threads alike")


def test_foreign_text_cannot_leave_its_place(tmp_path):
    made = document.make(hostile(tmp_path), {})
    text = html_page.incident(made, made.incidents[0])
    fences = re.compile(r"^(`{3,})text\n.*?^\1$", re.DOTALL | re.MULTILINE)
    prose = re.sub(r"(?<!\\)(`+)(?!`).*?(?<!`)\1(?!`)", "", fences.sub("", text))

    assert EVIL in text
    assert re.findall(r"(?<!\\)[<>]", prose) == []
    assert SECRET not in text


def test_a_fence_is_longer_than_what_it_holds(made):
    kept = msgspec.structs.replace(made.incidents[0].evidence, output=("```", "````` x", "end"))
    text = html_page.incident(made, msgspec.structs.replace(made.incidents[0], evidence=kept))

    assert "``````text\n```\n````` x\nend\n``````\n" in text
    assert html_page.code("a`b") == "`` a`b ``"
