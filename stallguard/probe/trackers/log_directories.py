"""TensorBoard: a log directory that is named by the time of its start is the one of the attempt before.

Many scripts name it by `datetime.now()`, so each attempt begins another row in TensorBoard.  A path in which a moment
stands is replaced by the path that differs from it in its moments alone, and that an earlier attempt wrote to.  The
k-th path of one form stands for the k-th of the attempt before.  Any other path is left alone: one without a moment
is the same in each attempt anyway, and one with another fold or model is another training.
"""

from __future__ import annotations

import os
import re

from .. import process_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..patches import Function
    from .earlier_choices import EarlierChoices, TrackerChoice

# 20261123-171430, 2026-11-23_17:14:30.123456, 2026.11.23 17h14, 20261123171430; Nov23_17-14-30; 1763917000, .5
MOMENT = re.compile(
    r"(?<!\d)(?:20\d\d\D?[01]\d\D?[0-3]\d\D?[0-2]\d\D?[0-5]\d(?:\D?[0-5]\d(?:\.\d{1,6})?)?"
    r"|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[ _-]?[0-3]?\d[ _-][0-2]\d\D[0-5]\d\D[0-5]\d"
    r"|1[6-9]\d{8}(?:\.\d+)?)(?!\d)"
)


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
