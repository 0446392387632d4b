"""Passes a script its own checkpoint: words that the next attempt's command gets, with the newest whole one in them.

The probe keeps a list of what the script saves (probe/written_checkpoints.py).  Which option of the script reads a
checkpoint, and what it then restores, only the user knows.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from stallguard.config.table import Config
from stallguard.errors import USAGE, StallguardError
from stallguard.probe import written_checkpoints

PLACE = "{checkpoint}"
CURE = "stallguard run --resume-with '--resume_from_checkpoint {checkpoint}' train.py"
DECIDES = "the script has saved {path}: whether it goes on from there, its own code decides; --resume-with passes it on"
GIVEN = "the script is started with {words}, its newest whole checkpoint{damaged}"
NOTHING = "--resume-with adds nothing to the command: {why}"
NONE = "no process of this run has saved a checkpoint of the script's own"
SEVERAL = "several processes of this run have saved checkpoints"


class OwnResume(NamedTuple):
    """What an attempt gets of the script's own checkpoints.

    `words`: for the end of its command; `added`: the same as a shell reads them; `text`: a sentence on that, "" if
    there is nothing to say.
    """

    words: tuple[str, ...] = ()
    added: str = ""
    text: str = ""


def check(config: Config) -> None:
    """Raise StallguardError (exit code 2) if the words cannot be what they are for."""
    wanted = config.policy.resume_with
    if not wanted:
        return
    import re
    import shlex  # in few runs, and the start of the training waits

    why = ""
    try:
        words = shlex.split(wanted)
    except ValueError as error:
        words, why = [], f"they are not words as a shell reads them: {str(error).lower()}"
    other = next((found for found in re.findall(r"\{\w*\}", wanted) if found != PLACE), "")
    if not why and not words:
        why = "there is no word in them"
    elif other:
        why = f"{other} stands for nothing"
    elif not config.checkpoint.enabled or not config.run.probe:
        why = "without the probe and its checkpoints nothing shows which checkpoint is whole"
    if why:
        raise StallguardError(f"policy.resume_with cannot be used: {wanted!r}", why=why, cure=CURE, code=USAGE)


def of_attempt(wanted: str, checkpoints: Path) -> OwnResume:
    """Return what a later attempt gets.  `wanted`: the setting, "" for none; `checkpoints`: of the run."""
    folders = sorted(one.parent for one in checkpoints.glob(f"*/{written_checkpoints.NAME}"))
    lists = [found for found in map(written_checkpoints.read, map(str, folders)) if found]
    damaged: list[str] = []
    newest = written_checkpoints.newest_whole(lists[0], damaged) if len(lists) == 1 else None
    if not wanted:
        return OwnResume(text=DECIDES.format(path=newest["path"]) if newest else "")
    if newest is None:
        why = "; ".join(damaged) or (SEVERAL if len(lists) > 1 else NONE)
        return OwnResume(text=NOTHING.format(why=why))
    import shlex

    words = tuple(word.replace(PLACE, newest["path"]) for word in shlex.split(wanted))
    said, added = "".join(f"; {one}" for one in damaged), shlex.join(words)
    return OwnResume(words, added, GIVEN.format(words=added, damaged=said))
