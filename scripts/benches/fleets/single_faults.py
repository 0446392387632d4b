"""Faults of `scripts/bench fleet` that are tried one by one, each with jobs of its own, after the jobs of the sweep.

Each function makes one fault and returns how its jobs ended.  What must hold is read from the raw log of a job
(published.py) and from the weights that the training printed, not from what stallguard says; except where a sentence of
stallguard is what must hold.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from fleets import published
from fleets.fleet_of_machines import PORT, Fleet
from fleets.machines import Machine, wait_for
from fleets.trainings import arguments

CODES = (75, 124, 125, 126, 127)  # exit codes that mean something of stallguard's own
OUTAGE = 45.0  # s: longer than the rest of the training, shorter than the lease
FOLLOWED = 20.0  # s in which the fleet comes upon links that another user planted
NAME_IS_WATCHED = 150.0  # s in which a second worker of one name is refused
LONGEST = 400.0  # s for one job, a lease and an evacuation included


class Tried(NamedTuple):
    """One fault: how it ended in words, and how many of its jobs ended as they must."""

    what: str
    ended: str
    jobs: int
    right: int


class Trials:
    """The faults against one fleet.  `expected`: the weights of the training alone, by seed."""

    def __init__(self, fleet: Fleet, expected: dict[int, str], say: Callable[[str], None]) -> None:
        self._fleet, self._expected, self._say = fleet, expected, say
        (fleet.project / "ends.py").write_text(ENDS)

    def all(self) -> list[Tried]:
        tries = [
            self.supervisor_killed_alone, self.ends_in_an_outage, self.newest_checkpoint_damaged, self.ends_with_codes,
            self.priorities_behind_long_jobs, self.two_schedulers, self.second_worker_of_a_name, self.other_fleet_file,
        ]  # fmt: skip
        if folder := self._fleet.folder:
            tries.append(partial(self.links_planted, folder))
        found = []
        for each in tries:
            found.append(each())
            self._say(f"{found[-1].what}: {found[-1].ended}")
        return found

    # ---- the faults ------------------------------------------------------------------------------------------

    def supervisor_killed_alone(self) -> Tried:
        """SIGKILL stallguard on the only machine that takes jobs; its training is left."""
        first, *others = self._fleet.machines
        for machine in others:
            self._fleet.say("fleet", "cordon", machine.host, "--why", "the bench")
        try:
            machine = self._begun("killed-alone", 0)
            children = psutil.Process(machine.first).children(recursive=True)
            (run,) = [one for one in children if {"run", "--job"} <= {*_words(one)}]
            run.kill()
            return self._ended("stallguard killed alone", "killed-alone", 0, only=first)
        finally:
            for machine in others:
                self._fleet.say("fleet", "uncordon", machine.host)

    def ends_in_an_outage(self) -> Tried:
        """Take the store away from a machine until its training has ended."""
        machine = self._begun("outage", 1, "--set", "store.if_away=continue")
        machine.cut_off()
        time.sleep(OUTAGE)
        machine.reconnect()
        return self._ended("the training ends in an outage", "outage", 1, only=machine)

    def newest_checkpoint_damaged(self) -> Tried:
        """Kill a machine, and cut a file of the newest checkpoint that it published."""
        store, job = self._fleet.store, "damaged"
        machine = self._begun(job, 2, generations=2)
        machine.kill()
        older, newest = [one for one in published.entries(store, job) if one["entry"] == "generation"][-2:]
        known = {file["name"] for file in older["files"]}
        name = next(file["name"] for file in newest["files"] if file["name"] not in known)
        key = f"jobs/{job}/data/{newest['number']}/{name}"
        store.replace(key, (store.read(key) or b"")[:-1])
        found = self._ended("the newest checkpoint is damaged", job, 2)
        self._fleet.boot(machine)
        lines = [line for one in self._fleet.machines for line in one.lines(job)]
        says = any("cannot be used (" in line for line in lines)
        return found if says else found._replace(ended=f"{found.ended}; not said", right=0)

    def ends_with_codes(self) -> Tried:
        """End scripts with the exit codes that stallguard itself uses: each has failed, once."""
        for code in CODES:
            self._submit(f"code-{code}", ["ends.py", str(code)])
        found = [self._outcome(f"code-{code}") for code in CODES]
        return Tried("scripts that end with a code of stallguard's own", str(found), len(CODES),
                     sum(one == (code, 1) for one, code in zip(found, CODES, strict=True)))  # fmt: skip

    def priorities_behind_long_jobs(self) -> Tried:
        """Submit jobs of low, then of high priority while each machine trains."""
        longs = [f"long-{number}" for number in range(len(self._fleet.machines))]
        for number, job in enumerate(longs):
            self._submit(job, ["train.py", *arguments(number)])
        wait_for("each machine trains", lambda: all(map(self._holder, longs)), LONGEST)
        low, high = [f"low-{number}" for number in range(6)], [f"high-{number}" for number in range(3)]
        for job, priority in [*((job, 0) for job in low), *((job, 10) for job in high)]:
            self._submit(job, ["ends.py", "0"], "--priority", str(priority))
        wait_for("they end", lambda: len(self._fleet.finished([*low, *high])) == 9, LONGEST)
        begun = sorted([*low, *high], key=lambda job: published.entries(self._fleet.store, job)[0]["at"])
        right = [job for job in begun[:3] if job in high]
        ended = [self._ended("", job, number) for number, job in enumerate(longs)]
        return Tried("low, then high priority behind long jobs", f"begun in the order {' '.join(begun)}", 12,
                     9 * (len(right) == 3) + sum(one.right for one in ended))  # fmt: skip

    def two_schedulers(self) -> Tried:
        """Start a second scheduler at the same port, and one at another port while a job is trained."""
        code, said = self._fleet.tried("fleet", "scheduler")
        refused = bool(code) and "Traceback" not in said and "cannot listen" in said
        with self._fleet.process("fleet", "scheduler", "--listen", f"{self._fleet.network.host}:{PORT + 1}"):
            self._begun("two-schedulers", 3)
            found = self._ended("two schedulers", "two-schedulers", 3)
        ended = f"{found.ended}; at the same port: {code}, {said.splitlines()[0]}"
        return found._replace(ended=ended, right=found.right * refused)

    def second_worker_of_a_name(self) -> Tried:
        """Start a worker with the name of a machine that is there."""
        machine = self._fleet.machines[0]
        code, said = self._fleet.tried(
            "fleet", "worker", "--name", machine.host, file=self._fleet.file_of(machine), limit=NAME_IS_WATCHED
        )
        right = bool(code) and "Traceback" not in said
        return Tried("a second worker of one name", f"{code}, {said.splitlines()[-1]}", 1, int(right))

    def other_fleet_file(self) -> Tried:
        """Submit to this fleet's store with the fleet file of another fleet."""
        place = self._fleet.place / "stranger"
        (place / "store").mkdir(parents=True)
        file = place / "fleet.toml"
        self._fleet.say("fleet", "init", "--store", f"file://{place}/store", "--scheduler", "127.0.0.1", file=file)
        file.write_text(file.read_text().replace(f"file://{place}/store", self._fleet.url))
        code, said = self._fleet.tried("fleet", "submit", "--name", "strange", "--", "ends.py", "0", file=file)
        right = bool(code) and self._fleet.store.read("jobs/strange/submission") is None
        return Tried("the fleet file of another fleet", f"{code}, {said.splitlines()[0]}", 1, int(right))

    def links_planted(self, folder: Path) -> Tried:
        """Plant symbolic links to a bystander's folder in each place of the store; a job beside them is trained."""
        bystander = self._fleet.place / "bystander"
        bystander.mkdir()
        for number in range(20):
            (bystander / f"{number:08}").write_text(f"mine {number}")
        before, planted = _content(bystander), []
        for number, place in enumerate(("", "log", "beats", "data", "data/1", "runs", "runs/1", "refusals", "stop")):
            link = folder / "jobs" / f"planted-{number}" / place
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(bystander)
            planted.append(link)
        for place in ("workers/m9", "cordons/m9", "machines/m9.json", "code/" + 64 * "0"):
            (folder / place).parent.mkdir(exist_ok=True)
            (folder / place).symlink_to(bystander / f"{1:08}")
            planted.append(folder / place)
        for number in range(1, 9):
            self._fleet.tried("fleet", "submit", "--name", f"planted-{number}", "--", "ends.py", "0")
        self._submit("beside-links", ["train.py", *arguments(0)])
        time.sleep(FOLLOWED)
        found = self._ended("links to a bystander's files", "beside-links", 0)
        is_whole = _content(bystander) == before
        for link in planted:
            link.unlink(missing_ok=True)
        for job in (folder / "jobs").glob("planted-*"):
            shutil.rmtree(job)
        ended = f"{found.ended}; the bystander's files are {'as before' if is_whole else 'CHANGED'}"
        return found._replace(ended=ended, right=found.right * is_whole)

    # ---- parts of them ---------------------------------------------------------------------------------------

    def _submit(self, job: str, words: list[str], *options: str) -> None:
        lease = ("--set", f"store.lease={self._fleet.lease}s")
        self._fleet.say("fleet", "submit", "--name", job, *lease, *options, "--", *words)

    def _holder(self, job: str) -> str:
        return published.holder(self._fleet.store, job)[0]

    def _begun(self, job: str, seed: int, *options: str, generations: int = 1) -> Machine:
        """Submit a training; return its machine when so many of its checkpoints are published."""
        self._submit(job, ["train.py", *arguments(seed)], *options)

        def publishes() -> bool:
            return published.read(self._fleet.store, job).generations >= generations

        wait_for(f"{job} publishes", publishes, LONGEST)
        host = self._holder(job)
        return next(one for one in self._fleet.machines if one.host == host)

    def _ended(self, what: str, job: str, seed: int, only: Machine | None = None) -> Tried:
        """Wait for the end of a training.  `only`: the machine that alone can have trained it, once."""
        try:
            wait_for(f"{job} finishes", lambda: self._fleet.finished([job]), LONGEST)
        except TimeoutError as error:
            return Tried(what, str(error), 1, 0)
        log = published.read(self._fleet.store, job)
        weights = {one for machine in self._fleet.machines for one in machine.digests(job)}
        wrong = [
            *(["other weights"] if weights != {self._expected[seed]} else []),
            *(["published twice"] if log.fenced or log.repeated or log.after_end or log.finished != 1 else []),
            *([f"trained on {log.holders}"] if only and {*log.holders} != {only.host} else []),
        ]
        return Tried(what, ", ".join(wrong) or f"bit-equal, published once; held by {' '.join(log.holders)}", 1,
                     int(not wrong))  # fmt: skip

    def _outcome(self, job: str) -> tuple[int | None, int]:
        """Return the script's exit code in the end of a job, and how often it was begun."""

        def entries() -> list[dict[str, object]]:
            return published.entries(self._fleet.store, job)

        with contextlib.suppress(TimeoutError):
            wait_for(f"{job} ends", lambda: any(one["entry"] == "outcome" for one in entries()), LONGEST)
        time.sleep(5)  # a job that goes on would be begun again
        codes = [one.get("script_code") for one in entries() if one["entry"] == "outcome"]
        return (codes[-1] if codes else None), sum(one["entry"] == "claim" for one in entries())  # type: ignore[return-value]


ENDS = """import sys, time, stallguard
for _ in range(20):
    stallguard.beat()
    time.sleep(0.05)
sys.exit(int(sys.argv[1]))
"""


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _content(folder: Path) -> dict[str, str]:
    """Return the digest of each file."""
    return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in sorted(folder.iterdir())}
