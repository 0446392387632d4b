"""The notes on checkpoints.  Epochs and batches are counted from 1, as Keras shows them.

A resume is one note, which resume_choice.py composes.
"""

from __future__ import annotations

import time
from typing import Any

STARTS_OVER = "fit %d starts over: its checkpoint is not used, because %s"
BACK = "fit %d goes back to the beginning of epoch %d, because %s"
ALL_THE_SAME = "fit %d goes on as it is, though %s (checkpoint.inexact = continue)"
STOPS = "fit %d cannot go on exactly, because %s; the training ends (checkpoint.inexact = stop)"
LATER = "; the checkpoints of %s are removed, because they depend on it"
FILES = "a file that its callbacks write could not be restored (%s)"
NOT_WRITTEN = "no checkpoint can be written (%s)"
SAVED_AGAIN = "checkpoints are written again"
MINUTES_FROM = 90  # seconds; fewer are given as seconds
STOPPED = "saved the training after its batch, and waits for SIGTERM"
OWN_STOPPED = "waits for SIGTERM: the script's own BackupAndRestore resumes from its last save"
DAMAGED = "checkpoint %s is damaged (%s)"
PREVIOUS = "%s; the previous one is used"
LOOP_STARTS_OVER = "the script's loop starts over: %s"
ANOTHERS = "the script's loop starts over: its checkpoint was made by another function (%s)"
OF_OTHERS = (
    "%s begins at its beginning: the checkpoints that are there were made by a process with other arguments, in "
    "another directory or with other variables"
)
EDITED = "the script has changed since the checkpoint was made (%s)"
OTHER_VERSIONS = "the script's loop goes on with other versions than its checkpoint was made with: %s"
PEERS = "several processes train together, and each would go on from another batch"
OTHER_OBJECTS = "the script hands over other objects than when its checkpoint was made"
HOLDS_NOW = "object %d that was handed over to stallguard.track holds something now that cannot be kept (%s)"
NOT_ASSIGNED = (
    "no array that the script handed over was replaced in the loop; a function of JAX returns new ones, which have to "
    "be assigned to what was handed over, as in state['params'] = ..."
)
IN_EPOCH = "the script's loop goes on in epoch %d, after its batch %d"
OTHER_TRAINING = "its model, optimizer, frozen weights or settings are others than when its checkpoint was made"
AFTER_ITERATION = "mlx-lm's trainer goes on after iteration %d; its next report has the speed since then"
FIRST_ITERATION = "mlx-lm's trainer begins at iteration 1: %s"
AT_EPOCH = "the script's loop goes on at the beginning of epoch %d"
LOADED = "the script's own load() reads its checkpoint"
RESUMED = "resuming from the %s checkpoint (%sepoch %d, batch %d)"
FINISHED = "fit %d was finished before: it is not trained again"
LONGER = "fit %d had ended after %s; the script now asks for %d, so it continues from there"
SHORTER = "it was trained to the end of epoch %d, and the script asks for %s"
AGAIN = "fit %d is trained again: no checkpoint was made of its end"
TRAINED_AGAIN = "fit %d is trained again: %s"
START_UNKNOWN = "its start cannot be compared with the one that its checkpoint was made after"
OTHER_VALUES = "%s starts with other values than when its checkpoint was made"
DRAWN = "its model, which draws its first values from other random numbers,"
OTHER_FIRST = "its first batch has other values than when its checkpoint was made"
OTHER_DATA = "its data (%s) are others than when its checkpoint was made"
OTHER_CODE = "the code of the script that it calls has changed (%s)"
OTHER_WORDS = "the script sets other values than when its checkpoint was made (%s)"
COMPUTED = "computed numbers differ from those when it started (%s)"
CONTINUES = "fit %d starts with other values of its model than before: those of its checkpoint replace them"
START_UNREAD = (
    "%d MB of the data and weights of fit %d take longer to compare than checkpoint.cost allows: "
    "only some of their values are compared before it is skipped"
)
OWN_BACKUP = (
    "the script's own BackupAndRestore resumes this fit (from its last backup, if it made one), without the history "
    "and the data order of earlier attempts; stallguard makes no checkpoints of it"
)
REPLICAS = "a distribution strategy trains this fit on several devices"
UNBUILT = "the model's variables could not be created before its first batch (%s)"
KEPT_NOT = "a resume cannot restore the state of these objects, if it changes: %s"
AS_MADE = "not restored, if it has changed: %s"
STAYS = "a resume leaves files as they are, with what was written after the checkpoint: %s"
STAYED = "what was written after the checkpoint is still in %s"
TOO_MANY = "objects beyond the first 20,000 that the script's code reaches"
UNREAD = "%s (%s longer to compare than checkpoint.cost allows)"
CHANGED = "a checkpoint lacks the state of %s, so it cannot resume inside this fit"
GROWS = "%s holds %d MB now"
NOT_OURS = "a checkpoint has it as a pickle, which can run code, and the key of this user has not signed it"
STATE = "it lacks the state of %s"
OTHER_START = "the model's values at the start of this fit differ from those when the checkpoint was made"
ENDED = "the data ended after %s, but %d had been trained"
NO_BATCH_LEFT = (
    "each batch of epoch %d was trained, and Keras on JAX cannot end an epoch without training a batch of it"
)
NO_LOGS = (
    "fit %d: each batch of epoch %d was trained, and a checkpoint cannot keep what its training step returned: "
    "the results of that epoch are those of the model's metrics"
)
ORDER = "the data come in another order or with other values than before (batch %d of epoch %d differs%s)"
UNSTABLE = (
    "the input pipeline draws random numbers that cannot be replayed (%s): "
    "the batches after a resume differ from those of the run before"
)
KEPT_BY_PIPELINE = (
    "the input pipeline keeps state that cannot be restored (%s): "
    "the batches after a resume can differ from those of the run before"
)
SERVICE = "the input pipeline draws from a tf.data service, whose position cannot be restored"
UNORDERED = (
    "the input pipeline is not deterministic, as the script asks (deterministic = False): "
    "the batches after a resume can come in another order"
)
SHARED = (
    "the input pipeline, which works ahead, and the training draw from the same source (%s), in an order that depends "
    "on time: their draws after a resume can differ from those of the run before"
)
AHEAD = (
    "the training changed %s while the input pipeline worked ahead with it: "
    "the next batches can differ from those of the run before"
)
LINES_AHEAD = (
    "the input pipeline works ahead of the training: "
    "some of the lines that it writes to %s can come twice or be missing"
)
WORKERS = (
    "the dataset's workers load batches ahead while its order changes at the end of the epoch (a race in Keras): "
    "the batches after a resume can come in another order"
)
KERNELS = (
    "the training step draws random numbers from a state that cannot be saved (%s): "
    "the numbers after a resume differ from those of the run before"
)
MASKS = (
    "layers of Keras 2 draw dropout masks from kernels whose state cannot be saved: "
    "the masks after a resume differ from those of the run before"
)
FINITE_IN = "%sepoch %d, batch %d, made at %s"
FINITE_START = "%sthe beginning of epoch %d, made at %s"
FINITE_END = "the end of fit %d, made at %s"
FINITE_LOOP = "the script's loop, made at %s"
NOT_FINITE = "the checkpoint that fit %d resumes from has values that are not finite; %s"
BEFORE_IT = "policy.on_nonfinite = rollback resumes from the newest one with finite values, that of %s"
NONE_BEFORE_IT = "there is none with finite values"
RESIZED = "the batch is %d now and was %d: the fit continues after the same number of samples"


def unread(path: str, size: int) -> str:
    """Return what is not compared, and why.  `size`: bytes, negative if they are not known."""
    return UNREAD % (path, "it takes" if size < 0 else "%d MB, which take" % (size >> 20))


def resumed(ordinal: int, epoch: int, batches: int, made: float) -> str:
    """Return the note of a resume after `batches` of `epoch` (from 0); `made`: of the checkpoint, since 1970."""
    return RESUMED % (clock(made), _which(ordinal), epoch + 1, batches)


def finite(ordinal: int, facts: dict[str, Any], made: float) -> str:
    """Return which generation of a fit has finite values.  `facts`: of it; `made`: as for `resumed`."""
    if facts["finished"]:
        return FINITE_END % (ordinal, clock(made))
    if not facts["batches"]:
        return FINITE_START % (_which(ordinal), facts["epoch"] + 1, clock(made))
    return FINITE_IN % (_which(ordinal), facts["epoch"] + 1, facts["batches"], clock(made))


def clock(made: float) -> str:
    """Return a time (seconds since 1970) as the time of day, with the day if that is not today."""
    then = time.localtime(made)
    today = then[:3] == time.localtime()[:3]
    return time.strftime("%H:%M" if today else "%d %b %H:%M", then)


def _which(ordinal: int) -> str:
    return "fit %d, " % ordinal if ordinal > 1 else ""


def not_saved(what: str, seconds: float, is_kept: bool) -> str:
    """Return `what` (NOT_WRITTEN, CHANGED) with its cost.  `seconds`: of training that a kill now would cost."""
    if seconds < 1:
        return "%s; a kill costs all that is trained from now on: %s" % (
            what,
            "the checkpoint before it is kept" if is_kept else "there is none",
        )
    long = "%.0f min" % (seconds / 60) if seconds >= MINUTES_FROM else "%.0f s" % seconds
    cost = (
        "the last %s of training: the checkpoint before them is kept"
        if is_kept
        else "all that was trained so far (%s): there is none"
    )
    return "%s; a kill now costs %s" % (what, cost % long)


def amount(size: int) -> str:
    """Return a number of bytes in the unit in which it is read best."""
    for unit, one in (("GB", 1 << 30), ("MB", 1 << 20)):
        if size >= one:
            return "%.3g %s" % (size / one, unit)
    return "%d kB" % (size >> 10)


def listed(names: list[str], most: int = 4) -> str:
    """Return some names and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (" and %d more" % more if more > 0 else "")


def described(unkept: dict[str, str]) -> str:
    """Return the names of the objects that a checkpoint lacks, each with its kind."""
    return listed(["%s (%s)" % pair for pair in unkept.items()])


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun; `many`: a plural that is not formed by an s."""
    return "%d %s" % (number, one if number == 1 else many or one + "s")
