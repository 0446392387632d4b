"""A simulated Mac's GPU: the clients that ioreg lists, with their counters, read by the product's own reader."""

from __future__ import annotations

from msgspec.structs import replace

from stallguard.core.limits import DetectorLimits
from stallguard.core.readings import Device, Process
from stallguard.host.darwin.machine import AppleGpu
from stallguard.host.darwin.parsers import Accelerator, Client
from tests.simulation.alone import LIMITS, Alone
from tests.simulation.program import Rates

WINDOWS, BROWSER, OURS = 440, 900, 7
EVERY = 2.0  # seconds between two readings
SCREEN, FULL = 0.001, 0.9  # shares of the time: the window server of a quiet screen, a training on Metal


class MacGpu:
    """The GPU of a simulated Mac.

    `census`: what its list of clients shows: "readable": the work of each; "unreadable": nothing; "ours": the work of
    each but the training's; "none": the clients, and no work.
    `holds`: the training has a client; `others`: share of the time in which another program wants the GPU.
    """

    def __init__(self, census: str, others: float, *, holds: bool) -> None:
        self.census, self.others, self.holds = census, others, holds
        self.computes = False  # the training, now
        self._spent = {WINDOWS: 1.0, BROWSER: 1.0, OURS: 0.0}  # seconds of GPU time
        self._now = 0.0
        self._reader = AppleGpu(lambda: self._now)

    def read(self) -> Device:
        """Let the time of a reading pass; return what is read then.  Who wants more than there is shares it."""
        wants = {WINDOWS: SCREEN, BROWSER: self.others, OURS: FULL if self.computes else 0.0}
        busy = sum(wants.values())
        self._now += EVERY
        for pid, share in wants.items():
            self._spent[pid] += share / max(1.0, busy) * EVERY
        clients = [
            Client(f"0x{pid}", pid, int(spent * 1e9), int(spent * 1e6))
            for pid, spent in self._spent.items()
            if self.census != "unreadable" and (pid != OURS or self.holds)
        ]
        hidden = {"ours": {OURS}, "none": set(self._spent)}.get(self.census, set())
        shown = [replace_work(one) if one.pid in hidden else one for one in clients]
        gpu = Accelerator("AGXAcceleratorG14X", "Apple M2", min(1.0, busy), 10**9, 0)
        return self._reader.reading([gpu], shown, [OURS], [OURS])


def replace_work(client: Client) -> Client:
    """Return a client whose work ioreg does not show."""
    return client._replace(gpu_time=None, submitted=None)


class TrainingOnMac(Alone):
    """A training on a Mac: no wait sites, and of files only what reaches the disk is known."""

    def __init__(self, gpu: MacGpu, limits: DetectorLimits = LIMITS) -> None:
        self.gpu, self._gpu_due = gpu, 0.0
        super().__init__(limits)
        self.be(rates=Rates(cores=1.0, faults=300.0), tree=replace(self.tree, members=1))

    def _read(self, seconds: float) -> None:
        if self.now >= self._gpu_due:
            self._gpu_due = self.now + EVERY
            self.sampled(self.gpu.read())
        super()._read(seconds)

    def _trees(self) -> list[Process]:
        return [replace(one, io=None, disk=one.io, census=None) for one in super()._trees()]

    def trains(self, seconds: float, *, on_gpu: bool) -> TrainingOnMac:
        """Train for so long."""
        self.gpu.computes = on_gpu
        self.train(seconds)
        self.gpu.computes = False
        return self
