"""The checks of a training on the GPU under stallguard: a dump, a step of three minutes, a step that never ends.

The long step uses the GPU alone, and must not be called a stall.  The blocked one must be, though WindowServer uses the
GPU.  Must not judge: verdicts_steps does.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from mac import verdicts_steps
from mac.guarded import QUIET, GuardedRun, started
from mac.scene import Scene, until
from mac.table import Row, judged, unknown
from stallguard.host.darwin import parsers
from stallguard.host.darwin.machine import IOREG

LOAD = Path(__file__).with_name("steps_load.py")
IMPORT = 180.0  # seconds for the framework and the first steps
LONG, SIZE = 180.0, 4096  # seconds of the long step; rows of its matrices
LATER = 3.0  # times LONG after which the long step is given up: a product is slower when the GPU is warm
STALL = 180.0  # seconds for the blocked step to be called a stall
LOOK = 1.0  # seconds between two looks
FEW = 10  # steps before the dump


class Clients(NamedTuple):
    """The GPU time of WindowServer and of the training, in nanoseconds; None: ioreg lists no such client."""

    window_server: int | None
    training: int | None


def checks(scene: Scene) -> Iterator[Row]:
    """Guard one training through a dump, the long step and the blocked one."""
    dumped = scene.home / "dumped"
    python = next(iter(scene.metal_pythons.values()))
    words = ("run", "--observe", "--python", python, *QUIET, str(LOAD), str(dumped), str(LONG), str(SIZE))
    with started(scene, *words) as one:
        until(lambda: one.beats > FEW or one.process.poll() is not None, IMPORT)
        if one.beats <= FEW:
            yield judged("guarded training", holds=False, figure=f"{one.beats} steps",
                         means="it has TensorFlow and takes steps", otherwise=one.output.strip()[-200:])  # fmt: skip
            return
        if "gpus 0" in one.output and sys.platform == "darwin":
            yield unknown(
                "guarded training", "put tensorflow-metal into .venv: Python 3.11 or 3.12 has wheels", "no GPU"
            )
            return
        yield _dump(scene, one)
        dumped.touch()
        yield _long(one)
        yield _blocked(scene, one)


def _dump(scene: Scene, one: GuardedRun) -> Row:
    name = one.run.id if one.run else "last"
    said = scene.stallguard("debug", "dump", name, "--json", "--output", str(scene.home / "dump"), seconds=180)
    text = said.text[said.text.find("{") :] if "{" in said.text else "{}"
    scene.files["dump-manifest.json"] = text
    try:
        items = json.JSONDecoder().raw_decode(text)[0].get("items", [])
    except ValueError:
        items = []
    return verdicts_steps.dump(items, said.code, said.seconds)


def _cpu(one: GuardedRun) -> float:
    who = one.training()
    try:
        return sum(psutil.Process(who.pid).cpu_times()[:2]) if who else 0.0
    except psutil.Error:
        return 0.0


def _long(one: GuardedRun) -> Row:
    began_in_time = until(lambda: "long step" in one.output, IMPORT)
    before, stalls, began = _cpu(one), len(one.names("training.stalled")), time.monotonic()
    until(lambda: "long step took" in one.output or one.process.poll() is not None, LATER * LONG)
    took, used = time.monotonic() - began, _cpu(one) - before
    done = began_in_time and "long step took" in one.output
    return verdicts_steps.long_step(took, used, len(one.names("training.stalled")) - stalls, done=done)


def _blocked(scene: Scene, one: GuardedRun) -> Row:
    """Have the terminal draw lines meanwhile, so that WindowServer uses the GPU."""
    until(lambda: "blocked" in one.output, IMPORT)
    stalls, began, before = len(one.names("training.stalled")), time.monotonic(), _clients(scene, one)
    while not (called := len(one.names("training.stalled")) > stalls) and time.monotonic() - began < STALL:
        time.sleep(LOOK)
        scene.say(f"      blocked for {time.monotonic() - began:.0f} s")
    seconds, after = time.monotonic() - began, _clients(scene, one)
    return verdicts_steps.blocked(
        seconds, _moved(before, after, lambda one: one.window_server),
        _moved(before, after, lambda one: one.training), called=called,
    )  # fmt: skip


def _clients(scene: Scene, one: GuardedRun) -> Clients:
    who = one.training()
    if sys.platform != "darwin" or who is None:
        return Clients(None, None)
    said = scene.tool("ioreg_clients_blocked", *IOREG, "-c", "AGXDeviceUserClient")
    known = parsers.clients(said.text)
    servers = {one.pid for one in psutil.process_iter(["name"]) if one.info["name"] == "WindowServer"}
    counted = [(client.pid, client.gpu_time) for client in known if client.gpu_time is not None]
    times = ([spent for pid, spent in counted if pid in pids] for pids in (servers, {who.pid}))
    return Clients(*(sum(found) if found else None for found in times))


def _moved(before: Clients, after: Clients, of: Callable[[Clients], int | None]) -> float | None:
    """Return by how many seconds of GPU time a client went on."""
    first, last = of(before), of(after)
    return None if first is None or last is None else (last - first) * 1e-9
