"""The flame graph: no time is lost, the script's own lines are seen, a page stays small, and no name breaks it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallguard.core.profile import FEEDER, TRAINING
from stallguard.core.text import duration
from stallguard.report import document, flame_graph, html_page, labels
from stallguard.report.flame_graph import FOLDED, OWN, FlameGraph, FlameGraphs, Node
from stallguard.report.sampled_stacks import (
    BARS,
    DRAWN,
    SampledTraining,
    SampledTrainings,
    cleaned,
    flames,
    redactor_of,
)
from stallguard.storage.paths import RunDir
from stallguard.storage.stack_samples import CodeLine, StackSamples
from tests.report.nights import night
from tests.report.sampled import FIT, LINES, any_samples, of_keras, samples, write

CSS = (html_page.ASSETS / "report.css").read_text()
SVG = "{http://www.w3.org/2000/svg}"
NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def trees(value: StackSamples) -> list[Node]:
    built = [flame_graph.build(value, role, "/home/me") for role in (TRAINING, FEEDER)]
    return [tree for tree in built if tree is not None]


def below(node: Node) -> list[Node]:
    return [node] + [each for child in node.ranked() for each in below(child)]


def shown(tree: Node) -> list[str]:
    """The tree as lines: a blank a row, the name, the milliseconds."""
    found: list[str] = []

    def visit(node: Node, depth: int) -> None:
        found.append(f"{' ' * depth}{node.call.name} {node.milliseconds}")
        for child in node.ranked():
            visit(child, depth + 1)

    visit(tree, 0)
    return found


def test_a_stack_of_keras_is_the_lines_of_the_script_and_the_ends_of_what_the_library_does():
    training, feeders = trees(of_keras())

    assert shown(training) == [
        "training thread 50000",
        " step 40000",
        "  <module> 40000",
        "   main() 40000",
        "    fit() 40000",
        "     function() 40000",
        "      tensorflow 40000",
        "       call_function() 40000",
        "        quick_execute() 40000",
        " tracing 6000",
        "  <module> 6000",
        "   main() 6000",
        "    fit() 6000",
        "     function() 6000",
        "      __call__() 6000",
        "       call_function() 6000",
        " epoch end 4000",
        "  <module> 4000",
        "   on_epoch_end() 4000",
    ]
    assert shown(feeders)[2:] == ["  generator_py_func() 39000", "   rows() 39000"]
    places = {node.call.place for node in below(training) if node.call.kind == OWN}
    assert places == {"train.py:16", "train.py:17", "train.py:30"}
    assert next(node for node in below(training) if node.call.name == "fit()").call.place == (
        "keras/src/backend/tensorflow/trainer.py"
    )


def test_lines_of_the_script_are_apart_and_lines_of_a_library_function_are_one():
    own = [CodeLine("/home/me/t.py", line, "f") for line in (1, 2)]
    library = [CodeLine(FIT[3].file, line, "fit") for line in (1, 2)]
    [tree] = trees(samples(*((TRAINING, "step", [mine, theirs], 10) for mine in own for theirs in library)))

    assert shown(tree)[2:] == ["  f() 20", "   fit() 20", "  f() 20", "   fit() 20"]


def test_a_wait_in_a_function_in_c_is_a_bar_below_its_line():
    [tree] = trees(samples((TRAINING, "step", [FIT[1], CodeLine("<built-in>", 0, "sleep")], 10)))

    assert shown(tree)[2:] == ["  main() 10", "   sleeps 10"]


def test_the_stacks_that_the_probe_merged_have_a_bar():
    [tree] = trees(samples((TRAINING, "step", [], 700), (TRAINING, "step", FIT[:1], 300)))

    assert shown(tree)[2] == "  stacks with little time 700"


@given(any_samples())
def test_the_time_of_a_tree_is_that_of_its_stacks_and_no_child_has_more_than_its_parent(value: StackSamples):
    whole = sum(one.milliseconds for one in value.stacks)
    assert sum(tree.milliseconds for tree in trees(value)) == whole
    for tree in trees(value):
        for node in below(tree):
            assert sum(child.milliseconds for child in node.children.values()) <= node.milliseconds
        assert sum(phase.milliseconds for phase in tree.children.values()) == tree.milliseconds


@given(any_samples(), st.randoms(use_true_random=False))
def test_equal_samples_give_equal_graphs(value: StackSamples, random):
    stacks = list(value.stacks)
    random.shuffle(stacks)
    other = StackSamples(value.began, value.samples, value.milliseconds, value.lines, stacks)

    assert graphs_of(value).graphs == graphs_of(other).graphs


def graphs_of(value: StackSamples, most: int = BARS) -> FlameGraphs:
    return FlameGraphs([flame_graph.layout(tree, tree.call.name, most) for tree in trees(value)])


def is_sound(graph: FlameGraph, most: int) -> None:
    """Check that each bar lies inside its parent, one row below it, and beside its siblings."""
    assert len(graph.bars) <= most
    assert graph.rows <= flame_graph.ROWS
    assert graph.bars[0].parent == -1
    assert all(bar.parent < number for number, bar in enumerate(graph.bars))
    for bar in graph.bars[1:]:
        parent = graph.bars[bar.parent]
        assert bar.depth == parent.depth + 1
        assert bar.start >= parent.start - 1e-9
        assert bar.start + bar.seconds <= parent.start + parent.seconds + 1e-9
    for _, row in groupby(sorted(graph.bars, key=lambda bar: (bar.depth, bar.start)), key=lambda bar: bar.depth):
        for left, right in pairwise(row):
            assert left.start + left.seconds <= right.start + 1e-9


@given(any_samples(), st.integers(2, 60))
def test_every_bar_is_inside_its_parent_and_there_are_not_too_many(value: StackSamples, most: int):
    for graph in graphs_of(value, most).graphs:
        is_sound(graph, most)


@pytest.mark.costly
def test_a_table_full_of_deep_and_different_stacks_is_still_a_small_picture():
    def stack(number: int) -> list[CodeLine]:
        return [CodeLine("/home/me/t.py", number * 96 + row, "f") for row in range(96)]

    [tree] = trees(samples(*((TRAINING, "step", stack(number), 1000 + number) for number in range(400))))
    graph = flame_graph.layout(tree, "", BARS)

    is_sound(graph, BARS)
    assert graph.rows == flame_graph.ROWS
    assert len(graph.bars) > BARS / 3
    [merged] = [bar for bar in graph.bars if bar.kind == flame_graph.MERGED]
    assert merged.seconds > graph.seconds / 2
    assert re.fullmatch(r"\d+ narrow ones", merged.name)


def test_a_recursion_without_end_is_drawn_to_the_last_row_in_each_of_many_graphs():
    deep = [CodeLine("/home/me/t.py", 3, "again")] * 96
    many = [training_of(samples((TRAINING, "step", deep, 5), (FEEDER, "step", deep, 5)), pid) for pid in range(20)]
    made = flames(SampledTrainings(many), "/home/me")

    assert (len(made.graphs), made.left_out) == (2 * DRAWN, 20 - DRAWN)
    assert {graph.rows for graph in made.graphs} == {flame_graph.ROWS}
    assert sum(len(graph.bars) for graph in made.graphs) <= BARS
    assert labels.flames(made).endswith(f"Not drawn: {20 - DRAWN} trainings with less time.")


def training_of(value: StackSamples, pid: int = 1) -> SampledTraining:
    from stallguard.collectors import stack_profile

    return SampledTraining(1, pid, "", 0.0, stack_profile.summarise(value), value)


# ---- the markup ---------------------------------------------------------------------------------------------------


def drawn(graph: FlameGraph) -> ET.Element:
    """The figure as XML."""
    template = html_page.TEMPLATES.get_template("flame.svg.j2")
    text = template.render(graph=graph, words=labels, duration=duration)
    # One attribute has no value, as HTML allows.
    return ET.fromstring(text.replace(" hidden>", ' hidden="">'))  # noqa: S314 - our own template made it


@pytest.mark.costly
@given(any_samples(), LINES)
def test_hostile_names_never_break_the_markup(value: StackSamples, line: CodeLine):
    place = RunDir(html_page.ASSETS)  # of no run: nothing but the rules of redaction is taken from it
    graphs = cleaned(flames(SampledTrainings([training_of(value)]), "/home/me"), redactor_of(place, {}))
    for graph in graphs.graphs:
        title = f"attempt 1, {line.function}"
        safe = FlameGraph(
            NO_XML.sub("", title), graph.rows, graph.seconds,
            [type(bar)(bar.parent, bar.depth, bar.start, bar.seconds, bar.kind, NO_XML.sub("", bar.name),
                       NO_XML.sub("", bar.place)) for bar in graph.bars],
        )  # fmt: skip
        figure = drawn(safe)
        bars = figure.findall(f"{SVG}svg/{SVG}svg")
        assert len(bars) == len(graph.bars)
        assert {element.tag.removeprefix(SVG) for element in figure.iter()} == {
            "figure", "figcaption", "b", "bdi", "output", "button", "svg", "title", "rect", "text",
        }  # fmt: skip
        for element, bar in zip(bars, safe.bars, strict=True):
            assert element.findtext(f"{SVG}title", "").startswith(bar.name.replace("\r\n", "\n").replace("\r", "\n"))


def test_a_bar_has_its_place_its_title_and_its_kind():
    [tree, _] = trees(of_keras())
    figure = drawn(flame_graph.layout(tree, "training thread", BARS))
    picture = figure.find(f"{SVG}svg")
    bars = picture.findall(f"{SVG}svg")
    own = [bar for bar in bars if "own" in bar.get("class").split()]

    assert picture.get("height") == "180"  # nine rows
    assert own[0].findtext(f"{SVG}title") == "<module>, train.py:17: 40 s, 80 %"
    assert (own[0].get("x"), own[0].get("width"), own[0].get("y")) == ("0.0000%", "80.0000%", "40")
    assert own[0].findtext(f"{SVG}text") == "<module> train.py:17"
    assert [bar.findtext(f"{SVG}text") for bar in bars if FOLDED in bar.get("class")] == ["tensorflow: up to 2 calls"]
    assert all(bar.find(f"{SVG}title") is not None for bar in bars)


# ---- the page -----------------------------------------------------------------------------------------------------


def test_a_page_has_the_graphs_of_each_training_and_no_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    run = night(tmp_path, minutes=4, stalls=0)
    secret = [CodeLine("/home/me/ghp_abcdefghijklmnopqrstuvwxyz0123.py", 3, "<b>swordfish-12")]
    write(run, 4001, of_keras())
    write(run, 4999, samples((TRAINING, "step", secret, 9_000)))

    made = document.make(run, {"API_TOKEN": "swordfish-12"})
    page = html_page.render(made)

    assert [graph.title for graph in made.flames.graphs] == [
        "process 4999: training thread", "attempt 1: training thread", "attempt 1: threads that feed it",
    ]  # fmt: skip
    assert "~/[removed: token].py:3" in page
    assert "&lt;b&gt;[removed: known]" in page
    assert not re.search(r"swordfish|ghp_|/home/me", page)
    assert page.count('<figure class="flame">') == 3
    assert made.removed["known"] == 1


def test_a_run_without_samples_and_one_whose_samples_are_damaged_have_a_report_without_graphs(tmp_path):
    run = night(tmp_path, minutes=4, stalls=0)
    bare = html_page.render(document.make(run, {}))
    write(run, 4001, of_keras()).write_bytes(b"\x02" * 200)

    assert document.make(run, {}).flames == FlameGraphs()
    assert html_page.render(document.make(run, {})).partition("<footer>")[0] == bare.partition("<footer>")[0]
    assert "flame" not in bare.partition("</style>")[2]


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("block", range(4))
def test_text_on_a_bar_is_readable_in_light_in_dark_and_on_paper(block):
    declared = re.findall(r"\{([^{}]*--own:[^{}]*)\}", CSS)
    assert len(declared) == 4
    names = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})\b", declared[block]))
    ink = luminance(names["ink"] if len(names["ink"]) == 7 else "#000000")
    for bar in ("own", "library", "folded", "phase"):
        light, dark = sorted((ink, luminance(names[bar])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 5.5, bar  # 4.5 is enough; callers above an enlarged bar are paler
