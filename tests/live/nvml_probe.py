"""Reads an NVIDIA device through our own sensors while a real training works, waits on the host, and spins.

    python tests/live/nvml_probe.py [SECONDS [PYTHON]] > tests/recordings/nvml/NAME.jsonl

Needs an NVIDIA GPU and, here, msgspec and pynvml (package nvidia-ml-py); PYTHON, which trains, needs PyTorch
and trains Keras 3 on it where it has Keras.  Prints one JSON object a reading: seconds since the start, what the
child did at that moment, the device's and the process' readings; and at the end, on standard error, what the device did
in each phase, and what each question to the driver cost.  Exits 1 where the device was not seen at work, 2 where it
cannot be read at all.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from stallguard.core.device_account import account, described
from stallguard.host import system
from stallguard.sensors import Target
from stallguard.sensors.sensor_registry import DeviceSensor, ProcessSensor

PHASES = ("train", "wait", "spin", "train again")  # what the child does, one after another
EVERY = 1.0  # seconds between two readings

CHILD = """
import os, sys, threading, time
seconds = float(sys.argv[1])
os.environ["KERAS_BACKEND"] = "torch"
import torch
device = torch.device("cuda")
torch.zeros(1, device=device)

def make():
    try:
        import keras
    except ImportError:
        net = torch.nn.Sequential(torch.nn.Linear(2048, 8192), torch.nn.ReLU(), torch.nn.Linear(8192, 10)).to(device)
        optimizer, loss_of = torch.optim.Adam(net.parameters()), torch.nn.CrossEntropyLoss()
        x, y = torch.randn(512, 2048, device=device), torch.randint(0, 10, (512,), device=device)
        def step():
            optimizer.zero_grad(); loss_of(net(x), y).backward(); optimizer.step()
        return "torch", step
    import numpy
    net = keras.Sequential([keras.Input((2048,)), keras.layers.Dense(8192, "relu"), keras.layers.Dense(10)])
    net.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x = numpy.random.randn(512, 2048).astype("float32"); y = numpy.random.randint(0, 10, 512)
    return "keras " + keras.__version__ + " on torch", lambda: net.train_on_batch(x, y)

name, step = make()
step()
print("with " + name, flush=True)

def train(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        step()
    torch.cuda.synchronize()

print("train", flush=True); train(seconds)
print("wait", flush=True); threading.Event().wait(seconds)          # a host deadlock: the device idles
print("spin", flush=True)                                           # one thread busy: 100 % at little power
end = time.monotonic() + seconds
while time.monotonic() < end:
    torch.cuda._sleep(200_000_000); torch.cuda.synchronize()
print("train again", flush=True); train(seconds)
"""


@contextlib.contextmanager
def training(seconds: float, python: str) -> Iterator[subprocess.Popen[str]]:
    """Run the child until the block ends."""
    words = [python, "-c", CHILD, str(seconds)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as child:
        try:
            yield child
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


def timed(module: Any, spent: dict[str, list[float]]) -> None:
    """Let each question of a binding to the driver note its seconds in `spent`."""

    def watched(name: str, ask: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return ask(*arguments)
            finally:
                spent[name].append(time.perf_counter() - began)

        return call

    for name in dir(module):
        if name.startswith(("nvmlDevice", "nvmlGpm", "nvmlEvent")) and callable(getattr(module, name)):
            setattr(module, name, watched(name, getattr(module, name)))


class Probe:
    """Takes readings until the child ends, and notes what it said it was doing."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child
        target, clock = Target(root=child.pid), system
        self._process, self._device = ProcessSensor(target, clock), DeviceSensor(target)
        self.doing = "import"
        self.spent: defaultdict[str, list[float]] = defaultdict(list)  # seconds of each question to the driver
        with contextlib.suppress(ImportError):
            import pynvml  # type: ignore[import-untyped,unused-ignore]

            timed(pynvml, self.spent)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            word = line.strip()
            if word in PHASES:
                self.doing = word
            else:
                print(word, file=sys.stderr)

    def readings(self) -> Iterator[dict[str, Any]]:
        """Yield a reading a second."""
        begun = time.monotonic()
        while self._child.poll() is None:
            doing = self.doing
            process = self._process.read()
            asked = time.perf_counter()
            device = next(iter(self._device.read()), None)
            self.spent["a whole reading"].append(time.perf_counter() - asked)
            at = round(time.monotonic() - begun, 2)
            yield {"at": at, "doing": doing, "device": device, "process": process}
            time.sleep(EVERY)


def main() -> int:
    """Print the readings; say what was seen."""
    seconds = float(sys.argv[1]) if sys.argv[1:] else 15.0
    python = sys.argv[2] if sys.argv[2:] else sys.executable
    seen: dict[str, list[Any]] = {}
    with training(seconds, python) as child:
        probe = Probe(child)
        for reading in probe.readings():
            print(msgspec.json.encode(reading).decode(), flush=True)
            if reading["device"] is not None:
                seen.setdefault(reading["doing"], []).append(reading["device"])
    if not seen:
        print("no NVIDIA device can be read here (pynvml, driver)", file=sys.stderr)
        return 2
    for doing, devices in seen.items():
        print(doing, summary(devices), file=sys.stderr)
    for name, took in sorted(probe.spent.items(), key=lambda item: -sum(item[1])):
        usual = sorted(took)[len(took) // 2]
        print(f"{1000 * usual:8.3f} ms, at most {1000 * max(took):8.3f} ms, {len(took)} times  {name}", file=sys.stderr)
    worked = max((device.utilisation or 0.0 for device in seen.get("train", [])), default=0.0)
    return 0 if worked > 0 else 1


def summary(devices: list[Any]) -> str:
    """Return a phase's readings in a line."""
    did = account(((float(at), device) for at, device in enumerate(devices)), 0.0, float("inf"))
    moved, mine = [device.moved for device in devices], {device.used_by_run for device in devices}
    return f"{len(devices)} readings: {described(did) if did else 'nothing'}; moved {moved}, mine {mine}"


if __name__ == "__main__":
    raise SystemExit(main())
