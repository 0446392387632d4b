"""The slots of a walk that changed since training began, as JSON and arrays; and their restoring.

Only what changed is state.  What did not change is configuration, which the next start of the script sets itself (for
example a log folder with the date in its name).  So a baseline is taken as training begins, and a save keeps the slots
that differ from it:

    [path, path of the holder, way, key, record]     record: {"k": kind, ...}, "new": it replaced another object

Restoring first checks that every slot exists in this process, and changes nothing if one is missing.  Existing objects
are changed in place, because others refer to the same ones; objects that were created in training (a list of variables
made in the first batch) are created again, also where another object was.
"""

from __future__ import annotations

import math
import os
import sys
import types
from collections import deque
from typing import Any

from .. import libraries
from ..frameworks import tensorflow
from . import announcements, encoding, names, object_kinds, object_walk, pickled, tensors
from .object_walk import ALIAS, PLAIN, STRUCTURE, TENSOR, VARIABLE, WHOLE, Slot, Walk

Entry = list[Any]
GONE = "gone"
_WALKED = (list, dict, deque)
_CONTAINERS = (list, dict, set, deque, bytearray)


class NoPlace(Exception):
    """A kept slot does not exist in this process; the text names it."""


class ObjectBaseline:
    """The digests of a walk's slots.  It refers to their values, so that no id is used twice."""

    def __init__(self, walked: Walk) -> None:
        self.digests = {path: (slot.kind, slot.digest) for path, slot in walked.slots.items()}
        self.named = dict(walked.unkept)
        self.walked = walked  # refers to the slots' values

    def changed(self, walked: Walk) -> list[str]:
        """Return the paths of the slots that are new or changed, in the order of the walk."""
        slots = walked.slots.items()
        return [path for path, slot in slots if self.has_changed(slot) or self.is_other(slot, walked)]

    def has_changed(self, slot: Slot) -> bool:
        """Return whether a slot has another value, be it in the same object or in another one."""
        return self.digests.get(slot.path) != (slot.kind, slot.digest)

    def is_other(self, slot: Slot, walked: Walk) -> bool:
        """Return whether another container or object was in a slot, one that can be made again or has to be named.

        Not one that is named already, such as a new progress bar for each epoch, nor a file or a lock.
        """
        before = self.walked.slots.get(slot.path)
        if before is None or before.value is slot.value or slot.way == object_walk.CONTENT:
            return False
        is_container = type(slot.value) in _CONTAINERS or object_kinds.is_array(slot.value)
        is_shown = slot.path in walked.shown or is_container or tensorflow.is_constant_table(slot.value)
        if slot.kind == STRUCTURE and not is_shown:
            return False
        is_tensor = slot.kind == TENSOR and type(slot.value).__name__ == "Tensor"  # torch's can be changed
        return is_tensor or slot.kind in (ALIAS, STRUCTURE, WHOLE) or (slot.kind == PLAIN and is_container)

    def set_since(self, walked: Walk) -> list[str]:
        """Return the same as `changed` without what this walk did not read, if it still is the same object."""
        unread, before = self.walked.unread, self.walked.slots
        return [
            path
            for path in self.changed(walked)
            if path not in unread or before[path].value is not walked.slots[path].value
        ]

    def gone(self, walked: Walk) -> list[str]:
        """Return the paths of attributes that were removed from objects that exist; not of those that moved."""
        before = self.walked.slots
        lost = [before[path] for path in self.digests if path not in walked.slots]
        lost = [slot for slot in lost if slot.way == object_walk.ATTRIBUTE and _holder(slot, walked)]
        return [slot.path for slot in lost if not _is_there(slot.holder, slot.key)]


def _is_there(holder: Any, name: str) -> bool:
    in_slots = any(name in object_kinds.slots_of(kind) for kind in type(holder).__mro__)
    return name in getattr(holder, "__dict__", ()) or (in_slots and hasattr(holder, name))


def _holder(slot: Slot, walked: Walk) -> str:
    return walked.paths.get(id(slot.holder), "")


def keep(
    walked: Walk, paths: list[str], arrays: list[Any], most: float = math.inf, baseline: ObjectBaseline | None = None
) -> tuple[list[Entry], dict[str, str]]:
    """Return (entries of the slots at `paths`, {path: why} of those that cannot be kept).

    Adds their arrays to `arrays`, of plain values copies, `most` bytes together.  `baseline`: shows other objects.
    """
    entries: list[Entry] = []
    unkept: dict[str, str] = {}
    for path in paths:
        slot, first = walked.slots[path], len(arrays)
        # Not written: it would be in memory twice before its size is known.
        if slot.kind == WHOLE and slot.digest and slot.digest[0] > most:
            unkept[path] = "%d MB" % (slot.digest[0] >> 20)
            continue
        is_new = baseline is not None and baseline.is_other(slot, walked)
        record = _record(slot, walked, arrays, is_new)
        size = sum(array.nbytes for array in arrays[first:])
        owner = _holder(slot, walked) if slot.way == object_walk.ENTRY else path
        walked.sizes[owner] = walked.sizes.get(owner, 0) + size
        if record is not None and record["k"] == PLAIN and size <= most:  # what is too large is not copied
            arrays[first:] = [array.copy() for array in arrays[first:]]
        if record is None and _is_made_by_keras(slot, walked):
            continue
        if record is None:
            unkept[path] = type(slot.value).__name__
        elif size > most:
            del arrays[first:]
            unkept[path] = "%d MB" % (size >> 20)
        else:
            most -= size
            entries.append(_entry(slot, walked, record))
            if record["k"] == PLAIN and encoding.refused(record["v"]):  # only an undo can bring it back
                unkept[path] = type(slot.value).__name__
    return entries, unkept


def _is_made_by_keras(slot: Slot, walked: Walk) -> bool:
    """Return whether Keras' callback makes a slot's object anew as it begins, as the writers of TensorBoard."""
    is_in_container = type(slot.holder) in (dict, list)
    around = walked.slots.get(_holder(slot, walked), slot) if is_in_container else slot
    is_of_callback = object_kinds.family(around.holder) == "Callback"
    is_librarys = object_kinds.is_librarys(type(slot.value))
    return is_librarys and is_of_callback and around.key in object_kinds.named_by_library(type(around.holder))


def made_by(walked: Walk, path: str) -> str:
    """Return of which class of the script the object at `path` is an attribute, " of Keeps (train.py:4)"; else ""."""
    slot = walked.slots.get(path)
    kind = type(slot.holder) if slot is not None and slot.way == object_walk.ATTRIBUTE else None
    if kind is None or object_kinds.is_librarys(kind):
        return ""
    codes = [one.__code__ for one in vars(kind).values() if isinstance(one, types.FunctionType)]
    at = min(((code.co_filename, code.co_firstlineno) for code in codes), default=None)
    return " of %s" % kind.__name__ + (" (%s:%d)" % (os.path.basename(at[0]), at[1]) if at else "")


def lost(walked: Walk, before: Walk, gone: list[str]) -> list[Entry]:
    """Return the entries that remove the attributes at `gone`, which an earlier walk had."""
    return [_entry(before.slots[path], walked, {"k": GONE}) for path in gone]


def _entry(slot: Slot, walked: Walk, record: dict[str, Any]) -> Entry:
    keys: list[Any] = []
    try:
        key = encoding.encode(slot.key, keys)
    except encoding.NotPlain:
        key = None
    holder = _holder(slot, walked)
    if not holder and slot.way == object_walk.ENTRY and isinstance(slot.holder, dict):
        holder = "module %s" % slot.holder.get("__name__")
    return [slot.path, holder, slot.way, None if keys else key, record]


def _record(slot: Slot, walked: Walk, arrays: list[Any], is_new: bool) -> Any:
    if slot.kind == ALIAS:
        return {"k": ALIAS, "to": slot.digest}
    if slot.kind == WHOLE and slot.path not in walked.unkept:
        try:
            data = pickled.dump(slot.value)
        except pickled.NoPickle:
            return None
        arrays.append(sys.modules["numpy"].frombuffer(data, "uint8"))
        code = {"#": "array", "at": len(arrays) - 1}
        return {"k": WHOLE, "v": code, "signed": pickled.signature(data), "new": is_new}
    if slot.kind in (VARIABLE, TENSOR):
        root, value = type(slot.value).__module__.partition(".")[0], tensors.value_of(slot.value, keep=True)
        code = encoding.encode(value, arrays)  # texts are objects of numpy's
        trains = bool(getattr(slot.value, "trainable", False))
        is_new = is_new and slot.kind == TENSOR
        return {"k": slot.kind, "v": code, "of": root, "trains": trains, "new": is_new}
    if slot.kind == PLAIN:
        return {"k": PLAIN, "v": encoding.encode(slot.value, arrays), "new": is_new}
    if slot.kind == STRUCTURE and slot.path not in walked.unkept:
        kind = object_kinds.TRACKED.get(type(slot.value).__name__, type(slot.value))
        record: dict[str, Any] = {"k": STRUCTURE, "of": _name(kind), "new": is_new}
        if isinstance(slot.value, (list, tuple, deque)):
            record["entries"] = len(slot.value)
            record["most"] = getattr(slot.value, "maxlen", None)
        elif isinstance(slot.value, dict):
            try:
                record["keys"] = [encoding.encode(key, []) for key in slot.value]
            except encoding.NotPlain:
                return None
        is_shown = slot.path in walked.shown and _can_be_copied(slot.value)
        return record if _can_be_new(record) or (is_new and is_shown) else None
    return None


def _name(kind: type) -> str:
    return "%s:%s" % (kind.__module__, kind.__qualname__)


class Restoration:
    """Restores entries in this process."""

    def __init__(self, entries: list[Entry], arrays: list[Any], walked: Walk, *, own: bool = False) -> None:
        """`own`: this process made the entries; those of a checkpoint can be another user's."""
        self._entries, self._own = entries, own
        self._allowed = _anything if own else names.can_be_kept
        self._arrays = arrays
        self._walked = walked
        self._objects = dict(walked.objects)
        self._replaced: list[tuple[Slot, Any]] = []
        self._made: set[str] = set()  # paths of objects that are others than in the walk
        self._aliases: dict[str, list[Slot]] = {}  # of what the entries change, but not changed themselves
        self._changed = changed = {path for path, *_ in entries}
        for path, slot in walked.slots.items():
            if slot.kind == ALIAS and path not in changed and slot.way != object_walk.CONTENT:
                self._aliases.setdefault(slot.digest, []).append(slot)

    def check(self) -> None:
        """Raise NoPlace if an entry cannot be restored here."""
        for why in self.lacking().values():
            raise NoPlace(why)

    def lacking(self) -> dict[str, str]:
        """Return {path: why, which names it} of the entries that cannot be restored here."""
        made = {path for path, _, _, _, record in self._entries if record["k"] == STRUCTURE}
        found = {entry[0]: self._lack(entry, made) for entry in self._entries}
        return {path: why for path, why in found.items() if why}

    def _lack(self, entry: Entry, made: set[str]) -> str:
        path, holder, way, _, record = entry
        slot = self._walked.slots.get(path)
        refused = "" if self._own else encoding.refused(record.get("v"))
        if refused:
            return "%s: a checkpoint must not contain %s" % (path, refused)
        if slot is None:
            has_holder = holder in self._objects or holder in made or _space(holder) is not None
            if way not in (object_walk.ATTRIBUTE, object_walk.ENTRY) or not has_holder:
                return str(path)
        if record["k"] == WHOLE:
            try:
                self._pickle_of(path, record)
            except NoPlace as error:
                return str(error)
        if record["k"] == VARIABLE and slot is not None and slot.kind == VARIABLE:
            array = self._array(record)
            if tuple(slot.value.shape) != array.shape:
                return "%s: its shape was %s" % (path, list(array.shape))
        fits = slot is not None and _fits(slot.value, record)
        if record["k"] == STRUCTURE and not fits and not _can_be_new(record):
            return "%s: %s" % (path, record["of"])
        return ""

    def undo(self, arrays: list[Any]) -> list[Entry]:
        """Return the entries that restore what `apply` changes."""
        paths = [path for path, *_ in self._entries if path in self._walked.slots]
        entries, _ = keep(self._walked, paths, arrays)
        others = [entry for entry in self._entries if entry[0] not in self._walked.slots]
        return entries + [[*entry[:4], {"k": GONE}] for entry in others]

    def apply(self) -> None:
        """Restore the entries; raise NoPlace, after all others, if a class refuses what it had."""
        refused = ""
        for path, holder, way, key, record in self._entries:
            slot = self._walked.slots.get(path)
            if slot is None:
                owner: Any = self._objects.get(holder, _space(holder))
                if owner is None:
                    continue
                slot = Slot(path, owner, encoding.decode(key, [], allowed=self._allowed), way, None)
            elif holder in self._made and slot.way in (object_walk.ATTRIBUTE, object_walk.ENTRY):
                slot = Slot(path, self._objects[holder], slot.key, slot.way, slot.value)
            try:
                self._restore(slot, record, holder)
            except Exception as error:  # code of the script's classes runs here
                refused = refused or "%s: it refuses its value with %r" % (path, error)
        if refused:
            raise NoPlace(refused)

    def _put(self, slot: Slot, value: Any, before: Any, holder: str) -> None:
        """Put a value where `before` was; in a tuple by another tuple in its place.  `holder`: the path of that."""
        if not (slot.way == object_walk.ENTRY and isinstance(slot.holder, tuple)):
            slot.put(value)
            self._replaced.append((slot, before))
            return
        items, outer = list(self._objects.get(holder, slot.holder)), self._walked.slots.get(holder)
        if outer is None or outer.way == object_walk.CONTENT:
            raise encoding.NotPlain("it cannot be replaced there")
        items[slot.key] = value
        self._objects[holder] = made = tuple.__new__(type(slot.holder), items)
        self._made.add(holder)
        self._put(outer, made, outer.value, _holder(outer, self._walked))

    def _restore(self, slot: Slot, record: dict[str, Any], holder: str) -> None:
        kind, existing = record["k"], slot.value
        if kind == GONE:
            if slot.way == object_walk.ATTRIBUTE and isinstance(slot.holder, type):
                delattr(slot.holder, slot.key)
            elif slot.way == object_walk.ATTRIBUTE and hasattr(slot.holder, "__dict__"):
                vars(slot.holder).pop(slot.key, None)
            elif slot.way == object_walk.ENTRY and isinstance(slot.holder, dict):
                slot.holder.pop(slot.key, None)
            return
        if kind == PLAIN:
            held = None if record.get("new") else existing
            value = encoding.decode(record["v"], self._arrays, held, self._allowed)
        elif kind == WHOLE:
            made = pickled.load(self._pickle_of(slot.path, record))
            value = made if record.get("new") else pickled.restored(existing, made)
        elif kind == ALIAS:
            value = self._objects.get(record["to"], existing)
        elif kind == STRUCTURE:
            if not _fits(existing, record) and not _can_be_new(record):
                return
            value = self._structure(existing, record, slot.path)
        elif kind == VARIABLE and object_kinds.is_variable(existing):
            existing.assign(self._array(record))
            value = existing
        else:
            value = _tensor(record, self._array(record), existing)
        self._objects[slot.path] = value
        if value is not existing and slot.way == object_walk.CONTENT and existing is not None:
            raise encoding.NotPlain("it cannot be replaced there")
        if value is not existing:
            self._made.add(slot.path)
            others = [] if record.get("new") else self._aliases.get(slot.path, [])
            self._put(slot, value, existing, holder)
            for one in others:
                self._put(one, value, existing, _holder(one, self._walked))

    def _structure(self, existing: Any, record: dict[str, Any], path: str) -> Any:
        """Return a container of the right length or with the right keys, or an object without attributes."""
        wanted: Any = names.resolved(record["of"])
        value = existing
        if not _fits(existing, record):
            value = deque(maxlen=record["most"]) if wanted is deque else wanted.__new__(wanted)
        elif record.get("new") and _can_be_copied(existing):
            value = _copied(existing)  # another place can refer to the one that exists
        if "entries" in record and isinstance(value, (list, deque)):
            # Not by a slice: TensorFlow's lists compare what they get then, and tensors have no truth value.
            while len(value) > record["entries"]:
                value.pop()
            while len(value) < record["entries"]:
                value.append(None)
        elif "keys" in record:
            keys = [encoding.decode(key, [], allowed=self._allowed) for key in record["keys"]]
            held = dict(value)
            if list(held) != keys:  # in their order; what is new has an entry of its own, or Keras makes it
                value.clear()
                pairs = zip(keys, object_kinds.texts_of_keys(keys))
                changed = {key for key, text in pairs if "%s[%s]" % (path, text) in self._changed}
                value.update({key: held.get(key) for key in keys if key in held or key in changed})
        return value

    def put_back(self) -> None:
        """Put each object that `apply` replaced to its place again."""
        while self._replaced:
            slot, value = self._replaced.pop()
            slot.put(value)

    def _pickle_of(self, path: str, record: dict[str, Any]) -> Any:
        """Return the pickle of an object; raises NoPlace if another user can have made it."""
        data = self._array(record)
        if not self._own and not pickled.is_ours(data, record.get("signed")):
            raise NoPlace("%s: %s" % (path, announcements.NOT_OURS))
        return data

    def _array(self, record: dict[str, Any]) -> Any:
        """Return the value of a variable or a tensor; the version before this one stored the place of its array."""
        if "at" in record:
            return self._arrays[record["at"]]
        code = record["v"]
        is_array = isinstance(code, dict) and code["#"] == "array"  # without the copy that `decode` makes
        return self._arrays[code["at"]] if is_array else encoding.decode(code, self._arrays)


def _anything(_value: Any) -> bool:
    return True


def _space(holder: str) -> Any:
    """Return the globals of a module of the script, None if `holder` names none: those of libraries are not state."""
    module = sys.modules.get(holder[7:]) if holder.startswith("module ") else None
    file = getattr(module, "__file__", None)
    is_scripts = holder == "module __main__" or (isinstance(file, str) and object_kinds.is_users(file))
    return vars(module) if module is not None and is_scripts else None


def _can_be_new(record: dict[str, Any]) -> bool:
    kind: Any = names.resolved(record["of"])
    if kind in _WALKED:
        return True
    if not isinstance(kind, type) or object_kinds.is_librarys(kind):
        return False
    return not any("__new__" in vars(one) for one in kind.__mro__ if one is not object)


def _fits(value: Any, record: dict[str, Any]) -> bool:
    """Return whether a value is of the class of a record; a class of a function has a name that leads to nothing."""
    wanted = names.resolved(record["of"]) if record["k"] == STRUCTURE else None
    return isinstance(value, wanted) if isinstance(wanted, type) else _name(type(value)) == record.get("of")


def _can_be_copied(value: Any) -> bool:
    kind = type(value)
    return kind in _WALKED or not (object_kinds.family(value) or object_kinds.hides_state(kind))


def _copied(value: Any) -> Any:
    kind: Any = type(value)
    if kind in _WALKED:
        return value.copy()
    made = kind.__new__(kind)
    pickled.give_attributes(made, value)
    return made


def _tensor(record: dict[str, Any], array: Any, existing: Any) -> Any:
    library = libraries.of(str(record["of"])) or tensorflow.LIBRARY  # a script's class of variables
    if library.tensor_of is not None and (record["k"] == TENSOR or library.variable_of is None):
        return library.tensor_of(array, None if record.get("new") else existing)
    return (library.variable_of or tensorflow.variable_of)(array, record["trains"])


def moved(code: Any, by: int) -> Any:
    """Return the entries with the indices of their arrays increased by `by`."""
    if isinstance(code, list):
        return [moved(item, by) for item in code]
    if not isinstance(code, dict):
        return code
    here = code.get("#") in ("array", "scalar", "numbers") or code.get("k") in (VARIABLE, TENSOR)
    return {key: value + by if here and key == "at" else moved(value, by) for key, value in code.items()}
