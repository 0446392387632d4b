"""What the documents promise for one cell: the attempts, the end, the cause.  From promises.py; nothing of stallguard.

`steps` are the attempts' parts of a batch that must come, in order: (1, 1, 2) is a new process with the same batch
and then one with half of it.  If the documents leave a choice (the steps of a second cause that is about as likely),
more attempts can follow, and both ends are right; `free` says so.
"""

from __future__ import annotations

from typing import NamedTuple

from . import promises
from .cells import CRASHES, HALVED, STALLS, Cell
from .promises import GAVE_UP, HALF, NO_PROGRESS, ORDERS, REMEDIES, SAME, Remedy

# The causes of docs/incidents.md that name what happens truly; the first is that of docs/causes.md.
CAUSES = {
    "lock": ("host-deadlock",),
    "native-lock": ("host-deadlock", "outside-wait", "device-wait", "unknown"),
    "interpreter": ("gil-held",),
    "sleep": ("outside-wait", "unknown"),
    "spin": ("busy-loop",),
    "native-spin": ("busy-loop",),
    "socket": ("outside-wait",),
    "fifo": ("outside-wait",),
    "worker": ("host-deadlock", "outside-wait"),
    "crash": ("native-crash",),
    "kill": ("killed",),
    "memory": ("out-of-memory",),
    "error": ("script-error",),
}
# The function of matrix_trouble_child.py in which a thread stands then.
HANGS_IN = {
    "lock": "lock", "native-lock": "_mutex", "interpreter": "_mutex", "sleep": "sleep", "spin": "spin",
    "native-spin": "native_spin", "socket": "dead_socket", "fifo": "fifo", "worker": "dead_worker",
}  # fmt: skip
STARVED = "input-starvation"  # the same in the input, and it waits for something that does not come
# docs/detection.md: without wait sites a call of a C function is understood only if the module dis is loaded.
BLIND = ("native-lock", "sleep", "socket", "fifo")
ANY_EARLY = {"import", "start"}  # no batch has ended: what waits there is not always known


class Expected(NamedTuple):
    """Of a run of one cell.  `codes`: exit codes that are right; `steps`: attempts, as above."""

    codes: tuple[int, ...]
    steps: tuple[int, ...]
    free: bool
    stalls: tuple[int, int]  # least, most
    causes: tuple[str, ...]
    is_ended: bool = False  # by the bench: it reports and does nothing


def expected(cell: Cell, named: str = "") -> Expected:
    """Return what the documents promise.  `named`: the cause that was found; if it is a true one, its remedy counts."""
    if cell.what in ("nan", "slow", "nothing", "stop"):
        return Expected((0,), (1,), False, (0, int(cell.what == "stop")), ())  # a stopped process is announced
    if cell.what == "error":
        return Expected((1,), (1,), False, (0, 0), CAUSES["error"])
    causes = CAUSES[cell.what]
    if cell.where == "input" and cell.what in STALLS:
        causes = (*causes, STARVED)
    if cell.census == "off" and cell.kind == "beat" and cell.what in BLIND:
        causes = (*causes, "host-deadlock", "outside-wait", "unknown")
    if cell.census == "off" and is_converted(cell):
        causes = (*causes, "device-wait")
    stalls = cell.what in STALLS
    if is_trained_again(cell):
        # docs/batches.md: 2, 4 or 8 slices in the same process.  In the first step two rows are compared as well.
        sure = cell.where == "step" and cell.again != "always" and cell.setting != "observe"
        return Expected((0,) if sure else (0, 1, GAVE_UP), (1,), not sure, (0, 0), ())
    observed = cell.setting == "observe"
    if cell.where == "exit":  # docs/causes.md: the training is finished; only its interpreter does not end
        return Expected((143, 137) if observed else (0,), (1,), False, (0, 1), (), is_ended=observed)
    if observed:
        # By the bench's SIGTERM, or by SIGKILL if that is not answered within the grace period.
        codes = {"crash": (139,), "kill": (137,), "memory": (1,)}.get(cell.what, (143, 137))
        return Expected(codes, (1,), False, (int(stalls), int(stalls)), causes, is_ended=stalls)
    if cell.setting == "stop" and stalls:
        return Expected((GAVE_UP,), (1,), False, (1, 1), causes)
    steps, code, free = _climbed(cell, _remedy(cell, named if named in causes else causes[0]))
    least = len(steps) - (0 in code) if stalls else 0
    return Expected(code, steps, free, (least, least + (promises.MOST_RESTARTS if free and stalls else 0)), causes)


def _remedy(cell: Cell, cause: str) -> Remedy:
    """docs/causes.md; an order counts for stalls only (docs/detection.md)."""
    return ORDERS[cell.setting] if cell.setting in ORDERS and cell.what in STALLS else REMEDIES[cause]


def _climbed(cell: Cell, remedy: Remedy) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """Return the attempts' factors, the exit codes, and whether other attempts can follow."""
    own = 1 if cell.what == "memory" else GAVE_UP  # an error of the script ends with its own code
    if cell.what == "memory" and cell.again == "always":  # the few rows that are compared first fail as well
        halved = _can_halve(cell, 1)
        return ((1, 2) if halved else (1,)), (own, GAVE_UP), True
    if _compared(cell):  # twice
        return (1, 2), (0,), True
    factors, same = [1], 0
    steps = list(remedy.steps)
    while _happens(cell, len(factors), factors[-1]):
        step = steps.pop(0) if steps else remedy.steps[-1] if remedy.repeats else ""
        if step == HALF and not _can_halve(cell, factors[-1]):
            step = "" if not steps else steps.pop(0)
        if (step == SAME and same == NO_PROGRESS) or step == promises.CPU:  # there is no GPU here
            step = ""
        if not step:
            return tuple(factors), (own, GAVE_UP, 0, 128 + 9, 128 + 11), True
        same = same + 1 if step == SAME else 0
        factors.append(factors[-1] * 2 if step == HALF else factors[-1])
    # Before the batch size is known no batch can be halved: what follows then is another cause's.
    return tuple(factors), (0,), False


def _happens(cell: Cell, attempt: int, factor: int) -> bool:
    """Return whether it happens in this attempt."""
    often = {"once": 1, "twice": 2, "resumed": 2}.get(cell.again, promises.FOR_EVER)
    if cell.again in ("half", "quarter") and cell.kind in HALVED:
        return factor < {"half": 2, "quarter": 4}[cell.again]
    return attempt <= often


def _can_halve(cell: Cell, factor: int) -> bool:
    """Return whether the next half can be made: docs/batches.md; 16 rows, and its size must have been seen."""
    return cell.kind in HALVED and factor < 16 and cell.where not in ANY_EARLY


def is_trained_again(cell: Cell) -> bool:
    """Return whether a step that lacked memory is trained again in its process (docs/batches.md)."""
    return cell.kind in ("trainer", "lightning") and cell.what == "memory" and cell.where in ("first", "step")


def is_converted(cell: Cell) -> bool:
    """Return whether it happens in code that AutoGraph compiled anew: its frames have no line of the script."""
    return cell.loop == "keras2" and cell.where == "tracing"


def _compared(cell: Cell) -> bool:
    """Return whether it can come in the comparison of a few rows, which no attempt ends for."""
    again = cell.again in ("twice", "always")
    return cell.what == "memory" and cell.where == "first" and again and _can_halve(cell, 1)


def crashes(cell: Cell, happened: int, failed: int) -> tuple[int, ...]:
    """Return how many crashes can be counted if it happened so often and so many attempts failed."""
    if not counts_crash(cell):
        return (0,)
    if is_trained_again(cell):
        return (failed,)
    return (failed,) if _compared(cell) else (happened,)


def is_trained(cell: Cell) -> bool:
    """Return whether the result must be that of the undisturbed run: a loss that breaks is none."""
    return cell.what != "nan"


def counts_crash(cell: Cell) -> bool:
    """Return whether each time counts as a crash: the process ends by itself, with another code than 0."""
    return cell.what in (*CRASHES, "memory", "error")
