"""The bars of a flame graph: a tree of calls laid out along its time, bounded in number and depth.

The root is at the top and as wide as all time; below each bar are the calls that it made, those with the most time
first.  A bar's place and width are seconds; the page chooses the scale.

A page must stay small and quick, so a graph has at most `most` bars: a call is drawn if its time reaches a threshold
that leaves room for as many bars again, and the siblings below the threshold are one bar.  A parent has at least the
time of its child, so no drawn call lacks its parent.  Calls deeper than ROWS are not drawn; their time is in the last
row.  Pure: values in, values out.
"""

from __future__ import annotations

from collections import deque

import msgspec

from stallguard.report.flame_tree import FOLDED, Node

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
        number = len(bars)
        bars.append(FlameBar(
            parent, depth, start / 1000, node.milliseconds / 1000, node.call.kind, _shown_name(node), node.call.place
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


def _shown_name(node: Node) -> str:
    if node.call.kind != FOLDED:
        return node.call.name
    return f"{node.call.name}: up to {node.deepest} calls"
