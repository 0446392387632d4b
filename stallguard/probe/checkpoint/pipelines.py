"""The stages of an input pipeline, and which of them another process can repeat.

A tf.data pipeline is a chain of stages.  For most of them opening an iterator is enough to advance their state by an
epoch: a shuffle takes its next seed when it opens.  Others must be drawn from: a cache fills, a repetition opens its
shuffle again and again.  The state of the script's own functions (a random generator that a map function uses, an order
that a dataset object changes) is found by the walk (object_walk.py).

A random op of TensorFlow without a seed draws from entropy, which cannot be repeated.  A layer of Keras 2 draws its
dropout masks from kernels whose state is lost with the process.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..frameworks import tensorflow
from . import announcements, object_kinds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .object_walk import Slot, Walk

RANDOM_OPS = frozenset((
    "RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal", "RandomShuffle",
    "RandomGamma", "RandomPoissonV2", "Multinomial", "ParameterizedTruncatedNormal",
    "SampleDistortedBoundingBoxV2",
))  # fmt: skip
# Operations that have state for TensorFlow, but none that an attempt must restore, or one that the walk finds.
_KEPT = (
    "Random", "Rng", "Stateful", "Dummy", "Assign", "Resource", "ReadVariable", "Var", "PyFunc", "EagerPyFunc", "Print",
    "Assert", "If", "While", "Case", "LookupTableFind", "LookupTableSize", "HashTable", "Multinomial", "Truncated",
    "Parameterized", "SampleDistorted", "OneShot",
)  # fmt: skip
# Stages whose state at an epoch's beginning depends only on how often their iterators were opened.
_OPENED = frozenset((
    "TensorSlice", "Tensor", "Range", "SparseTensorSlice", "Batch", "ParallelBatch", "PaddedBatch", "Map",
    "ParallelMap", "Prefetch", "Shuffle", "Take", "Skip", "Shard", "Zip", "Filter", "Options", "Unbatch",
    "TextLine", "TFRecord", "FixedLengthRecord", "DatasetV1Adapter", "Repeat", "Concatenate", "FlatMap",
    "Interleave", "ParallelInterleave", "DenseToRagged", "Rebatch", "IgnoreErrors", "ParallelFilter",
    "FilterByCardinality", "Variant", "Restructured", "AssertCardinality", "TakeWhile", "MaxIntraOpParallelism",
    "PrivateThreadPool", "Model", "Numpy", "Window",
))  # fmt: skip
# Stages that open their inputs while batches are drawn from them.
_AGAIN = ("Repeat", "Concatenate", "FlatMap", "Interleave", "ParallelInterleave")
_SHUFFLES = (
    "ShuffleDataset", "ShuffleDatasetV2", "ShuffleDatasetV3", "ShuffleAndRepeatDataset", "RandomDataset",
)  # fmt: skip


def adapter_of(iterator: Any) -> Any:
    """Return the adapter that makes batches of the script's data, in an epoch iterator of Keras 3 or 2."""
    return getattr(iterator, "data_adapter", None) or getattr(iterator, "_adapter", None)


def dataset_of(iterator: Any) -> Any:
    """Return the tf.data pipeline from which a fit takes its batches, None if there is none."""
    for owner in (iterator, adapter_of(iterator)):
        for name in ("_distributed_dataset", "_dataset"):
            found = getattr(owner, name, None)
            if hasattr(found, "_functions"):
                return found
    return None


def draws_ahead(iterator: Any) -> bool:
    """Return whether a pipeline draws from the script's generators before the training needs the batch."""
    return dataset_of(iterator) is not None or getattr(adapter_of(iterator), "enqueuer", None) is not None


def object_of(iterator: Any) -> Any:
    """Return the script's own dataset object in an epoch iterator; its order is state."""
    adapter = adapter_of(iterator)
    found = getattr(adapter, "py_dataset", None) or getattr(adapter, "_keras_sequence", None)
    return found if found is not None else getattr(adapter, "_dataloader", None)


def next_source(iterator: Any, source: Any) -> Any:
    """Return the iterator from which the next epoch draws, None if it opens one.  `source`: that of this epoch."""
    if hasattr(iterator, "_current_iterator"):  # Keras 3
        return iterator._current_iterator if iterator.steps_per_epoch is not None else None
    return None if adapter_of(iterator).should_recreate_iterator() else source


def makes_batches_of(iterator: Any, slot: Slot) -> bool:
    """Return whether batches can depend on a slot: not on what a dataset object names at an epoch's end alone."""
    found = object_of(iterator)
    if found is None or slot.holder is not found:
        return True
    used: set[str] = set()
    for kind in type(found).__mro__:
        for name, item in vars(kind).items():
            if name not in ("__init__", "on_epoch_begin", "on_epoch_end") and hasattr(item, "__code__"):
                used |= object_kinds.names_in(item.__code__)
    return slot.key in used


def stages(dataset: Any) -> Iterator[Any]:
    """Yield a tf.data pipeline's datasets, from the last to its sources."""
    waiting = [dataset] if hasattr(dataset, "_functions") else []
    while waiting:
        stage = waiting.pop()
        yield stage
        waiting.extend(stage._inputs())


def spec_of_iterator(dataset: Any) -> Any:
    """Return the specification of a pipeline's iterator, with which a training step is traced."""
    return sys.modules["tensorflow"].data.IteratorSpec(dataset.element_spec)


def name_of(stage: Any) -> str:
    """Return the kind of a stage: "Shuffle", "ParallelMap" ..."""
    name = type(stage).__name__.lstrip("_")
    for ending in ("V2", "V1", "Dataset"):
        name = name[: -len(ending)] if name.endswith(ending) and name != ending else name
    return name


def structure(iterator: Any) -> dict[str, Any]:
    """Return what distinguishes a fit's data: type of adapter, stages, specification of an element without its rows."""
    dataset = dataset_of(iterator)
    spec = getattr(dataset, "element_spec", None)
    return {
        "adapter": type(adapter_of(iterator)).__name__,
        "stages": [name_of(stage) for stage in stages(dataset)],
        "element": _spec(spec) if spec is not None else "",
    }


def _spec(spec: Any) -> Any:
    if isinstance(spec, dict):
        return {str(key): _spec(item) for key, item in spec.items()}
    if isinstance(spec, (list, tuple)):
        return [_spec(item) for item in spec]
    shape: Any = getattr(spec, "shape", None)
    dimensions = shape.as_list()[1:] if getattr(shape, "rank", None) else []
    return [type(spec).__name__, getattr(getattr(spec, "dtype", None), "name", ""), dimensions]


def enter(iterator: Any, walked: Walk) -> None:
    """Walk the state of the script's functions and objects in an epoch iterator."""
    enter_stages(dataset_of(iterator), walked, "data")
    found = object_of(iterator)
    parts = ("dataset", "sampler", "batch_sampler", "generator")
    for part in (found, *(getattr(found, name, None) for name in parts)):
        if part is not None and not isinstance(part, str):
            walked.enter(part, "data." + type(part).__name__)
    generator = getattr(adapter_of(iterator), "generator", None)
    if generator is not None:
        walked.enter(generator, "data.generator")


def enter_validation(data: Any, walked: Walk) -> None:
    """Walk the state of the functions and objects of a script's validation data; arrays have none."""
    if hasattr(data, "_functions"):
        enter_stages(data, walked, "validation")
    elif data is not None and not isinstance(data, (tuple, list, dict)):
        walked.enter(data, "validation")


def enter_stages(dataset: Any, walked: Walk, name: str) -> None:
    """Walk the state of the functions of a tf.data pipeline."""
    for place, stage in enumerate(stages(dataset)):
        for index, wrapper in enumerate(_functions(stage)):
            path = "%s.%s%d.%d" % (name, name_of(stage), place, index)
            function = getattr(wrapper, "_func", None)
            if function is not None:
                walked.enter(function, path)
            graph = getattr(getattr(wrapper, "function", None), "graph", None)
            used = sorted(getattr(graph, "variables", ()), key=lambda one: str(getattr(one, "name", "")))
            for number, variable in enumerate(used):
                walked.enter_variable(variable, "%s.variable%d" % (path, number))


def _functions(stage: Any) -> list[Any]:
    try:
        return list(stage._functions())
    except Exception:
        return []  # a stage of a distribution strategy


def must_be_drawn(iterator: Any, readable: bool) -> str:
    """Return why earlier epochs must be drawn again, "" if opening the pipeline is enough.

    `readable`: the whole state of the script's own functions can be read and restored.
    """
    if not readable:
        return "its source is an iterator"
    found = list(stages(dataset_of(iterator)))
    kinds = [name_of(stage) for stage in found]
    caches = (getattr(stage, "_filename", None) for kind, stage in zip(kinds, found) if kind == "Cache")
    if any(file is None or not file.numpy() for file in caches):  # one in a file outlives the process
        return "it has a cache"
    for place, kind in enumerate(kinds):
        if kind not in _OPENED and kind != "Cache":
            return "it has a stage of the kind %s" % kind
        if kind in _AGAIN and (
            "Shuffle" in kinds[place + 1 :]
            or any(node.op in _SHUFFLES for wrapper in _functions(found[place]) for node in _nodes(wrapper))
        ):
            return "%s opens a shuffle while it is drawn from" % kind
    return ""


def of_arrays(iterator: Any) -> bool:
    """Return whether Keras itself makes the batches, from arrays."""
    return any(name in type(adapter_of(iterator)).__name__ for name in ("Array", "TensorLike"))


def _nodes(wrapper: Any) -> Iterator[Any]:
    graph = wrapper.function.graph.as_graph_def()
    yield from graph.node
    for inner in graph.library.function:
        yield from inner.node_def


def calls(stage: Any, operations: tuple[str, ...]) -> bool:
    """Return whether a function of a stage has one of these operations."""
    return any(node.op in operations for wrapper in _functions(stage) for node in _nodes(wrapper))


def source(iterator: Any, drawn: bool, kept: bool) -> str:
    """Return where a batch that differs comes from, as the end of a sentence; "" if unknown.

    Why it differs is seen only if random numbers have no seed: in the pipeline (`drawn`), in each attempt (not `kept`).
    """
    kinds = [name_of(stage) for stage in stages(dataset_of(iterator))]
    found = object_of(iterator)
    if drawn:
        return "; the pipeline draws random numbers without a seed"
    if not kept:
        return "; what the script does not seed is drawn anew in each attempt (checkpoint.keep_randomness = false)"
    if of_arrays(iterator):
        return "; it is of the script's arrays"
    if found is not None:
        return "; the dataset object %s made it" % type(found).__name__
    return "; a generator of the script made it" if "FlatMap" in kinds and "Tensor" in kinds else ""


def limits(iterator: Any, model: Any, shared: list[str]) -> list[str]:
    """Return sentences on what a resume cannot restore of the data.  `shared`: what pipeline and training draw from."""
    adapter, unseeded, kept = adapter_of(iterator), set(), set()
    # Arrays are shuffled by Keras, in an order that keras_hooks.py seeds if the script does not.
    dataset = None if of_arrays(iterator) else dataset_of(iterator)
    registry = sys.modules.get("tensorflow.python.framework.op_def_registry")
    for stage in stages(dataset):
        for wrapper in _functions(stage):
            for node in _nodes(wrapper):
                known = registry.get(node.op) if registry is not None else None
                if node.op in RANDOM_OPS:
                    unseeded |= set() if node.attr["seed"].i or node.attr["seed2"].i else {node.op}
                elif known is not None and known.is_stateful and "Dataset" not in node.op:
                    kept |= set() if node.op.startswith(_KEPT) else {node.op}
    sentences = []
    if unseeded and not tensorflow.globally_seeded():
        sentences.append(announcements.UNSTABLE % ", ".join(sorted(unseeded)))
    if kept:
        sentences.append(announcements.KEPT_BY_PIPELINE % ", ".join(sorted(kept)))
    if any(name_of(stage).startswith("DataService") for stage in stages(dataset)):
        sentences.append(announcements.SERVICE)
    if dataset is not None and _is_unordered(dataset):
        sentences.append(announcements.UNORDERED)
    if shared:
        sentences.append(announcements.SHARED % announcements.listed(shared))
    if getattr(adapter, "enqueuer", None) is not None:
        # A PyDataset whose order differs in each epoch: Keras shuffles it, or it changes at the end of an epoch itself.
        at_end = getattr(type(adapter.py_dataset), "on_epoch_end", None)
        if adapter.shuffle or not getattr(at_end, "__module__", "").startswith("keras."):
            sentences.append(announcements.WORKERS)
    if draws_masks(model):
        sentences.append(announcements.MASKS)
    return sentences


def _is_unordered(dataset: Any) -> bool:
    """Return whether the script asks for elements in the order in which threads happen to make them."""
    asked = any(getattr(stage, "_deterministic", "") == "false" for stage in stages(dataset))
    return asked or dataset.options().deterministic is False


def draws_masks(model: Any) -> bool:
    """Return whether a model has layers of Keras 2 that draw from an op's own state."""
    layers: list[Any] = getattr(model, "_flatten_layers", list)()
    generators = [getattr(one, "_random_generator", None) for one in layers]
    return any(getattr(one, "_rng_type", "") == "legacy_stateful" for one in generators)
