"""What a resumed fit cannot repeat: random draws inside a kernel, and orders that change while threads read them.

A random op of TensorFlow without a seed draws from entropy; one with a seed keeps its place in the kernel, which
ends with the process.  In a pipeline the first makes other batches after a resume; in a Keras 2 layer both make
other dropout masks.  Said when training begins, not after the stall.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import seeds, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .fit import Fit
    from .session import Session

RANDOM_OPS = frozenset((
    "RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal", "RandomShuffle",
    "RandomGamma", "RandomPoissonV2", "Multinomial", "ParameterizedTruncatedNormal",
    "SampleDistortedBoundingBoxV2",
))  # fmt: skip


def examine(session: Session, fit: Fit) -> None:
    """Say what in this fit a resume cannot repeat."""
    adapter = getattr(fit.iterator, "data_adapter", None) or getattr(fit.iterator, "_adapter", None)
    # Arrays are shuffled by Keras, in an order that is ours where the script seeds nothing.
    dataset = None if "Array" in type(adapter).__name__ else getattr(adapter, "_dataset", None)
    found = sorted({name for stage in _stages(dataset) for name in _unseeded(stage)})
    if found and not seeds.globally_seeded():
        session.context.beyond(words.UNSTABLE % ", ".join(found))
    if getattr(adapter, "enqueuer", None) is not None and _reorders(adapter):
        session.context.beyond(words.WORKERS)
    if any(_draws_in_kernels(layer) for layer in getattr(fit.model, "_flatten_layers", list)()):
        session.context.beyond(words.MASKS)


def _stages(dataset: Any) -> Iterator[Any]:
    """Yield a tf.data pipeline's datasets, from the last to its sources."""
    waiting = [dataset] if hasattr(dataset, "_functions") else []
    while waiting:
        stage = waiting.pop()
        yield stage
        waiting.extend(stage._inputs())


def _unseeded(stage: Any) -> Iterator[str]:
    for function in stage._functions():
        graph = function.function.graph.as_graph_def()
        nodes = [*graph.node, *(node for inner in graph.library.function for node in inner.node_def)]
        for node in nodes:
            if node.op in RANDOM_OPS and not (node.attr["seed"].i or node.attr["seed2"].i):
                yield node.op


def _reorders(adapter: Any) -> bool:
    """Whether a PyDataset is shuffled by Keras, or changes at the end of an epoch by itself."""
    own = getattr(type(adapter.py_dataset), "on_epoch_end", None)
    return bool(adapter.shuffle) or not getattr(own, "__module__", "").startswith("keras.")


def _draws_in_kernels(layer: Any) -> bool:
    """Whether a layer of Keras 2 draws its randomness from an op's own state."""
    generator = getattr(layer, "_random_generator", None)
    return getattr(generator, "_rng_type", "") == "legacy_stateful"
