"""What a wrapped function is to those who look at it from outside."""

from __future__ import annotations

import traceback
import warnings
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from stallguard.probe.hooks import around, before
from stallguard.probe.patches import PACKAGE, Patches

LIBRARY = """
import warnings
class Model:
    def save(self):
        warnings.warn("old option", stacklevel=2)
"""


def test_a_warning_blames_the_line_of_the_script_that_calls_the_wrapped_function() -> None:
    library = ModuleType("keras.saving")
    exec(LIBRARY, library.__dict__)  # noqa: S102 (a module as an import makes it)
    script = compile("\n\nmodel.save()", "script.py", "exec")

    def blamed() -> list[tuple[str, int]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            exec(script, {"model": library.Model()})  # noqa: S102 (a script with line numbers)
        return [(one.filename, one.lineno) for one in caught]

    plain = blamed()
    assert plain == [("script.py", 3)]

    def make(original):
        def save(*args, **kwargs):
            return original(*args, **kwargs)

        return save

    assert Patches().wrap(library.Model, "save", make)
    assert blamed() == plain


def made_by_the_probe(original):
    """Return a wrapper whose frames are the probe's, as those that its parts make."""
    names = {"__name__": PACKAGE + ".part", "original": original}
    exec("def outer(*args):\n    return original(*args)", names)  # noqa: S102
    return names["outer"]


def test_a_plain_wrapper_around_one_that_removes_its_own_frames_leaves_none_either() -> None:
    library = ModuleType("keras.saving")
    exec(LIBRARY, library.__dict__)  # noqa: S102
    library.Model.save = lambda model: 1 // 0
    patches = Patches()
    context: Any = SimpleNamespace(surprise=patches.surprise)
    assert patches.wrap(library.Model, "save", before(context, lambda *_: None))
    assert patches.wrap(library.Model, "save", made_by_the_probe)
    with pytest.raises(ZeroDivisionError) as caught:
        library.Model().save()
    frames = [frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(caught.tb)]
    assert frames == [__name__, __name__]  # this function, and the library's


def test_what_rests_in_a_loop_stays_out_when_the_others_are_put_back() -> None:
    library = ModuleType("keras.saving")
    exec(LIBRARY, library.__dict__)  # noqa: S102
    library.Model.load = library.Model.save
    plain = library.Model.save
    patches = Patches()
    for name in ("save", "load"):
        assert patches.wrap(library.Model, name, made_by_the_probe)
    patches.may_rest(library.Model, "load")
    patches.rest()
    patches.take_out()
    patches.put_back()
    assert (library.Model.save is plain, library.Model.load is plain) == (False, True)
    patches.resume()
    assert library.Model.load is not plain


def test_what_is_no_wrapper_is_switched_off_with_the_others_and_not_on_after_them() -> None:
    patches, calls = Patches(), list[str]()
    assert patches.also(lambda: calls.append("off"), lambda: calls.append("on"))
    patches.take_out()
    patches.put_back()
    assert calls == ["on", "off", "on"]
    patches.take_out()
    assert not patches.also(lambda: calls.append("off"), lambda: calls.append("late"))
    assert calls == ["on", "off", "on", "off"]


def test_what_cannot_be_switched_on_is_counted_and_not_switched_off() -> None:
    patches = Patches()
    assert not patches.also(lambda: 1 / 0, lambda: 1 / 0)
    assert patches.surprises == 1
    patches.take_out()


@pytest.mark.parametrize("wrong", ["opens", "closes", "fails", ""])
def test_an_action_that_fails_changes_nothing_for_the_caller(wrong: str) -> None:
    seen: list[str] = []

    def action(name: str, result: object) -> Any:
        def act(*_: object) -> object:
            seen.append(name)
            if name == wrong:
                raise LookupError
            return result

        return act

    context: Any = SimpleNamespace(surprise=lambda where, error: seen.append(type(error).__name__))
    hook = around(context, action("opens", 1), action("closes", 2), action("fails", 3))
    assert hook(lambda: "result")() == "result"
    with pytest.raises(ZeroDivisionError):
        hook(lambda: 1 // 0)()
    expected = {
        "opens": ["opens", "LookupError"] * 2,
        "closes": ["opens", "closes", "LookupError", "opens", "fails"],
        "fails": ["opens", "closes", "opens", "fails", "LookupError"],
        "": ["opens", "closes", "opens", "fails"],
    }
    assert seen == expected[wrong]
