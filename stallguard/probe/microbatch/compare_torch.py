"""Trains a few rows of a batch on torch, as a whole and in slices, for a comparison, and restores all state."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Optional, Protocol

from . import batch_structure, compare, random_draws_torch, set_aside
from .deferred_update import holding
from .equality import StepOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .deferred_update import HeldUpdate
    from .random_draws import Draws

    class Step(Protocol):
        """What the rows need of keras_torch.Step: the framework's own step, and its slices."""

        module: Any
        model: Any
        original: Any

        def summed(self, held: HeldUpdate, data: Any, cuts: Any, batch: int) -> tuple[Any, Any]:
            """Return (logs, sums) of all slices."""


WEIGHTS = (1.0, 0.5, 1.5, 0.75, 1.25)  # of the rows: all different


class Framework(compare.Framework):
    """What a comparison needs from Keras on torch."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def train(self, model: Any, arguments: Any, batch: Any) -> Any:
        """Run the step, with numpy arrays converted to tensors on the model's device."""
        convert = self.module.backend.convert_to_tensor
        given = self.module.tree.map_structure(lambda leaf: None if leaf is None else convert(leaf), batch)
        return model.train_step(given)

    @contextmanager
    def preserved(self, model: Any) -> Iterator[Any]:
        """Restore all variables, and the gradients that torch keeps."""
        before = values(model, weights=True)
        slopes = [(parameter, parameter.grad) for parameter in model.parameters()]
        try:
            yield before
        finally:
            put_back(self.module.torch, before)
            for parameter, slope in slopes:
                parameter.grad = slope


def rows(leaf: Any) -> Optional[int]:
    """Return the rows of a leaf, None for a single number."""
    shape: Any = getattr(leaf, "shape", ())
    return int(shape[0]) if len(shape) else None


class Rows:
    """What compare.SliceComparison does with rows of a batch: it selects, changes and trains them in one step."""

    most = 5  # rows

    def __init__(self, step: Step) -> None:
        self.step = step
        self.model = step.model
        self.torch = step.module.torch
        self.uneven = False
        self._names: list[str] = []

    def kind(self, data: Any) -> str:
        """Return the kind of a batch: structure, types, and shapes without the number of rows."""
        found = [(name, rows(leaf), leaf) for name, leaf in batch_structure.leaves(data)]
        first = next((count for _, count, _ in found if count is not None), 0)
        return repr(
            [
                (
                    name,
                    str(getattr(leaf, "dtype", "")),
                    tuple(leaf.shape[1:]) if count is not None else "",
                    count == first,
                )
                for name, count, leaf in found
            ]
        )

    def rows(self, leaf: Any) -> Optional[int]:
        """Return the rows of a leaf, None for a single number."""
        return rows(leaf)

    def some(self, data: Any, count: int) -> Any:
        """Return `count` rows of the batch, spread over it."""
        every = rows(batch_structure.leaves(data)[0][1]) or 0
        places = [place * (every - 1) // (count - 1) for place in range(count)]
        return self._mapped(lambda leaf: leaf[places], data)

    def _mapped(self, change: Any, data: Any) -> Any:
        return self.step.module.tree.map_structure(lambda leaf: None if leaf is None else change(leaf), data)

    def blanked(self, data: Any) -> Any:
        """Return the rows with zero as the last one's target, and a different weight for each."""
        if not isinstance(data, tuple) or len(data) < 2:  # noqa: PLR2004
            return data
        torch = self.torch

        def weigh(leaf: Any) -> Any:
            if not leaf.is_floating_point():
                return leaf
            weights = torch.tensor(WEIGHTS[: leaf.shape[0]], dtype=leaf.dtype, device=leaf.device)
            return leaf * weights.reshape([-1] + [1] * (leaf.ndim - 1))

        targets = self._mapped(lambda leaf: torch.cat([leaf[:-1], torch.zeros_like(leaf[-1:])]), data[1])
        return (data[0], targets, *(self._mapped(weigh, part) for part in data[2:]))

    def cuts(self, count: int) -> tuple[int, int, int]:
        """Return how `count` rows are sliced: one row first, which exposes a wrong squeeze; see slice_plan.plan."""
        return (1, 2, count // 2) if count % 2 else (1, count - 1, 1)

    @contextmanager
    def neutral(self, draws: Draws) -> Iterator[None]:
        """Fix random draws and batch statistics during the body."""
        with ExitStack() as stack:
            stack.enter_context(random_draws_torch.alike(self.torch, draws))
            stack.enter_context(set_aside.running_statistics(self.model))
            yield

    def outcome(self, data: Any, cuts: Any, scaled: bool) -> StepOutcome:
        """Train the rows as a whole (`cuts`: None) or in slices, restore all variables, and return the outcome."""
        with Framework(self.step.module).preserved(self.model) as before:
            with set_aside.outputs_kept(self.model) as outputs:
                loss, losses, gradients, logs = self._trained(data, cuts, scaled)
            passed = {variable.path for variable in self.model.metrics_variables}
            state = {
                path: _plain(tensor).copy()
                for path, tensor, value in before
                if path not in passed and "seed_generator" not in path and not self.torch.equal(tensor, value)
            }
        calls = [self.step.module.tree.flatten(output) for output in outputs]
        joined: list[Any] = []
        if calls and all(getattr(leaf, "ndim", 0) for leaf in calls[0]):
            joined = [_plain(self.torch.cat(parts)) for parts in zip(*calls)]
        return StepOutcome(loss, losses, gradients, joined, logs, state)

    def _trained(self, data: Any, cuts: Any, scaled: bool) -> Any:
        with holding(self.model, "apply_gradients", "apply") as held:
            held.scales = scaled
            held.weigh = lambda loss: loss
            if cuts is None:
                logs = self.step.original(self.model, data)
                gradients, loss = held.gradients or [], held.loss
            else:
                logs, sums = self.step.summed(held, data, cuts, cuts[0] + cuts[1] * cuts[2])
                gradients, loss = sums.mean(), sums.loss / sums.share
                logs = batch_structure.fresh_logs(self.model, logs)
        self.uneven |= held.uneven
        self._names = [variable.path for variable in held.variables]
        numbers = {name: _number(value) for name, value in logs.items()} if isinstance(logs, dict) else {}
        losses = [_number(one) for one in held.losses]
        return (
            _number(loss) if losses else None,
            losses,
            [None if g is None else _plain(g) for g in gradients],
            numbers,
        )

    def names(self) -> list[str]:
        """Return the paths of the variables of the last gradients."""
        return self._names


def values(model: Any, weights: bool) -> list[tuple[str, Any, Any]]:
    """Return (path, tensor, copy) of all variables that a step can change; `weights`: with the trained ones."""
    found = [*model.non_trainable_variables, *model.metrics_variables]
    found += model.trainable_variables if weights else []
    tensors = {variable.path: variable.value.detach() for variable in found}
    return [(path, tensor, tensor.clone()) for path, tensor in tensors.items()]


def put_back(torch: Any, before: list[tuple[str, Any, Any]]) -> None:
    """Set the variables to the copies that `values` returned."""
    with torch.no_grad():
        for _, tensor, value in before:
            tensor.copy_(value)


def _plain(tensor: Any) -> Any:
    tensor = tensor.detach().cpu()
    return (tensor.float() if "16" in str(tensor.dtype) else tensor).numpy()


def _number(value: Any) -> float:
    return float(value.detach().float().mean()) if hasattr(value, "detach") else float(value)
