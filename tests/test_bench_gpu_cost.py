"""The bench `gpu` knows the interval of a slow-down, the size of a step, and how long a save stops a loop."""

from __future__ import annotations

import math

import pytest
from gpu_zoo import cost


def processes(*percent, name="torch 1 ms"):
    """Return results of `cost`, each of a process whose guarded steps take so much longer, by each part a third."""

    def turns(longer):
        return {"plain": [0.001, 0.002], "guarded": [0.001 * (1 + longer / 100), 0.002 * (1 + longer / 100)]}

    return [
        {"part": "cost", "case": name,
         "steps": {"hooks thread guard": turns(one), **{part: turns(one / 3) for part in cost.PARTS_OF_IT}}}
        for one in percent
    ]  # fmt: skip


def test_a_turn_is_compared_with_the_plain_ones_beside_it():
    turns = cost.played()
    steps = [at // 4 + (2 if parts else 1) for at, parts in enumerate(turns)]
    found = cost.beside_plain(turns, steps)
    assert list(found) == ["hooks thread guard", *cost.PARTS_OF_IT]
    for times in found.values():
        assert [one + 1 for one in times["plain"]] == times["guarded"]


def test_a_slow_down_is_the_mean_of_the_processes_with_students_interval():
    middle, low, high = cost.slow_down(processes(0.2, 0.4, 0.3))
    assert middle == pytest.approx(0.3, abs=0.001)
    half = 4.303 * 0.1 / math.sqrt(3)  # two degrees of freedom
    assert (low, high) == (pytest.approx(0.3 - half, abs=0.002), pytest.approx(0.3 + half, abs=0.002))


def test_of_one_process_or_of_none_no_interval_is_known_and_no_goal_holds_without_a_figure():
    assert math.isnan(cost.interval([0.1])[1])
    assert cost.decided(*cost.slow_down(processes(0.1))[1:]) == "not decided"
    assert math.isnan(cost.interval([])[0])
    assert not any(goal.holds for goal in cost.goals_save([{"case": "torch", "guarded": True, "stops": []}])[:1])


def test_a_row_says_whether_its_interval_lies_below_the_goal():
    assert cost.decided(-0.1, 0.4) == "yes"
    assert cost.decided(0.6, 0.9) == "NO"
    assert cost.decided(0.3, 0.7) == "not decided"


def test_the_table_has_a_row_a_case_and_says_what_was_skipped_or_failed():
    results = [
        *processes(0.2, 0.3), *processes(2.0, 2.1, name="jax 3 ms"),
        {"part": "cost", "case": "keras-jax", "skipped": "not installed: keras"},
        {"part": "cost", "case": "keras-torch", "failed": "no GPU for torch"},
    ]  # fmt: skip
    text = cost.table_cost(results)
    assert "+2.05" in next(line for line in text.splitlines() if "jax 3 ms" in line and "NO |" in line)
    assert "keras-jax: skipped: not installed: keras" in text
    assert "keras-torch: FAILED: no GPU for torch" in text
    assert [goal.holds for goal in cost.goals_cost(results)] == [True, False, False]


@pytest.mark.parametrize("fixed", [0.0, 0.0004])
@pytest.mark.parametrize("target", [0.001, 0.003, 0.010])
def test_a_batch_is_sized_so_that_its_step_takes_what_is_wanted(fixed, target):
    measured = []

    def measure(rows):
        measured.append(rows)
        return max(0.0003, fixed + 1.3e-7 * rows)  # launches cannot be faster

    rows, took = cost.sized(measure, target)
    assert took == pytest.approx(target, rel=cost.CLOSE)
    assert rows % cost.LEAST == 0
    assert len(measured) <= 12  # JAX compiles for each


def test_a_kind_whose_smallest_step_is_longer_keeps_the_smallest_batch():
    assert cost.sized(lambda rows: 0.004 + 1e-7 * rows, 0.001)[0] == cost.LEAST


def test_the_stop_of_a_save_is_its_longest_step_less_the_median_and_it_is_written_later():
    times = [0.0, 0.1, 0.2, 1.0, 1.1, 1.2, 1.3, 1.4, 1.9, 2.0, 2.1]
    saves = [0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2]  # the first is written beside the training, the second at once
    assert cost.stops_of(times, saves) == [
        (pytest.approx(0.7), pytest.approx(0.9)),
        (pytest.approx(0.4), pytest.approx(0.4)),
    ]


def test_where_the_script_saves_by_itself_only_what_is_added_counts():
    def results(name):
        return [
            {"case": name, "guarded": False, "stops": [(2.0, 2.0)]},
            {"case": name, "guarded": True, "stops": [(1.2, 1.2), (2.5, 2.5)]},
        ]

    assert cost.judged_stop("torch", results("torch")) == pytest.approx(0.5)
    assert cost.judged_stop("keras-jax", results("keras-jax")) == 2.5
