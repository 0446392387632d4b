"""The programs of `scripts/bench slow`, and what is to be said of each.

The line that is meant has the comment `# slow` in the program, so no number of a line is written down twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

PROGRAMS = Path(__file__).parent / "programs"
MARK = "  # slow"


class Case(NamedTuple):
    """A program with one bottleneck; `expected` is the key of its cause, "" for a program without one."""

    name: str
    program: str  # in PROGRAMS
    expected: str
    around: str = ""  # what slows it from outside: a key of surroundings.AROUND
    arguments: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """The program's file."""
        return PROGRAMS / f"{self.program}.py"

    @property
    def title(self) -> str:
        """What the program does, in its own words."""
        return self.path.read_text("utf-8").splitlines()[0].strip('"')

    @property
    def marked(self) -> tuple[int, ...]:
        """The lines of which any is right; empty if no line of the program is to blame."""
        lines = self.path.read_text("utf-8").splitlines()
        return tuple(number for number, line in enumerate(lines, 1) if line.endswith(MARK))


CASES = (
    Case("generator", "generator", "input-starvation"),
    Case("python-map", "python_map", "input-starvation"),
    Case("py-dataset", "py_dataset", "input-starvation"),
    Case("remote-file", "remote_file", "input-starvation", around="server"),
    Case("callback", "slow_callback", "slow-callback"),
    Case("checkpoints", "checkpoint_each_batch", "costly-checkpoints"),
    Case("validation", "validation_often", "frequent-validation"),
    Case("python-loss", "python_loss", "slow-script"),
    Case("growing-list", "growing_list", "falling-pace"),
    Case("growing-sleep", "growing_sleep", "falling-pace"),
    Case("model-rebuilt", "model_rebuilt", "model-rebuilt"),
    Case("retracing", "retracing", "retracing"),
    Case("float64", "double_precision", "double-precision"),
    Case("tiny-batches", "tiny_batches", "tiny-batches"),
    Case("held-lock", "held_lock", "lock-contention"),
    Case("little-memory", "too_little_memory", "memory-thrash", around="little memory"),
    Case("quota", "ordinary", "processor-quota", around="quota", arguments=("20", "0")),
    Case("niced", "ordinary", "low-priority", around="busy processes", arguments=("20", "19")),
    Case("two-at-once", "ordinary", "busy-machine", around="the same again", arguments=("120", "0")),
    Case("healthy", "healthy", ""),
)
