"""What the backup says to the supervisor.  Sentences only."""

STARTS_OVER = "fit %d starts over: what was saved of it does not fit (%s)"
NOT_SAVED = "no checkpoint could be written (%s); the one before stays"
DAMAGED = "checkpoint %s is damaged (%s); the one before it is used"
LOADED = "the script's own load() was given its newest checkpoint"
RESUMED = "fit %d goes on in epoch %d"
PASSED_OVER = " after batch %d; the batches before are passed over, not trained again"
FINISHED = "fit %d was finished before: it is not trained again"
OWN_BACKUP = "the script's own BackupAndRestore resumes this fit; stallguard leaves it alone"
OWN_EPOCH = "the script starts this fit at epoch %d itself; stallguard leaves it alone"
REPLICAS = "a distribution strategy trains on several devices: checkpoints are left to the script"
UNBUILT = "the model could not be built before its first batch (%s)"
UNSTABLE = (
    "the input pipeline draws random numbers that cannot be replayed (%s): "
    "the batches after a resume are other draws than those of the run before"
)
WORKERS = (
    "the dataset's workers load ahead of an order that changes: Keras lets them race with the end of the epoch, "
    "so the batches after a resume may come in another order"
)
MASKS = (
    "layers of Keras 2 draw dropout masks from kernels whose state cannot be saved: "
    "the masks after a resume are other draws than those of the run before"
)
RESIZED = "the batch is %d now and was %d: the fit goes on after as many samples"
BEYOND_REACH = (
    "a training loop of the script's own cannot be resumed from outside: it will start over; "
    "stallguard.checkpoint(save, load) makes it resume"
)


def resumed(ordinal: int, epoch: int, batches: int) -> str:
    """Return where a fit goes on; epochs counted from 1, as Keras shows them."""
    return RESUMED % (ordinal, epoch + 1) + (PASSED_OVER % batches if batches else "")


def beyond_reach() -> str:
    """Return the sentence for a loop that nothing here can save or resume."""
    return BEYOND_REACH
