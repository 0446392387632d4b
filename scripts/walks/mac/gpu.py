"""The checks of the GPU: at rest, and with a training at work on it.

Must not judge: verdicts does.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from mac import machine, verdicts
from mac.scene import Scene, until
from mac.table import FAILED, UNASKED, Row, judged
from stallguard.host.darwin import libproc, parsers
from stallguard.host.darwin.machine import IOREG

LOAD = Path(__file__).with_name("load.py")
IMPORT = 180.0  # seconds for the framework to come up and do its first batches
WATCH, EVERY = 60.0, 5.0  # seconds: of looking at the training, between two looks
DUMPS = 5


class Load:
    """A training at work.  `gpus`: None until it has said how many it sees."""

    def __init__(self, process: subprocess.Popen[str], stacks: Path) -> None:
        """Begin to listen to it."""
        self.process, self.stacks = process, stacks
        self.gpus: int | None = None
        self.batches = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None  # noqa: S101 - a pipe, as asked
        for line in self.process.stdout:
            word, _, rest = line.partition(" ")
            if word == "gpus":
                self.gpus = int(rest)
            self.batches += word == "batch"


@contextlib.contextmanager
def at_work(scene: Scene) -> Iterator[Load]:
    """Have a training at work until the block ends."""
    stacks = scene.home / "load.stacks"
    words = [next(iter(scene.metal_pythons.values())), str(LOAD), str(stacks)]
    with subprocess.Popen(words, env=scene.env, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Load(process, stacks)
        finally:
            process.kill()


def rest(scene: Scene) -> Iterator[Row]:
    """Read the accelerator as its sensor does."""
    said = scene.tool("ioreg_accelerator", *IOREG, "-c", "IOAccelerator")
    scene.tool("ioreg_accelerator_plist", IOREG[0], "-a", *IOREG[1:], "-c", "IOAccelerator")
    scene.tool("system_profiler_displays", "/usr/sbin/system_profiler", "SPDisplaysDataType", "-json")
    yield verdicts.gpu(said.text, said.seconds)
    yield Row(
        "gpu when wedged",
        UNASKED,
        means="it cannot be done on purpose (nor learn the unit of lastRecoveryTime): send the bundle of such a night",
    )


def work(scene: Scene) -> Iterator[Row]:
    """Watch a training on the GPU: its counters, its stacks."""
    with at_work(scene) as load:
        until(lambda: load.batches > DUMPS or load.process.poll() is not None, IMPORT)
        if not load.batches or not load.gpus:
            verdict = UNASKED if load.gpus == 0 else FAILED
            seen = "no answer" if load.gpus is None else f"{load.gpus} GPUs, {load.batches} batches"
            yield Row("gpu at work", verdict, seen, "put tensorflow-metal into .venv: Python 3.11 or 3.12 has wheels")
            return
        yield judged("gpu at work", holds=True, figure=f"{load.gpus} GPUs, {load.batches} batches",
                     means="this pair of TensorFlow and plug-in trains on the GPU")  # fmt: skip
        looks = [_look(scene, load) for _ in range(round(WATCH / EVERY))]
        yield verdicts.moves(looks)
        yield verdicts.unit(looks, libproc.seconds_a_tick())
        yield verdicts.stacks([seconds for _ in range(DUMPS) if (seconds := _dumped(load))], DUMPS)
        said = machine.sampled(scene, "sample_training", load.process.pid, 2)
        yield verdicts.sample("of a training", said.text, said.code, said.seconds)


def _look(scene: Scene, load: Load) -> verdicts.Look:
    time.sleep(EVERY)
    said = scene.tool("ioreg_clients_training", *IOREG, "-c", "AGXDeviceUserClient")
    ours = [client for client in parsers.clients(said.text) if client.pid == load.process.pid]
    submitted = max((client.submitted or 0 for client in ours), default=0)
    return verdicts.Look(time.monotonic(), load.batches, sum(client.gpu_time or 0 for client in ours), submitted)


def _dumped(load: Load) -> float | None:
    """Return the seconds until the training's stacks came; None if they did not."""
    before, began = load.stacks.stat().st_size, time.monotonic()
    load.process.send_signal(signal.SIGUSR1)
    came = until(lambda: load.stacks.stat().st_size > before, 10)
    return time.monotonic() - began if came else None
