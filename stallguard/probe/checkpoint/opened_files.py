"""Which tf.data pipelines were opened during a fit, in their order: another process opens them again.

A shuffle takes its next seed whenever an iterator over it opens, whoever opens it: the fit, its validation, a callback
that evaluates.  Pipelines that share a shuffle (a split by `take` and `skip`) share its seeds.  So a resumed fit opens
in the same order what the interrupted one had opened.

The script makes the same datasets in the same order at each start; what is made inside a fit (Keras wraps arrays and
validation data) is known by those of the script's that it is made of.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .fit_session import Session

_NUMBER = "_stallguard_number"
MOST = 100_000  # openings of a fit that are kept


class Openings:
    """The datasets of a process by number, and the openings of the running fit."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._datasets: dict[int, Any] = {}  # weak references
        self._made = 0
        self.others: list[list[int]] = [
            []
        ]  # opened besides the training's own iterators, by the epochs before
        self.silent = False  # openings are being repeated

    def begin(self) -> None:
        """A fit begins."""
        self.others = [[]]

    def epoch(self) -> None:
        """The training's iterator of the next epoch has been opened."""
        self.others.append([])

    def patch(self, module: Any) -> None:
        """Wrap how datasets are made and opened; `module`: tensorflow.python.data.ops.dataset_ops."""
        context = self._session.context

        def made(original: Any) -> Any:
            def __init__(dataset: Any, *args: Any, **named: Any) -> None:  # noqa: N807  a stand-in for one
                original(dataset, *args, **named)
                if self._session.fit is None:
                    self._number(dataset)

            return __init__

        def opened(original: Any) -> Any:
            def __iter__(dataset: Any) -> Any:  # noqa: N807
                fit = self._session.fit
                if (
                    fit is not None
                    and not self.silent
                    and sys._getframe(1).f_locals.get("self") is not fit.iterator
                ):
                    self._session.guarded("noting an opening", lambda: self._note(dataset))
                return original(dataset)

            return __iter__

        context.wrap(module.DatasetV2, "__init__", made)
        context.wrap(module.DatasetV2, "__iter__", opened)

    def _number(self, dataset: Any) -> None:
        self._made += 1
        try:
            object.__setattr__(dataset, _NUMBER, self._made)
            self._datasets[self._made] = weakref.ref(dataset)
        except (AttributeError, TypeError):
            return  # a class with slots: its openings are not repeated, the batches tell

    def _note(self, dataset: Any) -> None:
        numbers = self._origins(dataset)
        if numbers and len(self.others[-1]) < MOST:
            self.others[-1].extend(numbers)

    def _origins(self, dataset: Any) -> list[int]:
        """Return the numbers of the script's datasets nearest to the end of a pipeline."""
        number = getattr(dataset, _NUMBER, None)
        if number is not None:
            return [number]
        return [one for stage in dataset._inputs() for one in self._origins(stage)]

    def repeat(self, numbers: list[int]) -> None:
        """Open these datasets again, in this order, and draw nothing."""
        self.silent = True
        try:
            for number in numbers:
                dataset = self._datasets.get(number, lambda: None)()
                if dataset is not None:
                    iter(dataset)
        finally:
            self.silent = False


def patch_datasets(session: Session, module: Any) -> None:
    """Wrap how datasets are made and opened."""
    session.openings.patch(module)
