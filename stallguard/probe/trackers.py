"""A restarted attempt goes on where people already look: in W&B, MLflow and TensorBoard as the attempt before.

Loaded only if the supervisor names a directory (settings.trackers), and when one of the libraries is imported.  In a
first attempt nothing changes: what a library chose is only recorded, one small file for each call.  A file is named by
the place of its process (process_key.py), the kind of the choice, and the number of the call of this kind in the
process.  So several trainings of a run keep what is theirs.  A file that is there when the call is made comes from an
earlier attempt: a place is given once an attempt.  What a script chooses itself is left alone.  Nothing here raises.

TensorBoard: many scripts name the log directory by `datetime.now()`, so each attempt begins another row.  A path in
which a moment stands is replaced by the path that differs from it in its moments alone, and that an earlier attempt
wrote to.  The k-th path of one form stands for the k-th of the attempt before.  Any other path is left alone: one
without a moment is the same in each attempt anyway, and one with another fold or model is another training.
"""

from __future__ import annotations

import os
import re
from _thread import allocate_lock

from . import process_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from .context import Context
    from .patches import Function

LONGEST = 4096  # bytes of a choice
# 20261123-171430, 2026-11-23_17:14:30.123456, 2026.11.23 17h14, 20261123171430; Nov23_17-14-30; 1763917000, .5
MOMENT = re.compile(
    r"(?<!\d)(?:20\d\d\D?[01]\d\D?[0-3]\d\D?[0-2]\d\D?[0-5]\d(?:\D?[0-5]\d(?:\.\d{1,6})?)?"
    r"|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[ _-]?[0-3]?\d[ _-][0-2]\d\D[0-5]\d\D[0-5]\d"
    r"|1[6-9]\d{8}(?:\.\d+)?)(?!\d)"
)


def begin(context: Context) -> EarlierChoices:
    """Return what the patches of this part get."""
    return EarlierChoices(context)


class EarlierChoices:
    """Of one process."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._folder = context.settings.trackers
        self._counts: dict[tuple[str, str], int] = {}
        self._lock = allocate_lock()
        self.directories: dict[str, str] = {}  # log directories in use, by what the script gave

    def next(self, kind: str) -> TrackerChoice:
        """Return the next choice of this kind (letters, digits, "-" and "_")."""
        place = self.context.place
        with self._lock:
            number = self._counts[place, kind] = self._counts.get((place, kind), 0) + 1
        name = "%s.%s.%d" % (place, kind, number) if place and self._folder else ""
        return TrackerChoice(self.context, name and os.path.join(self._folder, name))

    def report(self, text: str) -> None:
        """Report a sentence; it is shown in the journal."""
        self.context.note("tracker", text)


class TrackerChoice:
    """One choice.  `earlier`: what an earlier attempt chose; "" if there was none."""

    def __init__(self, context: Context, path: str) -> None:
        self._context, self._path = context, path
        self.earlier = self._read() or ""

    def _read(self) -> Optional[str]:
        if not self._path:
            return None
        try:
            with open(self._path, "rb") as file:
                return file.read(LONGEST).decode("utf-8", "surrogateescape")
        except FileNotFoundError:
            return None
        except Exception as error:
            self._context.surprise("reading an earlier choice", error)
            return None

    def keep(self, value: object) -> None:
        """Record what was chosen, for the next attempt."""
        text = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else b""
        if not self._path or not text or len(text) > LONGEST or value == self.earlier:
            return
        draft = "%s.%d" % (self._path, os.getpid())
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
            file = os.open(draft, flags | getattr(os, "O_CLOEXEC", 0), 0o600)
            try:
                os.write(file, text)
            finally:
                os.close(file)
            os.replace(draft, self._path)
        except Exception as error:
            self._context.surprise("keeping a choice", error)


class LogDirectories:
    """Of one process."""

    def __init__(self, choices: EarlierChoices) -> None:
        self._choices = choices
        self._known = choices.directories

    def of(self, path: Any) -> Any:
        """Return the directory to use for `path`: that of an earlier attempt, or `path` itself."""
        given = os.fspath(path)
        if not isinstance(given, str) or not MOMENT.search(given):
            return path
        if given not in self._known:
            self._known[given] = self._decided(given)
            self._known.setdefault(self._known[given], self._known[given])
        known = self._known[given]
        return path if known == given else known

    def _decided(self, given: str) -> str:
        for known, used in list(self._known.items()):  # a directory inside of one that was decided
            if given.startswith(known + os.sep):
                return used + given[len(known) :]
        form = MOMENT.sub("*", given)
        root = self._choices.context.settings.project
        place = process_key.portable(os.path.abspath(form), root)
        choice: TrackerChoice = self._choices.next("log-directory-" + _digest(place))
        earlier = process_key.native(choice.earlier, root)
        if earlier and MOMENT.sub("*", earlier) == form and earlier != given:
            self._choices.report("goes on in the log directory %s" % earlier)
            return earlier
        choice.keep(process_key.portable(given, root))
        return given


def _digest(text: str) -> str:
    from _blake2 import blake2b

    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _used(choices: EarlierChoices, path: Any) -> Any:
    try:
        return LogDirectories(choices).of(path)
    except Exception as error:
        choices.context.surprise("choosing a log directory", error)
        return path


def patch_callback(choices: EarlierChoices, module: Any) -> None:
    """Wrap the callback TensorBoard: after its creation it has the path in `log_dir`."""

    def make(original: Function) -> Function:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it replaces one
            original(self, *args, **kwargs)
            if hasattr(self, "log_dir"):
                self.log_dir = _used(choices, self.log_dir)

        return __init__

    callback = getattr(module, "TensorBoard", None)
    if callback is not None and not hasattr(module, "__path__"):
        choices.context.wrap(callback, "__init__", make)


def patch_writer(choices: EarlierChoices, module: Any) -> None:
    """Wrap `tf.summary.create_file_writer`."""

    def make(original: Function) -> Function:
        def create_file_writer_v2(logdir: Any, *args: Any, **kwargs: Any) -> Any:
            return original(_used(choices, logdir), *args, **kwargs)

        return create_file_writer_v2

    choices.context.wrap(module, "create_file_writer_v2", make)
