"""An exception that passes through a wrapper has the traceback, the context and the life that it has without one."""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import traceback
import weakref
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from stallguard.probe import patches
from stallguard.probe.hooks import after, before
from stallguard.probe.patches import Patches


def fails(number: int) -> float:
    try:
        return 1 / number
    except ZeroDivisionError as error:
        raise KeyError(number) from error


def calls(number: int) -> float:
    return library.fails(number) + 1


def ends() -> object:
    return next(iter(()))


library = ModuleType("library")
vars(library).update(fails=fails, calls=calls, parse=int, ends=ends)


def printed(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception:
        return traceback.format_exc()
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("wrapper", [before, after])
@pytest.mark.parametrize(
    "call",
    [lambda: library.calls(0), lambda: library.parse("x"), lambda: library.ends()],  # noqa: PLW0108  looked up late
    ids=["wrapper in wrapper", "raised in C", "the end of an iterator"],
)
def test_the_text_is_the_plain_one(
    call: Callable[[], object], wrapper: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fails", "calls", "parse", "ends"):
        monkeypatch.setattr(library, name, getattr(library, name))
    plain = printed(call)
    patches, brackets = Patches(), wrapper(None, lambda *_: None)

    for name in ("fails", "calls", "parse", "ends"):
        assert patches.wrap(library, name, brackets)

    assert "patches" not in plain
    assert printed(call) == plain


def test_an_action_after_a_call_that_raised_is_left_out_and_its_own_error_is_not_the_callers() -> None:
    said: list[object] = []

    def acts(number: int) -> None:
        said.append(number)
        raise ValueError(number)

    context: Any = SimpleNamespace(surprise=lambda name, error: said.append((name, str(error))))
    wrapped = after(context, acts)(ends)
    with pytest.raises(StopIteration):
        wrapped()
    assert said == []
    double = after(context, acts)(lambda number: 2 * number)
    assert double(4) == 8
    assert said == [4, ("<lambda>", "4")]


def test_a_generator_ends_fails_and_is_closed_as_without() -> None:
    closed = []

    def numbers() -> Any:
        try:
            yield 1
            yield from (fails(0) for _ in range(1))
        finally:
            closed.append(True)

    guarded = patches.yielding(numbers)

    assert len({printed(functools.partial(all, made())) for made in (numbers, guarded)}) == 1
    stream = guarded()
    assert next(stream) == 1
    stream.close()
    assert len(closed) == 3


def test_nothing_stays_alive_and_no_reference_is_lost() -> None:
    class Lost(Exception):
        pass

    def loses() -> None:
        raise Lost

    guarded = patches.passing(loses)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(Lost) as caught:
            guarded()
        seen = weakref.ref(caught.value)
        before = sys.getrefcount(Lost)
        del caught
        assert seen() is None
        for _ in range(1000):
            with contextlib.suppress(Lost):
                guarded()
        assert sys.getrefcount(Lost) <= before
    finally:
        gc.enable()
