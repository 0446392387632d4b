"""What the arguments of `fit` show: the rows of a batch, and what is reported of each fit that begins.

Reads the arguments only, never the data.  The supervisor needs the rows, and the width of the numbers, to know how
small a batch would become.  A model whose batches cannot be made smaller must be reported before a stall, not after it.
"""

from __future__ import annotations

import operator

from ..hooks import before

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..context import Context

DEFAULT = 32  # rows of a batch without an argument, since the first version of Keras


def takes_size(x: Any) -> bool:
    """Return whether Keras divides `x` into batches itself: arrays or tensors, also nested; no dataset or generator."""
    leaves = list(_leaves(x))
    return bool(leaves) and all(getattr(leaf, "shape", None) is not None for leaf in leaves)


def rows(x: Any, batch_size: Any) -> int:
    """Return the rows of a batch, 0 if only the data show them."""
    if takes_size(x):
        return DEFAULT if batch_size is None else _whole(batch_size)
    spec = getattr(x, "element_spec", None)
    if spec is None:
        found = getattr(x, "batch_size", None)
    else:  # the first dimension of a pipeline's first tensor, None if it is not fixed
        shape: Any = getattr(next(_leaves(spec), None), "shape", None)
        dimensions = shape.as_list() if getattr(shape, "rank", None) else []
        found = dimensions[0] if dimensions else None
    return _whole(found)


def _whole(size: Any) -> int:
    """Return a size, also one of numpy; 0 if it is none."""
    try:
        return max(0, operator.index(size))
    except TypeError:
        return 0


def _leaves(x: Any) -> Iterator[Any]:
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, (list, tuple)):
        for part in x:
            yield from _leaves(part)
    else:
        yield x


def patch(reporter: FitReporter, kind: str, module: Any) -> None:
    """Wrap `fit` of the trainer class of this name."""
    context = reporter.context
    fit = before(context, lambda *args, **named: reporter.fit(module, *args, **named))
    context.wrap(getattr(module, kind), "fit", fit)


FEEDS = {
    "generator": "a Python generator feeds the fit",
    "pydataset": "a PyDataset or a Sequence feeds the fit",
    "loader": "a DataLoader of PyTorch feeds the fit",
    "dataset": "a tf.data.Dataset feeds the fit",
    "arrays": "arrays feed the fit",
}


def feed_of(data: Any) -> str:
    """Return what a fit gets its batches from, a key of FEEDS."""
    if hasattr(data, "__next__"):
        return "generator"
    names = {kind.__name__: kind.__module__.partition(".")[0] for kind in type(data).__mro__}
    if names.get("DatasetV2") == "tensorflow":
        return "dataset"
    if names.get("DataLoader") == "torch":
        return "loader"
    return "pydataset" if names.keys() & {"PyDataset", "Sequence"} else "arrays"


class FitReporter:
    """Reports each fact once."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._told: dict[str, object] = {"batch": 0, "dtype": "float32"}
        self._unreached: set[type] = set()

    def fit(
        self, module: Any, model: Any, x: Any = None, y: Any = None, batch_size: Any = None, *_: Any, **__: Any
    ) -> None:
        """Report the rows of a fit that begins, and a train_step that cannot be sliced."""
        from . import announcements, batch_structure

        count = rows(x, batch_size) * self.context.divided
        if not self.context.announced:  # what the supervisor gave, it knows exactly
            text = "a batch of the script has %d row%s" % (count, "" if count == 1 else "s")
            self._note("batch", text if count else "how many rows a batch has is not known", rows=count)
        feed = feed_of(x)
        self._note("feed", FEEDS[feed], feed=feed)
        owners = (model, *getattr(model, "layers", ()))
        wide = any(getattr(one, "compute_dtype", "") == "float64" for one in owners)
        text = "the model computes in %s" % ("float64" if wide else "float32 or less")
        self._note("dtype", text, dtype="float64" if wide else "float32")
        if not self.context.announced and type(model) not in self._unreached:
            self._unreached.add(type(model))
            if not batch_structure.reaches(model):
                self.context.beyond(announcements.UNREACHED.format(model=type(model).__name__))

    def _note(self, kind: str, text: str, **fact: object) -> None:
        (value,) = fact.values()
        if self._told.get(kind) != value:
            self._told[kind] = value
            self.context.note(kind, text, **fact)


begin = FitReporter
