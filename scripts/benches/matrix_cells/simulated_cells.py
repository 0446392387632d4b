"""The cells of the simulated matrix: what can differ between two stalls, and how a cell is drawn and written.

A cell is a point of the product of DIMENSIONS.  Its SPEC is text that repeats it exactly; `seed` makes the moments.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import msgspec

# What the training does when it is silent, or how it ends.
IDLE = ("deadlock", "lock", "socket", "sleep", "device", "held-idle")
BUSY = ("hung-device", "spin", "held-busy")
LEGITIMATE = ("compile", "upload", "pause", "validates", "saves", "none", "slow", "nan")
ENDS = ("crash", "killed", "memory-kill", "memory-line", "exception", "exit-0")
SILENT = (*IDLE, *BUSY)

UNTRAINED = ("importing", "tracing", "first")  # before the first batch of a process
PHASES = (
    *UNTRAINED, "early", "step", "callback", "validation", "epoch-end", "saving", "input", "between-fits", "finishing",
)  # fmt: skip
COUNTED = {"once": 1, "twice": 2, "thrice": 3, "always": 1000}
PARTS = {"half": 2, "quarter": 4, "eighth": 8}

DIMENSIONS: dict[str, dict[str, int]] = {  # values with their weights; the first is the plain one
    "silence": dict.fromkeys(SILENT, 6) | dict.fromkeys(("stopped", *LEGITIMATE, *ENDS), 4),
    "phase": {"step": 10} | dict.fromkeys((one for one in PHASES if one != "step"), 2) | {"importing": 1},
    "system": {"linux": 1, "mac": 1},
    "gpu": {"none": 4, "ours": 4, "ours-no-power": 1, "others": 2},
    "load": {"no": 9, "yes": 1},
    "pause": {"none": 8, "asleep": 1, "starved": 1, "unread": 1},
    "workers": {"no": 5, "yes": 1},
    "remote": {"no": 5, "yes": 1},
    "cure": {
        "once": 5, "twice": 3, "thrice": 2, "half": 3, "quarter": 2, "eighth": 2, "cpu": 3, "always": 3,
    },
    "again": {"same": 5, "first": 2, "further": 2},
    "other": {"no": 9} | dict.fromkeys(("lock", "device", "spin", "crash", "memory-kill", "killed"), 1),
    "order": {"auto": 8} | dict.fromkeys(("restart", "halve", "cpu", "stop", "notify"), 1),
    "left_alone": {"no": 12} | dict.fromkeys(("observed", "muted", "announced"), 1),
    "patience": {"1": 3, "0.25": 5, "0.5": 3, "2": 1, "4": 1},
    "saved": {"yes": 3, "no": 1},
    "rows": {"unknown": 3, "64": 3, "8": 1, "2": 1, "1": 1},
    "min_batch": {"1": 4, "16": 1},
    "max_restarts": {"10": 6, "3": 1, "1": 1},
    "trainings": {"1": 6, "2": 1, "launcher": 1},
    "stacks": {"found": 2, "none": 1},
}  # fmt: skip


class Cell(NamedTuple):
    """One point; the fields are the names of DIMENSIONS."""

    silence: str
    phase: str
    system: str
    gpu: str
    load: str
    pause: str
    workers: str
    remote: str
    cure: str
    again: str
    other: str
    order: str
    left_alone: str
    patience: str
    saved: str
    rows: str
    min_batch: str
    max_restarts: str
    trainings: str
    stacks: str
    seed: int

    @property
    def spec(self) -> str:
        """The text that repeats this cell; values that are the plain ones are left out."""
        named = [
            f"{name}={value}"
            for name, value in zip(self._fields[:-1], self[:-1], strict=True)
            if value != next(iter(DIMENSIONS[name]))
        ]
        return ",".join([*named, f"seed={self.seed}"])

    @property
    def scale(self) -> float:
        return float(self.patience)

    @property
    def acts(self) -> bool:
        return self.left_alone == "no" and self.order != "notify"

    @property
    def known_rows(self) -> int | None:
        """Rows of a whole batch; None: not known."""
        return None if self.rows == "unknown" else int(self.rows)

    def kind(self, attempt: int) -> str:
        """Return what the trouble of an attempt is, if it has one: every second one can be of another kind."""
        return self.other if self.other != "no" and attempt % 2 == 0 else self.silence

    def strikes(self, attempt: int, factor: int, device: str) -> bool:
        """Return whether the trouble comes in an attempt that is run so."""
        if attempt > 1 and self.silence in ("stopped", *LEGITIMATE, "exit-0"):
            return False
        if self.cure in PARTS:
            return factor < PARTS[self.cure]
        return device != "cpu" if self.cure == "cpu" else attempt <= COUNTED[self.cure]

    def moment(self, name: str, low: float, high: float) -> float:
        """Return a random moment of this cell: the same for the same name."""
        return random.Random(f"{self.seed} {name}").uniform(low, high)


def draw(seed: int) -> Cell:
    chance = random.Random(seed)
    chosen = {name: chance.choices(list(values), list(values.values()))[0] for name, values in DIMENSIONS.items()}
    return sensible(Cell(**chosen, seed=seed))


def sensible(cell: Cell) -> Cell:
    """Return the cell with values that cannot occur together replaced by those that can."""
    changed: dict[str, str] = {}
    if cell.silence == "hung-device" and cell.gpu not in ("ours", "ours-no-power"):
        changed["gpu"] = "ours"
    if cell.silence in LEGITIMATE and cell.phase not in ("step", "callback", "epoch-end", "validation"):
        changed["phase"] = "step"
    if cell.silence in ("nan", "slow", "none", "validates", "saves"):
        changed |= {"phase": "step", "pause": "none"}
    if cell.silence in ENDS:
        changed["pause"] = "none"
    if cell.silence == "stopped" and cell.phase in UNTRAINED:
        changed["phase"] = "step"
    if cell.cure == "cpu" and cell.gpu not in ("ours", "ours-no-power"):
        changed["cure"] = "always"
    if cell.trainings == "2" and cell.phase in (*UNTRAINED, "between-fits", "finishing"):
        changed["trainings"] = "1"
    if cell.trainings == "2" and cell.again == "first":  # what has not trained is not judged beside one that has
        changed["again"] = "same"
    # The waits of these phases are the longest; a thousand seconds of them show no more than some hundred.
    if cell.phase in (*UNTRAINED, "between-fits", "finishing", "callback") or cell.again == "first":
        changed["patience"] = "0.25" if cell.silence in SILENT else cell.patience
    return Cell(**(cell._asdict() | changed))


def parsed(spec: str) -> Cell:
    """Return the cell of a SPEC; raise SystemExit if a name or value is not known."""
    given = dict(pair.split("=", 1) for pair in spec.split(",") if "=" in pair)
    seed = int(given.pop("seed", "0"))
    for name, value in given.items():
        if name not in DIMENSIONS or value not in DIMENSIONS[name]:
            raise SystemExit(f"no cell has {name}={value}")
    plain = {name: next(iter(values)) for name, values in DIMENSIONS.items()}
    return Cell(**(plain | given), seed=seed)


class Wrong(msgspec.Struct, frozen=True):
    """What is wrong in a cell: which promise, what was expected and what was seen."""

    promise: str
    difference: str
