"""The errors that a user meets: what happened, why, what to do next or what was probably meant, and the exit code.

Raised anywhere, printed only by the command line.  This module must not import other modules of stallguard.
"""

from __future__ import annotations

from collections.abc import Iterable

# coreutils' timeout(1) uses the same numbers for the same things.
GAVE_UP = 124
OWN_FAILURE = 125
CANNOT_RUN = 126
NOT_FOUND = 127
NOT_FINITE = 65  # sysexits.h EX_DATAERR: ended because the loss was not finite (policy.on_nonfinite)
STOPPED_ON_TIME = 75  # sysexits.h EX_TEMPFAIL: not finished; the same command continues later
USAGE = 2
NO_SUCH_RUN = 3
SIGNALLED = 128  # plus the number of the signal that ended a program, as in shells

ENDINGS = {0: "finished", STOPPED_ON_TIME: "stopped", GAVE_UP: "gave up"}  # of a run, by its exit code
# By the beginning of the reason for its end.
REASONS = {"you asked": "stopped", "signalled": "stopped", "interrupted": "interrupted"}

# The beginning of the reason for the end of a watch over a process that stallguard did not start.
WATCHED_ENDED, WATCH_ENDED = "the process that was watched has ended", "the watch ended"

# What decoders of JSON and TOML raise for invalid bytes; deep nesting is a RecursionError.
UNREADABLE = (ValueError, RecursionError)
# What reading the fields of a live run's answer raises, if it is of another version or damaged.
STRANGE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


class StallguardError(Exception):
    """An error with its explanation.

    `what` happened, `why`, `cure`: what to do next; `code`: the exit code of the command.
    """

    def __init__(self, what: str, *, why: str = "", cure: str = "", code: int = OWN_FAILURE) -> None:
        super().__init__(what)
        self.what, self.why, self.cure, self.code = what, why, cure, code

    def lines(self) -> list[str]:
        """Return the message as the lines to print, without a prefix."""
        return [line for line in (self.what, self.why, self.cure) if line]


def ending(code: int, why: str, script_code: int | None = None) -> str:
    """Return how a run ended: finished, stopped (on time, or by an order), interrupted (Ctrl-C), gave up, failed.

    ended: a watch over a process that stallguard did not start; how that process ends is not known.

    `script_code`: the exit code with which the script ended by itself, None if it did not.
    """
    if code and code == script_code:
        return "failed"
    if code == 0 and script_code is None and why.startswith((WATCHED_ENDED, WATCH_ENDED)):
        return "ended"
    reason = next((state for begun, state in REASONS.items() if why.startswith(begun)), "failed")
    return ENDINGS.get(code, reason)


def was_requested(code: int, why: str, script_code: int | None) -> bool:
    """Return whether a user, a signal or a set time has ended a run.  `script_code`: as for `ending`."""
    return script_code is None and (code == STOPPED_ON_TIME or any(why.startswith(one) for one in REASONS))


def has_failed(code: int, why: str, script_code: int | None = None) -> bool:
    """Return whether a run failed or was given up: what it trained was not finished, and no user asked for its end.

    `script_code`: as for `ending`.
    """
    return ending(code, why, script_code) in ("gave up", "failed")


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return which of `known` was most likely meant by `word`; None if none is similar.

    `cutoff`: the least likeness, 0 to 1, as difflib measures it.
    """
    import difflib  # 5 ms that must not delay the start of the training

    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)
