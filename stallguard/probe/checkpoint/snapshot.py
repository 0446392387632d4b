"""Takes the content of a generation at one instant: every variable, the changed objects, the fit's position."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..lookahead import train_function
from . import announcements, encoding, object_state, pipelines, random_state, tensors, variables
from .fit import CALLBACKS, callbacks_of, history_of
from .object_walk import VARIABLE
from .saved_generation import FORMAT

if TYPE_CHECKING:
    from .fit import Fit
    from .object_walk import Walk

PRINTS = 12  # fingerprints that are kept with a generation, the newest


class FitSnapshot:
    """What is written: facts, and buffers that do not change while training goes on."""

    def __init__(
        self,
        facts: dict[str, Any],
        blobs: list[Any],
        between_epochs: bool,
        largest: tuple[str, int],
        weights: list[Any],
        others: list[Any],
    ) -> None:
        """`weights`: arrays of what is trained; `others`: of the model's and the optimizer's other variables."""
        self.facts, self.blobs, self.between_epochs = facts, blobs, between_epochs
        self.largest = largest  # the object of the script that changed and is largest, and its bytes
        self.size = sum(len(blob) for blob in blobs)
        self._weights, self._others = weights, others

    def is_finite(self) -> bool:
        """Return whether the model can be trained on from these values.  A mask that is not trained can be infinite."""
        return all(map(tensors.is_finite, self._weights)) and all(
            tensors.is_finite(one, infinite=True) for one in self._others
        )


def take(
    fit: Fit, most: int, others: list[list[int]], history: Any = None, seconds: float = math.inf
) -> FitSnapshot:
    """Return the content of a generation of this moment.

    `most`: bytes at most of the callbacks' own data.  `others`: Openings.others.  `history`: of a finished fit.
    `seconds`: as for Fit.walk.  Raises what the frameworks raise; the caller handles that.
    """
    variables.synchronise(fit.model)
    list(fit.model.variables)  # Keras 2 raises if the model is still not built: without them nothing is saved
    finished, between_epochs = history is not None, not fit.executions
    data, state = fit.walk(seconds)
    groups = fit.groups(state, metrics=not between_epochs)
    arrays = [value for group in groups.values() for value in variables.values(group)]
    trained = {id(one) for one in getattr(fit.model, "trainable_variables", ())}
    mine = [*zip([*groups[variables.MODEL], *groups[variables.OPTIMIZER]], arrays)]
    weights = [array for variable, array in mine if id(variable) in trained]
    others_of_model = [array for variable, array in mine if id(variable) not in trained]
    entries, unkept = _entries(fit, state, finished, arrays, most)
    for name in _lost(fit, state, data, groups):
        unkept[name] = "a variable that no attribute holds"
    if not state.complete:
        unkept[announcements.TOO_MANY] = "too many to look at"
    # If the next epoch opens an iterator, nothing has been drawn ahead: the present state is that of its opening.
    opens = between_epochs and (finished or not fit.continues())
    state_of_data = fit.data_at_end if finished else fit.data_state
    kept, values = state_of_data(data) if opens else fit.data_opened
    kept = object_state.moved(kept, len(arrays))
    arrays += values
    since, values = ([], []) if opens else fit.data_since_opening(data)
    since = object_state.moved(since, len(arrays))
    arrays += values
    random = {
        "open": encoding.encode(fit.opened, arrays),
        "now": encoding.encode(random_state.capture(), arrays),
        "first": encoding.encode(fit.first_opened, arrays),
    }
    facts: dict[str, Any] = {
        "format": FORMAT, "identity": fit.identified(), "epoch": fit.epoch, "executions": fit.executions,
        "batches": fit.executions * fit.per_execution,
        "drawn": fit.drawn, "opened_after": len(fit.ends) if opens else fit.opened_after,
        "batch": fit.batch(), "ends": fit.ends, "epochs": fit.epochs,
        "length": getattr(fit.iterator, "_num_batches", getattr(fit.iterator, "_inferred_steps", None)),
        "finished": finished, "stop": between_epochs and bool(getattr(fit.model, "stop_training", False)),
        "groups": [[name, len(group)] for name, group in groups.items()], "entries": entries,
        "unkept": unkept, "draws": _draws(fit), "data": kept, "data_now": since, "random": random, "others": others,
        "first": fit.first_batch,
        "prints": dict(list(fit.prints.items())[-PRINTS:]),
        "logs": None if between_epochs else _logs(fit.logs, arrays),
        "history": encoding.encode(history_of(history), arrays),
        "files": fit.files.keep(state, callbacks_of(fit.callbacks)),
        "stays": fit.files.changed(), "named": fit.named,
        "uses": fit.seeds.uses() if fit.seeds is not None else {},
    }  # fmt: skip
    facts["tensors"], blobs = tensors.pack(arrays)
    path = max(state.sizes, key=lambda one: state.sizes[one], default="")
    largest = (path + object_state.made_by(state, path), state.sizes[path]) if path else ("", 0)
    return FitSnapshot(facts, blobs, between_epochs, largest, weights, others_of_model)


def _lost(fit: Fit, state: Walk, data: Walk, groups: variables.Groups) -> list[str]:
    """Return the names of the training function's variables that nothing else leads to, so that no group has them."""
    known = {
        *state.paths,
        *data.paths,
        *variables.identities([v for group in groups.values() for v in group]),
    }
    known |= variables.identities([*variables.metrics(fit.model), *random_state.variables()])
    at_once = getattr(fit.model, "_steps_per_execution", None)
    if hasattr(at_once, "read_value"):  # in Keras 2 a variable, which `compile` sets
        known |= variables.identities([at_once])
    slots = (*state.slots.values(), *data.slots.values())
    known |= variables.identities([slot.value for slot in slots if slot.kind == VARIABLE])
    return variables.lost(train_function(fit.model), known)


def _logs(logs: Any, arrays: list[Any]) -> Any:
    """Return the code of what the step of the last batch returned, None if it is not numbers and texts by name.

    It can have been the epoch's last batch: these are the epoch's results then, if the step has results of its own.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(part) for name, part in value.items()}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        array = tensors.value_of(value)
        return array if array.shape else array.item()

    try:
        return encoding.encode(plain(logs), arrays) if isinstance(logs, dict) else None
    except Exception:  # ragged or sparse, for instance; a resume that needs it says that it is not there
        return None


def _draws(fit: Fit) -> list[str]:
    """Return the operations of the training step that draw from a state that cannot be saved; cached."""
    if fit.draws is None and pipelines.draws_masks(fit.model):
        fit.draws = []  # reported already
    elif fit.draws is None:
        fit.draws = variables.random_operations(train_function(fit.model), pipelines.RANDOM_OPS)
    return fit.draws or []


def _entries(
    fit: Fit, state: Walk, finished: bool, arrays: list[Any], most: int
) -> tuple[list[Any], dict[str, str]]:
    baseline = fit.baseline
    if baseline is None:
        return [], {}
    changed = baseline.changed(state)
    entries, unkept = object_state.keep(state, changed, arrays, most, baseline)
    if finished:  # its callbacks will not begin again: what their begin set is kept too
        others = [
            path
            for path in state.slots
            if (path.startswith(CALLBACKS) or path in fit.set_at_begin) and path not in changed
        ]
        entries += object_state.keep(state, others, arrays, most)[0]
    return entries + object_state.lost(state, baseline.walked, baseline.gone(state)), unkept
