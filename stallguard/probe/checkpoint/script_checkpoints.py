"""What the script itself saves and reads back: whether that is whole, whether it is read, and which batch follows.

A later attempt begins where the script's own code lets it begin.  Of that the probe can see

- that a checkpoint is to be read that is not whole: accelerate's `load_state` then gets the newest whole one;
- that none was read although there are some: the script has begun at its first batch;
- with accelerate's loaders, whether the batch that is trained after the reading is the one that was trained after the
  writing: a fingerprint of the last batch before the first step of the optimizer.  A step without a save before it
  costs one comparison of numbers.

A training in several processes is left out: each writes a part of the checkpoint.
"""

from __future__ import annotations

import math
import os
import time

from .. import libraries, patches, wire, written_checkpoints

TYPE_CHECKING = False  # typing costs milliseconds of every start; checkers take this name for True
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..context import Context
    from ..patches import Function
    from ..written_checkpoints import Record

PAUSE = 1.0  # seconds between two notes of files without an optimizer: a script can write one in each step
BEGUN = 3  # batches: what the script restores, it has restored by then
WHOLE = ("save_state", "_save_checkpoint", "save_checkpoint")  # of accelerate, Trainer and Lightning
OF_MLX = ("save_safetensors", "savez", "savez_compressed", "save_gguf")  # states and weights look alike there
_BEATS = wire.SLOT["beats"]
UNREAD = "the script began at its first batch: it was not seen to read %s, which it wrote before"
INSTEAD = "accelerate reads %s, the newest whole checkpoint of the script, in place of %s (%s)"
NAMED = "; a script that takes its position from the name of the folder goes on at another step"
ASIDE = ", which is moved to %s"
NONE_WHOLE = "accelerate is to read %s, which is not whole (%s), and the script has written no other that is whole"
SAME = "the script goes on from its checkpoint %s, with the batch that followed it"
OTHER = "the script goes on from its checkpoint %s, but with another batch than the one that followed it"
UNLISTED = (
    "the list of the script's own checkpoints cannot be written (%s): after a kill, --resume-with gets none of those "
    "that are saved from now on, and one that is cut off is read as if it were whole"
)
UNKNOWN = "the script has read its checkpoint %s; which batch followed it is not known"


class ScriptCheckpoints:
    """The script's own checkpoints in one process."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._process = os.getpid()
        self._records: list[Record] | None = None  # oldest first, with those of earlier attempts
        self._earlier: list[Record] = []
        self.is_read = False  # a file of an earlier attempt was
        self._is_unlisted = False  # said that the list cannot be written
        self._begun = -math.inf  # when a save that is in the list began
        self._waits: tuple[int, Record, bool] | None = None  # beats at a save or reading, its record; whether read
        self._batch = ""  # fingerprint of the newest batch since then

    # --- the list -------------------------------------------------------------------------------------------------

    @property
    def folder(self) -> str:
        """The folder of this process."""
        return os.path.join(self._context.checkpoint_directory, self._context.place or "process")

    def records(self) -> list[Record]:
        """Return what is known, oldest first; what earlier attempts wrote too, if this one continues them."""
        if self._records is None:
            self._records = written_checkpoints.read(self.folder) if self._context.resuming else []
            self._earlier = list(self._records)
        return self._records

    def _keep(self) -> None:
        """Write the list; if that fails, say so once."""
        try:
            written_checkpoints.write(self.folder, self.records())
        except OSError as error:
            if not self._is_unlisted:
                from .schedule import reason

                self._is_unlisted = True
                self._context.note("unlisted", UNLISTED % reason(error, self.folder))

    def _is_silent(self) -> bool:
        """Return whether this is no save or reading of the script's training."""
        return bool(self._context.beats.own_work) or os.getpid() != self._process

    def begins(self, path: str, name: str, arguments: tuple[Any, ...]) -> None:
        """Note that the script begins to write a checkpoint; `name`, `arguments`: the function and what it got."""
        beats = self._context.get("beats")
        if self._is_silent() or not beats or libraries.have_peers():
            return
        path = os.path.abspath(path)
        full = 2 if name in WHOLE else int(name in OF_MLX or any(map(_is_full, arguments)))
        records, now = self.records(), time.monotonic()
        records[:] = [one for one in records if one["path"] != path]
        if full or now - self._begun > PAUSE:
            self._begun = now
            records.append({"path": path, "by": name, "full": full, "batches": beats})
            self._keep()

    def wrote(self, path: str) -> None:
        """Note that a checkpoint is written."""
        record = self._record_of(path)
        if self._is_silent() or record is None:
            return
        with self._context.own_work():
            try:
                record["files"] = written_checkpoints.files_of(record["path"])
            except OSError:  # another process has removed some of it
                record["files"] = {}
        if not record["files"]:  # a name that the library completes
            self.records().remove(record)
        self._keep()
        self._await(record, is_read=False)

    def renamed(self, before: str, after: str) -> None:
        """Note that the script gives a checkpoint another name, such as one that it wrote under a temporary one."""
        record = self._record_of(before) if self._records else None
        if record is None or self._is_silent():
            return
        after = os.path.abspath(after)
        records = self.records()
        records[:] = [one for one in records if one["path"] != after]
        record["path"] = after
        self._keep()

    def _record_of(self, path: str) -> Record | None:
        path = os.path.abspath(path)
        return next((one for one in self.records() if one["path"] == path), None)

    # --- reading ------------------------------------------------------------------------------------------------------

    def opened(self, path: str) -> None:
        """Note that a file is read."""
        if self._earlier and not self.is_read and not self._context.beats.own_work:
            path = os.path.abspath(path)
            self.is_read = any((path + os.sep).startswith(one["path"] + os.sep) for one in self._earlier)

    def whole(self, path: str, is_named: bool) -> str:
        """Return what is to be read in place of a checkpoint: itself, if it is whole or nothing is known of it.

        `is_named`: the script names the folder.  Else accelerate does so by numbers, and its next save would raise an
        exception if the folder that is not whole stayed there: it is moved to the folder of this process.
        """
        record = self._record_of(path)
        if record is None or record not in self._earlier or self._is_silent():
            return path
        found: Record | None = record
        with self._context.own_work():
            why = written_checkpoints.damage(record)
            if why:
                others = [one for one in self._earlier if one is not record and one.get("by") == record.get("by")]
                found = written_checkpoints.newest_whole(others, [])
        if why:
            text = NONE_WHOLE % (path, why) if found is None else INSTEAD % (found["path"], path, why)
            if found is not None and is_named:
                text += NAMED
            elif found is not None:
                newer = self._earlier[self._earlier.index(found) + 1 :]
                self._set_aside([one["path"] for one in newer if os.path.dirname(one["path"]) == os.path.dirname(path)])
                text += ASIDE % self.folder
            self._context.say("inexact", text)
        if found is None:
            return path
        self._await(found, is_read=True)
        return path if found is record else str(found["path"])

    def _set_aside(self, paths: list[str]) -> None:
        """Move what is not whole to the folder of this process.  Raises OSError."""
        import shutil

        for path in paths:
            if os.path.exists(path):
                place, number = os.path.join(self.folder, os.path.basename(path)), 1
                while os.path.lexists("%s~%d" % (place, number)):
                    number += 1
                shutil.move(path, "%s~%d" % (place, number))

    def unread(self) -> bool | None:
        """Say if the script trains, and has read none of its checkpoints; None: that is to be asked again.

        The sender's thread asks.
        """
        context = self._context
        if not self._earlier or self.is_read or context.said_resume or os.getpid() != self._process:
            return False
        if context.get("beats") < BEGUN:
            return None
        full = [one["path"] for one in self._earlier if one.get("full") and os.path.exists(one["path"])]
        if full:
            context.note("inexact", UNREAD % full[-1])
        return bool(full)

    # --- the batch that follows ---------------------------------------------------------------------------------------

    def _await(self, record: Record, is_read: bool) -> None:
        self._waits, self._batch = (self._context.get("beats"), record, is_read), ""

    def batches(self, original: Function) -> Function:
        """Return the wrapper for what yields the batches of a loader."""

        @patches.removes_its_own
        def batches(*args: Any, **named: Any) -> Iterator[Any]:
            try:
                for batch in original(*args, **named):
                    if self._waits is not None:
                        self._look(batch)
                    yield batch
            except BaseException as error:
                patches.remove(error)
                raise

        return batches

    def _look(self, batch: Any) -> None:
        """Keep the fingerprint of the newest batch; after the step of the optimizer it is the one that was trained."""
        waits = self._waits
        if waits is None or self._is_silent():
            return
        try:
            beats, record, is_read = waits
            if self._context.beats.slots[_BEATS] == beats:
                from . import tensors

                self._batch = tensors.fingerprint_of(batch)
                return
            self._waits = None
            if is_read:
                expected, path = record.get("next"), record["path"]
                text = (SAME if expected == self._batch else OTHER) if expected and self._batch else UNKNOWN
                self._context.note("inexact" if text is OTHER else "resume", text % path)
            elif self._batch and record in self.records():
                record["next"] = self._batch
                self._keep()
        except Exception as error:
            self._waits = None
            self._context.surprise("comparing the batch after a checkpoint", error)


def _is_full(value: Any) -> bool:
    """Return whether a value that is saved has an optimizer's state: a dictionary of torch, or a model of Keras."""
    if isinstance(value, dict):
        return any(isinstance(one, dict) and {"state", "param_groups"} <= one.keys() for one in value.values())
    return hasattr(value, "optimizer") and hasattr(value, "fit")
