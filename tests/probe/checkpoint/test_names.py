"""Which functions and types a checkpoint can bring into a training; the names themselves are in test_untrusted."""

from __future__ import annotations

import builtins
import collections
import math
import operator
import os
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stallguard.probe.checkpoint.names import can_be_kept


def of(module: str, name: str) -> Callable[..., None]:
    """Return a function that a library defines."""

    def function() -> None:
        """Do nothing."""

    function.__module__, function.__name__ = module, name
    return function


def named(value: Any) -> str:
    return f"{getattr(value, '__module__', 'numpy')}.{value.__name__}"


ALLOWED = [
    np.less, np.hypot, np.float32, np.bool_, math.sqrt, operator.lt, operator.mul, abs, len, max, float, list, dict,
    collections.deque, collections.OrderedDict,
    of("keras.src.ops.numpy", "less"), of("keras.src.losses.losses", "mean_squared_error"),
    of("keras.src.activations.activations", "gelu"), of("tensorflow.python.ops.math_ops", "sum"),
]  # fmt: skip
REFUSED = [
    os.system, eval, exec, getattr, __import__, open, print, type, object, subprocess.Popen, types.FunctionType,
    collections.UserDict, operator.attrgetter, operator.methodcaller, np.load, np.fromfile, builtins.compile,
    of("keras.src.saving.saving_api", "load_model"), of("keras.src.losses", "deserialize"),
    of("keras.src.losses", "get"), of("keras.src.losses.loss", "_private"), of("torch", "load"),
    of("os", "sum"), of("pickle", "add"), of("losses", "run"),
]  # fmt: skip


@pytest.mark.parametrize("value", ALLOWED, ids=named)
def test_what_only_computes_can_be_kept(value: Any) -> None:
    assert can_be_kept(value)


@pytest.mark.parametrize("value", REFUSED, ids=named)
def test_what_can_do_something_is_refused(value: Any) -> None:
    assert not can_be_kept(value)


def test_a_type_of_a_library_with_the_name_of_a_plain_one_is_refused() -> None:
    assert not can_be_kept(type("list", (), {"__module__": "os"}))


def test_the_scripts_own_functions_and_classes_can_be_kept(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_be_kept(of("__main__", "anything"))
    module = types.ModuleType("helpers")
    module.__file__ = str(tmp_path / "helpers.py")
    monkeypatch.setitem(sys.modules, "helpers", module)
    assert can_be_kept(of("helpers", "my_loss"))
    assert not can_be_kept(of("a.module.that.is.not.loaded", "my_loss"))


def test_an_object_without_a_name_is_refused() -> None:
    assert not can_be_kept(object())
