"""The identity of a fit: written into each checkpoint, and compared before the checkpoint is used.

It consists of the process (its place in the run, its arguments and directory), the fit (which of the script's calls, in
which function), the model (class, configuration, names and shapes of its variables), what it is compiled with, the
structure of its data, and the versions of the frameworks.  If one of these differs, the checkpoint is refused with the
reason.  Two differences are only reported: a changed text of the script, and another learning rate set by the script.
How the fit starts (fit_start.py) is part of it, and compared there.

Names that Keras numbers (`dense_3`) are compared without their numbers.
"""

from __future__ import annotations

import json
import os
import re
import sys
import zlib
from typing import Any, NamedTuple

from .. import libraries, process_key, settings
from . import announcements, object_kinds, pipelines, variables

_NUMBERED = re.compile(r"(?<=[A-Za-z])_\d+\b")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_RATE = ("learning_rate", "lr")
_COMPILED = ("loss", "loss_weights", "metrics", "weighted_metrics")  # arguments of Model.compile
_FOREIGN = {
    "place": "this is another process of the run", "site": "the call of fit", "model": "the class of the model",
    "variables": "the variables of the model", "optimizer": "the optimizer",
}  # fmt: skip
_NAMES = {
    **_FOREIGN, "arguments": "the arguments", "folder": "the directory", "config": "the configuration of the model",
    "settings": "the optimizer's settings", "loss": "what the model is compiled with", "data": "the input pipeline",
    "versions": "the versions",
}  # fmt: skip


class IdentityComparison(NamedTuple):
    """`refusal`: why a checkpoint must not be used, "" if it can be used; `notices`: differences to report.

    `foreign`: it belongs to another process, fit or model, so that no setting can allow it.
    """

    refusal: str
    notices: list[str]
    foreign: bool = False


def of_process(place: str) -> dict[str, Any]:
    """Return what distinguishes this process from others of the run and from those of another script."""
    wish = settings.of(os.environ)
    root = wish.project
    words = list(getattr(sys, "orig_argv", sys.argv))[1:]
    arguments = [process_key.portable(word, root, process_key.PREFIX) for word in words]
    arguments = [process_key.steady(word, wish.rows) for word in arguments]
    folder = process_key.portable(os.getcwd(), root)
    return {"place": place, "arguments": arguments, "folder": folder, "versions": versions()}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the frameworks that are imported."""
    found = {
        library.name: str(libraries.version(library.name) or "") for library in libraries.imported() if library.computes
    }
    found["python"] = "%d.%d.%d" % sys.version_info[:3]
    return found


def of_fit(model: Any, iterator: Any, site: str) -> dict[str, Any]:
    """Return what distinguishes a fit of `model`, called at `site` with the data of `iterator`; `model` is built."""
    optimizer = variables.inner_of(getattr(model, "optimizer", None))
    compiled = getattr(getattr(model, "_compile_config", None), "config", None)  # as the script passed it
    if not isinstance(compiled, dict):
        compiled = {"loss": getattr(model, "loss", None)}
    return {
        "site": site,
        "model": _class(model),
        "config": _check(_config(model)),
        "variables": _check(
            [
                [
                    _plain(str(getattr(one, "path", None) or getattr(one, "name", ""))),
                    list(one.shape),
                    variables.dtype_of(one),
                ]
                for one in model.variables
            ]
        ),
        "optimizer": _class(optimizer),
        "settings": _settings(optimizer),
        "loss": _check({name: _given(compiled[name]) for name in _COMPILED if compiled.get(name) is not None}),
        "data": pipelines.structure(iterator),
        "rate": rate(model),
        "schedule": _schedule(optimizer),
    }


def script() -> dict[str, int]:
    """Return {file: checksum} of the script and of its own modules that are imported."""
    found, root = {}, settings.of(os.environ).project
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and object_kinds.is_users(os.path.abspath(file)):
            try:
                with open(file, "rb") as text:
                    found[process_key.portable(os.path.abspath(file), root)] = zlib.crc32(text.read())
            except OSError:
                continue
    return found


def differences(facts: dict[str, Any]) -> list[str]:
    """Return what has changed since a checkpoint of a loop was made, in words: versions, the text of the script."""
    found = []
    made, ours = facts.get("versions"), versions()
    if made != ours:
        found.append(announcements.OTHER_VERSIONS % differing(made or {}, ours))
    before, now = facts.get("script", {}), script()
    changed = [os.path.basename(file) for file in before if file in now and before[file] != now[file]]
    if changed:
        found.append(announcements.EDITED % ", ".join(changed[:3]))
    return found


def rate(model: Any) -> Any:
    """Return the current learning rate of a model's optimizer, None if it comes from a schedule."""
    variable = variables.rate_of(getattr(model, "optimizer", None))
    return None if variable is None else float(variables.values([variable])[0])


def compare(saved: dict[str, Any], ours: dict[str, Any]) -> IdentityComparison:
    """Compare two identities, each of the fields of `of_process` and `of_fit`, and of "script", from `script`."""
    refusal, notices = "", []
    for field, name in _NAMES.items():
        if saved.get(field) != ours.get(field):
            refusal = _refusal(field, name, saved.get(field), ours.get(field))
            if field in _FOREIGN:
                return IdentityComparison(refusal, [], True)
            break
    before, now = saved["script"], ours["script"]
    changed = sorted(file for file in before if file in now and before[file] != now[file])
    if changed:
        names = ", ".join(os.path.basename(file) for file in changed[:3])
        notices.append(announcements.EDITED % names)
    if saved["rate"] != ours["rate"] and ours["rate"] is not None:
        notices.append(
            "the script sets a learning rate of %.6g now; it was %.6g" % (ours["rate"], saved["rate"] or 0.0)
        )
    if saved["schedule"] != ours["schedule"]:
        notices.append("the script sets another schedule of the learning rate than before")
    return IdentityComparison(refusal, notices)


def _refusal(field: str, name: str, saved: Any, ours: Any) -> str:
    if field == "place":
        return name
    if field in ("model", "optimizer"):
        return "%s is %s now and was %s" % (name, _short(ours), _short(saved))
    if field in ("settings", "versions", "data") and isinstance(saved, dict) and isinstance(ours, dict):
        return ("%s differ: %s" % (name, differing(saved, ours)))[:300]
    if field in ("arguments", "folder", "site"):
        return ("%s: %s now, was %s" % (name, ours, saved))[:300]
    return "%s differ" % name if name.endswith("s") else "%s differs" % name


def differing(saved: dict[str, Any], ours: dict[str, Any]) -> str:
    """Return the first two of the values that differ."""
    keys = sorted(key for key in {**saved, **ours} if saved.get(key) != ours.get(key))
    return "; ".join("%s %s, was %s" % (key, ours.get(key), saved.get(key)) for key in keys[:2])


def _short(name: Any) -> str:
    return str(name).rpartition(":")[2]


def _class(value: Any) -> str:
    kind = type(value)
    return "%s:%s" % (kind.__module__, kind.__qualname__)


def _plain(text: str) -> str:
    """Return a text without Keras' running numbers and without addresses: the same at every start."""
    return _ADDRESS.sub("", _NUMBERED.sub("", text))


def _check(value: Any) -> int:
    return zlib.crc32(_plain(json.dumps(value, default=_described, sort_keys=True)).encode())


def _described(value: Any) -> str:
    """Return a text for a value that JSON cannot represent: an array's checksum, any other value's name."""
    if hasattr(value, "tobytes"):
        return "%s %d" % (getattr(value, "shape", ""), zlib.crc32(value.tobytes()))
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    return "%s.%s" % (getattr(value, "__module__", ""), name)


def _config(model: Any) -> Any:
    """Return the model's configuration, without lambdas: their code holds line numbers; None if it has none."""
    try:
        return _without_lambdas(model.get_config())
    except Exception:  # a model of the script can raise anything here
        return [_class(layer) for layer in getattr(model, "_flatten_layers", list)()]


def _without_lambdas(value: Any) -> Any:
    if isinstance(value, dict):
        if value.get("class_name") == "__lambda__":
            return "lambda"
        return {str(key): _without_lambdas(item) for key, item in value.items() if key != "function_type"}
    if isinstance(value, (list, tuple)):
        return [_without_lambdas(item) for item in value]
    return "bytes" if isinstance(value, bytes) else value


def _given(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _given(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_given(item) for item in value]
    if isinstance(value, (str, int, float)):
        return value
    try:
        return [_class(value), _without_lambdas(value.get_config())]
    except Exception:  # a function, or an object of the script without a configuration
        return getattr(value, "__qualname__", None) or _class(value)


def _settings(optimizer: Any) -> dict[str, Any]:
    try:
        config = optimizer.get_config()
    except Exception:
        return {}
    kept = {}
    for key, value in config.items():
        if key not in _RATE and key != "name" and isinstance(value, (bool, int, float, str, type(None))):
            kept[key] = float("%.6g" % value) if isinstance(value, float) else value
    return kept


def _schedule(optimizer: Any) -> Any:
    found = getattr(optimizer, "_learning_rate", None)
    if found is None or hasattr(found, "assign"):
        return None
    try:
        return _check(_without_lambdas(found.get_config()))
    except Exception:
        return _class(found)
