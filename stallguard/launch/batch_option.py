"""Passes the batch size to a script: by its own option, by {batch} in its arguments, by a variable.

Pure: a command and an environment in, those of an attempt out.  A training that gets its batch size
is never sliced too.  Must not decide how small a batch becomes: the policy does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stallguard.core.limits import PolicyLimits
from stallguard.errors import USAGE, StallguardError

PLACE = "{batch}"
KNOWN = "give the first size with --batch, such as --batch 512"


class BatchArguments(NamedTuple):
    """The command and environment of an attempt.

    `whole`: rows of the script's batch, `rows`: of this attempt's; both None if no size is passed to the script.
    """

    argv: list[str]
    env: dict[str, str]
    whole: int | None = None
    rows: int | None = None


def given(
    argv: Sequence[str], env: Mapping[str, str], limits: PolicyLimits, slices: int = 1, most: int = 0
) -> BatchArguments:
    """Return the command and environment that make the script train with 1/`slices` of its batch.

    `most`: largest number of rows of the whole batch; 0: any.  A batch keeps at least `limits.min_batch` rows, unless
    the script's own batch has fewer.  Raises StallguardError (exit code 2) if the size is unknown or cannot be
    passed.
    """
    if not limits.gives_size:
        return BatchArguments(list(argv), dict(env))
    if limits.batch:
        if not (limits.batch_flag or limits.batch_env or any(PLACE in word for word in argv)):
            raise _error(
                f"no setting passes the batch size to the script: {limits.batch}",
                f"write {PLACE} in the script's arguments, or name its option: --batch-flag=--batch-size",
            )
        own = limits.batch
    else:
        values = [text for _, text in _places(argv, limits.batch_flag)]
        texts = [*values[-1:], *filter(None, [env.get(limits.batch_env)])]
        if not texts:
            named = " and ".join(filter(None, (limits.batch_flag, limits.batch_env)))
            raise _error(f"the size of the script's batch is not known: {named} is not given", KNOWN)
        if not re.fullmatch(r"0*[1-9][0-9]{0,11}", texts[0]):
            raise _error(f"the size of the script's batch is not a number: {texts[0]!r}", KNOWN)
        own = int(texts[0])
    whole = min(own, most) if most else own
    rows = max(whole // slices, min(whole, limits.min_batch), 1)
    words, variables = list(argv), dict(env)
    if rows != own or limits.batch:
        words = _with_flag(words, limits.batch_flag, str(rows)) if limits.batch_flag else words
        variables |= {limits.batch_env: str(rows)} if limits.batch_env else {}
    return BatchArguments([word.replace(PLACE, str(rows)) for word in words], variables, whole, rows)


def unsized(argv: Sequence[str], limits: PolicyLimits) -> list[str]:
    """Return the command with {batch} for the size: what was learned applies to all sizes of a command."""
    return _with_flag(list(argv), limits.batch_flag, PLACE) if _places(argv, limits.batch_flag) else list(argv)


def _error(what: str, cure: str) -> StallguardError:
    return StallguardError(what, cure=cure, code=USAGE)


def _places(argv: Sequence[str], flag: str) -> list[tuple[int, str]]:
    """Return (index, value) of each value of `flag`: in the next word, after "=", or joined as in -b512."""
    if not flag:
        return []
    found = []
    is_short = re.fullmatch("-[A-Za-z]", flag) is not None
    for index, word in enumerate(argv):
        if word == flag and index + 1 < len(argv):
            found.append((index + 1, argv[index + 1]))
        elif word.startswith(f"{flag}="):
            found.append((index, word[len(flag) + 1 :]))
        elif is_short and (joined := re.fullmatch(rf"{re.escape(flag)}([0-9]+)", word)):
            found.append((index, joined[1]))
    return found


def _with_flag(argv: list[str], flag: str, rows: str) -> list[str]:
    """Return the command with `rows` for each `flag`, or with the flag added at its end."""
    places = _places(argv, flag)
    for index, value in places:
        argv[index] = argv[index][: len(argv[index]) - len(value)] + rows
    if places:
        return argv
    return [*argv, flag, rows] if flag.startswith("-") else [*argv, f"{flag}={rows}"]
