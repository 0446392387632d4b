"""What a trial of `find-batch` or `compare` showed, as one plain value.  Pure."""

from __future__ import annotations

import msgspec

CROWDED = 0.1  # share of the processor that other programs took, from which a reader has to know it


class Trial(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a trial showed.  A field that is not there is not known."""

    trouble: str = ""  # why the setting cannot be used; empty: it can
    note: str = ""  # what a reader of the figures has to know
    batches: int = 0  # that were trained in all
    measured: int = 0  # of them, batches that the pace is about
    seconds: float = 0.0  # that those took
    rate: float | None = None  # batches a second
    spread: float | None = None  # of the rate, as a standard deviation within the trial
    rows: int | None = None  # of a batch
    memory: int | None = None  # bytes of the training at most
    cores: float | None = None  # processor cores that it kept busy
    others: float | None = None  # share of the machine's processor that other programs took
    waited: float | None = None  # seconds a second that its threads together waited for a processor
    gpu: float | None = None  # share of the time that the GPU was busy, with all programs
    gpu_memory: int | None = None  # bytes in use on the GPU at most, of all programs
    watts: float | None = None  # that the GPU took
    joules: float | None = None  # that the GPU took for a batch
    used_gpu: bool | None = None  # the training was seen to compute on the GPU
    run: str = ""  # its id

    @property
    def contention(self) -> float:
        """The share of the processor that other programs can have taken from it; 0 if that is not known.

        What they took is no loss for a training that did not wait for a processor; and its threads can wait for one
        another, so their waiting alone is no measure either.
        """
        known = [one for one in (self.others, self.waited) if one is not None]
        return min(known, default=0.0) if self.others is not None else 0.0

    @property
    def row_rate(self) -> float | None:
        """Rows a second."""
        return self.rate * self.rows if self.rate is not None and self.rows else None
