"""A step of Hugging Face's Trainer or of Lightning that lacked memory is trained again in slices, in the same process.

Python raises the lack of memory while gradients are computed: the optimizer has not updated yet.  The frames of the
error and the caches of torch are emptied, what the step changed is put back, and the same batch is trained in 2, 4 and
8 slices, until it fits.  Weights are then those of a step that had so many slices from its start (shares.py).

So nothing that counts can be left over from the first run:

- gradients: only the first micro-batch of an update is trained again, which began without any; a copy needs memory;
- random numbers: the state of the device's generator is read before such a step, unless the first step drew none.  On
  the CPU (5 kB, 6 microseconds) before the first step only, unless the process may have only so much memory: else the
  system gives what a later step asks for, or ends the process, and nothing is raised;
- logged values of Lightning: references are kept, since it replaces them; its counters are numbers;
- all else, with other generators and buffers: side_effects.py looks for it after the error, and then nothing is done.

Otherwise, and after any other error, the error goes its way, and a restart in slices follows.  Without an error a step
costs 3 microseconds in Trainer and 4 in Lightning, besides reading that state (Python 3.11, PyTorch 2.13).
"""

from __future__ import annotations

import sys
from time import monotonic_ns

from ..patches import remove, removes_its_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from ..context import Context
    from ..patches import Function
    from .compare import Slices
    from .slices_lightning import LightningSlices
    from .slices_trainer import TrainerSlices

CURED = "out of memory in step %d: trained in %d slices inside the process, caches emptied; %s"
NOT_CURED = "out of memory in step %d: not trained again inside the process, because %s"
SUMMED = "gradients of the same update were there before"
COUNTED = "a metric has counted the batch already"
SHORT = "memory is too short for two of its rows"
TOO_MANY = "%d slices did not fit either"
TOO_SMALL = "one of %d slices would have fewer rows than %d"


class Retries:
    """What Trainer and Lightning have in common; a subclass follows the steps of one of them."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.of: Callable[[], Any] = lambda: None  # the trainer, or loop, whose steps are followed
        self.generator = ""  # the name of that of the device, as random_state has it; "": its state is not read
        self.read: Optional[Callable[[], Any]] = None
        self.write: Callable[[Any], None] = lambda _: None
        self.is_new = False  # the first step shows whether it draws random numbers
        self.is_first = False  # no gradients were there before this step
        self.state: Any = None  # of the generator, before this step

    def follow(self, trainer: Any, device: Any) -> None:
        """Follow the steps of another trainer, on a device of torch."""
        from weakref import ref

        torch: Any = sys.modules["torch"]
        self.of, self.is_new = ref(trainer), True
        self.generator = "torch" if device.type == "cpu" else "torch." + device.type
        library: Any = getattr(torch, device.type, None)
        if device.type == "mps":
            self.read, self.write = library.get_rng_state, library.set_rng_state
        elif device.type in ("cpu", "cuda", "xpu"):
            one = torch.default_generator
            if device.type != "cpu":
                one = library.default_generators[library.current_device() if device.index is None else device.index]
            self.read, self.write = one.get_state, one.set_state
        else:
            self.generator, self.read, self.state = "", None, None

    def first_ends(self) -> None:
        """Read the generator no more if the first step drew nothing from it, or later ones hardly lack memory."""
        self.is_new = False
        rarely = self.generator == "torch" and not is_memory_limited()
        if self.read is not None and (rarely or sys.modules["torch"].equal(self.state, self.read())):
            self.generator, self.read, self.state = "", None, None

    def again(self, error: Exception, failed: Callable[[], FailedStep]) -> Optional[tuple[Any]]:
        """Return what a step comes to that is trained again, as a tuple; None if the error has to go its way."""
        from .compare import described, is_lack_of_memory

        context, before = self.context, self.context.inside
        if not is_lack_of_memory(error):
            return None
        step = failed()
        reason, found = step.obstacle(), None
        try:
            with context.phase("first run"):
                while not reason and found is None:
                    error, reason, found = self._in_more(error, step, context.inside == before)
        except Exception as other:
            reason = SHORT if is_lack_of_memory(other) else described(other)
        if found is None:
            context.inside = before
            context.set("slices", context.slices)
            context.say("memory", NOT_CURED % (step.number, reason))
        return found

    def _in_more(self, error: Exception, step: FailedStep, looks: bool) -> tuple[Exception, str, Optional[tuple[Any]]]:
        """Train a step in twice as many slices; return the last error, why no more can be tried, and the result.

        `looks`: at what the step changes, since it was not tried yet.
        """
        from .compare import is_lack_of_memory
        from .shares import COUNT, StaysWhole

        context, shares = self.context, step.slices.shares
        slices, least = context.slices * 2, max(1, context.settings.policy_min_batch)
        if slices > context.settings.inside:
            reason = TOO_MANY % context.slices
        elif step.rows() // slices < least:
            reason = TOO_SMALL % (slices, least)
        else:
            reason = self._put_back(error, step)
        if not reason and looks:
            with context.own_work():
                reason = step.side_effects(self.generator) or self._put_back(error, step)
        if reason:
            return error, reason, None
        context.inside = slices
        shares.retries = True
        try:
            found = step.run()
        except StaysWhole as whole:
            return error, str(whole), None
        except Exception as other:
            if not is_lack_of_memory(other):
                raise
            return other, "", None
        finally:
            shares.retries = False
        said = shares.said.replace(COUNT, str(slices))
        context.say("micro", CURED % (step.number, slices, said), model=type(step.model).__name__, factor=slices)
        return error, "", (found,)

    def _put_back(self, error: BaseException, step: FailedStep) -> str:
        """Have all as it was before a step; return why that cannot be."""
        import gc
        import traceback

        from .shares import empty_caches

        failed: Optional[BaseException] = error
        while failed is not None:
            traceback.clear_frames(failed.__traceback__)  # they hold the tensors of the batch
            failed = failed.__context__
        if self.state is not None:
            self.write(self.state)
        reason = step.put_back()
        gc.collect()
        empty_caches()
        return reason


def is_memory_limited() -> bool:
    """Return whether the system refuses this process memory from some size on, so that Python raises an error."""
    import resource

    limits = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    return any(resource.getrlimit(one)[0] != resource.RLIM_INFINITY for one in limits)


class FailedStep:
    """A step that lacked memory.  `number`: of the update; `slices`: what trains its batch in slices."""

    def __init__(self, slices: Any, model: Any, data: Any, number: int) -> None:
        self.slices, self.model, self.data, self.number = slices, model, data, number

    def rows(self) -> int:
        """Return the rows of its batch."""
        from .shares import leaves_of, rows_of

        return rows_of(list(leaves_of(self.data)))[0]

    def obstacle(self) -> str:
        """Return why it cannot be trained again, as far as that is known before anything is touched; "" if it can."""
        raise NotImplementedError

    def side_effects(self, restored: str) -> str:
        """Return what it would change twice, "" if nothing was seen.  `restored`: a generator that is put back."""
        raise NotImplementedError

    def put_back(self) -> str:
        """Have all but the generator as it was before; return why that cannot be."""
        raise NotImplementedError

    def run(self) -> Any:
        """Train it in the slices that the context asks for."""
        raise NotImplementedError


class TrainerRetries(Retries):
    """The wrapper of Trainer."""

    def __init__(self, context: Context, slices: Optional[TrainerSlices]) -> None:
        super().__init__(context)
        self.slices = slices
        self.sliced: Any = None  # the step in slices
        self.step = -1  # updates before this one
        self.last: Callable[[], Any] = lambda: None  # the last parameter that is trained: the first with a gradient

    def training_step(self, original: Function) -> Function:
        """Return the wrapper for Trainer.training_step, which computes the gradients of a micro-batch.

        While batches are whole it also takes their losses, in the place of the wrapper that is `original` then: a
        second one costs three microseconds in each step.
        """
        run = original if self.slices is None else self.slices.training_step(original)
        losses = self.context.trainer_losses
        if self.slices is not None or losses is None or losses.wrapper is not original:
            losses = None
        else:
            run = original.__wrapped__

        def training_step(trainer: Any, model: Any, inputs: Any, *args: Any, **named: Any) -> Any:
            nonlocal run, losses
            try:
                step = trainer.state.global_step
                self.is_first = step != self.step or self.of() is not trainer
                if self.is_first:
                    if self.of() is not trainer:
                        self.begins(trainer, model)
                    self.step, self.is_first = step, self.last().grad is None
                    if self.read is not None:
                        self.state = self.read()
            except Exception as error:
                self.is_first = False
                self.context.surprise("the beginning of a step of Trainer", error)
            try:
                result = run(trainer, model, inputs, *args, **named)
            except BaseException as error:
                if losses is not None:
                    losses.forget()
                found, call = None, (trainer, model, inputs, args, named)
                try:
                    if isinstance(error, Exception):
                        found = self.again(error, lambda: FailedOfTrainer(self, original, call))
                except Exception as other:
                    self.context.surprise("a step of Trainer after an error", other)
                if found is None:
                    remove(error)
                    raise
                run, losses = self.sliced, None
                return found[0]
            if losses is not None and (losses.count or monotonic_ns() >= losses.due):
                losses.take(result)
            if self.is_new:
                self.first_ends()
            return result

        return removes_its_own(training_step)

    def begins(self, trainer: Any, model: Any) -> None:
        """Follow the steps of another trainer."""
        from weakref import ref

        trained = [one for one in model.parameters() if one.requires_grad]
        self.last = ref(trained[-1])
        self.follow(trainer, trained[-1].device)


class FailedOfTrainer(FailedStep):
    """A step of Trainer that lacked memory."""

    def __init__(self, retries: TrainerRetries, original: Function, call: tuple[Any, ...]) -> None:
        from . import compare
        from .slices_trainer import TrainerSlices

        self.call, self.original, self.is_first = call, original, retries.is_first
        trainer, model, inputs, _, _ = call
        slices = retries.slices = retries.slices or TrainerSlices(compare.begin(retries.context))
        super().__init__(slices, model, inputs, trainer.state.global_step + 1)
        self.sliced = retries.sliced = slices.training_step(original)

    def obstacle(self) -> str:
        """Return why it cannot be trained again."""
        from .slices_trainer import obstacle

        return obstacle(*self.call[:3]) if self.is_first else SUMMED

    def side_effects(self, restored: str) -> str:
        """Return what it would change twice."""
        from . import side_effects

        trainer, model, inputs, args, named = self.call
        objects = [trainer, *(one for one in model.modules() if hasattr(one, "_update_count"))]

        def step(rows: Any) -> None:
            self.original(trainer, model, rows, *args, **named)

        return side_effects.seen(objects, model, inputs, step, restored)

    def put_back(self) -> str:
        """Drop the gradients."""
        for one in self.model.parameters():
            one.grad = None
        return ""

    def run(self) -> Any:
        """Train it in slices."""
        trainer, model, inputs, args, named = self.call
        return self.sliced(trainer, model, inputs, *args, **named)


class LightningRetries(Retries):
    """The wrapper of Lightning's closures.  `module`: loops.optimization.automatic, in which they are."""

    def __init__(self, context: Context, module: Any, slices: Optional[LightningSlices]) -> None:
        super().__init__(context)
        self.module, self.slices = module, slices
        self.results: Any = {}  # what `self.log` has logged, by name
        self.metrics: list[Any] = []  # of torchmetrics, in the model
        # Before this step: of results their values, and the rows that these are sums over; of metrics their counts; and
        # how often gradients were zeroed.
        self.values: list[Any] = []
        self.sizes: list[Any] = []
        self.counts: list[int] = []
        self.zeroed = 0

    def call(self, original: Function) -> Function:
        """Return the wrapper for Closure.__call__, which computes the gradients of a micro-batch."""

        def called(closure: Any, *args: Any, **named: Any) -> Any:
            try:
                self.is_first = closure._zero_grad_fn is not None and closure._backward_fn is not None
                if self.is_first:
                    loop = closure._step_fn.func.__self__
                    if self.of() is not loop:
                        self.begins(loop)
                    self.zeroed = loop.optim_progress.optimizer.zero_grad.total.ready
                    if self.results:
                        found = self.results.values()
                        self.values = [one.value for one in found]
                        self.sizes = [one.__dict__.get("cumulated_batch_size") for one in found]
                    if self.metrics:
                        self.counts = [one._update_count for one in self.metrics]
                    if self.read is not None:
                        self.state = self.read()
            except Exception as error:
                self.is_first = False
                self.context.surprise("the beginning of a step of Lightning", error)
            try:
                result = original(closure, *args, **named)
            except BaseException as error:
                cured = None
                try:
                    if isinstance(error, Exception):
                        cured = self.again(error, lambda: FailedOfLightning(self, closure))
                except Exception as other:
                    self.context.surprise("a step of Lightning after an error", other)
                if cured is None:
                    remove(error)
                    raise
                closure._result = cured[0]
                return cured[0].loss
            if self.is_new:
                self.first_ends()
            return result

        return removes_its_own(called)

    def begins(self, loop: Any) -> None:
        """Follow the steps of another loop."""
        model = loop.trainer.lightning_module
        self.results = loop.trainer.fit_loop.epoch_loop._results
        self.metrics = [one for one in model.modules() if hasattr(one, "_update_count")]
        self.values, self.sizes, self.counts = [], [], []
        self.follow(loop, model.device)


class FailedOfLightning(FailedStep):
    """A step of Lightning that lacked memory."""

    def __init__(self, retries: LightningRetries, closure: Any) -> None:
        from . import compare
        from .slices_lightning import patch

        self.retries, self.closure = retries, closure
        self.loop, self.arguments = closure._step_fn.func.__self__, closure._step_fn.args[0]
        if retries.slices is None:
            retries.slices = patch(compare.begin(retries.context), retries.module)  # for the steps that follow, too
        trainer = self.loop.trainer
        super().__init__(retries.slices, trainer.lightning_module, self.arguments.get("batch"), trainer.global_step + 1)

    def obstacle(self) -> str:
        """Return why it cannot be trained again."""
        from .slices_lightning import EACH, obstacle, own_hook

        if not self.retries.is_first:
            return SUMMED
        hook = own_hook(self.loop.trainer, self.model, ("on_before_zero_grad",))
        return EACH % hook if hook else obstacle(self.loop.trainer, self.model, self.arguments)

    def side_effects(self, restored: str) -> str:
        """Return what it would change twice."""
        from . import side_effects

        def step(rows: Any) -> None:
            self.slices.of_rows(self.loop, self.arguments, self.closure, rows)

        return side_effects.seen([], self.model, self.data, step, restored)

    def put_back(self) -> str:
        """Have the logged values and the counter as they were; gradients are zeroed by the closure itself."""
        before, results = self.retries, self.retries.results
        for name in list(results)[len(before.values) :]:  # logged for the first time
            del results[name]
        for one, value, size in zip(results.values(), before.values, before.sizes):
            one.value, one._computed = value, None
            if size is not None:
                one.cumulated_batch_size = size
        results.batch, results.batch_size = self.data, None
        progress = self.loop.optim_progress.optimizer.zero_grad
        more = progress.total.ready - before.zeroed
        for count in (progress.total, progress.current):
            count.ready, count.started, count.completed = (
                count.ready - more,
                count.started - more,
                count.completed - more,
            )
        return COUNTED if [one._update_count for one in before.metrics] != before.counts else ""

    def run(self) -> Any:
        """Train it in slices."""
        return self.slices.in_slices(self.loop, self.arguments, self.closure, self.closure.closure)


def patch_trainer(context: Context, module: Any, slices: Optional[TrainerSlices] = None) -> None:
    """Have Trainer train a step again that lacked memory; `module`: transformers.trainer."""
    context.wrap(module.Trainer, "training_step", TrainerRetries(context, slices).training_step)


def slice_trainer(slices: Slices, module: Any) -> None:
    """Have Trainer train in slices from the start, and in more of them if it lacks memory."""
    from .slices_trainer import begin

    patch_trainer(slices.context, module, begin(slices, module))


def slice_lightning(slices: Slices, module: Any) -> None:
    """Have Lightning train in slices from the start, and in more of them if it lacks memory."""
    from .slices_lightning import patch

    patch_lightning(slices.context, module, patch(slices, module))


def patch_lightning(context: Context, module: Any, slices: Optional[LightningSlices] = None) -> None:
    """Have Lightning train a step again that lacked memory; `module`: loops.optimization.automatic."""
    context.wrap(module.Closure, "__call__", LightningRetries(context, module, slices).call)
