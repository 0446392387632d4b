"""The bench `matrix`: its arrays cover what they promise, its oracle says what the documents say, and it finds lies."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matrix
import pytest
from matrix_cells import cells, expected, trial

from stallguard.config.table import tuning_rows

ROOT = Path(__file__).parents[1]
BENCH = ROOT / "scripts" / "benches" / "matrix.py"


@pytest.mark.costly
@pytest.mark.parametrize("strength", [2, pytest.param(3, marks=pytest.mark.whole)])
def test_an_array_contains_each_combination_that_a_random_cell_can_have(strength: int) -> None:
    drawn = cells.covering(strength, 1)
    covered = {part for cell in drawn for part in combinations(zip(cell._fields, cell, strict=True), strength)}
    chance, here = random.Random(1), {cell.loop for cell in drawn}
    for _ in range(3000):
        cell = cells.Cell(*(chance.choice(values) for values in cells.DIMENSIONS.values()))
        if cell.loop in here and cells.possible(cell._asdict()):
            assert covered.issuperset(combinations(zip(cell._fields, cell, strict=True), strength)), cell.spec


@pytest.mark.costly
def test_another_seed_draws_another_array_and_the_same_one_the_same() -> None:
    assert cells.covering(2, 1) == cells.covering.__wrapped__(2, 1)
    assert cells.covering(2, 1) != cells.covering(2, 2)


def test_a_spec_repeats_its_cell_and_a_wrong_one_is_refused() -> None:
    for cell in cells.covering(2, 1)[:20]:
        assert cells.parsed(cell.spec) == cell
    with pytest.raises(SystemExit, match="where cannot be 'nowhere'"):
        cells.parsed("where=nowhere")
    with pytest.raises(SystemExit, match="cannot be"):
        cells.parsed("loop=torch,what=lock,where=save")


@pytest.mark.parametrize(
    ("spec", "codes", "steps"),
    [
        ("loop=keras,what=lock,where=step", (0,), (1, 1)),
        ("loop=keras,what=lock,where=step,again=half", (0,), (1, 1, 2)),
        ("loop=keras,what=memory,where=step,again=quarter", (0,), (1, 2, 4)),
        ("loop=keras,what=lock,where=step,again=quarter,setting=halve", (0,), (1, 2, 4)),
        ("loop=beat-3.11,what=error,where=step", (1,), (1,)),
        ("loop=torch,what=crash,where=callback,setting=observe", (139,), (1,)),
        ("loop=torch,what=lock,where=step,setting=patience,library=clone", (0,), (1, 1)),
        ("loop=lightning,what=lock,where=step,again=half", (0,), (1, 1, 2)),
        ("loop=lightning,what=memory,where=step,again=quarter", (0,), (1,)),
        ("loop=trainer,what=memory,where=callback", (0,), (1, 2)),
        ("loop=mean-mlx,what=sleep,where=step,again=half,setting=halve", (0,), (1, 2)),
        ("loop=track-mlx,what=lock,where=step,setting=stop", (124,), (1,)),
        ("loop=mlx-lm,what=lock,where=step,setting=observe", (143, 137), (1,)),
        ("loop=jax,what=kill,where=step,setting=stop", (0,), (1, 1)),
    ],
)
def test_the_oracle_says_what_the_documents_say(spec: str, codes: tuple[int, ...], steps: tuple[int, ...]) -> None:
    promised = expected.expected(cells.parsed(spec))
    assert (promised.codes, promised.steps) == (codes, steps)


SEEN = trial.Seen(
    0,
    "stallguard: it hangs at matrix_trouble_child.py:79 in lock",
    {"exit_code": 0},
    (1, 1),
    (4.8,),
    ("host-deadlock",),
)  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, []),
        ({"code": 124}, ["exit code 124, not 0"]),
        ({"factors": (1, 2)}, ["attempts (1, 2), not (1, 1)"]),
        ({"factors": (1, 1, 1)}, ["attempts (1, 1, 1), not (1, 1)"]),
        ({"gaps": (), "err": ""}, ["0 stalls, not 1 to 1"]),
        ({"gaps": (1.0,)}, ["judged after 1.0 s, not 3.5 to 20 s"]),
        ({"gaps": (25.0,)}, ["judged after 25.0 s, not 3.5 to 20 s"]),
        ({"gaps": (25.0,), "crowded": 2.0}, []),
        ({"causes": ("unknown",)}, ["causes ('unknown',), not ('host-deadlock',)"]),
        ({"err": "guarding matrix_child.py"}, ["it hangs in [], not lock, 1 times"]),
        ({"err": SEEN.err.replace("in lock", "in main")}, ["it hangs in ['main'], not lock, 1 times"]),
        ({"err": f"{SEEN.err}\n  File stallguard/probe/beats.py"}, ["the probe's own frames are in the errors"]),
    ],
)
def test_each_broken_promise_is_found(changed: dict[str, Any], words: list[str]) -> None:
    cell = cells.parsed("loop=keras,what=lock,where=step")

    assert trial._of_promise(cell, expected.expected(cell), SEEN._replace(**changed)) == words


KERAS = ("attempt.resumed", "resuming from the 21:56 checkpoint (epoch 2, batch 3); 2 batches are trained again")
OVER = ("attempt.inexact", "not exact: fit 1 starts over: its checkpoint is not used, because epoch 2, batch 3 differs")
STEP = ("attempt.resumed", "Trainer goes on from step 14, with stallguard's checkpoint g1; 2 batches are trained again")
ZERO = ("attempt.inexact", "not exact: Trainer begins at step 0: no checkpoint of this run is there")
ODD = ("attempt.inexact", "not exact: the input pipeline keeps state that cannot be restored (data.place): ...")
EPOCH = ("attempt.resumed", "the script's loop goes on at the beginning of epoch 2")
SCRATCH = ("attempt.from_scratch", "the training starts from the beginning: there is no checkpoint")
ONE, TWO = "loop=keras,what=kill,where=step", "loop=torch,what=kill,where=step"


@pytest.mark.parametrize(
    ("spec", "announced", "at", "words"),
    [
        (ONE, (KERAS,), (1, 3), []),
        (ONE, (("attempt.inexact", "the script has changed; " + KERAS[1]),), (1, 3), []),
        (ONE, (KERAS,), (1, 0), ["attempt 2 begins with epoch and batch (1, 0), and says: resuming"]),
        (ONE, (KERAS,), (0, 0), ["attempt 2 begins with epoch and batch (0, 0), and says: resuming"]),
        (ONE, (("attempt.not_resumed", "a reason"),), (0, 0), ["attempt 2 starts from scratch although a"]),
        (ONE, (SCRATCH,), (0, 0), ["attempt 2 starts from scratch although a checkpoint was due"]),
        (ONE, (OVER,), (0, 0), ["attempt 2 starts from scratch although a checkpoint was due: not exact"]),
        (ONE, (), (1, 0), ["attempt 2 says 0 times how it begins"]),
        (ONE, (KERAS, OVER), (1, 3), ["attempt 2 says 2 times how it begins"]),
        (ONE + ",checkpoints=off", (SCRATCH,), (0, 0), []),
        (ONE + ",checkpoints=off", (KERAS,), (1, 3), ["attempt 2 resumes although"]),
        ("loop=trainer,what=kill,where=step", (STEP,), (1, 2), []),
        ("loop=trainer,what=kill,where=step", (STEP,), (0, 2), ["attempt 2 begins with epoch and batch (0, 2)"]),
        ("loop=trainer,what=kill,where=step", (ZERO,), (0, 0), ["attempt 2 starts from scratch although a"]),
        ("loop=trainer,what=kill,where=first", (ZERO,), (0, 0), []),
        ("loop=trainer,what=kill,where=step", (STEP, ODD), (1, 2), []),
        ("loop=trainer,what=kill,where=step", (ODD, ODD), (1, 2), ["attempt 2 says 2 times how it begins"]),
        ("loop=lightning,what=kill,where=step", (("attempt.resumed", "goes on from step 12, ..."),), (1, 0), []),
        ("loop=mlx-lm,what=kill,where=step", (("attempt.resumed", "goes on after iteration 17; ..."),), (1, 5), []),
        ("loop=mlx-lm,what=kill,where=step", (("attempt.resumed", "goes on after iteration 11; ..."),), (0, 11), []),
        ("loop=mlx-lm,what=kill,where=step", (SCRATCH,), (0, 0), ["attempt 2 starts from scratch although a"]),
        ("loop=track-mlx,what=kill,where=step", (("attempt.resumed", "after epoch 1, batch 12"),), (1, 0), []),
        ("loop=track-torch,what=kill,where=step", (EPOCH,), (1, 0), []),
        ("loop=track-torch,what=kill,where=step", (EPOCH,), (1, 1), ["attempt 2 begins with epoch and batch (1, 1)"]),
        (TWO, (SCRATCH,), (0, 0), []),
        (TWO, (SCRATCH,), (0, 1), ["attempt 2 begins with epoch and batch (0, 1)"]),
        (TWO, (EPOCH,), (1, 0), ["attempt 2 resumes although no checkpoints are made"]),
        ("loop=keras,what=kill,where=first", (SCRATCH,), (0, 0), []),
    ],
)
def test_an_attempt_that_trains_anew_what_was_saved_is_found(
    spec: str, announced: tuple[tuple[str, str], ...], at: tuple[int, int], words: list[str]
) -> None:
    began = trial.Beginning(list(announced), at, at > (0, 0))
    wrong = trial._of_beginnings(cells.parsed(spec), {2: began})

    assert len(wrong) == len(words)
    assert all(one.startswith(word) for one, word in zip(wrong, words, strict=True))


def test_a_report_that_says_resumed_of_an_attempt_from_scratch_is_found() -> None:
    for spec, at in ((ONE, (0, 0)), (TWO, (1, 3))):
        began = trial.Beginning([SCRATCH if at == (0, 0) else KERAS], at, at == (0, 0))
        wrong = trial._of_beginnings(cells.parsed(spec), {2: began})
        assert f"attempt 2 begins at {at}, and the report says resumed: {at == (0, 0)}" in wrong


@pytest.mark.parametrize(
    ("spec", "is_said", "is_right"),
    [
        ("loop=torch,what=lock,where=step", True, True),
        ("loop=torch,what=lock,where=step", False, False),
        ("loop=torch,what=kill,where=step", False, True),
        ("loop=torch,what=lock,where=first", False, True),
        ("loop=torch,what=lock,where=step,checkpoints=off", True, False),
        ("loop=track-torch,what=lock,where=step", True, False),
        ("loop=lightning,what=lock,where=step", False, True),
    ],
)
def test_a_loop_that_is_in_no_checkpoint_is_said_to_be_and_no_other(spec: str, is_said: bool, is_right: bool) -> None:
    line = {"message": "no checkpoint is made (the script trains in a loop of its own, ...); a kill now costs ..."}

    assert (trial.first_minute(cells.parsed(spec), [line] * is_said) == []) == is_right


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (list, []),
        (lambda lines: [*lines[:20], *lines[17:]], ["the callback's file has ['1 5, 2 times', '1 6, 2 times', '1 7"]),
        (lambda lines: lines[:-1], ["the callback's file has ['2 11, 0 times']"]),
    ],
)
def test_a_file_that_a_callback_appends_to_has_each_batch_once(
    changed: Callable[[list[str]], list[str]], words: list[str], tmp_path: Path
) -> None:
    (tmp_path / "cell").mkdir()
    lines = [f"{epoch} {batch}" for epoch in range(3) for batch in range(12)]
    (tmp_path / "cell/lines").write_text("\n".join(changed(lines)))

    wrong = trial._of_lines(SimpleNamespace(folder=tmp_path))  # type: ignore[arg-type]  # all that it reads

    assert len(wrong) == len(words)
    assert all(one.startswith(word) for one, word in zip(wrong, words, strict=True))


def test_the_time_of_an_interpreter_to_end_is_shortened_in_cells_at_the_exit_alone() -> None:
    for where, is_shortened in (("exit", True), ("step", False)):
        words = trial.options(cells.parsed(f"loop=keras,what=lock,where={where}"), frozenset(tuning_rows()))
        assert any(word.startswith("detector.rows.exit.spin=") for word in words) == is_shortened
        assert any(word.startswith("detector.rows.step.spin=") for word in words)


@pytest.mark.parametrize(("library", "place"), [("pythonpath", "env/lib/"), ("clone", "cell/clone-of-keras/")])
def test_the_library_is_found_where_the_cell_has_it(library: str, place: str, tmp_path: Path) -> None:
    packages = tmp_path / "env/lib/python3.99/site-packages"
    (packages / "keras").mkdir(parents=True)
    (packages / "keras/__init__.py").touch()
    (tmp_path / "env/bin").mkdir()
    (tmp_path / "env/bin/python").symlink_to(sys.executable)
    (tmp_path / "cell").mkdir()
    cell = cells.parsed("loop=keras,what=nothing,where=step")._replace(library=library)

    python, variables = trial.found_by(cell, tmp_path / "env/bin/python", tmp_path / "cell")
    code = "import importlib.util as u; print(u.find_spec('keras').origin)"
    found = subprocess.check_output([python, "-S", "-c", code], env=variables, text=True)

    assert found.startswith(str(tmp_path / place))


def test_a_cell_that_is_right_when_nothing_else_runs_is_shown_and_does_not_count(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cell = cells.parsed("loop=keras,what=lock,where=step")
    right, wrong = matrix.Result(cell, [], 9.0), matrix.Result(cell, ["exit code 1, not 0"], 9.0)

    assert matrix.said([right], [cell], [wrong], 1) == 0
    shown = capsys.readouterr().out
    assert "exit code 1, not 0" in shown
    assert "1 cells, 1 wrong when others ran" in shown
    assert shown.endswith("all 1 goals hold\n")
    assert matrix.said([wrong], [cell], [], 1) == 1
    assert "1 of 1 goals missed" in capsys.readouterr().out
    assert matrix.said([], [cell], [], 1) == 1  # nothing was tried


@pytest.mark.live
def test_a_cell_is_run_for_real() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    command = [sys.executable, BENCH, "--cell", f"loop=beat-{version},what=lock,where=step"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith("all 1 goals hold")
