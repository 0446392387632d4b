"""`scripts/bench fleet`: does a fleet lose nothing and do nothing twice while its machines fail?

Three machines (namespaces of Linux: own network, processes and home) train 20 jobs of a sweep with a store in a folder,
and again with one in a bucket of a local S3 server.  Meanwhile one machine is killed with all its processes, one has a
GPU that does not answer, one is cut off from network and store, and the scheduler is killed and started again.  Each
job must finish, with the weights of the same training alone, bit for bit; and nothing must be published twice.  Then
faults are tried one by one, with jobs of their own (fleets/single_faults.py).
`--ray PROGRAM` gives the same jobs to a Ray cluster on the loopback interface instead; no machine fails there.

Needs root on Linux.  About 15 minutes for a store, 6 for Ray.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple, Self

from fleets import idle, published, ray_cluster, s3_server, simulation
from fleets.fleet_of_machines import Fleet
from fleets.machines import Machine, Network, wait_for
from fleets.single_faults import Trials, Tried
from fleets.trainings import COPIES, EPOCHS, SEEDS, all_jobs, arguments
from harness.results import Goal, concluded, quantile, table
from stallguard.fleet.machines import lease

ROOT = Path(__file__).resolve().parents[2]
MOST = 2  # jobs at once while machines fail
LONGEST = 900.0  # s that all jobs may take
AWAY = 30.0  # s beyond the lease for which a machine is cut off
EVACUATED = 75.0  # s at a lease of 60: the goal
LONGER = 6.0  # s that a job may take over a bare run, for `submit`, the scheduler and publications


class Fault(NamedTuple):
    """A failure, and the seconds until its job trained elsewhere."""

    what: str
    job: str
    host: str
    to: str
    seconds: float


def bare(fleet: Fleet, seed: int) -> tuple[float, str]:
    """Return how long `stallguard run` alone takes for a seed, in seconds, and its weights."""
    began = time.monotonic()
    output = fleet.say("run", "--quiet", "--python", sys.executable, "--", "train.py", *arguments(seed))
    digest = next(line.split()[1] for line in output.splitlines() if line.startswith("digest "))
    return time.monotonic() - began, digest


def overhead(fleet: Fleet, count: int) -> list[float]:
    """Return how many seconds longer a job takes than a bare run, from `submit` to its published end."""
    found = []
    for number in range(count):
        alone, _ = bare(fleet, number)
        job, began = f"overhead-{number}", time.monotonic()
        fleet.say("fleet", "submit", "--name", job, *lease_of(fleet), "--", "train.py", *arguments(number))
        wait_for(f"{job} finishes", lambda job=job: fleet.finished([job]), LONGEST, 0.1)
        found.append(time.monotonic() - began - alone)
    return found


class Feeder:
    """Submits jobs one by one so that MOST of them are not finished: one machine is free to take over."""

    def __init__(self, fleet: Fleet, jobs: dict[str, list[str]]) -> None:
        """`jobs`: their arguments, by name."""
        self._fleet, self._left = fleet, dict(jobs)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._feed)
        self.submitted: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _feed(self) -> None:
        while self._left and not self._stopping.wait(0.5):
            if len(self.submitted) - len(self._fleet.finished(self.submitted)) < MOST:
                job = next(iter(self._left))
                words = [*lease_of(self._fleet), "--", "train.py", *self._left.pop(job)]
                self._fleet.say("fleet", "submit", "--name", job, *words)
                self.submitted.append(job)


def lease_of(fleet: Fleet) -> list[str]:
    return ["--set", f"store.lease={fleet.lease}s"]


def sweep(fleet: Fleet) -> None:
    """Submit the jobs that are not submitted yet."""
    file = fleet.place / "sweep.toml"
    file.write_text(
        f'name = "bench"\ncommand = ["train.py", "--epochs", "{EPOCHS}"]\noptions = {json.dumps(lease_of(fleet))}\n'
        f"[parameters]\nseed = {list(range(SEEDS))}\ncopy = {list(range(COPIES))}\n"
    )
    say(fleet.say("fleet", "sweep", str(file)).splitlines()[0])


def evacuated(fleet: Fleet, what: str, job: str, machine: Machine, began: float, limit: float) -> Fault:
    """Wait until a job trains on another machine; return how long that took."""
    others = [one for one in fleet.machines if one is not machine]

    def elsewhere() -> list[tuple[float, str]]:
        return [(first, one.host) for one in others for first in one.trained(job) if first > began]

    wait_for(f"{job} goes on elsewhere after: {what}", elsewhere, limit)
    first, host = min(elsewhere())
    say(f"{what}: {job} of {machine.host} trains on {host} after {first - began:.1f} s")
    return Fault(what, job, machine.host, host, first - began)


def fail(fleet: Fleet, jobs: list[str]) -> list[Fault]:
    """Let machines fail, one after the other, each while it trains a job of which something is published."""
    limit, faults = fleet.lease * 2 + 120, []
    machine, job = victim(fleet, jobs)
    began = time.time()
    machine.kill()
    faults.append(evacuated(fleet, "killed", job, machine, began, limit))
    fleet.boot(machine)
    fleet.kill_scheduler()
    say("the scheduler is killed, and started again 5 s later")
    time.sleep(5)
    fleet.start_scheduler()

    machine, job = victim(fleet, jobs)
    (machine.home / "wedged").touch()
    wait_for("its GPU counts as wedged", lambda: is_cordoned(fleet, machine), 400)
    faults.append(evacuated(fleet, "wedged", job, machine, time.time(), limit))
    (machine.home / "wedged").unlink()
    fleet.say("fleet", "uncordon", machine.host)

    machine, job = victim(fleet, jobs)
    began = time.time()
    machine.cut_off()
    faults.append(evacuated(fleet, "cut off", job, machine, began, limit))
    while time.time() < began + fleet.lease + AWAY:
        time.sleep(0.5)
    machine.reconnect()
    return faults


def victim(fleet: Fleet, jobs: list[str]) -> tuple[Machine, str]:
    """Wait until all machines take jobs and one has published something of its job; return it and the job."""
    found: list[tuple[Machine, str]] = []

    def publishes() -> bool:
        if not any(is_cordoned(fleet, machine) for machine in fleet.machines):
            held = ((machine, fleet.held_by(machine, jobs)) for machine in fleet.machines)
            found.extend(pair for pair in held if pair[1])
        return bool(found)

    wait_for("a machine publishes", publishes, 300)
    return found[0]


def is_cordoned(fleet: Fleet, machine: Machine) -> bool:
    """Return whether a machine takes no jobs."""
    cordon = published.record(fleet.store, f"cordons/{machine.host}")
    return bool(cordon) and not cordon.get("is_lifted", False)


def say(text: str) -> None:
    """Say how far the bench is."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


class Found(NamedTuple):
    """What one store gave.  `wrong`: jobs with other weights; `refused`: counts of published.Published."""

    kind: str
    faults: list[Fault]
    jobs: int
    finished: int
    wrong: int
    twice: int
    longer: list[float]  # seconds of a job over a bare run
    tried: list[Tried]
    seconds: float


def weigh(fleet: Fleet, jobs: list[str], expected: dict[int, str]) -> tuple[int, int, int]:
    """Return how many jobs finished, have other weights, and published something twice."""
    wrong = twice = 0
    for number, job in enumerate(jobs):
        digests = [one for machine in fleet.machines for one in machine.digests(job)]
        wrong += not digests or {*digests} != {expected[number // COPIES]}
        log = published.read(fleet.store, job)
        twice += bool(log.fenced or log.repeated or log.after_end or log.finished > 1)
    return len(fleet.finished(jobs)), wrong, twice


def one_store(kind: str, options: argparse.Namespace, environment: dict[str, str], network: Network) -> Found:
    with tempfile.TemporaryDirectory(prefix="sgf-") as made:
        fleet = Fleet(Path(made), network, kind, options.lease, environment)
        try:
            began = time.monotonic()
            fleet.start_scheduler()
            for machine in fleet.machines:
                machine.connect()
                fleet.boot(machine)
            wait_for("all machines are there", lambda: all(map(fleet.is_ready, fleet.machines)), 120)
            say(f"{kind}: three machines")
            expected = {seed: bare(fleet, seed)[1] for seed in range(SEEDS)}
            longer = overhead(fleet, options.overhead)
            jobs, faults = [] if options.single else list(all_jobs()), []
            if jobs:
                with Feeder(fleet, all_jobs()) as feeder:
                    faults = fail(fleet, feeder.submitted)
                sweep(fleet)
            wait_for("all jobs finish", lambda: len(fleet.finished(jobs)) == len(jobs), LONGEST, 2)
            finished, wrong, twice = weigh(fleet, jobs, expected)
            tried = Trials(fleet, expected, say).all()
            seconds = time.monotonic() - began
            return Found(kind, faults, len(jobs), finished, wrong, twice, longer, tried, seconds)
        finally:
            if options.keep:
                fleet.keep(Path(options.keep) / kind)
            fleet.close()


def print_table(found: list[Found]) -> list[Goal]:
    rows = [
        (one.kind, f"{one.finished}/{one.jobs}", str(one.wrong), str(one.twice),
         f"{quantile(one.longer, 0.5):.1f}", f"{one.seconds:.0f}")
        for one in found
    ]  # fmt: skip
    head = ("store", "finished", "other weights", "published twice", "job over a bare run, s", "s")
    print(table(head, rows))
    faults = [(one.kind, *fault) for one in found for fault in one.faults]
    if faults:
        shown = [(kind, what, job, host, to, f"{seconds:.1f}") for kind, what, job, host, to, seconds in faults]
        print(table(("store", "machine is", "job", "from", "to", "s until it trains again"), shown))
    tried = [(one.kind, *map(str, each)) for one in found for each in one.tried]
    print(table(("store", "fault", "how it ended", "jobs", "as they must"), tried))
    seconds = [fault[-1] for fault in faults]
    if faults:
        print(f"time to evacuate: p50 {quantile(seconds, 0.5):.1f} s, p95 {quantile(seconds, 0.95):.1f} s")
    goals = [
        Goal("jobs that did not finish", sum(one.jobs - one.finished for one in found), 0),
        Goal("jobs with other weights", sum(one.wrong for one in found), 0),
        Goal("jobs published twice", sum(one.twice for one in found), 0),
        Goal(
            "jobs of single faults that did not end as they must",
            sum(each.jobs - each.right for one in found for each in one.tried),
            0,
        ),
    ]
    if faults:
        goals.append(Goal("time to evacuate p95, s", quantile(seconds, 0.95), EVACUATED))
    longer = [each for one in found for each in one.longer]
    return [*goals, Goal("job over a bare run p50, s", quantile(longer, 0.5), LONGER)] if longer else goals


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=["file", "s3"], help="only this one")
    parser.add_argument("--lease", type=float, help=f"seconds [60; with --simulate {lease.LASTS:g}]")
    parser.add_argument("--overhead", type=int, default=3, help="pairs of a job and a bare run [3]")
    parser.add_argument("--ray", metavar="PROGRAM", help="the program ray: the jobs go through a cluster of it instead")
    parser.add_argument("--single", action="store_true", help="only the faults that are tried one by one")
    parser.add_argument("--keep", metavar="DIR", help="keep the logs")
    parser.add_argument(
        "--simulate", type=int, metavar="N", help="the scheduler with N simulated machines instead, 10 N jobs that wait"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="with --simulate, of which turns are timed [60]")
    parser.add_argument("--idle", action="store_true", help="what a worker costs that waits for jobs, instead")
    options = parser.parse_args()
    if options.idle:
        kinds = [options.store] if options.store else ["file", "s3"]
        goals = [goal for kind in kinds for goal in idle.idle(kind, options.seconds, say)]
        return concluded(goals)
    if options.simulate:
        goals = simulation.goals(
            simulation.simulate(options.simulate, options.lease or lease.LASTS, options.seconds, say),
            options.simulate,
            options.lease or lease.LASTS,
        )
        return concluded(goals)
    options.lease = options.lease or 60.0
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    if options.ray:
        goals = ray_cluster.through_ray(Path(options.ray).resolve(), environment, say)
        return concluded(goals)
    if sys.platform == "darwin" or os.geteuid():
        print("scripts/bench fleet makes machines of Linux namespaces: it needs Linux, and root")
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    network = Network()
    network.open()
    try:
        with s3_server.bucket(network.host) as s3:
            kinds = [options.store] if options.store else ["file", "s3"]
            found = [one_store(kind, options, {**environment, **s3}, network) for kind in kinds]
    finally:
        network.close()
    goals = print_table(found)
    return concluded(goals)


if __name__ == "__main__":
    sys.exit(main())
