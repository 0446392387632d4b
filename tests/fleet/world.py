"""Machines, their clocks, a network and a store, in simulated time: what runs is the product's own steps.

Each machine has a supervisor that can be killed and frozen, a training that lives on without it, and a worker, whose
card renews the lease of the supervisor.  Each request to the store takes a time, can be lost, or be done long after its
sender gave up.  What must hold is checked by `Checker` from the raw content of the store and from what the trainings
really did, with none of the product's code.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass, field
from random import Random

from stallguard.fleet.jobs.generations import Found, Publication
from stallguard.fleet.machines import keeper, lease
from stallguard.fleet.machines.lease import Upkeep
from stallguard.fleet.machines.machine_beat import FRESH, FRESH_LEAST, Standing
from stallguard.fleet.store import StoreError, joblog
from stallguard.fleet.store.joblog import Fenced, Tail
from stallguard.fleet.store.records import Holder, Position
from tests.fleet.memory import MemoryStore

JOB = "job"
LASTS = 24.0  # s of a lease; the world's clock ticks once a second
PATIENCE = 4  # s that a sender waits for an answer
LOST = object()


parsed = functools.cache(json.loads)  # what is in a log is never changed, and looked at each second


@dataclass
class Sent:
    """A request on its way.  `done`, `answered`: when, in seconds of the world; None: never."""

    request: object
    sent: int
    done: int | None
    answered: int | None
    answer: object = LOST


class Thread:
    """Steps of the product that wait for the store."""

    def __init__(self, steps):
        self.steps, self.waits, self.result = steps, None, None

    def resume(self, answer=None, error=None):
        """Go on to the next request; return whether the steps are over."""
        try:
            self.waits = self.steps.throw(error) if error else self.steps.send(answer)
        except StopIteration:
            return True
        return False


@dataclass
class Training:
    """`run`: whose; `start`: the slot of the generation that it went on from; `end`: when it ends by itself."""

    run: str
    start: int
    progress: int
    lives: bool = True
    end: int | None = None


class Machine:
    """One machine."""

    def __init__(self, world, name, rate):
        self.world, self.name, self.rate = world, name, rate
        self.wall = 0  # seconds by which its clock on the wall is wrong
        self.frozen = self.cut_off = False
        self.slow = self.able = 0
        self.last_frozen = -1000
        self.trainings = []
        self.boots = 0
        self.supervisor = None
        self.hung = False  # the supervisor alone stands still
        self.worker = self.held = self.card = None  # files: a lease and when it was said; a card and for whom it stands

    @property
    def now(self):
        return 1000.0 + self.world.now * self.rate

    def start(self):
        if self.supervisor is None:
            self.boots += 1
            self.supervisor = Supervisor(self, f"{self.name}-{self.boots}")

    def kill(self):
        if self.supervisor is not None:
            self.supervisor = None  # the training lives on

    def start_worker(self):
        if self.worker is None:
            self.worker = Worker(self)

    def alive(self):
        """Return the names of the leases whose runs have said lately that they live."""
        is_fresh = self.held is not None and self.now - self.held[1] <= max(FRESH_LEAST, LASTS * FRESH)
        return {self.held[0]} if is_fresh else set()


class Worker:
    """What the worker of a machine does for leases: it renews its card."""

    def __init__(self, machine):
        self.machine, self.sent = machine, {}
        self.threads = {"card": Thread(self.working())}

    def lives(self):
        return self.machine.worker is self

    def working(self):
        machine, standing, carded, cards = self.machine, Standing(self.machine.name), -LASTS, 0
        nonce = machine.world.random.random()
        while True:
            alive = machine.alive()
            if machine.now >= carded + LASTS * lease.BY_MACHINE or not standing.is_for(alive):
                began, cards = machine.now, cards + 1
                try:
                    stands = yield from standing.renew(alive, f"{nonce} {cards}".encode())
                    machine.card, carded = (began, machine.now, stands), began
                except StoreError:
                    pass
            yield None


class Supervisor:
    """What `stallguard run --store` does, without processes: three threads of steps, and the timer."""

    def __init__(self, machine, run):
        self.machine, self.run = machine, run
        self.holder = Holder(host=machine.name, boot="b", pid=machine.boots, nonce=run)
        self.watch = self.tenure = self.training = self.publication = None
        self.sent = {}
        self.beat, self.card = 0, 0.0
        self.ticked = machine.now
        self.threads = {"claim": Thread(self.claiming())}

    def lives(self):
        return self.machine.supervisor is self

    def at(self):
        return str(self.machine.world.now + self.machine.wall)

    # ---- threads of steps; a bare `yield` of None waits for the next second ----

    def claiming(self):
        tail = Tail()
        while True:
            try:
                tail = (yield from joblog.read_end(JOB)) if not tail.slot else tail
                tail, mark = yield from joblog.look(JOB, tail)
                self.watch = lease.watched(self.watch, mark, self.machine.now, LASTS)
                if tail.is_free or lease.has_run_out(self.watch, LASTS):
                    began = self.machine.now
                    tail, won = yield from joblog.claim(JOB, tail, self.holder, self.at())
                    if won:
                        self.hold(tail, began)
                        return
                    self.watch = None
            except StoreError:
                pass
            yield None
            yield None

    def hold(self, tail, began):
        self.tenure = lease.Tenure(lease.HELD, tail.number, began)
        self.publication = Publication(JOB, tail.number, tail)
        progress = tail.generation.position.batch if tail.generation else 0
        self.training = Training(self.run, tail.newest, progress)
        self.machine.trainings.append(self.training)
        self.threads["renew"] = Thread(self.renewing(tail, began))
        self.threads["publish"] = Thread(self.publishing())

    def renewing(self, tail, began):
        is_expected = self.machine.worker is not None
        upkeep = Upkeep(began if is_expected else began - LASTS, began, began - LASTS, is_expected)
        while True:
            now = self.machine.now
            if self.card > upkeep.renewed:
                upkeep = upkeep._replace(renewed=self.card, by_machine=True)
            what = lease.due(upkeep, now, LASTS)
            if what:
                self.beat, upkeep = self.beat + 1, upkeep._replace(tried=now)
                try:
                    steps = keeper.kept(what, JOB, tail, self.beat, upkeep, lambda: self.machine.now, LASTS)
                    tail, upkeep = yield from steps
                    if what == lease.RENEW:
                        self.tenure = lease.renewed(self.tenure, now)
                except Fenced:
                    self.tenure = lease.moved(self.tenure, "fenced", self.machine.now)
                    return
                except StoreError:
                    pass
            yield None

    def publishing(self):
        while True:
            yield None
            training, publication = self.training, self.publication
            over = not training.lives
            position = Position(1, 0, training.progress)
            try:
                newest = publication.tail.generation
                if newest is None or position > newest.position:
                    text = f"{self.run} {training.progress}".encode()
                    digest = hashlib.sha256(text).hexdigest()
                    same = hashlib.sha256(b"seed").hexdigest()
                    files = [Found("a", len(text), digest, text), Found("seed", 4, same, b"seed")]
                    yield from publication.publish(self.run, self.at(), position, files)
                    yield from publication.clean()
                if over:
                    yield from publication.conclude(self.run, self.at(), training.end, "")
                    self.tenure = lease.moved(self.tenure, "over", self.machine.now)
                    self.machine.supervisor = None
                    return
            except Fenced:
                self.tenure = lease.moved(self.tenure, "fenced", self.machine.now)
                return
            except StoreError:
                pass

    # ---- the timer ----

    def tick(self):
        now, random = self.machine.now, self.machine.world.random
        if self.tenure is None:
            return
        if now - self.ticked > LASTS * lease.STILL:
            self.tenure = self.tenure._replace(woke=now)
        self.ticked = now
        if self.tenure.state != lease.FENCED:
            self.see_card()
        self.tenure, orders = lease.judge(self.tenure, now, LASTS)
        for order in orders:
            obeys = order == "kill" or random.random() < {"end": 0.4, "term": 0.6}[order]
            if self.training.lives and obeys:
                self.training.lives, self.training.end = False, 75
        if self.tenure.state == lease.FENCED and not self.training.lives:
            self.machine.supervisor = None

    def see_card(self):
        name, card = f"{JOB}@{self.tenure.number}", self.machine.card
        self.machine.held = name, self.machine.now
        if card is not None and name in card[2]:
            after = lease.renewed_by_machine(self.tenure, card[0], card[1], LASTS)
            if after != self.tenure:
                self.tenure, self.card = after, card[0]


@dataclass
class World:
    """All machines and the store."""

    random: Random
    machines: list = field(default_factory=list)
    disk: MemoryStore = field(default_factory=MemoryStore)
    late: list = field(default_factory=list)
    now: int = 0
    away: bool = False  # the store
    still: bool = False  # no training gets further
    claims: list = field(default_factory=list)

    def pass_second(self):
        """Let one second pass everywhere."""
        self.now += 1
        for sent in [one for one in self.late if one.done is not None and one.done <= self.now]:
            self.late.remove(sent)
            self.apply(sent)
        for machine in self.machines:
            for training in machine.trainings:
                if training.lives and not self.still:
                    training.progress += self.random.choice((0, 0, 0, 1, 2))
            if machine.frozen or machine.hung:
                machine.last_frozen = self.now
            if machine.supervisor is not None and not machine.frozen and not machine.hung:
                machine.supervisor.tick()
                self.run_threads(machine, machine.supervisor)
            if machine.worker is not None and not machine.frozen:
                self.run_threads(machine, machine.worker)
        self.check_replaced()

    def run_threads(self, machine, process):
        if process is not None:
            for name in list(process.threads):
                self.run_thread(machine, process, name)

    def run_thread(self, machine, process, name):
        """Let a thread run until it waits for the next second or for the store."""
        for _ in range(60):
            thread, sent = process.threads[name], process.sent.get(name)
            if not process.lives():
                return
            if sent is None:
                if thread.resume():
                    del process.threads[name]
                    return
            elif sent.answered is not None and sent.answered <= self.now and self.apply(sent):
                del process.sent[name]
                if sent in self.late:
                    self.late.remove(sent)
                if thread.resume(answer=sent.answer):
                    process.threads.pop(name, None)
                    return
            elif self.now - sent.sent >= PATIENCE:
                del process.sent[name]
                if thread.resume(error=StoreError("no answer")):
                    process.threads.pop(name, None)
                    return
            else:
                return
            if thread.waits is None:
                return
            process.sent[name] = self.send(machine, thread.waits)

    def send(self, machine, request):
        """Send a request; in a bad network it can be done late, or never, or its answer can be lost."""
        random, done, answered = self.random, self.now, self.now
        if machine.cut_off or self.away:
            done = self.now + random.randrange(1, 90) if random.random() < 0.4 else None
            answered = None
        elif machine.slow:
            done = self.now + random.randrange(machine.slow + 1)
            answered = done + random.randrange(machine.slow + 1) if random.random() < 0.9 else None
        sent = Sent(request, self.now, done, answered)
        if done is not None:
            self.late.append(sent)
        return sent

    def apply(self, sent):
        """Do a request, once; return True."""
        if sent.answer is LOST:
            do, key, _ = sent.request
            is_new = do == "create" and key not in self.disk
            sent.answer = self.disk.do(sent.request)
            if is_new and parsed(self.disk[key])["entry"] == "claim":
                self.claims.append((self.now, parsed(self.disk[key])))
                self.check_punctual()
        return True

    def check_replaced(self):
        """A holder that was replaced, and could run and reach the store for a lease since, has ended its training."""
        number = self.claims[-1][1]["number"] if self.claims else 0
        for machine in self.machines:
            supervisor = machine.supervisor
            is_able = not (self.away or machine.cut_off or machine.slow or machine.frozen or machine.hung)
            is_replaced = supervisor is not None and supervisor.tenure is not None and supervisor.tenure.number < number
            machine.able = machine.able + 1 if is_able and is_replaced else 0
            if machine.able > LASTS:
                assert not supervisor.training.lives, f"{machine.name} was replaced, and trains on"

    def check_punctual(self):
        """After a claim no other training lives, unless its supervisor was killed, or stood still not long ago."""
        holder = self.claims[-1][1]["holder"]["host"]
        for machine in self.machines:
            supervisor = machine.supervisor
            if supervisor is None or supervisor.training is None or machine.name == holder:
                continue
            stood_still = machine.frozen or machine.hung or self.now - machine.last_frozen <= 2 * LASTS
            assert not supervisor.training.lives or stood_still, f"{machine.name} still trains"


class Checker:
    """What must hold, from the store's raw content."""

    def __init__(self, world):
        self.world = world

    def log(self):
        folder = f"jobs/{JOB}/log"
        found = {int(name): self.world.disk[f"{folder}/{name}"] for name in self.world.disk.inside[folder]}
        assert sorted(found) == list(range(1, len(found) + 1)), "a slot is missing"
        return [(slot, parsed(found[slot])) for slot in sorted(found)]

    def check(self):
        """Raise AssertionError if progress was published twice, or an old holder got something in."""
        starts = {t.run: t.start for machine in self.world.machines for t in machine.trainings}
        number, freed, before = 0, True, None
        for slot, entry in self.log():
            if entry["entry"] == "claim":
                assert entry["number"] == number + 1, "a number is not the next one"
                number, freed = entry["number"], False
                continue
            assert entry["number"] == number, f"slot {slot}: a fenced {entry['entry']} was accepted"
            assert not freed, f"slot {slot}: published after the end"
            if entry["entry"] == "outcome":
                freed = True
                continue
            if before is not None:
                last_slot, last = before
                assert entry["position"]["batch"] > last["position"]["batch"], "progress was published twice"
                if entry["run"] != last["run"]:
                    assert starts[entry["run"]] == last_slot, "went on from another generation"
            else:
                assert starts[entry["run"]] == 0
            before = slot, entry
        if before is not None:
            slot, entry = before
            folder = f"jobs/{JOB}/data/{entry['number']}"
            for file in entry["files"]:
                data = self.world.disk.read(f"{folder}/{file['name']}")
                assert data is not None, "a file of the newest generation is gone"
                assert hashlib.sha256(data).hexdigest() == file["digest"]
        return number, before
