"""Both systems say the same things under the same names."""

from __future__ import annotations

import inspect
import sys
import time
from types import ModuleType

import pytest

from stallguard.core.readings import Memory, Process, Reading
from stallguard.host import darwin, system
from stallguard.host.types import Preferences

if sys.platform == "linux":
    from stallguard.host import linux as other
else:
    other = darwin  # type: ignore[assignment]


def _shape(module: ModuleType) -> dict[str, object]:
    shape: dict[str, object] = {}
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isclass(thing):
            methods = dict(inspect.getmembers(thing, inspect.isfunction))
            public = {key: value for key, value in methods.items() if not key.startswith("_") or key == "__init__"}
            for key, value in public.items():
                shape[f"{name}.{key}"] = _signature(value)
        else:
            shape[name] = _signature(thing)
    return shape


def _signature(thing: object) -> tuple[list[str], object]:
    signature = inspect.signature(thing)
    return [name.lstrip("_") for name in signature.parameters], signature.return_annotation


def test_the_two_systems_have_the_same_functions_arguments_and_results() -> None:
    announced = _shape(darwin)
    extra = {"Gpu.reading"}  # a pure step of the Mac's, apart so that it can be tested anywhere
    assert {key: value for key, value in announced.items() if key not in extra} == _shape(other)


def test_the_system_is_chosen_by_the_platform() -> None:
    assert system.__name__ == ("stallguard.host.darwin" if sys.platform == "darwin" else "stallguard.host.linux")


@pytest.mark.parametrize("reading", [Process(), Memory()])
def test_what_is_not_reported_is_unknown_and_takes_no_room(reading: Reading) -> None:
    assert all(getattr(reading, field) is None for field in reading.__struct_fields__ if field != "pid")


def test_this_machine_answers():
    assert isinstance(system.preferences(), Preferences)


def test_the_machines_own_clocks_agree_with_pythons() -> None:
    assert time.monotonic() - 0.01 <= system.monotonic() <= time.monotonic() + 0.01
    assert system.asleep() >= 0
    assert abs(system.asleep() - system.asleep()) < 0.1
