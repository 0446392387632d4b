"""The newest loss of this process, and whether its losses and metrics are finite.

The hooks hand over values that are in memory already: nothing here waits for a device.  A loss that stops being finite
is reported once a fit, with the last finite one.  A mean of Keras over its epoch stays broken until the epoch's end,
so one value is enough.  The loss of a single batch must be broken twice in a row: a step whose gradients are skipped,
as with mixed precision, is no divergence.  A metric alone, the validation loss among them, is reported as that metric.
"""

from __future__ import annotations

from . import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from .beats import Beats

# Keras prints a number up to the first with an exponent; one above the second is too long.
LEAST, MOST = 1e-3, 1e9
BROKEN, METRIC, FINITE = "nonfinite", "nonfinite-metric", "finite-again"  # kinds of the notes
_LOSS, _EPOCH, _BEATS = (wire.SLOT[name] for name in ("loss_bits", "epoch", "beats"))


class Losses:
    """What is known of the losses.  `note(kind, text, **facts)` reports."""

    def __init__(self, beats: Beats, note: Callable[..., None]) -> None:
        self._beats = beats
        self._note = note
        # Describes the newest checkpoint of stallguard with finite values, "" if there is none; None: none are made.
        self.checkpoint: Optional[Callable[[], str]] = None
        self.fit_begins()
        self._of_fit = False

    def fit_begins(self) -> None:
        """Begin a fit: what was reported of the one before does not count, and its loss is not that of this one."""
        self._beats.slots[_LOSS] = 0
        self._beats.flag(wire.FLAG_LOSS_OF_EPOCH | wire.FLAG_LOSS_BROKEN, False)
        self._of_fit = True  # what is known is of a fit of Keras
        self.broken = False  # the newest loss is not finite
        self._reported: set[str] = set()  # names
        self.known = False  # a loss was seen
        self._since = self._last = ""  # where it was first not finite; the last finite loss, and where

    def of_batch(self, value: object) -> None:
        """Take the loss of one batch, if it is a Python float; outside of Keras' epochs."""
        if type(value) is float:
            self._leave_fit()
            self._take(value, self._place(), sure=self.broken)

    def of_gradient(self, value: float, ahead: int = 1) -> None:
        """Take what a loop outside of Keras computes gradients of: a multiple of the loss: the number says nothing.

        `ahead`: batches that are trained and not counted yet, this one included.
        """
        self._leave_fit()
        where = self._place(ahead)
        if _word(value) or self.broken:
            self._take(value, where, sure=self.broken)
        if not _word(value):
            self._beats.slots[_LOSS] = 0
            self._last, self.known = where, True

    def _leave_fit(self) -> None:
        """Begin anew in a loop of the script's own after a fit."""
        if self._of_fit:
            self.fit_begins()
            self._of_fit = False

    def of_epoch_so_far(self, value: float, batch: int, ends: str = "") -> None:
        """Take Keras' mean over the epoch that runs.  `batch`: its index; `ends`: what ends the fit for it."""
        self._take(value, "epoch %d, batch %d" % (self._beats.slots[_EPOCH] + 1, batch + 1), ends=ends)

    def of_step(self, value: float, batch: int) -> None:
        """Take the loss of one step inside an epoch of a library's loop.  `batch`: its index."""
        self._take(value, "epoch %d, batch %d" % (self._beats.slots[_EPOCH] + 1, batch + 1), sure=self.broken)

    def of_epoch(self, logs: dict[str, Any], epoch: int, ends: str = "") -> None:
        """Take what Keras says of an epoch that ended, by its index."""
        where, loss = "the end of epoch %d" % (epoch + 1), logs.get("loss")
        if type(loss) is float:
            self._take(loss, where, ends=ends)
            self._beats.flag(wire.FLAG_LOSS_OF_EPOCH, True)
        if self.broken:
            return  # then metrics are not finite either
        for name, value in logs.items():
            if _word(value) and name not in self._reported:
                self._reported.add(name)
                facts = {"name": name, "value": _word(value), "where": where}
                self._note(METRIC, "%(name)s is %(value)s at %(where)s; the loss is finite" % facts, **facts)

    def _place(self, ahead: int = 0) -> str:
        """Return where the loop is.  `ahead`: batches that are trained and not counted yet."""
        epoch = self._beats.slots[_EPOCH]
        if epoch >= 0 and self._beats.fitting:
            return "epoch %d" % (epoch + 1)
        return "batch %d" % (self._beats.slots[_BEATS] + ahead)

    def _take(self, value: float, where: str, sure: bool = True, ends: str = "") -> None:
        word, before = _word(value), self.broken
        self._beats.slots[_LOSS] = wire.float_bits(value or -0.0)  # the bits of 0.0 mean that none is known
        self._beats.flag(wire.FLAG_LOSS_OF_EPOCH, False)
        self._beats.flag(wire.FLAG_LOSS_BROKEN, bool(word))
        self.broken, self.known = bool(word), True
        self._since = where if word and not before else self._since
        if not word:
            self._last = "%s in %s" % (in_words(value), where)
            if before and "loss" in self._reported and FINITE not in self._reported:
                self._reported.add(FINITE)
                self._note(FINITE, "the loss is finite again from %s on" % where, where=where)
        elif sure and "loss" not in self._reported:
            self._reported.add("loss")
            found = self.checkpoint() if self.checkpoint is not None else ""
            self._note(
                BROKEN, "the loss is %s from %s on" % (word, self._since), value=word, where=self._since,
                last=self._last, checkpoint=found, ends=ends,
            )  # fmt: skip


def in_words(value: float) -> str:
    """Return a loss with as many digits as Keras prints."""
    return "%.4f" % value if LEAST < abs(value) < MOST else "%.4e" % value


def _word(value: object) -> str:
    """Return "nan", "inf" or "-inf" for such a number; "" for a finite one, and for what is no number in memory."""
    if type(value) is not float or value - value == 0.0:
        return ""
    return "inf" if value > 0 else "-inf" if value < 0 else "nan"
