"""The bench `gpu` judges made-up journals as a reader would, plays what covers most first, and records what decides."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import gpu
import pytest
from gpu_zoo import cases, judge, recordings
from gpu_zoo.cases import CASES, Case
from gpu_zoo.judge import Seen
from gpu_zoo.options import Options, keep, kept

JOURNALS = Path(__file__).parent / "recordings" / "journals"
AT = 100.0  # the clock of the fault
PLAIN = {"sha256": "a", "sum": 1000.0}
STUCK = next(case for case in CASES if case.name == "torch-kernel-step-spin")
LINE = next(
    number for (name, number), (outer, words) in judge.waiting_lines().items()
    if (name, outer) == ("gpu_child.py", "by_torch") and "step" in words
)  # fmt: skip


def line(after: float, event: str, **more: Any) -> dict[str, Any]:
    return {"clock": AT + after, "event": event, "message": event, "attempt": 1, **more}


def diagnosed(after: float, cause: str, action: str = "", factor: int = 1) -> dict[str, Any]:
    decision = {"decision": {"action": action, "factor": factor}} if action else {}
    return line(after, "incident.diagnosed", incident=1, findings=[{"cause": cause, "confidence": 0.9}], **decision)


def hang(
    noticed: float = 23.0, acted: float = 120.0, where: str = "", cause: str = "device-wait"
) -> list[dict[str, Any]]:
    """Return the journal of a run that hangs once and is started again."""
    return [
        line(-50, "attempt.started"), line(-20, "training.suspected"), line(-19, "training.cleared"),
        line(noticed, "training.suspected"), line(45, "training.stalled"),
        line(48, "evidence.ready", incident=1, where=where or f"/x/gpu_child.py:{LINE} in step"),
        diagnosed(48.1, cause), diagnosed(acted, cause, "restart"), line(acted, "attempt.stopping"),
        line(acted + 1, "attempt.exited"), line(acted + 2, "attempt.started", attempt=2),
        line(acted + 30, "attempt.exited"),
    ]  # fmt: skip


def verdict(lines: list[dict[str, Any]], case: Case = STUCK, code: int | None = 0, learned: Any = PLAIN) -> list[str]:
    wrong: list[str] = judge.judged(case, Seen(code, lines, {"clock": AT}, learned), PLAIN)["wrong"]
    return wrong


def named(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def test_a_hang_that_is_seen_explained_and_ended_in_time_is_right() -> None:
    row = judge.judged(STUCK, Seen(0, hang(), {"clock": AT}, PLAIN), PLAIN)
    assert row["wrong"] == []
    assert (row["noticed"], row["evidence"], row["acted"]) == (23.0, 48.0, 120.0), "an early suspicion does not count"
    assert (row["cause"], row["remedy"], row["end"], row["suspicions"]) == ("device-wait", "restart", "equal", 2)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (hang(noticed=40), "noticed after 40.0 s"),
        (hang(acted=180), "acted upon after 180.0 s"),
        (hang(cause="busy-loop"), "cause busy-loop, not device-wait"),
        (hang(where="/x/gpu_child.py:1 in step"), "line /x/gpu_child.py:1 in step"),
        ([line(-50, "attempt.started")], "noticed after ever"),
        ([one for one in hang() if one["event"] != "evidence.ready"], "evidence after ever"),
    ],
)  # fmt: skip
def test_what_is_late_or_named_wrongly_is_said(lines: list[dict[str, Any]], words: str) -> None:
    assert any(one.startswith(words) for one in verdict(lines)), verdict(lines)


def test_other_weights_an_exit_code_or_no_end_are_wrong() -> None:
    assert verdict(hang(), learned={"sha256": "b", "sum": 1000.1}) == ["it ended near (0), not equal"]
    assert verdict(hang(), code=1) == ["it ended failed (1), not equal"]
    assert verdict(hang(), code=None) == ["it ended endless (None), not equal"]
    assert judge.judged(STUCK, Seen(0, hang(), None, PLAIN), PLAIN)["wrong"] == ["it did not happen; exit code 0"]


def test_a_lack_of_memory_may_end_in_slices_or_with_a_clear_error_but_needs_its_cause() -> None:
    died = [line(-9, "attempt.started"), line(1, "attempt.exited")]
    halved = [*died, diagnosed(1.1, "gpu-out-of-memory", "restart", 2)]
    del halved[-1]["incident"]  # as of an end that no silence came before
    case = named("keras-torch-oom-step-spin")
    assert verdict(halved, case, learned={"sha256": "b", "sum": 1000.1}) == []
    assert verdict([*died, diagnosed(1.1, "gpu-out-of-memory", "give_up")], case, 1, None) == []
    assert verdict([*died, diagnosed(1.1, "script-error", "finish")], case, 1, None)


def test_a_line_of_another_loop_or_of_another_place_is_not_right() -> None:
    step = f"/x/gpu_child.py:{LINE} in step"
    assert judge.is_right_line(STUCK, step)
    assert not judge.is_right_line(named("jax-kernel-step-spin"), step)
    assert not judge.is_right_line(named("torch-kernel-save-spin"), step)
    assert not judge.is_right_line(STUCK, "")


@pytest.mark.parametrize("case", [case for case in CASES if case.part == "sick"], ids=lambda case: case.name)
def test_every_case_that_hangs_has_a_line_that_is_right(case: Case) -> None:
    places = [f"/x/{name}:{number} in f" for name, number in judge.waiting_lines()]
    right = case.right
    assert not right.has_line or right.crashes or any(judge.is_right_line(case, where) for where in places)


@pytest.mark.parametrize(("after", "right"), [(46, True), (61, False), (None, False)])
def test_a_loop_that_nothing_counts_must_be_said_to_be_so_in_a_minute_and_is_not_judged(
    after: float | None, right: bool
) -> None:
    case = named("jax-silent-kernel-step-spin")
    said = [] if after is None else [line(after - 20, "training.uncounted")]
    lines = [line(-20, "attempt.started"), *said]
    assert (verdict(lines, case, None, None) == []) == right
    assert verdict([*lines, line(90, "training.stalled")], case, None, None)[-1] == "it was judged"


def test_a_recording_has_the_silence_and_not_the_end_of_a_run_that_ended_well() -> None:
    beats = [line(clock - AT, "probe.heartbeat", progress_clock=clock) for clock in (1.0, 30.0, 110.0, 200.0, 202.0)]
    ended = line(110.0, "attempt.exited", code=0)
    assert recordings.window([*beats, ended])[0] == 110.0 - recordings.BEFORE
    assert recordings.window([*beats, {**ended, "code": 1}])[0] == 202.0 - recordings.BEFORE


def test_a_healthy_run_is_wrong_with_any_alarm_and_right_with_a_suspicion() -> None:
    case = named("torch-long-step-spin")
    quiet = [line(-50, "attempt.started"), line(9, "training.suspected"), line(20, "training.cleared")]
    assert verdict(quiet, case) == []
    assert judge.judged(case, Seen(0, quiet, {"clock": AT}, PLAIN), PLAIN)["suspicions"] == 1
    assert verdict([*quiet, line(30, "training.stalled")], case) == ["alarm: training.stalled"]
    assert verdict([*quiet, line(30, "attempt.started", attempt=2)], case) == ["alarm: attempt.started"]
    assert verdict(quiet, case, code=1) == ["exit code 1"]


def test_a_short_beginning_has_every_trouble_and_every_library_and_cases_alone_come_last() -> None:
    order = cases.ordered("sick", "", 3, 1)
    troubles, libraries = {case.trouble for case in order}, {case.framework for case in order}
    assert {case.trouble for case in order[: len(troubles)]} == troubles
    assert {case.framework for case in order[: len(troubles)]} == libraries
    assert order == cases.ordered("sick", "", 3, 1) != cases.ordered("sick", "", 4, 1)
    alone = [case.alone for case in cases.ordered("healthy", "", 3, 1)]
    assert alone == sorted(alone)
    assert len({case.name for case in CASES}) == len(CASES)


def test_results_are_kept_one_by_one_and_read_together(tmp_path: Path) -> None:
    options = Options(1.0, (), 0, "", 1, 1, tmp_path, 0.0)
    rows = [{"part": "sick", "case": "a"}, {"part": "cost", "case": "b"}]
    for row in rows:
        keep(options, row)
    assert kept([tmp_path / "results.jsonl"] * 2) == rows * 2


def test_tables_and_goals_are_made_of_kept_results(capsys: pytest.CaptureFixture[str]) -> None:
    row = judge.judged(STUCK, Seen(0, hang(noticed=40), {"clock": AT}, PLAIN), PLAIN)
    skipped = {"part": "sick", "case": "jax-oom-step-spin", "fault": "oom", "skipped": "no time was left"}
    goals = gpu.shown(["sick"], [row, skipped])
    printed = capsys.readouterr().out
    assert "WRONG: noticed after 40.0 s" in printed
    assert "not run: jax-oom-step-spin: no time was left" in printed
    assert [goal.name for goal in goals if not goal.holds] == ["wrong", "noticed, the slowest"]


def test_a_recording_is_smaller_has_no_paths_and_decides_the_same(tmp_path: Path) -> None:
    journal = JOURNALS / "h200_torch_kernel_without_end.jsonl"
    lines = [json.loads(text) for text in journal.read_text("utf-8").splitlines()]
    with gzip.open(tmp_path / "case.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(one) + "\n" for one in lines)
    recordings.recorded(tmp_path / "case.jsonl.gz", tmp_path)
    text = (tmp_path / "case.jsonl").read_text("utf-8")
    inputs = [one for one in lines if one["event"] in recordings.INPUTS]
    assert len(text) < 150_000
    assert "/train/" not in text
    found = recordings.decided([json.loads(one) for one in text.splitlines()])
    names = [name for _, name in found]
    assert names == [name for _, name in recordings.decided(inputs)]
    assert names[-1] == "Signal"


def test_without_a_gpu_the_bench_says_why_it_is_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu.nvml, "cuda_cards", lambda: 0)
    monkeypatch.setattr("sys.argv", ["gpu"])
    assert gpu.main() == 0
    assert capsys.readouterr().out == "skipped: this machine has no NVIDIA GPU\n"
