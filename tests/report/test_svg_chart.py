"""The drawing that is printed, and seen where no script runs, shows what the chart shows."""

from __future__ import annotations

import re

from stallguard.report.svg_chart import COLUMNS, chart, lane, thinned
from stallguard.report.timeline import Band, Panel, Series, Timeline

TIMES = [float(second) for second in range(100)]


def panel(*values, key="rate", log=False):
    return Panel(key, "A title", "", [Series("a name", list(values))], log=log)


def timeline(*bands):
    return Timeline(0.0, 0.0, 100.0, TIMES, [], list(bands), [], [])


def points(path):
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+),([-\d.]+)", path)]


def test_a_line_goes_from_the_bottom_to_the_top_of_its_place():
    drawn = chart(panel(*TIMES), timeline())

    assert points(drawn.paths[0])[0] == (0.0, 100.0)
    assert points(drawn.paths[0])[-1] == (990.0, 0.0)
    assert drawn.top == 99.0


def test_only_the_loss_is_drawn_from_its_lowest_value():
    values = [3.0 - second / 100 for second in range(100)]

    assert points(chart(panel(*values, key="loss"), timeline()).paths[0])[-1] == (990.0, 100.0)
    assert points(chart(panel(*values), timeline()).paths[0])[-1][1] < 40


def test_many_decades_are_drawn_logarithmically_where_that_fits():
    values = [10.0 ** (second / 25) for second in range(100)]

    assert chart(panel(*values, log=True), timeline()).log
    assert not chart(panel(*values), timeline()).log
    assert not chart(panel(*(value * 0 for value in values), log=True), timeline()).log
    middle = points(chart(panel(*values, log=True), timeline()).paths[0])[50]
    assert 45 < middle[1] < 55


def test_no_line_is_drawn_across_a_time_of_which_nothing_is_known():
    values = [1.0 if second < 40 or second > 60 else None for second in range(100)]
    silence = Band("silence", 40.0, 60.0, 1)

    assert chart(panel(*values, key="batch"), timeline(silence)).paths[0].count("M") == 2
    [path] = chart(panel(*values, key="loss"), timeline(silence)).paths
    assert [len(points(part)) for part in path.split("M")[1:]] == [40, 39]
    assert chart(panel(*values), timeline(silence, Band("training", 0.0, 40.0))).bands == [(400.0, 200.0)]


def test_a_long_line_is_thinned_and_keeps_its_peaks():
    times = [float(second) for second in range(5000)]
    values = [9.0 if second == 2718 else 1.0 for second in range(5000)]

    [thin] = thinned(times, values)

    assert len(thin) <= COLUMNS
    assert (2718.0, 9.0) in thin


def test_nothing_known_is_nothing_drawn():
    assert chart(panel(*[None] * 100), timeline()).paths == [""]


def test_a_lane_draws_what_covers_others_last_and_one_of_many_that_no_eye_separates():
    short = [Band("validation", 50 + number / 100, 50 + number / 100 + 0.005) for number in range(10)]
    bands = [Band("silence", 20, 40), Band("training", 0, 100), Band("redone", 40, 45), *short]

    assert lane(timeline(*bands)) == [
        ("training", 0.0, 0, 1000.0), ("validation", 500.0, 0, 1.0), ("redone", 400.0, 65, 50.0),
        ("silence", 200.0, 0, 200.0),
    ]  # fmt: skip
