"""Where the time of a training went, as a value: what collectors.stack_profile makes of the probe's samples.

This module must not conclude anything.
"""

from __future__ import annotations

import msgspec

TRAINING, FEEDER = "training", "feeder"  # roles of a thread


class Spot(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place in the script's own code, and the time that a thread spent there or in what it called there.

    `file`, `line`, `function`: the innermost line of the script's own code in the stack, "" and 0 if it has none.
    """

    role: str  # TRAINING, or FEEDER for any other thread that runs the script's code
    phase: str  # of the training at that time (wire.PHASES), for each role
    seconds: float
    file: str = ""
    line: int = 0
    function: str = ""
    calls: str = ""  # the library's function that the line calls, with its module
    does: str = ""  # the class of the stack: user, tf_wait, lock, generator ... (collectors.frames)
    called_by: str = ""  # the library's function that calls this code of the script, with its module
    feeds: bool = False  # a library calls this code to get data: a generator, a mapped function, a PyDataset

    @property
    def where(self) -> str:
        """Return the place as a user reads it: "generate() at train.py:12"."""
        if not self.file:
            return ""
        name = self.file.replace("\\", "/").rpartition("/")[2]
        called = "" if self.function.startswith("<") else f"{self.function}() at "
        return f"{called}{name}:{self.line}"


class Profile(msgspec.Struct, frozen=True, omit_defaults=True):
    """Times are seconds since the training began.  A thread's time is counted twice only if two threads ran."""

    seconds: float  # that the samples cover
    samples: int  # how often the stacks were read
    phases: dict[str, float] = {}  # of the training thread
    executing: float = (
        0.0  # of the training thread in the library's native code: it computes, or waits for the device
    )
    spots: tuple[Spot, ...] = ()  # those with the most time
    rest: float = 0.0  # of all spots that are left out
