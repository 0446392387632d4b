"""Stacks for a reader: threads that do the same are one, and calls inside a library are one line.

Pure: threads in, values out.  How a dump is read is collectors.stacks, what a frame means collectors.frames.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby

import msgspec

from stallguard.collectors import frames, stacks
from stallguard.collectors.frames import Frame
from stallguard.collectors.stacks import Thread

SIMILAR = 0.8  # of the calls of two threads, from which on they are shown as one (Dice's coefficient)
_PACKAGE = re.compile(r"/(?:site|dist)-packages/([^/.]+)")
_OURS = re.compile(r"/stallguard/(?:probe|__init__)")


class Segment(msgspec.Struct, frozen=True):
    """Calls in a row, innermost first: the script's own (`package` empty), or those inside one package."""

    package: str
    frames: tuple[str, ...]


class GroupedStacks(msgspec.Struct, frozen=True):
    """Threads that do the same.  `kind`: a class of collectors.frames, or empty."""

    threads: tuple[str, ...]
    main: bool
    kind: str
    segments: tuple[Segment, ...]


def fold(text: str, cwd: str = "") -> list[GroupedStacks]:
    """Return the threads of a faulthandler dump, folded by similarity, the main thread first; not our own."""
    threads = stacks.parse(text)
    main = stacks.main_thread(threads)
    groups: list[list[Thread]] = [[main]] if main else []
    for thread in threads:
        begun = [name for frame in thread.frames if (name := package(frame)) != "Python"]
        if thread is main or begun[-1:] == ["stallguard"]:  # stallguard began the thread
            continue
        alike = (group for group in groups[1:] if similarity(group[0], thread) >= SIMILAR)
        group = next(alike, None)
        if group is None:
            groups.append([thread])
        else:
            group.append(thread)
    folded = []
    for group in groups:
        segments = []
        for name, calls in groupby(group[0].frames, key=package):
            # A place inside a package is the path there, which is the same on every machine.
            inside = f"/{name}/"
            segments.append(Segment(name, tuple(
                stacks.place(frame, frame.file.partition(inside)[0] if inside in frame.file else cwd)
                for frame in calls
            )))  # fmt: skip
        folded.append(GroupedStacks(
            threads=tuple(thread.name or thread.ident for thread in group),
            main=group[0] is main,
            kind=frames.classify(group[0].frames),
            segments=tuple(segments),
        ))  # fmt: skip
    return folded


def similarity(one: Thread, other: Thread) -> float:
    """Return how alike two stacks are, 0 to 1: twice the calls in common over all calls; lines do not count."""
    here, there = _calls(one), _calls(other)
    both = len(one.frames) + len(other.frames)
    return 2 * (here & there).total() / both if both else 1.0


def _calls(thread: Thread) -> Counter[tuple[str, str]]:
    return Counter((frame.file, frame.function) for frame in thread.frames)


def package(frame: Frame) -> str:
    """Return the package that a frame belongs to; empty for the script's own code."""
    if _OURS.search(frame.file):
        return "stallguard"
    if frames.is_own(frame):
        return ""
    inside = _PACKAGE.search(frame.file)
    return inside[1] if inside else "Python"
