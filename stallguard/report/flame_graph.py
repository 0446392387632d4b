"""From sampled stacks to a tree of calls with times, and from the tree to the bars of a flame graph.

A node is a call; its children are the calls that it made.  The time of a node is that of all stacks through it, so the
times of its children sum up to at most its own, and the time of the tree is the sum of all its stacks.

A stack of Keras and TensorFlow has sixty to ninety frames, five of which are the script's own.  So that these are seen:

- Frames of the script's own code stay as they are, one node for each line.
- Frames of a library are one node for each function, its lines together.
- A run of more than LONGEST library frames keeps its first ENDS, which are what the script calls, and its last ENDS,
  which are what calls back or waits.  One node between them, named by its libraries, stands for the others.
- Frames that only pass a call on are left out: stallguard's own wrappers, those with which Keras and TensorFlow shorten
  a traceback, AutoGraph's around each function, and the first two of a thread.  An innermost frame is always shown,
  because its time is its own.

Below the root is the phase of the training.  Equal samples give equal trees.

In the graph, the root is at the top and as wide as all time; below each bar are the calls that it made, those with the
most time first.  A bar's place and width are seconds; the page chooses the scale.

A page must stay small and quick, so a graph has at most `most` bars: a call is drawn if its time reaches a threshold
that leaves room for as many bars again, and the siblings below the threshold are one bar.  A parent has at least the
time of its child, so no drawn call lacks its parent.  Calls deeper than ROWS are not drawn; their time is in the last
row.  Pure: values in, values out.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from stallguard.collectors import stacks
from stallguard.collectors.stack_profile import BUILT_IN
from stallguard.collectors.stacks import Frame
from stallguard.core.profile import TRAINING
from stallguard.core.text import at
from stallguard.report import evidence_files
from stallguard.storage.stack_samples import CodeLine, StackSamples

LONGEST, ENDS = (5, 2)  # library frames in a row that are all shown; those that stay at each end of a longer run
# Kinds of a node.
ROOT, PHASE, OWN, LIBRARY, FOLDED, LEFT_OUT = "root", "phase", "own", "library", "folded", "left out"
ROLES = {TRAINING: "training thread"}  # any other role: threads that feed it
FEEDERS = "threads that feed it"
# "importing" is the probe's number for no phase; what it samples trains, so it is a loop without phases.
NO_PHASE = {"importing": "training loop"}
# A function in C in which a line of the script waits has no frame of its own; the probe names its kind.
WAITS = {
    "lock": "waits for a lock",
    "timed": "waits with a time limit",
    "sleep": "sleeps",
    "io": "waits for a file, a network or another process",
}
# File and function.
_PASSES_ON = re.compile(
    r"(?:keras|tf_keras|tensorflow)/(?:.*/)?traceback_utils\.py |tensorflow/python/autograph/impl/api\.py "
    r"|threading\.py _bootstrap"
)


class CallNode(NamedTuple):
    """Identifies a node among its siblings.

    `place`: file, or file and line; `package`: "" for the script's own code.
    """

    kind: str
    name: str
    place: str = ""
    package: str = ""


class Node:
    """A call in the tree.  `milliseconds`: of all stacks through it; `deepest`: frames that a FOLDED one stands for."""

    __slots__ = ("call", "children", "deepest", "milliseconds")

    def __init__(self, call: CallNode) -> None:
        self.call = call
        self.milliseconds = self.deepest = 0
        self.children: dict[CallNode, Node] = {}

    def ranked(self) -> list[Node]:
        """Return the children, those with the most time first, equal ones by their names."""
        return sorted(self.children.values(), key=lambda one: (-one.milliseconds, one.call))


def role_name(role: str) -> str:
    """Return what a thread does, for a reader."""
    return ROLES.get(role, FEEDERS)


def phase_name(phase: str) -> str:
    """Return a phase of the training, for a reader."""
    return NO_PHASE.get(phase, phase)


def build(samples: StackSamples, role: str, cwd: str = "") -> Node | None:
    """Return the tree of the threads of a role; None if there is no stack of it.

    `cwd`: the directory from which the paths of the script's own files are shown.
    """
    lines = [_call(line, cwd) for line in samples.lines]
    root = Node(CallNode(ROOT, role_name(role)))
    for one in samples.stacks:
        if one.role != role:
            continue
        path = [CallNode(PHASE, phase_name(one.phase)), *(lines[number] for number in one.stack)]
        if not one.stack:
            path.append(CallNode(LEFT_OUT, "stacks with little time"))
        node = root
        node.milliseconds += one.milliseconds
        for call, frames_of_it in folded(path):
            node = node.children.setdefault(call, Node(call))
            node.milliseconds += one.milliseconds
            node.deepest = max(node.deepest, frames_of_it)
    return root if root.children else None


def folded(path: Sequence[CallNode]) -> Iterator[tuple[CallNode, int]]:
    """Yield the nodes of a stack, the outermost first, and how many frames each stands for."""
    shown = [
        call for call in path[:-1]
        if call.package != "stallguard" and not _PASSES_ON.match(f"{call.place} {call.name}")
    ] + list(path[-1:])  # fmt: skip
    for of_library, calls in groupby(shown, key=lambda call: bool(call.package)):
        run = list(calls)
        if not of_library or len(run) <= LONGEST:
            yield from ((call, 1) for call in run)
            continue
        between = run[ENDS:-ENDS]
        yield from ((call, 1) for call in run[:ENDS])
        yield CallNode(FOLDED, ", ".join(sorted({call.package for call in between}))), len(between)
        yield from ((call, 1) for call in run[-ENDS:])


def _call(line: CodeLine, cwd: str) -> CallNode:
    frame = Frame(line.file, line.line, line.function)
    if frame.file == BUILT_IN:
        return CallNode(LIBRARY, WAITS.get(frame.function, frame.function), "", "Python")
    package = evidence_files.package(frame)
    if stacks.is_own(frame) and not package:
        return CallNode(OWN, _named(line.function), at(own_file(line.file, cwd), line.line))
    return CallNode(LIBRARY, _named(line.function), library_file(line.file, package), package or "Python")


def _named(function: str) -> str:
    """Return a function as it is called; code that is none ("<module>", "<lambda>") as it is."""
    return function if function.startswith("<") else f"{function}()"


def own_file(file: str, cwd: str) -> str:
    """Return a file of the script from the directory `cwd`, or its whole path."""
    below = f"{cwd.rstrip('/')}/"
    return file.removeprefix(below) if cwd else file


def library_file(file: str, package: str) -> str:
    """Return the file of a library from its package on, which is the same on each machine."""
    inside = f"/{package}/"
    return f"{package}/{file.rpartition(inside)[2]}" if inside in file else os.path.basename(file)  # noqa: PTH119


LEAST = 0.001  # share of a graph's time that a bar has at least: a third of a pixel on the page
ROWS = 48  # rows of a graph at most
MERGED = "merged"  # kind of a bar that stands for several narrow ones


class FlameBar(msgspec.Struct, frozen=True):
    """A call in a flame graph, and all stacks through it."""

    parent: int  # index of the bar that called it; -1: the root
    depth: int  # row, from 0
    start: float  # seconds from the left edge of the graph
    seconds: float  # its time
    kind: str  # root, phase, own (the script's code), library, folded, merged or left out
    name: str  # the function; for folded and merged ones what they stand for
    place: str  # its file, for own code with the line; empty: none


class FlameGraph(msgspec.Struct, frozen=True):
    """The sampled stacks of one thread of a training, or of the threads that feed it, as a tree."""

    title: str  # of which training and of which threads
    rows: int  # the depth of the tree
    seconds: float  # the time of all stacks; of several threads side by side, their sum
    bars: list[FlameBar]  # a parent before its children


class FlameGraphs(msgspec.Struct, frozen=True):
    """The flame graphs of a run."""

    graphs: list[FlameGraph] = []  # of each training: its own thread, then the threads that feed it
    left_out: int = 0  # trainings that are not drawn, because others have more time


def layout(root: Node, title: str, most: int) -> FlameGraph:
    """Return the graph of a tree with at most `most` bars, the root's included."""
    least = threshold(root, most)
    bars: list[FlameBar] = []
    rest = deque([(root, -1, 0, 0)])  # a node, its parent's bar, its row, its start
    while rest:
        node, parent, depth, start = rest.popleft()
        number, call = len(bars), node.call
        name = f"{call.name}: up to {node.deepest} calls" if call.kind == FOLDED else call.name
        bars.append(FlameBar(
            parent, depth, start / 1000, node.milliseconds / 1000, call.kind, name, call.place,
        ))  # fmt: skip
        if depth + 1 == ROWS:
            continue
        at, narrow, merged = start, 0, 0
        for child in node.ranked():
            if child.milliseconds >= least:
                rest.append((child, number, depth + 1, at))
                at += child.milliseconds
            else:
                narrow, merged = narrow + 1, merged + child.milliseconds
        if merged / max(root.milliseconds, 1) >= LEAST:
            words = f"{narrow} narrow ones" if narrow > 1 else "1 narrow one"
            bars.append(FlameBar(number, depth + 1, at / 1000, merged / 1000, MERGED, words, ""))
    rows = 1 + max(bar.depth for bar in bars)
    return FlameGraph(title, rows, root.milliseconds / 1000, bars)


def threshold(root: Node, most: int) -> float:
    """Return the milliseconds from which on a node is drawn, so that there are at most `most` bars."""
    times, row = [], [root]
    for _ in range(ROWS):
        times += [node.milliseconds for node in row]
        row = [child for node in row for child in node.children.values()]
    times.sort(reverse=True)
    room = max(1, most // 2)  # each drawn node can have one bar of merged children
    # Equal times are drawn all or none, so the first time for which there is no room is the bound.
    bound = times[room] + 1 if len(times) > room else 1
    return max(bound, LEAST * root.milliseconds)
