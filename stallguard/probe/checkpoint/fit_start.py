"""A call of `fit` by the script, in any version of Keras, and what its result follows from as it starts.

A finished fit is skipped only if all of it is the same again.

Beside the identity (identity.py): the values of the model, of its optimizer and of other models that it uses; the
arguments of `fit`; its data; the code of the script's functions that it can reach, and the numbers and words that these
use.  The first batch of data that only drawing shows is compared as it is passed over (fast_forward.py).

Arrays and files are read in full within a time; of larger ones the shape or size and some values are compared.

Not compared, because it differs at each start of many scripts: text with digits or a path, such as a log folder with
the date in its name.  A number of more than DIGITS digits was computed, perhaps from the clock: if it differs, this is
reported.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
import types
import zlib
from itertools import islice
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from .. import settings
from . import announcements, identity, object_kinds, pipelines, random_state, tensors, variables
from .object_walk import PLAIN, SPEED, Walk

if TYPE_CHECKING:
    from collections.abc import Iterator


class FitCall(NamedTuple):
    """One call of `fit` by the script.  `start(epoch)` trains from that epoch on, `skip()` trains nothing."""

    model: Any
    callbacks: Any
    validation: Any
    first: int
    epochs: int
    site: str
    obstacle: str  # why no checkpoints of it are made, "" if they are
    start: Callable[[int], Any]
    skip: Callable[[], Any]
    arguments: dict[str, Any]  # of the call, with defaults
    checked: Callable[[], None]  # its data are those of its saved state, which is not given up any more


class GivenGenerator:
    """The arguments of a call of fit that can be repeated: until `forget`, a generator gives again what was drawn."""

    def __init__(self) -> None:
        self._source: Any = None
        self._drawn: list[Any] = []
        self._keeping = True

    def arguments(self, named: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with a generator that begins where the script's own was in the first call."""
        if self._source is None and isinstance(named.get("x"), types.GeneratorType):
            self._source = named["x"]
        return named if self._source is None else {**named, "x": self._batches()}

    def _batches(self) -> Iterator[Any]:
        yield from tuple(self._drawn)
        for batch in self._source:
            if self._keeping:
                self._drawn.append(batch)
            yield batch

    @property
    def was_drawn_from(self) -> bool:
        """Return whether an earlier call had the generator."""
        return self._source is not None

    def forget(self) -> None:
        """Keep nothing more of what is drawn."""
        self._keeping = False
        self._drawn = []


SOME = 1024  # values of an array, or bytes at both ends of a file, that are always compared
OBJECTS = 1e6  # Python objects of an array that are read in a second
PIECE = 16 << 20  # bytes of an array or a file that are read at once
DIGITS = 6  # of a number that is written in a script, at most
FEW = 200  # values of a container that are compared
PATHS = 500  # objects with a checksum of their own
PER_FILE, LONGEST = 1e-4, 4096  # seconds, characters of a path
MANY = 20  # files that have one checksum for all
BATCHES = "data.generator<"  # those that Keras draws from a generator as it looks at its types
_DATA = ("x", "y", "sample_weight", "validation_data")
_NO_MATTER = ("epochs", "callbacks", "verbose", "workers", "use_multiprocessing", "max_queue_size")
_OF_BATCH = ("batch_size", "steps_per_epoch", "validation_batch_size", "validation_steps")
_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")  # operations that call the script
_SPEEDS = ("_num_parallel_calls", "_deterministic", "_use_inter_op_parallelism")  # of stages of a pipeline


class Reader:
    """Digests of arrays and files, of all bytes as long as `seconds` last."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds  # a file can be read more slowly than SPEED
        self.whole = True  # everything was read in full
        self.partly = 0  # bytes of what was not

    def array(self, array: Any) -> list[Any]:
        """Return [type, shape, checksum of some values, of all; "" if they are not read]."""
        few = array.size <= SOME
        some = tensors.digest(array if few else array.flat[:: array.size // SOME])[2]
        found = [array.dtype.name, list(array.shape), some, ""]
        if not self._affords(array.nbytes, array.size / OBJECTS if array.dtype.hasobject else 0.0):
            return found
        if few or array.dtype.hasobject or array.flags.c_contiguous:
            found[3] = some if few else tensors.digest(array)[2]
            return found
        check, rows = 0, max(1, PIECE * len(array) // max(1, array.nbytes))
        for start in range(0, len(array), rows):  # without a copy of the whole
            check = zlib.crc32(sys.modules["numpy"].ascontiguousarray(array[start : start + rows]), check)
        found[3] = check
        return found

    def files(self, names: list[Any]) -> list[Any]:
        """Return the digests of those that name files, in order; of MANY one for all.  Raises OSError."""
        found: list[Any] = []
        for name in names:
            path = os.fsdecode(name) if isinstance(name, (str, bytes)) else ""
            if not path or len(path) > LONGEST or not os.path.isfile(path):
                return []  # texts, not names of files
            if not self._affords(0, PER_FILE):
                return [[len(names), "", ""]]
            size, full = os.path.getsize(path), ""
            with open(path, "rb") as file:
                some = zlib.crc32(file.read(SOME))
                file.seek(max(0, size - SOME))
                some = zlib.crc32(file.read(SOME), some)
                if self._affords(size, 0.0):
                    file.seek(0)
                    check = 0
                    for piece in iter(lambda: file.read(PIECE), b""):
                        check = zlib.crc32(piece, check)
                        if time.monotonic() > self._deadline:
                            self.whole, self.partly = False, self.partly + size
                            break
                    else:
                        full = "%08x" % check
            found.append([os.path.basename(path), size, some, full])
        return found if len(found) < MANY else [_together(found)]

    def _affords(self, size: int, more: float) -> bool:
        seconds = size / SPEED + more
        if seconds > self._seconds:
            self.whole, self.partly = False, self.partly + size
            return False
        self._seconds -= seconds
        return True


_FIELDS: dict[str, Any] = {  # of a start, with their types
    "values": dict, "arguments": dict, "sources": dict, "code": dict, "words": dict, "rows": str, "random": str,
    "seconds": (int, float), "whole": bool, "partly": int,
}  # fmt: skip


def of(model: Any, walks: tuple[Walk, Walk], arguments: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return how a fit of `model` starts, before its callbacks begin.

    `walks`: Fit.walk.  `arguments`: of the call, with a list of callbacks.  `seconds`: as for Reader.
    """
    reader, callbacks = Reader(seconds), arguments["callbacks"]
    optimizer = getattr(model, "optimizer", None)
    rate = variables.rate_of(optimizer)
    values: dict[str, Any] = {"model": _values(variables.of_model(model)[variables.MODEL], reader)}
    values["optimizer"] = _values([v for v in variables.of_optimizer(optimizer) if v is not rate], reader)
    mine = {id(layer) for layer in getattr(model, "_flatten_layers", list)()}
    for path, network in [pair for walked in walks for pair in walked.networks]:
        if id(network) not in mine:
            values[path] = _values(list(getattr(network, "variables", ())), reader)
    reader.whole = True  # from here on: of the data
    sources = {name: _data(arguments[name], reader) for name in _DATA if arguments.get(name) is not None}
    given = {name: _plain(arguments[name]) for name in arguments if name not in (*_DATA, *_NO_MATTER)}
    given["callbacks"] = ", ".join(type(one).__name__ for one in callbacks)
    if not variables.built(model):  # its values are drawn in its first batch
        values["drawn"] = [random_state.digest()]
    return {
        "values": values, "arguments": given, "sources": sources,
        "whole": reader.whole and not any(_is_open(one) for one in sources.values()), "partly": reader.partly,
        "code": _code(walks), "words": _words(walks, callbacks),
        "random": random_state.digest(), "rows": str(settings.of(os.environ).rows or ""), "seconds": seconds,
    }  # fmt: skip


def is_known(start: Any) -> bool:
    """Return whether a fact of a checkpoint is from `of`: one of an earlier version is not."""
    if not isinstance(start, dict) or not all(isinstance(start.get(name), _FIELDS[name]) for name in _FIELDS):
        return False
    pairs = start["words"].values()
    return all(isinstance(pair, list) and len(pair) == len(("written", "computed")) for pair in pairs)


def same_values(saved: Any, ours: Any) -> bool:
    """Return whether the model has the same values at both starts."""
    return is_known(saved) and is_known(ours) and not _first_other(saved["values"], ours["values"])


def difference(saved: dict[str, Any], ours: dict[str, Any]) -> str:
    """Return what differs between two starts, as the end of a sentence; "" if nothing does.

    Both are identities whose "start" is from `of`.  A batch of another size that stallguard chose is no difference.
    """
    then: Any = saved.get("start")
    now: Any = ours.get("start")
    if not is_known(then) or not is_known(now):
        return announcements.START_UNKNOWN
    other = _first_other(then["values"], now["values"])
    if other:
        names = {"model": "its model", "optimizer": "its optimizer", "drawn": announcements.DRAWN}
        return announcements.OTHER_VALUES % names.get(other, other)
    if saved["rate"] != ours["rate"]:
        rates = ["none" if one is None else "%.6g" % one for one in (ours["rate"], saved["rate"])]
        return "the learning rate is %s now and was %s" % tuple(rates)
    if saved["schedule"] != ours["schedule"]:
        return "the schedule of the learning rate is another one"
    resized = then["rows"] != now["rows"]
    left_out = _OF_BATCH if resized else ()
    given = [{k: v for k, v in one["arguments"].items() if k not in left_out} for one in (then, now)]
    if given[0] != given[1]:
        return ("the arguments of fit differ: %s" % identity.differing(*given))[:300]
    other = _first_other(then["sources"], now["sources"], resized)
    if other:
        return announcements.OTHER_DATA % other
    of_size = "data." if resized else "no name"  # what its pipeline holds depends on the size of a batch
    written = [
        {name: pair[0] for name, pair in one["words"].items() if not name.startswith(of_size)} for one in (then, now)
    ]
    for theirs, mine, sentence in (
        (then["code"], now["code"], announcements.OTHER_CODE),
        (written[0], written[1], announcements.OTHER_WORDS),
    ):
        others = sorted(name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name))
        if others:
            return sentence % announcements.listed(others)
    return ""


def computed(saved: Any, ours: Any) -> list[str]:
    """Return what holds other computed numbers than at the saved start."""
    if not is_known(saved) or not is_known(ours):
        return []
    return sorted(name for name, value in saved["words"].items() if ours["words"].get(name, value) != value)


def _first_other(saved: dict[str, Any], ours: dict[str, Any], resized: bool = False) -> str:
    others = (name for name in {**saved, **ours} if not _same(saved.get(name), ours.get(name), resized))
    return next(others, "")


def _same(one: Any, other: Any, resized: bool = False) -> bool:
    """Return whether two digests are equal.  A checksum of all that only one of them has is left out."""
    if isinstance(one, dict) and isinstance(other, dict):
        left_out = ("settings",) if resized else ()
        names = [name for name in {**one, **other} if name not in left_out]
        return all(_same(one.get(name), other.get(name), resized) for name in names)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_same(a, b, resized) for a, b in zip(one, other))
    return one == other or "" in (one, other)


# ---- values and data --------------------------------------------------------------------------------------------


def _values(listed: list[Any], reader: Reader) -> list[Any]:
    return _together([reader.array(tensors.value_of(one)) for one in listed])


def _together(found: list[Any]) -> list[Any]:
    """Return one digest of many: their number, a checksum of what is always compared, and of all."""
    some, full = [one[:3] for one in found], [one[3] for one in found]
    everything = "" if "" in full else tensors.digest_of_code("", full)
    return [len(found), tensors.digest_of_code("", some), everything]


def _data(value: Any, reader: Reader) -> Any:
    """Return the digests of what a script passed to `fit` as data; of an object that draws, its arrays and files."""
    if isinstance(value, dict):
        return {str(key): _data(item, reader) for key, item in value.items()}
    if hasattr(value, "_functions"):
        return {"kind": "tf.data", "stages": [_stage(one, reader) for one in pipelines.stages(value)]}
    arrays = _arrays(value)
    if arrays is not None:
        return [reader.array(one) for one in arrays]
    if isinstance(value, (list, tuple)):
        return [_data(item, reader) for item in value]
    inner = getattr(value, "dataset", None)  # of torch's DataLoader
    held = [*getattr(inner, "__dict__", {}).values(), *getattr(value, "__dict__", {}).values()]
    flat = [part for one in held for part in (one if isinstance(one, tuple) else (one,))]
    found = [array for one in flat for array in _arrays(one) or ()]
    return {"kind": type(value).__name__, "arrays": [_array(one, reader) for one in found]}


def _array(array: Any, reader: Reader) -> list[Any]:
    files = reader.files(array.reshape(-1).tolist()) if array.dtype.kind in "OSU" else []
    return files or reader.array(array)


def _arrays(value: Any) -> list[Any] | None:
    """Return a value as arrays of numpy, None if it is none: a tensor, a table, a list of numbers or texts."""
    numpy = sys.modules["numpy"]
    if isinstance(value, numpy.ndarray):
        return [value]
    if object_kinds.is_tensor(value) or object_kinds.is_variable(value):
        kind = str(getattr(value, "dtype", ""))
        return None if "variant" in kind or "resource" in kind else [tensors.value_of(value)]
    if hasattr(value, "row_splits") and hasattr(value, "flat_values"):
        return [tensors.value_of(one) for one in (value.flat_values, *value.nested_row_splits)]
    if hasattr(value, "dense_shape") and hasattr(value, "indices"):
        return [tensors.value_of(value.indices), tensors.value_of(value.values)]
    if hasattr(value, "tocsr"):
        sparse = value.tocsr()
        return [sparse.data, sparse.indices, sparse.indptr]
    if hasattr(value, "columns") and hasattr(value, "to_numpy"):
        return [numpy.asarray(value[name]) for name in value.columns]
    if hasattr(value, "to_numpy"):
        return [numpy.asarray(value)]
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (int, float, str, bytes)):
        return [numpy.asarray(value)]
    return None


def _stage(stage: Any, reader: Reader) -> dict[str, Any]:
    """Return the digests of what a stage of a tf.data pipeline holds.  "open": only drawing shows what it yields."""
    name, settings, arrays = pipelines.name_of(stage), [], []
    for key, value in sorted(vars(stage).items()):
        held = value if isinstance(value, (list, tuple)) else [value]
        if key == "_filenames" and hasattr(value, "_functions"):
            held = [item for one in pipelines.stages(value) for item in getattr(one, "_tensors", ())]
        for array in [one for item in held if object_kinds.is_tensor(item) for one in _arrays(item) or ()]:
            if array.size == 1 and not array.dtype.hasobject and not key.endswith("tensors"):
                setting = array.reshape(-1)[0].item()
                if key not in _SPEEDS and name not in ("Prefetch", "Cache"):
                    text = setting.decode("utf-8", "replace") if isinstance(setting, bytes) else setting
                    settings.append([key, text])
            else:
                arrays.append(_array(array, reader))
    is_source = not stage._inputs() and not arrays and name not in ("Range", "Random")
    is_open = is_source or pipelines.calls(stage, _PYTHON)
    return {"name": name, "settings": settings, "arrays": arrays, "open": is_open}


def _is_open(found: Any) -> bool:
    """Return whether only drawing shows the data of a digest: a generator, an object of the script."""
    if isinstance(found, list):
        return any(map(_is_open, found))
    if not isinstance(found, dict):
        return False
    if "kind" not in found:
        return any(map(_is_open, found.values()))
    return found["kind"] != "tf.data" or any(one["open"] for one in found["stages"])


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        parts = ("%s: %s" % (_plain(key), _plain(item)) for key, item in value.items())
        return "{%s}" % ", ".join(sorted(parts))
    if hasattr(value, "item") and getattr(value, "size", 0) == 1:
        value = value.item()
    plain = value is None or isinstance(value, (bool, int, float, str))
    return str(value) if plain else type(value).__name__


# ---- the script's code, and what it uses -------------------------------------------------------------------------


def _code(walks: tuple[Walk, Walk]) -> dict[str, int]:
    found: dict[str, int] = {}
    for walked in walks:
        for value in walked.objects.values():
            function = getattr(value, "python_function", value)
            if not isinstance(function, types.FunctionType):
                continue
            code, name = function.__code__, function.__qualname__.replace("<locals>.", "")
            if object_kinds.is_users(code.co_filename):
                text = _text_of(code).encode("utf-8", "replace")
                found[name] = zlib.crc32(text, found.get(name, 0))
    return found


def _text_of(code: types.CodeType) -> str:
    """Return what a function does, without its place in the file."""
    return repr((code.co_code, code.co_names, [*map(_constant, code.co_consts)]))


def _constant(value: Any) -> str:
    if isinstance(value, types.CodeType):
        return _text_of(value)
    if isinstance(value, frozenset):
        return repr(sorted(map(repr, value)))
    return repr(tuple(map(_constant, value))) if isinstance(value, tuple) else repr(value)


def _words(walks: tuple[Walk, Walk], callbacks: list[Any]) -> dict[str, list[int]]:
    """Return checksums of the numbers and words that the script's objects hold, by object: of written, of computed."""
    texts: dict[str, list[list[str]]] = {}

    def add(name: str, value: Any) -> None:
        if len(texts) >= PATHS and name not in texts:
            name = "further objects"
        written, calculated = texts.setdefault(name, [[], []])
        _sort(value, written, calculated, FEW)

    of_library = []
    for index, callback in enumerate(callbacks):
        if object_kinds.is_librarys(type(callback)):  # its other attributes are its own counters
            of_library.append("callbacks[%d]" % index)
            for name in inspect.signature(type(callback).__init__).parameters:
                if name in vars(callback) and name not in _NO_MATTER:
                    add("%s.%s" % (type(callback).__name__, name), vars(callback)[name])
    for walked in walks:
        for path, slot in walked.slots.items():
            matters = not path.startswith((*of_library, BATCHES)) and not path.endswith(_NO_MATTER)
            if slot.kind == PLAIN and matters:
                add(path, slot.value)
    return {
        name: [zlib.crc32("\n".join(one).encode("utf-8", "replace")) for one in found]
        for name, found in texts.items()
        if any(found)
    }


def _sort(value: Any, written: list[str], calculated: list[str], most: int) -> None:
    """Add the text of each number and word in a value to the written or the computed ones, `most` together."""
    if isinstance(value, dict):
        value = [part for pair in islice(value.items(), most) for part in pair]
    if hasattr(value, "tolist") and hasattr(value, "flat"):
        value = value.flat[:most].tolist()
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=repr) if len(value) < most else []
    if isinstance(value, (list, tuple)):
        for item in value[:most]:
            if len(written) + len(calculated) < most:
                _sort(item, written, calculated, most)
    elif isinstance(value, float):
        text = repr(value)
        (written if float("%.*g" % (DIGITS, value)) == value or text == "nan" else calculated).append(text)
    elif isinstance(value, int):  # True, too
        (written if abs(value) < 10**DIGITS else calculated).append(repr(value))
    elif isinstance(value, str) and not any(one.isdigit() or one in "/\\" for one in value):
        written.append(repr(value))
