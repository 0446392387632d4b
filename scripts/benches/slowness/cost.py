"""What the probe's sampler costs: processor time of its thread, of an hour whose clock is moved by hand."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stallguard.probe import outbox
from stallguard.probe.beats import Beats
from stallguard.probe.stack_sampler import StackSampler

TICK = 0.05  # seconds between two turns of the sender's thread
SPAN = 300.0  # seconds
DEPTH = 40  # calls of the training thread: as deep as in a step of Keras


def share(threads: int, place: Path) -> float:
    """Return the part of a core that sampling a process with so many threads takes."""
    beats = Beats(outbox.begin(outbox.private(), 1, 2, 3))
    beats.claimed = True
    sampler = StackSampler(beats, str(place / f"{threads}.profile"), {})
    spent: list[float] = []

    def sample() -> None:
        began = time.thread_time()
        for tick in range(int(SPAN / TICK)):
            now = int((1.0 + tick * TICK) * 1e9)
            sampler.pause(now, TICK)
            sampler.turn(now)
        spent.append(time.thread_time() - began)

    def call(depth: int) -> None:
        if depth:
            call(depth - 1)
            return
        helper = threading.Thread(target=sample)
        helper.start()
        helper.join()

    with ThreadPoolExecutor(threads) as pool:
        barrier = threading.Barrier(threads)
        list(pool.map(lambda _: barrier.wait(), range(threads)))  # all threads exist, and wait for work
        call(DEPTH)
    return spent[0] / SPAN
