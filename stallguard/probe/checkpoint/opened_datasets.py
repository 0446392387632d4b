"""The order in which tf.data pipelines are opened during a fit, so that a resumed fit opens them in the same order.

A shuffle takes its next seed each time an iterator over it opens: by the fit, by its validation, by a callback that
evaluates.  Pipelines that share a shuffle (split by `take` and `skip`) share its seeds.

A dataset that the script makes is identified by its number in the order of creation, the same at each start.  A dataset
made inside a fit (Keras wraps arrays and validation data) is identified by the script's datasets that it is made of.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..context import Context
    from .fit import Fit

_NUMBER = "_stallguard_number"
MOST = 100_000  # openings of a fit that are kept


class Openings:
    """The datasets of a process by number, and the openings of the fit that `running` returns."""

    def __init__(self, context: Context, running: Callable[[], Fit | None]) -> None:
        self._context = context
        self._running = running
        self._datasets: dict[int, Any] = {}  # weak references
        self._made = 0
        # An entry for each epoch: what was opened before it, apart from the training's own iterators.
        self.others: list[list[int]] = [[]]
        self.silent = False  # openings are being repeated

    def begin(self) -> None:
        """Begin the list of a fit."""
        self.others = [[]]

    def epoch(self) -> None:
        """Begin the list of the next epoch: its iterator has been opened."""
        self.others.append([])

    def patch(self, module: Any) -> None:
        """Wrap how datasets are made and opened; `module`: tensorflow.python.data.ops.dataset_ops."""
        self._context.wrap(module.DatasetV2, "__init__", self._making)
        self._context.wrap(module.DatasetV2, "__iter__", self._opening)

    def _making(self, original: Any) -> Any:
        """Return a wrapper of `__init__` that numbers the datasets made outside of a fit."""

        def __init__(dataset: Any, *args: Any, **named: Any) -> None:  # noqa: N807  a wrapper of one
            original(dataset, *args, **named)
            if self._running() is not None:
                return
            self._made += 1
            try:
                object.__setattr__(dataset, _NUMBER, self._made)
                self._datasets[self._made] = weakref.ref(dataset)
            except (AttributeError, TypeError):
                return  # a class with slots: its openings are not repeated, and the fingerprints show a difference

        return __init__

    def _opening(self, original: Any) -> Any:
        """Return a wrapper of `__iter__` that notes what a fit opens apart from the training's own iterators."""

        def __iter__(dataset: Any) -> Any:  # noqa: N807
            fit = self._running()
            if fit is None or self.silent:
                return original(dataset)
            caller = sys._getframe(2)  # 1 is the frame around each wrapper (own_frames.py)
            if caller.f_locals.get("self") is fit.iterator:
                return original(dataset)
            try:
                numbers = self._origins(dataset)
                if numbers and len(self.others[-1]) < MOST:
                    self.others[-1].extend(numbers)
            except Exception as error:
                self._context.surprise("noting an opening", error)
            return original(dataset)

        return __iter__

    def _origins(self, dataset: Any) -> list[int]:
        """Return the numbers of the script's datasets nearest to the end of a pipeline."""
        number = getattr(dataset, _NUMBER, None)
        if number is not None:
            return [number]
        return [one for stage in dataset._inputs() for one in self._origins(stage)]

    def repeat(self, numbers: list[int]) -> None:
        """Open these datasets again in this order, without drawing from them; a later attempt opens them again too."""
        self.others[-1].extend(numbers)
        self.silent = True
        try:
            for number in numbers:
                dataset = self._datasets.get(number, lambda: None)()
                if dataset is not None:
                    iter(dataset)
        finally:
            self.silent = False
