"""A profile names the function that a user knows, and the library's function that it calls."""

from __future__ import annotations

from stallguard.collectors import stack_profile
from stallguard.storage.stack_samples import CodeLine, StackSamples, StackTime

FIT = CodeLine("/env/site-packages/keras/src/trainers/trainer.py", 300, "fit")


def summarised(*stacks):
    """Return the profile of stacks of one second each, outermost line first."""
    lines = list(dict.fromkeys(line for stack in stacks for line in stack))
    times = [StackTime("training", "step", tuple(map(lines.index, stack)), 1000) for stack in stacks]
    return stack_profile.summarise(StackSamples(1, len(times), 1000 * len(times), lines, times))


def test_the_time_of_a_comprehension_is_that_of_its_function():
    function = CodeLine("/home/ada/train.py", 7, "prepare")
    inner = CodeLine("/home/ada/train.py", 7, "<listcomp>")
    deeper = CodeLine("/home/ada/train.py", 7, "<genexpr>")
    (spot,) = summarised((function,), (function, inner), (function, inner, deeper)).spots
    assert (spot.where, spot.seconds) == ("prepare() at train.py:7", 3.0)


def test_a_comprehension_of_the_module_is_the_modules():
    (spot,) = summarised(
        (CodeLine("/home/ada/train.py", 7, "<module>"), CodeLine("/home/ada/train.py", 7, "<genexpr>"))
    ).spots
    assert spot.where == "train.py:7"


def test_what_a_line_calls_is_not_a_wrapper_around_it():
    script = CodeLine("/home/ada/train.py", 7, "<module>")
    traceback = CodeLine("/env/site-packages/keras/src/utils/traceback_utils.py", 117, "error_handler")
    (spot,) = summarised((script, traceback, FIT)).spots
    assert spot.calls == "keras.src.trainers.trainer.fit"
