"""The files of a training by name, checkpoints and logs; and which directories of a tree to watch.

Pure except for one bounded scan of directories.  Must not watch anything itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from stallguard.host.guarded_folders import never_walked

DIRECTORIES_MAX = 256  # watches; in a larger tree only the top and checkpoint directories are watched
ENTRIES_MAX = 5000  # directories scanned to find that out: about 5 ms
NAMED_MAX = 4  # checkpoint directories watched in a tree that is too big

# Keras: .keras .h5 .weights.h5; TensorFlow: .index, .data-00000-of-00001, saved_model.pb, `checkpoint`;
# PyTorch, JAX and friends: .pt .pth .safetensors .npz .msgpack.  Writers that rename at the end add a suffix.
_UNFINISHED = r"(\.(tmp|temp|part|partial|tempstate\d+|incomplete)|~|\.tmp\w{0,12})?$"
_CHECKPOINT = re.compile(
    r"(\.(keras|h5|hdf5|ckpt|index|pb|pt|pth|safetensors|npz|msgpack|orbax-checkpoint)|\.data-\d+-of-\d+"
    r"|^checkpoint|ckpt-?\d+)" + _UNFINISHED,
    re.IGNORECASE,
)
_LOG = re.compile(r"(\.(log|csv|jsonl|out|err)$|events\.out\.tfevents\.)", re.IGNORECASE)
_PLACE = re.compile(r"(checkpoint|ckpt|weights|models?$|saved|logs?$|^runs?$|output)", re.IGNORECASE)
_KEEPS_CHECKPOINTS = re.compile(r"(checkpoint|ckpt)", re.IGNORECASE)


def kind(path: str) -> str | None:
    """Return "checkpoint" or "log" for a file of that name; None for anything else."""
    *above, name = Path(path).parts
    if _CHECKPOINT.search(name):
        return "checkpoint"
    if _LOG.search(name):
        return "log"
    near = above[-2:]  # the directory of a step, and the one of all steps
    return "checkpoint" if any(_KEEPS_CHECKPOINTS.search(directory) for directory in near) else None


def plan(place: Path, home: Path) -> list[tuple[Path, bool]]:
    """Return what to watch for `place`: pairs of a directory and whether to watch all below it."""
    if _may_be_watched_whole(place, home):
        return [(place, True)]
    try:
        with os.scandir(place) as entries:
            directories = sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        directories = []
    named = [path for path in directories if _PLACE.search(path.name)]
    return [(place, False), *((path, _may_be_watched_whole(path, home)) for path in named[:NAMED_MAX])]


def _may_be_watched_whole(place: Path, home: Path) -> bool:
    return not never_walked(place, home) and is_small(place)


def is_small(place: Path) -> bool:
    """Return whether the tree has few enough directories to watch all."""
    directories = 0
    for entries, is_directory in enumerate(_walk(place)):
        directories += is_directory
        if directories > DIRECTORIES_MAX or entries > ENTRIES_MAX:
            return False
    return True


def _walk(place: Path) -> Iterator[bool]:
    waiting = [str(place)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    deeper = entry.is_dir(follow_symlinks=False)
                    if deeper:
                        waiting.append(entry.path)
                    yield deeper
        except OSError:
            continue  # unreadable, or gone meanwhile


def existing(place: Path) -> list[str]:
    """Return the checkpoints and logs directly in `place`, newest last, 32 at the most."""
    try:
        with os.scandir(place) as entries:
            found = [
                (entry.stat().st_mtime, entry.path)
                for entry in list(entries)[:ENTRIES_MAX]
                if kind(entry.path) and entry.is_file(follow_symlinks=False)
            ]
    except OSError:
        return []
    return [path for _, path in sorted(found)[-32:]]
