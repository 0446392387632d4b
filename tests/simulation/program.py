"""A simulated process that has a probe: the record that the probe sends, and the readings of its process tree."""

from __future__ import annotations

import dataclasses

from msgspec.structs import replace

from stallguard.core.events import Heartbeat
from stallguard.core.readings import Process

GIB = 2**30
OWN = {"futex": 12, "sleep": 1, "timed": 1}  # wait sites of the threads of a healthy TensorFlow training


@dataclasses.dataclass
class Rates:
    """What a process tree does in a second.  `census`: where its threads wait; None on a system without wait sites."""

    cores: float = 0.9
    io: float = 0.0  # bytes
    faults: float = 0.0
    page_ins: float = 0.0
    grown: float = 0.0  # bytes by which the footprint grows
    run_queue: float = 0.0  # seconds in which a thread could run and did not
    sock: int = 0  # threads that wait for a socket
    census: dict[str, int] | None = None

    def sites(self) -> dict[str, int] | None:
        """Return the census of a reading."""
        if self.census is None:
            return None
        return {"run": int(self.cores > 0.5), "sock": self.sock} | self.census


IDLE = Rates(cores=0.0)
ALONE = {"members": 1, "remote": False}  # the tree of a local training without worker processes
# Name of a silence: what the process tree does in it.
SILENCES = {
    "deadlock": Rates(cores=0.0, census=OWN),
    "poller": Rates(cores=0.01, census=OWN),
    "socket": Rates(cores=0.0, sock=1, census=OWN),
    "sleeper": Rates(cores=0.0, census=OWN | {"sleep": 2}),
    "driver": Rates(cores=0.0, census=OWN | {"driver": 1}),
    "no census": IDLE,
    "spin": Rates(cores=1.0, census=OWN),
    "compile": Rates(cores=1.0, faults=5000, census=OWN),
    "upload": Rates(cores=0.01, io=5_000_000, sock=1, census=OWN),
}


@dataclasses.dataclass
class Program:
    """One process.  It trains a batch each `batch` seconds, unless it is stuck; 0: it never trains."""

    record: Heartbeat  # the newest
    pid: int = 0  # in its records; 0 as in journals that know of one process only
    batch: float = 0.5
    stuck: bool = False
    rates: Rates = dataclasses.field(default_factory=Rates)  # while it trains
    stuck_rates: Rates | None = None  # while it is stuck; None: as while it trains
    tree: Process = dataclasses.field(
        default_factory=lambda: Process(cpu=0.0, io=0, minor_faults=0, major_faults=0, run_queue=0.0, remote=False)
    )
    state: str = "sleeping"
    # While it is stuck: what its thread waits for (wire.WAITS), and how many other threads could end that.
    frame: tuple[str, int] = ("", -1)
    polls: bool = False  # the probe reads the optimizer's counter, which waits for the device
    pulses: bool = True  # a thread of the probe can run while the program is stuck
    due: float = 0.0  # when its next batch ends

    @property
    def beats(self) -> int:
        """The batches that it trained."""
        return self.record.beats

    def doing(self) -> Rates:
        """Return what its process tree does now."""
        silent = self.stuck or not self.batch
        return self.stuck_rates if silent and self.stuck_rates is not None else self.rates

    def use(self, seconds: float) -> None:
        """Let the counters of its process tree rise for so long."""
        rates, old = self.doing(), self.tree
        self.tree = replace(
            old,
            state=self.state, cpu=(old.cpu or 0.0) + rates.cores * seconds, io=int((old.io or 0) + rates.io * seconds),
            minor_faults=int((old.minor_faults or 0) + rates.faults * seconds),
            major_faults=int((old.major_faults or 0) + rates.page_ins * seconds),
            run_queue=(old.run_queue or 0.0) + rates.run_queue * seconds, census=rates.sites(),
            footprint=None if old.footprint is None else int(old.footprint + rates.grown * seconds),
        )  # fmt: skip

    def trains_now(self, now: float) -> bool:
        """Tell whether a batch ends now."""
        return self.batch > 0 and not self.stuck and now >= self.due

    def train(
        self, now: float, seconds: float, done: int = 0, *, phase: str = "step", input_share: float = 0.0
    ) -> dict[str, object]:
        """Return the fields of the record after the batches of the last `seconds`, `done` if that is given."""
        old = self.record
        done = done or max(1, round(seconds / self.batch))
        self.due = now + self.batch
        facts = {
            "phase": phase, "phase_at": now, "beats": old.beats + done, "beat_at": now, "fits": max(1, old.fits),
            "fit_beats": old.fit_beats + done, "longest": self.batch, "longest_phase": phase,
            "source": "callbacks" if old.source == "none" else old.source, "trains": old.trains or bool(self.pid),
            "step_s": old.step_s + seconds * (1 - input_share), "input_s": old.input_s + seconds * input_share,
        }  # fmt: skip
        if self.polls:
            facts |= {"iterations": old.beats + done, "poll_at": now}
        if old.source == "hand":  # a loop that counts its own batches does not say in which epoch they are
            return facts
        epoch, batch = max(0, old.epoch), max(0, old.batch) + done
        if batch >= old.batches > 0:
            epoch, batch = epoch + 1, batch - old.batches
        return facts | {"epoch": epoch, "batch": batch}
