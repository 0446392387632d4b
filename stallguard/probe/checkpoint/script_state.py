"""What the script's own code changes while a library's loop trains: Hugging Face's Trainer, Lightning, a tracked loop.

The checkpoint of such a loop has weights, optimizer and position.  A callback counts, a module anneals a coefficient in
an attribute, a loss function appends to a global: that is state too.  Each loop says what it reaches of the script's
(`enter`) and what its batches are drawn from (`enter_data`); a walk follows both (object_walk.py).  What differs from
the loop's beginning is kept (object_state.py), with the files that the script writes line by line (written_files.py).
Nothing has to fit: what has no place here is named, and the rest is restored.

The data have two states: as the epoch's data were opened, with which the batches that were trained are drawn again, and
as the checkpoint was made.

What cannot be kept is named as the loop begins, when a checkpoint lacks it, and at the resume.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from . import announcements, object_kinds, object_state, tensors, tracked_mlx, tracked_torch
from .object_state import NoPlace, ObjectBaseline, Restoration
from .object_walk import NOT_READ, Walk
from .written_files import WrittenFiles

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..context import Context
    from .schedule import CheckpointSchedule

SCRIPT, DATA, OPENED = "script", "data", "opened"
_KEY = "script_state"
BIG = 16 << 20  # bytes of a dataset's own arrays that can be its state; larger ones are its data
# s that a look at what the data are drawn from can take at each opening: an epoch can be as short as a second.
LOOK = 0.01
READ = 0.02  # s in which arrays that the data are drawn from are read at a look, to see their changes: 20 MB at least
_PLAIN, _CONTAINERS = (bool, int, float, str, type(None)), (list, dict, tuple, set)
_LACKS = "its checkpoint lacks the state of %s"
_NOT_SET = "the state of these objects of the script is not restored: %s"
_NO_FILE = "a file that the script writes is not restored (%s)"
_ALL = "all that the script's code keeps"
_NUMPY = "numpy is not installed"


class Kept(NamedTuple):
    """What was kept of one walk: JSON, and the bytes of its arrays."""

    facts: dict[str, Any]
    blobs: list[Any]


def joined(facts: dict[str, Any], blobs: list[Any], kept: Kept) -> tuple[dict[str, Any], list[Any]]:
    """Return the facts and bytes of a checkpoint that has what was kept too."""
    return {**facts, _KEY: {"first": len(blobs), **kept.facts}}, [*blobs, *kept.blobs]


def kept_in(facts: dict[str, Any], blobs: list[Any]) -> Kept:
    """Return what `joined` has added to a checkpoint; nothing for one of an earlier version."""
    found = facts.get(_KEY, {})
    return Kept(found, blobs[found.get("first", len(blobs)) :])


class ScriptState:
    """Of one loop, from its beginning on.  Raises OSError for a file.

    What the script's objects raise when they are looked at is no reason to lose the loop's checkpoints: it is named.
    """

    def __init__(
        self,
        context: Context,
        pace: CheckpointSchedule,
        folder: str,
        enter: Callable[[Walk], object],
        enter_data: Callable[[Walk], object] = lambda _: None,
    ) -> None:
        """`folder`: of the copies of files.  `enter`, `enter_data`: have a walk look at what the loop reaches."""
        self._context, self._pace = context, pace
        self._roots = {SCRIPT: enter, DATA: enter_data}
        self._baselines: dict[str, ObjectBaseline] = {}
        self._reads: dict[str, dict[str, bool]] = {SCRIPT: {}, DATA: {}}  # as for Walk
        self._sizes: dict[str, int] = {}  # of the files that the script writes, as the loop began
        self._before: ObjectBaseline | None = None  # of `note_before`, and the paths of what it says
        self._set_before: list[str] = []
        self._opened: Kept | None = None
        self._is_slow = False
        self._broken = ""  # why nothing is kept
        self._named: set[str] = set()
        self._unkept: list[str] = []  # with their classes, objects that no checkpoint has the state of
        self.files = WrittenFiles(folder)

    @property
    def has_begun(self) -> bool:
        """Whether `begin` was called."""
        return SCRIPT in self._baselines

    def listen(self, resumes: bool) -> None:
        """Register the files that the script writes from now on.  `resumes`: `restore` follows."""
        self.files.begin()
        if not resumes:
            self.files.cut_to_beginning()

    def note_before(self) -> None:
        """Note what the script's objects hold before something that a resumed training leaves out changes them.

        What differs as the loop begins is kept in each checkpoint, changed or not.
        """
        try:
            self._before = ObjectBaseline(self._walk(SCRIPT, self._pace.allowance(time.monotonic())))
        except Exception:  # `begin` looks at the same objects, and names it
            self._before = None

    def begin(self) -> None:
        """Note, once, what the script's objects and files hold; name what no checkpoint will have."""
        if self.has_begun or not self._begin_data():
            return
        try:
            walked = self._walk(SCRIPT, self._pace.allowance(time.monotonic()))
            files = {os.path.basename(path): how for path, how in self.files.changing(walked, []).items()}
            self._sizes = self.files.sizes()
        except Exception as error:  # of any object that the script's code reaches
            self._break(error)
            return
        data, self._baselines[SCRIPT] = self._baselines[DATA].walked, ObjectBaseline(walked)
        if self._before is not None:
            self._set_before, self._before = self._before.set_since(walked), None
        unkept = {**data.unkept, **walked.unkept}
        unread = [announcements.unread(path, size) for path, size in walked.unread.items()]
        self._unkept = ["%s (%s)" % one for one in unkept.items()] + unread
        too_many = [] if walked.complete and data.complete else [announcements.TOO_MANY]
        self._name([*self._unkept, *("%s (%s)" % one for one in files.items()), *too_many])

    def _begin_data(self) -> bool:
        """Note, once, what the data are drawn from; return whether that is possible."""
        if DATA in self._baselines or self._broken:
            return not self._broken
        try:
            import numpy  # noqa: F401 - torch and MLX train without it

            data = self._walk(DATA, READ)
            self._baselines[DATA] = ObjectBaseline(data)
            self._opened = self._of(DATA, data, BIG)
        except Exception as error:
            self._break(error)
        return not self._broken

    def _break(self, error: Exception) -> None:
        """Keep nothing from here on, and say so."""
        self._broken = _NUMPY if isinstance(error, ImportError) else "%s: %s" % (type(error).__name__, error)
        self._name(["%s (%s)" % (_ALL, self._broken)])

    def end(self) -> None:
        """Stop registering files."""
        self.files.end()

    def _walk(self, root: str, seconds: float = NOT_READ) -> Walk:
        """Return a walk.  `seconds`: to read arrays that were not read before."""
        began = time.monotonic()
        walked = Walk({} if seconds == NOT_READ else self._reads[root], began + seconds)
        self._roots[root](walked)
        self._pace.digested(time.monotonic() - began)
        return walked

    def _name(self, names: list[str]) -> None:
        """Name, once each, what a resume cannot restore."""
        new = [one for one in names if one not in self._named]
        self._named.update(new)
        if new:
            self._context.beyond(announcements.KEPT_NOT % announcements.listed(new))

    # --- saves ----------------------------------------------------------------------------------------------------

    def data_open(self) -> None:
        """Note what the data are drawn from, as those of an epoch are opened."""
        if DATA in self._baselines and not self._is_slow and not self._broken:
            began = time.monotonic()
            try:
                self._opened = self._of(DATA, self._walk(DATA, READ), BIG)
            except Exception as error:
                self._break(error)
            self._is_slow = time.monotonic() - began > LOOK

    def _of(self, root: str, walked: Walk, most: int) -> Kept:
        arrays: list[Any] = []
        baseline = self._baselines[root]
        changed = baseline.changed(walked)
        entries, unkept = object_state.keep(walked, changed, arrays, most, baseline)
        others = {*self._set_before}.difference(changed) if root == SCRIPT else ()
        entries += object_state.keep(walked, [path for path in walked.slots if path in others], arrays, most)[0]
        entries += object_state.lost(walked, baseline.walked, baseline.gone(walked))
        meta, blobs = tensors.pack(arrays) if arrays else ([], [])
        return Kept({"entries": entries, "unkept": unkept, "tensors": meta}, blobs)

    def read(self) -> Kept:
        """Return what has changed since the loop began, for a checkpoint of this moment."""
        if self._broken or not self.has_begun:
            return Kept({"unkept": {_ALL: self._broken}} if self._broken else {}, [])
        try:
            walked = self._walk(SCRIPT, self._pace.allowance(time.monotonic()))
            found = {
                SCRIPT: self._of(SCRIPT, walked, self._context.settings.checkpoint_most),
                DATA: self._of(DATA, self._walk(DATA, READ), BIG),
            }
        except Exception as error:  # of one that came since the beginning
            text = "%s: %s" % (type(error).__name__, error)
            self._name(["%s (%s)" % (_ALL, text)])
            return Kept({"unkept": {_ALL: text}}, [])
        found[OPENED] = found[DATA] if self._opened is None or self._is_slow else self._opened
        files, stays = self.files.keep(walked, []), self.files.changed()
        unkept = {**found[DATA].facts["unkept"], **found[SCRIPT].facts["unkept"]}
        self._name(["%s (%s)" % one for one in (*unkept.items(), *stays.items())])
        parts = {name: one.facts for name, one in found.items()}
        facts = {"parts": parts, "files": files, "stays": stays, "unkept": unkept, "named": self._unkept}
        return Kept(facts, [blob for one in found.values() for blob in one.blobs])

    # --- restoring ------------------------------------------------------------------------------------------------

    def restore_opening(self, kept: Kept) -> None:
        """Restore what the data are drawn from, as the epoch's data were opened."""
        if "parts" in kept.facts and self._begin_data():
            self._restore(DATA, *_part(kept, OPENED))

    def written(self) -> list[str]:
        """Return the names of the files that were written since `begin`: by the data, if nothing else has run."""
        sizes = self.files.sizes()
        return sorted(os.path.basename(path) for path, size in sizes.items() if size != self._sizes.get(path, 0))

    def restore(self, kept: Kept, *, last: bool = True) -> None:
        """Restore what `read` returned; say what is not as it was.  `last`: no other call follows, so the files too."""
        self.begin()
        reasons: list[str] = []
        if self.has_begun and "parts" in kept.facts:
            lacking = [*self._restore(SCRIPT, *_part(kept, SCRIPT)), *self._restore(DATA, *_part(kept, DATA))]
            reasons += [_NOT_SET % announcements.listed(lacking)] if lacking else []
            if last:
                try:
                    self.files.restore(kept.facts["files"], self._walk(SCRIPT), [])
                except OSError as error:
                    reasons.append(_NO_FILE % error)
        if last:
            for name, sentence in (("unkept", _LACKS), ("stays", announcements.STAYED)):
                if kept.facts.get(name):
                    reasons.append(sentence % announcements.described(kept.facts[name]))
            lacks = ["%s (%s)" % one for one in kept.facts.get("unkept", {}).items()]
            named = [one for one in kept.facts.get("named", ()) if one not in lacks]
            texts = [*reasons, *([announcements.AS_MADE % announcements.listed(named)] if named else [])]
            if texts:
                self._context.say("inexact" if reasons else "resume", "; ".join(texts))

    def _restore(self, root: str, entries: list[Any], arrays: list[Any]) -> list[str]:
        """Restore entries; return why some are not."""
        found: list[str] = []
        try:
            walked = self._walk(root)
            lacking = Restoration(entries, arrays, walked).lacking()
            found = list(lacking.values())
            Restoration([one for one in entries if one[0] not in lacking], arrays, walked).apply()
        except NoPlace as error:
            found.append(str(error))
        except Exception as error:  # of any object that the script's code reaches
            found.append("%s: %s" % (type(error).__name__, error))
        return found


def changed_data(kept: Kept) -> list[str]:
    """Return the paths of what the data are drawn from that had changed."""
    found = kept.facts.get("parts", {}).get(DATA, {})
    return [*(one[0] for one in found.get("entries", ())), *found.get("unkept", ())]


def _part(kept: Kept, name: str) -> tuple[list[Any], list[Any]]:
    """Return the entries of one walk and their arrays."""
    first = 0
    for one, facts in kept.facts["parts"].items():
        if one == name:
            arrays = tensors.unpack(facts["tensors"], kept.blobs[first : first + len(facts["tensors"])])
            return facts["entries"], arrays
        first += len(facts["tensors"])
    return [], []


# --- what a loop reaches -------------------------------------------------------------------------------------------


def know_modules(walked: Walk, modules: list[tuple[str, Any]], *, buffers: bool = True) -> None:
    """Have a walk leave modules of torch or MLX, with their parameters, to `enter_modules`.

    `buffers`: those that are not persistent are kept elsewhere too.
    """
    for path, module in modules:
        walked.know(module, path)
        for group in ("_parameters", "_buffers"):
            for name, one in (vars(module).get(group) or {}).items():
                if one is not None and (buffers or name not in vars(module).get("_non_persistent_buffers_set", ())):
                    walked.know(one, "%s.%s" % (path, name))


def enter_modules(
    walked: Walk, modules: list[tuple[str, Any]], theirs: Callable[[Any], Collection[str]], *, buffers: bool = True
) -> None:
    """Walk the attributes of known modules.  `theirs`: the names of those of a module that are its library's."""
    # First the script's own: of a large model the library's layers can be more than a walk takes.
    for path, module in sorted(modules, key=lambda one: object_kinds.is_librarys(type(one[1]))):
        skipped = {*theirs(module), *(_internals(module) if object_kinds.is_librarys(type(module)) else ())}
        walked.enter_attributes(module, path, skipped)
        if isinstance(module, dict):  # of MLX: its arrays are kept as parameters are
            walked.enter_entries(module, path, [key for key, one in module.items() if tracked_mlx.is_all_arrays(one)])
        elif not buffers:
            held = vars(module)["_buffers"]
            mine = module._non_persistent_buffers_set
            walked.enter_entries(held, path, [name for name in held if name not in mine])


def modules_of(model: Any, path: str) -> list[tuple[str, Any]]:
    """Return (path, module) of a model and of all modules in it."""
    return [(path + "." + name if name else path, one) for name, one in model.named_modules()]


def _internals(module: Any) -> list[str]:
    """Return the attributes of a library's module that are neither plain nor the script's, such as its settings."""
    found = []
    for name, one in vars(module).items():
        is_plain = type(one) in _PLAIN or isinstance(one, _CONTAINERS) or object_kinds.is_tensor(one)
        if not is_plain and not object_kinds.is_of_script(one):
            found.append(name)
    return found


def know_loader(walked: Walk, loader: Any) -> None:
    """Have a walk leave a DataLoader of torch, and what it draws from, to `enter_loader`."""
    walked.know(loader, DATA)
    for path, one in tracked_torch.parts_of(loader).items():
        walked.know(one, "%s.%s" % (DATA, path))


def enter_loader(walked: Walk, loader: Any) -> None:
    """Walk what a DataLoader of torch draws from: what of it is the script's."""
    for name in ("collate_fn", "worker_init_fn"):
        function = getattr(loader, name, None)
        if object_kinds.is_of_script(function):
            walked.enter(function, "%s.%s" % (DATA, name))
    for path, one in tracked_torch.parts_of(loader).items():
        if object_kinds.is_of_script(one):
            walked.enter(one, "%s.%s" % (DATA, path))
        else:
            walked.know(one, "%s.%s" % (DATA, path))


def enter_functions(walked: Walk, holder: Any, path: str) -> None:
    """Walk the script's functions and objects in the attributes of an object of a library."""
    walked.know(holder, path)
    for name, one in list(getattr(holder, "__dict__", {}).items()):
        if object_kinds.is_of_script(one):
            walked.enter(one, "%s.%s" % (path, name))
