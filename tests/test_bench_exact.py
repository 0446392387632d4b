"""The bench of exactness tells the same from the silent, and some guarded scripts of its quick part stay the same."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from exactness import verdicts
from exactness.catalog import QUICK, SHAPES
from exactness.cells import Shapes
from exactness.runs import Attempt, Batch, Cell, Ran
from exactness.scripts_loops import BESIDE
from exactness.shape import DISTURBANCES, Shape
from exactness.verdicts import from_the_beginning

from stallguard.core.events import Launched, ProbeNote
from stallguard.storage import journal
from stallguard.supervisor.notices import journal_line

BENCHES = Path(__file__).parents[1] / "scripts" / "benches"
LOOP = """
import os, harness
value = 1.0
os.makedirs(harness.CHECKPOINTS or "saves", exist_ok=True)
for epoch in range(2):
    for batch in range(3):
        value *= {factor}
        open("log.txt", "a").write("batch ")
        harness.batch(epoch, batch)
        if harness.CHECKPOINTS:
            path = os.path.join(harness.CHECKPOINTS, "save")
            open(path + ".tmp", "w").write(str(batch))
            os.replace(path + ".tmp", path)
harness.show("value", value)
harness.finished()
"""


def ran(folder, values, code=0, err="", times=(1.0, 2.0)):
    """Return a run of one fit that showed `values`, its batches at those times."""
    batches = [Batch("", 0, 0, number, time) for number, time in enumerate(times)]
    results = {name: {"float": value.hex()} for name, value in values.items()}
    return Ran(code, "", err, [Attempt(results, {}, batches)], folder, True, 1.0)


def verdict(plain, made, **options):
    wrong = verdicts.differences(plain, plain.last.results, made, made.last.results, **options)
    return verdicts.crash(made, plain, "") or verdicts.compared(wrong, made)


def write_journal(folder, *notes, events=()):
    """Write a run of `events`, then of notes: (at, kind, text)."""
    run = folder / "home" / "runs" / "one"
    run.mkdir(parents=True)
    (run.parent / "latest").symlink_to("one")
    out = journal.Journal(run / "journal.jsonl", print)
    for event in events:
        out.write(event.at, *journal_line(event))
    for at, kind, text in notes:
        out.write(at, *journal_line(ProbeNote(at=at, attempt=1, kind=kind, text=text)))
    out.close()


class TestVerdicts:
    def test_a_float_that_differs_in_its_last_bit_is_not_the_same(self, tmp_path):
        plain, made = ran(tmp_path, {"loss": 0.1}), ran(tmp_path, {"loss": 0.1 + 2e-17})
        assert verdict(plain, plain).kind == "same"
        assert verdict(plain, made).kind == "SILENT"

    def test_in_slices_rounding_is_allowed_and_no_more(self, tmp_path):
        plain = ran(tmp_path, {"loss": 1.0})
        assert verdict(plain, ran(tmp_path, {"loss": 1.000001}), close=True).kind == "same"
        assert verdict(plain, ran(tmp_path, {"loss": 1.0001}), close=True).kind == "SILENT"

    def test_a_result_that_is_missing_is_not_the_same(self, tmp_path):
        assert verdict(ran(tmp_path, {"a": 1.0, "b": 2.0}), ran(tmp_path, {"a": 1.0})).kind == "SILENT"

    def test_a_sentence_counts_only_if_it_stands_everywhere(self, tmp_path):
        write_journal(tmp_path, (0.5, "inexact", "the order is another one"))
        found = verdict(ran(tmp_path, {"loss": 1.0}), ran(tmp_path, {"loss": 2.0}))
        assert (found.kind, "not said on standard error and in the report" in found.detail) == ("SILENT", True)

    def test_a_sentence_after_the_first_step_comes_too_late(self, tmp_path):
        write_journal(tmp_path, (1.5, "inexact", "the order is another one"))
        made = ran(tmp_path, {"loss": 2.0}, err="stallguard: the order is another one")
        found = verdict(ran(tmp_path, {"loss": 1.0}), made)
        assert (found.kind, "said only after the first step" in found.detail) == ("SILENT", True)

    def test_where_a_fit_goes_on_does_not_say_that_it_differs(self, tmp_path):
        write_journal(tmp_path, (0.5, "resume", "resuming from the 21:56 checkpoint (epoch 2, batch 3)"))
        assert verdict(ran(tmp_path, {"loss": 1.0}), ran(tmp_path, {"loss": 2.0})).detail == "loss"

    def test_slices_that_were_asked_for_must_be_answered(self, tmp_path):
        asked = Launched(at=0.0, attempt=1, pid=1, slices=2)
        write_journal(tmp_path / "silent", events=(asked,))
        write_journal(tmp_path / "cut", (0.5, "micro", "each batch is trained in 2 slices"), events=(asked,))
        write_journal(tmp_path / "whole", (0.5, "whole", "batches stay whole"), events=(asked,))
        kinds = {
            name: verdicts.compared([], ran(tmp_path / name, {}), sliced=True).kind
            for name in ("silent", "cut", "whole")
        }
        assert kinds == {"silent": "SILENT", "cut": "same", "whole": "same"}

    def test_another_exit_code_or_a_new_error_is_a_crash(self, tmp_path):
        plain = ran(tmp_path, {"loss": 1.0}, err="UserWarning: 12 rows")
        assert verdict(plain, ran(tmp_path, {"loss": 1.0}, code=1)).kind == "CRASH"
        assert verdict(plain, ran(tmp_path, {"loss": 1.0}, err="ValueError: no")).kind == "CRASH"
        assert verdict(plain, ran(tmp_path, {"loss": 1.0}, err="UserWarning: 13 rows")).kind == "same"

    def test_a_training_that_begins_again_must_say_why(self, tmp_path):
        def killed(first, second, *notes):
            made = ran(tmp_path / str(len(list(tmp_path.iterdir()))), {})
            made.folder.mkdir()
            write_journal(made.folder, *notes)
            batches = [[Batch("", 0, 0, number, 1.0) for number in one] for one in (first, second)]
            made.attempts = [Attempt(batches=one) for one in batches]
            return from_the_beginning(made, "")

        why = (1.0, "inexact", "fit 1 starts over: its checkpoint is not used, because it is damaged")
        resumed = (1.0, "resume", "resuming from the 10:00 checkpoint (epoch 1, batch 4)")
        assert killed(range(5), range(9))
        assert killed(range(5), range(9), resumed), "where a training is resumed is no reason"
        assert not killed(range(5), range(9), why)
        assert not killed(range(5), range(4, 9))
        assert not killed(range(2), range(9)), "it was killed before a checkpoint was due"

    def test_without_seeds_each_attempt_must_draw_the_same(self, tmp_path):
        first, second = Attempt(drawn={"split": [1, 2]}), Attempt(drawn={"split": [2, 1]})
        assert verdicts.draws([first, first]) == []
        assert verdicts.draws([first, second]) == ["draw split: [1, 2] became [2, 1] in attempt 2"]


class TestCatalog:
    def test_there_are_enough_scripts_and_each_can_be_run_and_edited(self):
        shapes = {shape.name: shape for shape in SHAPES}
        assert len(shapes) == len(SHAPES) >= 80
        for shape in SHAPES:
            texts = shape.texts(BESIDE)
            assert texts
            assert all(ast.parse(text).body for name, text in texts.items() if name.endswith(".py")), shape.name
            assert set(shape.disturbances) <= set(DISTURBANCES)
            if shape.edit:
                assert shape.edit.old in texts[(shape.files or shape.command_files())[0]], shape.name
        assert all(set(cells) <= set(shapes[name].disturbances) for name, cells in QUICK.items())

    def test_no_script_is_left_out(self):
        assert set(BESIDE) <= {file for shape in SHAPES for file in shape.texts(BESIDE)}


class TestHarness:
    @pytest.fixture
    def cell(self, tmp_path):
        """Return a function from a factor to a cell whose script multiplies by it."""
        return lambda factor="1.5": Cell(Shape("loop", text=LOOP.format(factor=factor)), tmp_path / "cell")

    def test_an_order_is_carried_out_once(self, cell):
        made = cell()
        order = {"order": "kill batch 0 1 1"}
        assert made.plain(order).code == -9
        again = made.plain(order)
        assert (again.code, again.disturbed, again.last.results) == (0, True, {"value": {"float": (1.5**6).hex()}})
        assert len(again.last.batches) == 5 + 6  # both without stallguard: one attempt

    def test_an_order_for_another_process_is_left_alone(self, cell):
        assert cell().plain({"order": "kill batch 0 1 1", "role": "other"}).code == 0

    def test_the_last_operation_of_a_save_is_the_one_that_was_ordered(self, cell, monkeypatch):
        made = cell()
        saves = made.folder / "saves"
        script = made.files / "loop.py"
        script.write_text(f"import os\nos.environ['HARNESS_SAVES'] = {str(saves)!r}\n" + script.read_text())
        assert made.plain({"order": "kill save 3"}).code == -9
        assert (saves / "save").read_text() == "1"  # the third was written, and not put in its place
        assert (saves / "save.tmp").read_text() == "2"

    def test_a_process_that_is_rewound_dies_at_its_end_with_its_files_as_they_were(self, cell):
        made = cell()
        saves = made.folder / "saves"
        script = made.files / "loop.py"
        script.write_text(f"import os\nos.environ['HARNESS_SAVES'] = {str(saves)!r}\n" + script.read_text())
        first = made.plain({"order": "kill batch 0 0 2", "rewind": "1"})
        assert (first.code, list(first.last.results)) == (-9, ["value"])
        assert (saves / "save").read_text() == "1"
        assert (made.files / "log.txt").read_text() == "batch " * 3

    def test_a_script_that_differs_by_itself_is_refused(self, tmp_path):
        shape = Shape("loop", text=LOOP.format(factor="__import__('random').random()"))
        assert "value" in Shapes(shape, 0, tmp_path / "work", None).broken()[0]


def test_a_kept_result_holds_the_last_bit(tmp_path):
    script = tmp_path / "show.py"
    script.write_text("import harness\nharness.show('values', [0.1, float('nan'), {'b': {2, 1}}])\n")
    shutil.copy(BENCHES / "exactness" / "harness_child.py", tmp_path / "harness.py")
    environment = {**os.environ, "HARNESS_FOLDER": str(tmp_path)}
    subprocess.run([sys.executable, script], env=environment, check=True, capture_output=True)
    row = json.loads((tmp_path / "results.jsonl").read_text())
    assert row["value"] == [{"float": (0.1).hex()}, {"float": "nan"}, {"b": [1, 2]}]


# One script each way to disturb: killed, edited, killed in a save, stalled and halved, without seeds.
SOME = ("arrays_callbacks", "model_counter", "slices_add_loss", "unseeded_split")


@pytest.mark.tf
@pytest.mark.live
def test_disturbed_scripts_end_the_same_or_it_is_said():
    done = subprocess.run(
        [sys.executable, BENCHES / "exact.py", "--quick", "--only", ",".join(SOME)],
        check=False,
        capture_output=True,
        text=True,
        timeout=3000,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert done.stdout.splitlines()[-1].endswith("goals hold")
