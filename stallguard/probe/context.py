"""What each part of the probe uses: the record, notes to the supervisor, patches that can be removed again.

A record of frameworks/ names functions by modules of its library: {module name: function(module)}.  The function runs
once, right after that module was imported in the user's process.  Several parts can name the same module; an error in
one function does not stop the others.  Nothing here raises into the user's program, blocks or
prints.  Standard library only, Python 3.9 grammar.
"""

from __future__ import annotations

from . import settings, wire
from .losses import Losses

TYPE_CHECKING = False  # typing costs milliseconds of every start; checkers take this name for True
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Callable, Optional

    from .beats import Beats
    from .outbox import Outbox
    from .patches import Maker, Patches
    from .seeds import Seeds

    Targets = dict[str, Callable[[Any], None]]


class PhaseOf:
    """Context manager: the phase `name` (one of wire.PHASES) during its body, then the previous phase again."""

    __slots__ = ("_beats", "_before", "_phase")

    def __init__(self, beats: Beats, name: str) -> None:
        self._beats = beats
        self._phase = wire.PHASES.index(name)
        self._before = 0

    def __enter__(self) -> None:
        self._before = self._beats.enter(self._phase)

    def __exit__(self, *exc: object) -> None:
        self._beats.leave(self._before)


class OwnWork:
    """Context manager: its body is work of the probe in the training's thread, in no finding about the script."""

    __slots__ = ("_beats",)

    def __init__(self, beats: Beats) -> None:
        self._beats = beats

    def __enter__(self) -> None:
        self._beats.own_work += 1

    def __exit__(self, *exc: object) -> None:
        self._beats.own_work -= 1


class Context:
    """The object that every part of the probe gets."""

    def __init__(self, beats: Beats, mail: Outbox, patches: Patches, environment: Mapping[str, str]) -> None:
        self.beats = beats
        self.mail = mail
        self.patches = patches
        self.environment = environment
        self.settings = settings.of(environment)
        # Called at the end of a batch: with Keras' list of callbacks and what the step returned, after
        # request_attention() or once a second; with the list, before a fit is ended.
        self.after_batch: list[Callable[[Any, Any], None]] = []
        self.before_stop: list[Callable[[Any], None]] = []
        self.flush: Callable[[], None] = lambda: None  # sends the queued notes
        self.seeds: Optional[Seeds] = None  # for what the script does not seed; None: that stays random
        # Finds which of the run's processes this is (process_key.py); called once, and once more after a fork.
        self.find_place: Callable[[], str] = str
        self._place: Optional[str] = None
        # Of the script's functions that run inside a graph: (purpose, file, line, function) -> calls, nanoseconds.
        self.python_functions: dict[tuple[str, str, int, str], list[int]] = {}
        self.inside = 1  # slices that a lack of memory has led to inside this process
        self.smaller = False  # batches have fewer rows already, so they are not sliced
        self._rows = 0  # of a batch, as they were reported
        self.losses = Losses(beats, self.note)
        self.trainer_losses: Any = None  # StepLosses of frameworks/transformers.py, if that is used
        # What the script saves and reads itself (checkpoint/script_checkpoints.py); None: checkpoints are off.
        self.script_checkpoints: Any = None
        self.said_resume = False  # a note says from where this attempt goes on

    def draw(self, source: str, bits: int) -> Optional[int]:
        """Return a seed for what the script does not seed, None if that stays random (seeds.py)."""
        return None if self.seeds is None else self.seeds.draw(source, bits)

    @property
    def place(self) -> str:
        """Return which of the run's processes this is (process_key.py); "" if that could not be found."""
        if self._place is None:
            self._place = self.find_place()
        return self._place

    def forget_place(self) -> None:
        """Find the place again at its next use: a forked process has one of its own."""
        self._place = None

    @property
    def slices(self) -> int:
        """Slices to train a batch in (1: whole batches)."""
        return 1 if self.smaller else self.asked

    @property
    def asked(self) -> int:
        """Slices of a batch that the supervisor, or a lack of memory, asks for, as slices or as smaller batches."""
        return 1 if self.announced else max(1, self.settings.slices, self.inside)

    @property
    def announced(self) -> bool:
        """Whether the supervisor gave the script its batch size."""
        return self.settings.rows > 0

    @property
    def divided(self) -> int:
        """How many times more rows the script's own batch has than the batches that Keras gets now."""
        return max(1, self.settings.slices) if self.smaller or self.announced else 1

    def batch_of(self, rows: Any) -> None:
        """Report the rows of the script's batch, by which the supervisor knows how small one would become."""
        if type(rows) is int and rows > 0 and rows != self._rows and not self.announced:
            self._rows = rows
            self.note("batch", "a batch of the script has %d row%s" % (rows, "" if rows == 1 else "s"), rows=rows)

    @property
    def resuming(self) -> bool:
        """Whether this attempt continues an earlier one."""
        return self.settings.resume

    @property
    def checkpoint_directory(self) -> str:
        """The directory of the checkpoint generations, "" if checkpoints are off."""
        return self.settings.checkpoints

    def get(self, field: str) -> int:
        """Return one number of the record, by its name in wire.FIELDS."""
        return self.beats.slots[wire.SLOT[field]]

    @property
    def index(self) -> int:
        """Keras' number of the batch that ended last in this epoch, -1 before the first."""
        return self.beats.index

    def request_attention(self) -> None:
        """Have `after_batch` called at the end of the next batch."""
        self.beats.request_attention()

    def epoch_goes_on(self, before: int) -> None:
        """Note that earlier attempts trained `before` batches of the epoch that is resumed."""
        self.beats.epoch_goes_on(before)

    def restored(self) -> None:
        """Note that optimizers got their saved state: the jump of their counters is no training."""
        self.beats.restores += 1

    def set(self, field: str, value: int) -> None:
        """Store one number in the record (slices, skipped, saves ...)."""
        self.beats.slots[wire.SLOT[field]] = value

    def add(self, field: str, count: int = 1) -> None:
        """Add to one number of the record."""
        self.beats.slots[wire.SLOT[field]] += count

    def flag(self, bit: int, on: bool = True) -> None:
        """Set or clear one of the wire.FLAG_* bits."""
        self.beats.flag(bit, on)

    def moved(self) -> None:
        """Count progress of the training other than a batch: it updates `progress_ns`."""
        self.beats.moved()

    def phase(self, name: str) -> PhaseOf:
        """Return a context manager that sets phase `name` (of wire.PHASES) during its body."""
        return PhaseOf(self.beats, name)

    def own_work(self) -> OwnWork:
        """Return a context manager for work of the probe in the training's thread."""
        return OwnWork(self.beats)

    def saved(self) -> None:
        """Count a checkpoint that the probe made."""
        self.add("saves")
        self.beats.own_saves += 1

    def note(self, kind: str, text: str, **facts: object) -> None:
        """Queue a sentence for the supervisor; it is dropped if too many are queued."""
        self.said_resume = self.said_resume or (kind in ("resume", "inexact") and bool(text))
        self.mail.note(kind, text, facts)

    def say(self, kind: str, text: str, **facts: object) -> None:
        """Queue a note and send it at once: what follows can end the process, or take long."""
        self.note(kind, text, **facts)
        try:
            self.flush()
        except Exception as error:
            self.surprise("sending a note", error)

    def beyond(self, sentence: str) -> None:
        """Add to the hello a sentence on what a smaller batch or a resume cannot do in this program."""
        self.mail.beyond(sentence)

    def hook_installed(self, hook: str) -> None:
        """Add to the hello that `hook` (of wire.HOOKS) is installed."""
        self.beats.slots[wire.SLOT["hooks"]] |= 1 << wire.HOOKS.index(hook)
        self.mail.hook_installed(hook)

    def wrap(self, owner: Any, name: str, make: Maker) -> bool:
        """Replace `owner.name` (a class's own method or a module's function) by make(original).

        Return False, and change nothing, if `owner` has no such attribute of its own.  The wrapper gets the original's
        name, documentation and attributes (as functools.update_wrapper), and is removed if the probe disables itself.
        """
        return self.patches.wrap(owner, name, make)

    def surprise(self, where: str, error: BaseException) -> None:
        """Count an internal error; after a few of them the probe disables itself."""
        self.patches.surprise(where, error)
