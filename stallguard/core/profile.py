"""Where the time of a training went, as a value: what collectors.stack_profile makes of the probe's samples.

This module must not conclude anything.
"""

from __future__ import annotations

import msgspec

from stallguard.core.text import at

TRAINING, FEEDER = "training", "feeder"  # roles of a thread
# Phases that are no time of the script, and in no bottleneck (probe.wire: NO_PROGRESS, OWN_WORK).
# In the last one the training is over: what its process waits for then does not make it slow.
PAUSED = ("no progress", "stallguard", "finishing")


def place(file: str, line: int, function: str) -> str:
    """Return a line of code as a user reads it: "generate() at train.py:12"."""
    name = file.replace("\\", "/").rpartition("/")[2]
    called = "" if function.startswith("<") else f"{function}() at "
    return called + at(name, line)


class Spot(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place in the script's own code, and the time that a thread spent there or in what it called there.

    `file`, `line`, `function`: the innermost line of the script's own code in the stack, "" and 0 if it has none.
    """

    role: str  # TRAINING, or FEEDER for any other thread that runs the script's code
    phase: str  # of the training at that time (wire.PHASES, or one of PAUSED), for each role
    seconds: float
    file: str = ""
    line: int = 0
    function: str = ""
    calls: str = ""  # the library's function that the line calls, with its module
    does: str = ""  # the class of the stack: user, tf_wait, lock, generator ... (collectors.stacks)
    called_by: str = ""  # the library's function that calls this code of the script, with its module
    feeds: bool = False  # a library calls this code to get data: a generator, a mapped function, a PyDataset

    @property
    def where(self) -> str:
        """Return the place as a user reads it: "generate() at train.py:12"."""
        return place(self.file, self.line, self.function) if self.file else ""


class Function(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function of the script that the library calls inside its graphs; each call of it was measured.

    `line`: the line of it that the samples show most, else that of its definition.
    """

    purpose: str  # input, or step
    seconds: float  # of all its calls, in all threads
    calls: int  # how often it was called
    file: str  # of the script
    line: int
    function: str  # its name

    @property
    def where(self) -> str:
        """Return the place as a user reads it: "prepare() at train.py:12"."""
        return place(self.file, self.line, self.function)


class Profile(msgspec.Struct, frozen=True, omit_defaults=True):
    """Times are seconds since the training began.  A thread's time is counted twice only if two threads ran."""

    seconds: float  # that the samples cover
    samples: int  # how often the stacks were read
    phases: dict[str, float] = {}  # of the training thread
    executing: float = 0.0  # of the training thread in the library's native code
    functions: tuple[Function, ...] = ()  # of the script, inside the library's graphs; most time first
    spots: tuple[Spot, ...] = ()  # those with the most time
    rest: float = 0.0  # of all spots that are left out
    beats: int = 0  # batches that were trained in these seconds
    saves: int | None = None  # checkpoints that the script wrote in them

    @property
    def watched(self) -> float:
        """Return the seconds that the samples cover, without those of `paused`: the time of the script."""
        return max(0.0, self.seconds - self.paused)

    @property
    def paused(self) -> float:
        """Return the seconds of the training thread in stalls, in an open gap, and in work of the probe."""
        return sum(self.phases.get(name, 0.0) for name in PAUSED)
