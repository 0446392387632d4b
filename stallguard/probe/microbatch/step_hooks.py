"""What every framework's lever shares: the hooks, whether a model's `train_step` is reached, its logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from ..hooks.wrap import before
from ..lookahead import NAME
from . import batch_structure

if TYPE_CHECKING:
    from ..context import Context
    from .announcements import Announcer
    from .compare import Slices

NO_OPTIMIZER = "the model has no optimizer"
REPLICAS = "a distribution strategy hands them out"
COMPILED = "torch.compile traces the step"
OUT_OF_REACH = "its train_step is its own"
NEVER_CALLED = "its train_step never comes to the framework's own"
COMPILED_STEP = "its train_step is a tf.function"
OWN_ITERATOR = "its train_step may draw from %r, which no comparison can put back"
TOO_EARLY = (
    "its step is traced before its first batch is known"  # by a resume: traced anew then, and not said
)
UNSEEN = "its step is called by a loop of the script's own"

Step = Callable[[Any], Any]


class Lever:
    """What a comparison needs of a framework."""

    def train(self, model: Any, arguments: Any, batch: Any) -> Any:
        """Run the step of a model as its train function does, outside of any graph."""
        raise NotImplementedError

    def build(self, model: Any, arguments: Any, batch: Any) -> None:
        """Create what the first step would create, and change nothing else.  JAX and torch have done so."""

    def preserved(self, model: Any) -> Any:
        """Return a context manager that puts all variables back that a step can reach."""
        raise NotImplementedError


def patch(
    context: Context, announcer: Announcer, slices: Slices, trainer: Any, step: Step, lever: Lever
) -> None:
    """Wrap `train_step` of the class `trainer`, and have the first batches of each fit compared."""
    begun: set[int] = set()  # models whose fit has begun, and no train function was asked for since

    def function(original: Any) -> Any:
        def make_train_function(self: Any, *args: Any, **named: Any) -> Any:
            result = original(self, *args, **named)
            anew = id(self) in begun
            begun.discard(id(self))
            try:
                if context.factor > 1:
                    _prepare(announcer, slices, lever, self, anew)
            except Exception as error:
                context.surprise("preparing slices", error)
            # Keras 2 stores what this returns, and calls it: what stands in for the next call must be that.
            return result if result is None else vars(self).get(NAME) or result

        return make_train_function

    if context.wrap(trainer, "train_step", step):
        context.took("train_step")
        context.wrap(trainer, "make_train_function", function)
        context.wrap(trainer, "fit", before(context, lambda model, *_, **__: begun.add(id(model))))


def _prepare(announcer: Announcer, slices: Slices, lever: Lever, model: Any, anew: bool) -> None:
    """Have the first batches of `model` compared, or say why they stay whole."""
    if not reaches(model):
        announcer.unreached(model)
        slices.pass_over(model)
        return
    reason = _obstacle(model)
    if reason:
        slices.stay_whole(model, reason)
    else:
        slices.prepare(model, lever, anew)


def is_own(model: Any) -> bool:
    """Return whether the `train_step` of `model` is the script's, or a library's on top of Keras."""
    return getattr(model.train_step, "__module__", "").partition(".")[0] not in batch_structure.FRAMEWORKS


def reaches(model: Any) -> bool:
    """Return whether the `train_step` of `model` is, or calls, the framework's."""
    code = getattr(model.train_step, "__code__", None)
    return not is_own(model) or "train_step" in getattr(code, "co_names", ())


def _obstacle(model: Any) -> str:
    """Return why the step of `model` must not be begun for a comparison, "" where it may."""
    if hasattr(model.train_step, "get_concrete_function"):  # a graph that was traced before would train
        return COMPILED_STEP
    if not is_own(model):
        return ""
    own = [name for name, value in vars(model).items() if hasattr(value, "__next__")]
    return OWN_ITERATOR % own[0] if own else ""


def fresh_logs(model: Any, logs: Any) -> Any:
    """Return the logs of a slice with the metrics read again: those of the whole batch."""
    if not isinstance(logs, dict):
        return logs
    read = getattr(model, "get_metrics_result", None)
    fresh = read() if read else {metric.name: metric.result() for metric in model.metrics}
    return {name: fresh.get(name, value) for name, value in logs.items()}
