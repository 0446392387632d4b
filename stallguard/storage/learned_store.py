"""What is learned from a training is kept for later runs: two small files per command and machine.

An edited script, other arguments, another interpreter or another machine get other files: their gaps are not
comparable.  The detector compares what the key does not contain (versions of the frameworks, the device in use).
This module must not judge what it keeps.
"""

from __future__ import annotations

import contextlib
import platform
import time
from _blake2 import blake2b  # hashlib also loads OpenSSL: milliseconds before the start of the training
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from stallguard import jsontext
from stallguard.core.learned import BatchSizes, Learned
from stallguard.core.text import counted
from stallguard.errors import UNREADABLE
from stallguard.storage import private
from stallguard.storage.paths import home

SCHEMA = 3
SIZES = "sizes-"  # prefix of the files of batch sizes
STALE = 60 * 86400.0  # seconds
# Options of scripts for duration, input and output, which do not change a batch.
IMMATERIAL = frozenset({
    "epochs", "num_epochs", "max_epochs", "steps", "max_steps", "seed", "random_seed", "lr", "learning_rate",
    "patience", "resume", "checkpoint", "checkpoint_dir", "ckpt", "ckpt_dir", "log_dir", "logdir", "logs", "output",
    "output_dir", "out", "save_dir", "save", "name", "run_name", "run_id", "experiment",
})  # fmt: skip
LEAST = 32  # steps from which something can be learned
_STREAMS = ("STEP", "UNCLASSIFIED")


class CommandKey(msgspec.Struct, frozen=True):
    """Identifies a training.  `script`: digest of its text, "" if the command names no file."""

    command: tuple[str, ...] = ()  # empty: nothing is kept
    directory: str = ""
    script: str = ""
    machine: str = ""


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file: of gaps, or of batch sizes.  `saved`: seconds since the epoch, by the wall clock."""

    schema: int
    key: CommandKey
    saved: float
    learned: Learned | None = None
    sizes: BatchSizes | None = None


def key_of(command: Sequence[str], cwd: Path) -> CommandKey:
    """Return the key of a command as it would run in `cwd` on this machine."""
    machine = f"{platform.node()} {platform.system()} {platform.machine()}"
    return CommandKey(tuple(_what_matters(command)), str(cwd), _digest(command, cwd), machine)


def _what_matters(command: Sequence[str]) -> list[str]:
    """Return a command without the options that change neither the time nor the memory of a batch."""
    kept, skip = [], False
    for index, word in enumerate(command):
        name, equals, _ = word.partition("=")
        if skip:
            skip = False
        elif name.startswith("-") and name.lstrip("-").replace("-", "_") in IMMATERIAL:
            following = command[index + 1 : index + 2]
            skip = not equals and bool(following) and not following[0].startswith("-")
        else:
            kept.append(word)
    return kept


def load(key: CommandKey, trouble: Callable[[str], None], now: float | None = None) -> Learned | None:
    """Return what was learned from earlier runs of `key`; None if there is nothing, or it is outdated.

    `trouble` is called for a damaged file; `now`: seconds since the epoch.
    """
    kept = _read(_path(key), key, trouble, now)
    return kept.learned if kept else None


def sizes(key: CommandKey, trouble: Callable[[str], None], now: float | None = None) -> BatchSizes:
    """Return which batches `key` survives, as known from runs and `find-batch`; `trouble`, `now`: as `load`."""
    kept = _read(_path(key, SIZES), key, trouble, now)
    return kept.sizes if kept and kept.sizes else BatchSizes()


def _read(path: Path, key: CommandKey, trouble: Callable[[str], None], now: float | None) -> Kept | None:
    try:
        kept = jsontext.decode(path.read_bytes(), Kept)
    except FileNotFoundError:
        return None
    except (OSError, *UNREADABLE) as error:
        trouble(f"what was learned from earlier runs cannot be read and is ignored ({path}: {error})")
        return None
    age = (time.time() if now is None else now) - kept.saved
    return kept if kept.schema == SCHEMA and kept.key == key and 0 <= age <= STALE else None


def save(key: CommandKey, learned: Learned, trouble: Callable[[str], object] = str, now: float | None = None) -> bool:
    """Keep what was learned from a run, atomically, unless it had few steps.  Return whether it was kept."""
    rows = (learned.rows[name] for name in _STREAMS if name in learned.rows)
    if not key.command or not any(row.count >= LEAST for row in rows):
        return False
    kept = Kept(SCHEMA, key, time.time() if now is None else now, learned=learned)
    return _write(_path(key), kept, "what was learned from this run", trouble)


def keep_sizes(key: CommandKey, known: BatchSizes, trouble: Callable[[str], object] = str) -> None:
    """Keep which batches survive; write nothing if nothing is known."""
    if key.command and known != BatchSizes():
        kept = Kept(SCHEMA, key, time.time(), sizes=known)
        _write(_path(key, SIZES), kept, "which batches survive", trouble)


class LearnedFile(NamedTuple):
    """One kept file.  `name`: for `learned forget`; `what`: description; `saved`: seconds since the epoch."""

    name: str
    path: Path
    key: CommandKey
    saved: float
    what: str


def everything() -> list[LearnedFile]:
    """Return all kept files, the oldest first; damaged ones are left out."""
    found = []
    for path in (home() / "learned").glob("*.json"):
        with contextlib.suppress(OSError, *UNREADABLE):
            kept = jsontext.decode(path.read_bytes(), Kept)
            name = path.stem.removeprefix(SIZES)[:8]
            found.append(LearnedFile(name, path, kept.key, kept.saved, _described(kept)))
    return sorted(found, key=lambda one: one.saved)


def _described(kept: Kept) -> str:
    if kept.sizes is None:
        steps = sum(row.count for row in kept.learned.rows.values()) if kept.learned else 0
        return f"usual gaps, of {counted(steps, 'step')}"
    rows, slices = kept.sizes.rows, kept.sizes.slices
    if rows:
        return f"up to {counted(rows, 'row')} {'survives' if rows == 1 else 'survive'}"
    left = ", ".join(f"{name} ({times} x)" for name, times in kept.sizes.left.items())
    # `find-batch` was asked, or a run has left a size.
    return f"batches survive in {slices} parts" if slices > 1 or not left else f"left for a smaller batch: {left}"


def _digest(command: Sequence[str], cwd: Path) -> str:
    """Return the digest of the first file of Python that the command names."""
    for word in command:
        if word.endswith(".py"):
            with contextlib.suppress(OSError):  # named, but missing: the start of the run reports it
                return _hex((cwd / word).read_bytes())
    return ""


def _hex(data: bytes) -> str:
    return blake2b(data, digest_size=32).hexdigest()


def _path(key: CommandKey, prefix: str = "") -> Path:
    name = _hex(jsontext.exact(key))[:24]
    return home() / "learned" / f"{prefix}{name}.json"


def _write(path: Path, kept: Kept, what: str, trouble: Callable[[str], object]) -> bool:
    """Write a file atomically; return whether that was possible.  `what`: it has, for `trouble`."""
    try:
        private.own(path.parent)
        private.replace(path, jsontext.exact(kept))
    except OSError as error:
        trouble(f"{what} could not be kept ({error.strerror})")
        return False
    return True
