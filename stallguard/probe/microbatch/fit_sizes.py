"""Reports, as each `fit` begins, the rows and the width of its numbers, and whether batches can be made smaller.

The supervisor needs the rows to know how small a batch would become.  A model whose batches cannot be made smaller must
be reported before a stall, not after it.
"""

from __future__ import annotations

from ..hooks import before

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..context import Context


def begin(context: Context) -> FitReporter:
    """Return what the patches of the trainers get."""
    return FitReporter(context)


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
        self._rows = 0
        self._wide = False
        self._feed = ""
        self._unreached: set[type] = set()

    def fit(
        self,
        module: Any,
        model: Any,
        x: Any = None,
        y: Any = None,
        batch_size: Any = None,
        *_: Any,
        **__: Any,
    ) -> None:
        """Report the rows of a fit that begins, and a train_step that cannot be sliced."""
        from . import announcements, batch_structure, fit_arguments

        rows = fit_arguments.rows(x, batch_size) * self.context.divided
        if rows != self._rows and not self.context.announced:  # what the supervisor gave, it knows exactly
            self._rows = rows
            text = (
                "a batch of the script has %d row%s" % (rows, "" if rows == 1 else "s")
                if rows
                else "how many rows a batch has is not known"
            )
            self.context.note("batch", text, rows=rows)
        feed = feed_of(x)
        if feed != self._feed:
            self._feed = feed
            self.context.note("feed", FEEDS[feed], feed=feed)
        wide = getattr(model, "compute_dtype", "") == "float64" or any(
            getattr(layer, "compute_dtype", "") == "float64" for layer in getattr(model, "layers", ())
        )
        if wide != self._wide:
            self._wide = wide
            text = "the model computes in %s" % ("float64" if wide else "float32 or less")
            self.context.note("dtype", text, dtype="float64" if wide else "float32")
        if not self.context.announced and type(model) not in self._unreached:
            self._unreached.add(type(model))
            if not batch_structure.reaches(model):
                self.context.beyond(announcements.UNREACHED.format(model=type(model).__name__))
