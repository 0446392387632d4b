"""From the stacks that the probe sampled to where the time goes: by phase, and by line of the script's own code.

Pure.  Must not conclude anything: core.bottlenecks does.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from stallguard.collectors import stacks
from stallguard.collectors.stacks import FRAMEWORK, Frame
from stallguard.core.profile import PAUSED, TRAINING, Function, Profile, Spot
from stallguard.storage.stack_samples import StackSamples

SPOTS = 24  # places that a profile names
FUNCTIONS = 8  # measured functions that it names
_WRAPPER = re.compile(r"/traceback_utils\.py$")  # around each function of Keras and TensorFlow; it says nothing
BUILT_IN = "<built-in>"  # as probe/stack_sampler.py has it
_WAITS = {"lock": stacks.LOCK, "timed": stacks.LOCK, "sleep": "sleep", "io": "io"}
# Waits for another process or host.
_OUTSIDE = re.compile(r"/lib/python[\d.]+t?/(socket|ssl|selectors|subprocess)\.py$")
_PACKAGES = ("/site-packages/", "/dist-packages/")


def summarise(samples: StackSamples, spots: int = SPOTS) -> Profile:
    """Return where the time went: the `spots` places with the most time, and the sum of all others."""
    phases: dict[str, float] = defaultdict(float)
    executing = 0.0
    places: dict[Spot, float] = defaultdict(float)
    lines = [Frame(line.file, line.line, line.function) for line in samples.lines]
    for one in samples.stacks:
        seconds = one.milliseconds / 1000
        stack = [lines[number] for number in reversed(one.stack)]
        places[_spot(one.role, one.phase, stack)] += seconds
        if one.role == TRAINING:
            phases[one.phase] += seconds
            executing += seconds if one.phase not in PAUSED and stack and stacks.executes(stack[0]) else 0.0
    ranked = sorted(places.items(), key=lambda item: item[1], reverse=True)
    named = [item for item in ranked if item[0].file or item[0].does][:spots]
    total = sum(places.values())
    shown = tuple(replace(spot, seconds=round(seconds, 3)) for spot, seconds in named)
    return Profile(
        seconds=samples.milliseconds / 1000,
        samples=samples.samples,
        phases={phase: round(seconds, 3) for phase, seconds in phases.items()},
        executing=round(executing, 3),
        functions=_functions(samples, [spot for spot, _ in ranked]),
        spots=shown,
        rest=round(max(0.0, total - sum(seconds for _, seconds in named)), 3),
        beats=samples.beats,
        saves=samples.saves,
    )


def _functions(samples: StackSamples, spots: Sequence[Spot]) -> tuple[Function, ...]:
    """Return the measured functions, each with its line that the samples show most.  `spots`: the heaviest first."""
    found = []
    for one in sorted(samples.functions, key=lambda one: one.milliseconds, reverse=True)[:FUNCTIONS]:
        if not one.calls or not stacks.is_own(Frame(one.file, one.line, one.function)):
            continue
        same = (spot.line for spot in spots if (spot.file, spot.function) == (one.file, one.function))
        line = next(same, one.line)
        found.append(Function(one.purpose, one.milliseconds / 1000, one.calls, one.file, line, one.function))
    return tuple(found)


def _spot(role: str, phase: str, stack: Sequence[Frame]) -> Spot:
    """Return the place of a stack, innermost frame first, without its time."""
    at = next((index for index, frame in enumerate(stack) if stacks.is_own(frame)), None)
    # The probe names the kind of wait of a function in C, which has no frame, in a line of its own.
    wait = stack[0].function if stack and stack[0].file == BUILT_IN else ""
    does = stacks.classify(stack[1:] if wait else stack)
    if does in ("", stacks.USER, stacks.LOCK):
        does = _WAITS.get(wait) or ("io" if stack and _OUTSIDE.search(stack[0].file) else does)
    if at is None:
        return Spot(role, phase, 0.0, does=does)
    own = stack[at]
    # A comprehension or a lambda has no name that a reader knows: that of the function around it.
    named = next((frame for frame in stack[at:] if frame.file == own.file and not frame.function.startswith("<")), own)
    inner = [frame for frame in stack[:at] if not _WRAPPER.search(frame.file) and frame.file != BUILT_IN]
    calls = _called(inner[-1]) if inner else ""
    caller = next((frame for frame in stack[at:] if not stacks.is_own(frame)), None)
    called_by = _called(caller) if caller is not None and FRAMEWORK.search(caller.file) else ""
    feeds = stacks.is_called_by_library(stack)
    return Spot(role, phase, 0.0, own.file, own.line, named.function, calls, does, called_by, feeds)


def _called(frame: Frame) -> str:
    """Return a library's function by its module: "keras.src.trainers.trainer.fit"."""
    path = frame.file.replace("\\", "/")
    for part in _PACKAGES:
        if part in path:
            path = path.rpartition(part)[2]
            break
    else:
        path = path.rpartition("/")[2]
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"{module}.{frame.function}"
