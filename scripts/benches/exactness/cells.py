"""One cell of the table: a shape, put to one disturbance, beside its undisturbed run."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import NamedTuple

from stallguard.errors import GAVE_UP

from . import statements, verdicts
from .runs import Cell, Ran
from .shape import (
    BETWEEN,
    COMMENT,
    DEFAULTS,
    EDITED,
    EPOCHS,
    HALVED,
    LAYERS,
    MID,
    OPTIMIZER,
    RATE,
    SAVE,
    SEGMENTS,
    Edit,
    Shape,
)
from .verdicts import NOT_REACHED, SAME, SILENT, Verdict, differences

QUIETLY = ("--set", "notify.desktop=off", "--set", "policy.backoff=0s")
OFTEN = ("--checkpoint-every", "0", "--checkpoint-cost", "100%")  # after every batch
# A rehearsal's patience: a deadlock in a callback or a step is a stall after four seconds, and is acted upon at once.
_SOON = ("step", "epoch_first_step", "epoch_boundary", "batch_callbacks", "unclassified")
HASTE = (
    "--on-stall", "halve", "--set", "detector.act_after=1s", "--set", "detector.learning=4s",
    *(word for row in _SOON for name in ("deadlock", "prior_deadlock", "external", "prior_external")
      for word in ("--set", f"detector.rows.{row}.{name}=4s")),
)  # fmt: skip
# Of a segment: an attempt needs about the time of a plain run to start, and should train for a second or two then.
START, ROOM, LOOP, LONGER = 1.4, 1.0, 5.0, 2.5


class Result(NamedTuple):
    """A cell that is filled in."""

    shape: str
    disturbance: str
    verdict: Verdict
    seconds: float


class Shapes:
    """The cells of one shape, one after the other, in folders under `folder`."""

    def __init__(self, shape: Shape, index: int, folder: Path, keep: Path | None) -> None:
        """`index`: of the shape in the table; `keep`: where the folders of cells that are not the same stay."""
        self.shape, self.index, self._folder, self._keep = shape, index, folder, keep
        self._plain: Ran | None = None
        self._again: Ran | None = None

    def plain(self) -> Ran:
        """Return the run without a disturbance and without stallguard."""
        self._plain = self._plain or self._cell("plain").plain()
        return self._plain

    def broken(self) -> list[str]:
        """Return what differs between two plain runs: such a shape proves nothing."""
        first = self.plain()
        self._again = self._again or self._cell("plain again").plain()
        if first.code or not first.last.results:
            return [f"exit code {first.code}: {first.err[-500:]}"]
        if not self.shape.seeded:
            return sorted(first.last.results.keys() ^ self._again.last.results.keys())
        return differences(first, first.last.results, self._again, self._again.last.results)

    def fill(self, disturbance: str) -> Result:
        """Put the shape to a disturbance and judge what becomes of it."""
        began = time.monotonic()
        cell = self._cell(disturbance)
        self.plain()
        made, verdict = self._edited(cell) if disturbance == EDITED else self._disturbed(cell, disturbance)
        if disturbance == SEGMENTS and made.code == GAVE_UP:  # on a busy machine: too short for a start
            cell = self._cell(f"{disturbance} longer")
            made, verdict = self._disturbed(cell, disturbance, LONGER)
        if verdict.kind in (SAME, NOT_REACHED) or self._keep is None:
            shutil.rmtree(cell.folder, ignore_errors=True)
        else:
            self._keep_cell(cell, made, verdict)
        return Result(self.shape.name, disturbance, verdict, time.monotonic() - began)

    def _cell(self, name: str) -> Cell:
        return Cell(self.shape, self._folder / self.shape.name / name.replace(" ", "-"))

    def _disturbed(self, cell: Cell, disturbance: str, longer: float = 1.0) -> tuple[Ran, Verdict]:
        plain, shape = self.plain(), self.shape
        order = {"order": shape.order(disturbance, self.index), "role": shape.role}
        options: tuple[str, ...] = (*QUIETLY, *(() if disturbance == DEFAULTS else OFTEN))
        if disturbance == HALVED:
            options += HASTE
        elif disturbance == SEGMENTS:
            options += ("--segments", f"{longer * (START * plain.seconds + ROOM):.1f}s", "--cool-down", "0s")
            pause = longer * (LOOP + (START - 1) * plain.seconds) / max(1, len(plain.last.batches))
            order["pause"] = f"{pause:.3f}"
        elif not shape.seeded and order["order"]:
            order["rewind"] = "1"
        made = cell.guarded(options, order)
        ended = verdicts.crash(made, plain, shape.error)
        if ended:
            return made, ended
        if order["order"] and not made.disturbed:
            return made, Verdict(NOT_REACHED)
        if shape.error and made.disturbed:
            return made, Verdict(SILENT, f"it ended without its own error: {shape.error}")
        if shape.saved and disturbance in (MID, SAVE, BETWEEN) and len(made.attempts) > 1:
            again = verdicts.from_the_beginning(made, shape.role)
            if again:
                return made, Verdict(SILENT, again)
        sliced = disturbance == HALVED
        return made, verdicts.compared(self._wrong(made, close=sliced), made, sliced=sliced)

    def _wrong(self, made: Ran, *, close: bool) -> list[str]:
        """Return what is not as it must be: as in the plain run or, without seeds, in the undisturbed attempt."""
        plain = self.plain()
        if self.shape.seeded:
            return differences(plain, plain.last.results, made, made.last.results, close)
        wrong = verdicts.draws(made.attempts)
        first = made.attempts[0].results if made.attempts else {}
        if first and len(made.attempts) > 1:
            wrong += differences(made, first, made, made.last.results, close)
        missing = plain.last.results.keys() ^ made.last.results.keys()
        return wrong + sorted(f"{name}: missing" for name in missing)

    # ---- edits -----------------------------------------------------------------------------------------------

    def _edited(self, cell: Cell) -> tuple[Ran, Verdict]:
        edit, shape = self.shape.edit, self.shape
        assert edit is not None  # noqa: S101 - only such shapes have this disturbance
        order = {"order": shape.order(EDITED, self.index), "role": shape.role}
        killed = cell.guarded((*QUIETLY, *OFTEN, "--max-restarts", "0"), order)
        if not killed.disturbed:
            return killed, Verdict(NOT_REACHED)
        cell.edit(self._edited_file(), edit.old, edit.new)
        made = cell.guarded((*QUIETLY, *OFTEN, "--resume", "last"), order)
        ended = verdicts.crash(made, self.plain(), "")
        if ended:
            return made, ended
        wrong = self._wrong_after(edit, made)
        if not statements.of_edit(edit.kind, made.directory, made.err):
            words = f"nothing is said of the edit ({edit.kind})"
            detail = "results as expected" if not wrong else wrong[0].partition(": apart")[0]
            return made, Verdict(SILENT, f"{words}; {detail}", (words, *wrong))
        return made, verdicts.compared(wrong, made)

    def _edited_file(self) -> str:
        return (self.shape.files or self.shape.command_files())[0]

    def _wrong_after(self, edit: Edit, made: Ran) -> list[str]:
        """Return what is not as it must be after an edit; the reference is a plain run made for it."""
        if edit.kind == COMMENT:
            return self._wrong(made, close=False)
        reference = self._cell(f"plain {edit.kind}")
        order: dict[str, str] = {}
        if edit.kind in (OPTIMIZER, LAYERS, EPOCHS):
            reference.edit(self._edited_file(), edit.old, edit.new)
        elif edit.kind == RATE and made.last.batches:
            first = made.last.batches[0]
            rate = edit.new.rpartition("(" if "(" in edit.new else "=")[2].strip(") ")
            order = {"order": f"rate {rate} {first.fit} {first.epoch} {first.batch}", "role": self.shape.role}
        wanted = reference.plain(order)
        return differences(wanted, wanted.last.results, made, made.last.results)

    def _keep_cell(self, cell: Cell, made: Ran, verdict: Verdict) -> None:
        """Leave a cell's folder in --keep, with all that it takes to understand it."""
        assert self._keep is not None  # noqa: S101 - the caller has looked
        place = self._keep / self.shape.name / cell.folder.name
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(cell.folder, place)
        text = "\n".join([f"{verdict.kind}: {verdict.detail}", *verdict.lines])
        (place / "verdict.txt").write_text(text + "\n", "utf-8")
        (place / "stderr.txt").write_text(made.err, "utf-8")
        (place / "stdout.txt").write_text(made.out, "utf-8")
        shutil.rmtree(self._keep / self.shape.name / "plain", ignore_errors=True)
        shutil.copytree(self.plain().folder, self._keep / self.shape.name / "plain")
