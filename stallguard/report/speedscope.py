"""The sampled stacks of a run in speedscope's public file format.

https://www.speedscope.app/file-format-schema.json defines it (made from src/lib/file-format-spec.ts of
https://github.com/jlfwong/speedscope).  A file has frames that all profiles share, and profiles of the type "sampled":
stacks of frame numbers, the outermost first, with a weight each.  There is one profile for each training and role of
its threads.  The outermost frame is the phase of the training; the others are those of the samples, not folded, because
speedscope folds and searches by itself.  The samples are sums without an order in time, so its view "Left Heavy" is the
one to look at.  Pure: values in, a value out.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stallguard import __version__
from stallguard.core.profile import FEEDER, TRAINING
from stallguard.report import flame_tree, sampled_trainings
from stallguard.report.sampled_trainings import SampledTraining
from stallguard.storage.stack_samples import StackSamples

FORMAT = "https://www.speedscope.app/file-format-schema.json"


class SharedFrame(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of code, or a phase of the training."""

    name: str
    file: str | None = None
    line: int | None = None


class Shared(msgspec.Struct, frozen=True):
    """What all profiles of a file share."""

    frames: list[SharedFrame]


class SampledProfile(msgspec.Struct, frozen=True, tag_field="type", tag="sampled", rename="camel"):
    """The stacks of one role of one training, those with the most time first."""

    name: str
    unit: str
    start_value: int
    end_value: int
    samples: list[list[int]]
    weights: list[int]


class SpeedscopeFile(msgspec.Struct, frozen=True, rename="camel"):
    """A whole file."""

    schema: str = msgspec.field(name="$schema")
    shared: Shared
    profiles: list[SampledProfile]
    name: str
    exporter: str
    active_profile_index: int = 0


def make(name: str, trainings: Sequence[SampledTraining]) -> SpeedscopeFile:
    """Return the samples of these trainings, secrets and all; trainings without stacks are left out."""
    frames: dict[SharedFrame, int] = {}
    profiles = []
    for one, title in zip(trainings, sampled_trainings.titles(trainings), strict=True):
        if one.samples is None:
            continue
        for role in (TRAINING, FEEDER):
            words = ": ".join(filter(None, (title, flame_tree.role_name(role))))
            profiles += _profile(one.samples, role, words, frames)
    return SpeedscopeFile(
        schema=FORMAT,
        shared=Shared(list(frames)),
        profiles=profiles,
        name=name,
        exporter=f"stallguard@{__version__}",
    )


def _profile(
    samples: StackSamples, role: str, name: str, frames: dict[SharedFrame, int]
) -> list[SampledProfile]:
    """Return the profile of a role, or none; add its frames to `frames`."""
    stacks = sorted(
        (one for one in samples.stacks if one.role == role and one.milliseconds > 0),
        key=lambda one: (-one.milliseconds, one.phase, one.stack),
    )
    if not stacks:
        return []
    found = []
    for one in stacks:
        lines = [samples.lines[number] for number in one.stack]
        path = [SharedFrame(f"phase: {flame_tree.phase_name(one.phase)}")]
        path += [SharedFrame(line.function, line.file, line.line) for line in lines]
        path += [] if lines else [SharedFrame("stacks with little time")]
        found.append([frames.setdefault(frame, len(frames)) for frame in path])
    weights = [one.milliseconds for one in stacks]
    return [SampledProfile(name, "milliseconds", 0, sum(weights), found, weights)]
