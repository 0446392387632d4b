"""The screen of `top`: what each key does, and what fits where."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stallguard.core.text import BLOCKS, sparkline
from stallguard.report import status_rows, top_screen
from stallguard.report.top_screen import Sample, View

RUNS = ["first", "second", "third"]
SNAPSHOT = {
    "run": "second", "state": "holding", "attempt": 2, "batches": 12_345, "silent": 75.0, "seconds": 3725.0,
    "judgement": {"step": "stalled", "threshold": 12.0}, "next_step": {"step": "act", "seconds": 114.0},
    "progress": {"phase": "step", "epoch": 2, "epochs": 10, "batch": 50, "batches": 100, "loss": 0.25},
    "readings": {"machine": {"idle": 0.61}, "device": {"utilisation": 0.87}, "memory": {"available_bytes": 16e9},
                 "process": {"footprint_bytes": 5_100_000_000}},
    "rates": {"batches": 2.5, "cpu": 1.7}, "findings": [{"cause": "device-wait", "confidence": 0.8}],
    "incidents": 1, "lost": 82.0, "effective": 0.9,
}  # fmt: skip
SAMPLES = tuple(Sample(10.0 - n / 10, 1.0 / (n + 1), 1.0, 1e9 + n * 1e6, None if n < 50 else 0.5) for n in range(100))


def text(lines: list[top_screen.StyledLine]) -> str:
    return "\n".join(line.text for line in lines)


def drawn(size: tuple[int, int], said: str = "", samples=SAMPLES) -> list[top_screen.StyledLine]:
    rows = status_rows.rows(SNAPSHOT, "Epoch 3/10 loss 0.25", "train.py:12 in step")
    return top_screen.run_lines("second  train.py --epochs 10", rows, SNAPSHOT, samples, said, size)


@pytest.mark.parametrize("size", [(60, 20), (100, 30), (200, 60), (40, 12)])
@pytest.mark.parametrize("said", ["", "a dump is being kept as evidence"])
def test_no_screen_is_larger_than_its_terminal(size, said):
    for lines in (
        drawn(size, said),
        top_screen.help_lines(said, size),
        top_screen.list_lines({f"run-{n}": SNAPSHOT for n in range(50)}, "run-40", said, size),
    ):
        assert len(lines) <= size[1]
        assert max(len(line.text) for line in lines) <= size[0]
        assert "? help" in lines[-1].text
        assert not said or lines[-2].text == said[: size[0]]


def test_a_small_screen_still_has_the_state_the_countdown_the_cause_and_every_curve():
    shown = text(drawn((60, 20), "said"))

    for name in ("state", "next", "why", "hangs at", "pace", "loss", "CPU", "memory", "GPU"):
        assert f"\n{name} " in shown, name
    assert "acting on the stall in 1 min 54 s" in shown
    assert "last words" in shown
    assert "last words" not in text(drawn((60, 18), "said"))


def test_the_chosen_run_stays_in_a_long_list():
    lines = top_screen.list_lines({f"run-{n}": SNAPSHOT for n in range(50)}, "run-40", "", (60, 20))
    assert [line.style for line in lines if "> 41  run-40" in line.text] == ["bold"]


def test_a_run_that_does_not_answer_is_listed():
    assert "no answer" in text(top_screen.list_lines({"one": {}}, "one", "", (60, 20)))


def test_a_pause_and_a_countdown_are_in_the_list():
    shown = text(top_screen.list_lines({"one": SNAPSHOT | {"muted": 600.0}}, "one", "", (200, 20)))
    assert "stall handling paused until " in shown
    assert "acting on the stall in 1 min 54 s" in shown


# ---- curves ------------------------------------------------------------------------------------------------------


def test_a_curve_shows_the_newest_values_and_a_gap_where_nothing_is_known():
    assert sparkline([0.0, 0.5, 1.0], 10, from_zero=True) == "▁▅█"
    assert sparkline([9.0, 0.0, None, 1.0], 3, from_zero=True) == "▁ █"
    assert sparkline([2.0, 2.0], 8, from_zero=False) == "▁▁"
    assert sparkline([2.0, 2.0], 8, from_zero=True) == "██"
    assert sparkline([None], 8, from_zero=True) == ""


@example([8.8e-233, -2.27e75], 2, True)  # their quotient is infinite
@given(st.lists(st.none() | st.floats(allow_nan=True, allow_infinity=True)), st.integers(1, 80), st.booleans())
def test_no_values_break_a_curve(values, columns, from_zero):
    curve = sparkline(values, columns, from_zero=from_zero)
    assert len(curve) <= columns
    assert set(curve) <= {" ", *BLOCKS}


def test_a_curve_has_its_present_value_and_an_unknown_one_is_left_out():
    shown = text(drawn((100, 40), samples=(Sample(pace=3.0), Sample(pace=None))))
    assert "pace" in shown
    assert "3/s" in shown
    assert "\nloss " not in shown


def test_a_sample_is_what_the_snapshot_knows():
    assert top_screen.sample(SNAPSHOT) == Sample(2.5, 0.25, 1.7, 5_100_000_000, 0.87)
    assert top_screen.sample({"state": "new"}) == Sample()


# ---- keys --------------------------------------------------------------------------------------------------------


def pressed(keys: str, view: View | None = None, *, muted: bool = False) -> tuple[View, list[str]]:
    view = view or View("second")
    orders = []
    for key in top_screen.keys(keys):
        view, order = top_screen.press(view, key, RUNS, muted=muted)
        orders.append(order)
    return view, [order for order in orders if order]


def test_each_key_gives_its_order():
    assert pressed("d")[1] == ["dump"]
    assert pressed("m")[1] == ["mute"]
    assert pressed("m", muted=True)[1] == ["unmute"]
    assert [pressed(key)[1] for key in ("q", "\x03", "\x04")] == [["quit"]] * 3
    assert pressed("x\x1b[5~") == (View("second"), [])


def test_help_is_a_toggle_and_escape_leaves_it():
    assert pressed("?")[0].shown == top_screen.KEYS
    assert pressed("??")[0].shown == pressed("?\x1b")[0].shown == top_screen.RUN


def test_tab_shows_the_next_run_and_the_list_chooses_one():
    assert pressed("\t")[0].run == "third"
    assert pressed("\t\t")[0].run == "first"
    assert pressed("l\x1b[A\r")[0] == View("first")
    assert pressed("ljj\n")[0] == View("first")
    assert pressed("l3")[0] == View("third")
    assert pressed("l9")[0].shown == top_screen.RUNS
    assert pressed("ll")[0].shown == top_screen.RUN
    assert pressed("3")[0] == View("second"), "a number chooses in the list alone"


def test_a_shown_run_that_is_over_does_not_stop_the_keys():
    assert pressed("n", View("gone"))[0].run == "third"
    assert top_screen.press(View("gone"), "n", [], muted=False)[0].run == "gone"


@given(st.text(alphabet="\x1b[OABqdm?hl\tn jk\r123;~\x00é"))
def test_no_input_breaks_the_keys(typed):
    pressed(typed)
