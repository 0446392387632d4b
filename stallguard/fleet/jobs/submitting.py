"""Puts a job into the store.  That is all that it takes: a scheduler finds it there, now or later.

The code goes first, then the submission, which names it: a submission is complete from its first moment.

A Ray cluster can start it: `ray job submit` starts `stallguard fleet job NAME` on a machine with what it needs.  The
job is in the store as each other one; Ray only chooses the machine.  So a job that Ray starts twice (its raylet was
killed, and the training lives on as an orphan) is trained once, and one that is submitted again goes on.  Only the
command line of Ray is used (its package is 200 MB and needs one version in the whole cluster).

A sweep is one command with several parameters, as a list of jobs:

    name = "rates"                              # the jobs are rates-001, rates-002, ...
    command = ["train.py", "--epochs", "20"]    # {rate} in a word is replaced; a parameter that is in no word
    needs = ["metal"]                           #   becomes an option: --rate 0.1
    priority = 0
    method = "grid"                             # each combination; "list": the first values, the second, ...;
    # method = "random", runs = 20, seed = 7    #   "random": so many different combinations
    options = ["--max-restarts", "3"]           # of stallguard run
    [parameters]
    rate = [0.1, 0.01]
    rows = [32, 64]

Numbers and order of the jobs depend on the file alone, so a sweep that is submitted again adds only what is missing.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import json
import random
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from stallguard import units
from stallguard.errors import CANNOT_RUN, USAGE, StallguardError
from stallguard.fleet.jobs import job_table
from stallguard.fleet.jobs.dispatch import SLOTS, offers
from stallguard.fleet.machines import machine_list
from stallguard.fleet.store import Store, StoreError, orders
from stallguard.fleet.store.orders import JOB_NAME, Code, Submission, Wish
from stallguard.fleet.store.signing import Signatures

SCHEMA = 1
KNOWN = ("metal", "cuda", "mlx", "memory")  # what a job can need
TAKES = ("ready", "busy")  # states of a worker's card
GB = 1e9
LIMIT = 120.0  # s; `ray job submit --no-wait` takes about 10
GRID, LIST, RANDOM = "grid", "list", "random"
MOST = 10_000  # jobs: more are a mistake in the file
DIGITS = 3
Value = str | int | float | bool


class Submitted(msgspec.Struct, frozen=True):
    """What was put into the store.  `jobs`: the new ones; `present`: those that were there already."""

    schema: int
    fleet: str  # its name
    jobs: list[str]
    present: list[str]
    code: str  # SHA-256 of the packed project
    revision: str  # of git, "" if it is in none
    changed: bool  # whether files differ from that revision
    files: int  # that were packed
    size: int = msgspec.field(name="content_bytes")  # of their content
    left_out: list[str]  # files that are not sent because such files hold secrets
    notes: list[str]  # what a person should know: no machine fits yet, files differ from the last commit


def needs(texts: Sequence[str]) -> dict[str, float]:
    """Return amounts by resource for texts such as "metal", "cuda=2", "memory=32GB".  Raises StallguardError."""
    found: dict[str, float] = {}
    for text in (part.strip() for one in texts for part in one.split(",")):
        name, _, amount = text.partition("=")
        if name not in KNOWN:
            raise StallguardError(
                f"no machine can offer {name!r}", cure=f"what a job can need: {', '.join(KNOWN)}", code=USAGE
            )
        try:
            value = units.size(amount) / GB if name == "memory" else float(amount or 1)
        except ValueError as error:
            raise StallguardError(f"{text!r} is no amount", cure="--needs memory=32GB", code=USAGE) from error
        if not 0 < value < float("inf"):
            raise StallguardError(f"{text!r} is no amount", cure="--needs memory=32GB", code=USAGE)
        found[name] = value
    return found


def job_name(words: Sequence[str], now: dt.datetime) -> str:
    """Return a name for a job that was given none: that of its script, and the time."""
    script = next((word for word in words if word.endswith((".py", ".sh"))), words[0] if words else "job")
    if "-m" in words[:-1]:
        script = words[list(words).index("-m") + 1]
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", Path(script).stem).strip("-.")[:40] or "job"
    return f"{plain}-{now:%Y%m%d-%H%M%S}"


def put_code(store: Store, code: Code, archive: Path) -> None:
    """Put a packed project into the store unless it is there.  Raises StoreError."""
    if code.digest not in store.names("code"):
        store.put(orders.code_key(code.digest), archive)


def submit(store: Store, signatures: Signatures, wish: Wish, code: Code, by: str, at: str) -> bool:
    """Put a job into the store; return False if there is one of that name.  Raises StoreError, StallguardError."""
    if not orders.JOB_NAME.fullmatch(wish.job):
        why = "it is part of a path in the store: letters, digits, dots, dashes and underscores"
        raise StallguardError(f"{wish.job!r} cannot be the name of a job", why=why, code=USAGE)
    submission = Submission(**msgspec.structs.asdict(wish), code=code, by=by, at=at)
    data = orders.encode(submission, signatures)
    is_new = store.create(orders.Submission.place(job=wish.job), data)
    with contextlib.suppress(StoreError):  # without it the scheduler finds the job too, later
        store.replace(orders.news_key(wish.job), b"")
    return is_new


def exists(job: str) -> StallguardError:
    """Return the error for a name that is taken."""
    return StallguardError(
        f"there is a job {job} already",
        why="a job's name is its identity: what is published under it belongs to one training",
        cure=f"choose another name (--name), or see what it does: stallguard status {job}",
        code=CANNOT_RUN,
    )


def fitting(store: Store, signatures: Signatures, wanted: Mapping[str, float]) -> tuple[list[str], str]:
    """Return the machines that take a job which needs `wanted`, now or after another; and why others do not.

    Raises StoreError.
    """
    workers, cordons = machine_list.offered(store, signatures)
    out = {one.host for one in cordons}
    fit = [
        card.host
        for card in workers
        if card.state in TAKES and card.host not in out and offers(card.resources, {SLOTS: 1.0, **wanted})
    ]
    return fit, job_table.waits_for(wanted, (), workers, cordons)


def ray_command(ray: str, address: str, job: str, attempt: str, needs: Mapping[str, float]) -> list[str]:
    """Return the command that hands a job to Ray.

    `ray`: the program; `address`: of the cluster's dashboard, "http://host:8265"; `attempt`: Ray takes each submission
    id once.  Options: https://docs.ray.io/en/latest/cluster/running-applications/job-submission/cli.html
    """
    words = [ray, "job", "submit", "--address", address, "--no-wait", "--submission-id", f"{job}-{attempt}"]
    words += ["--entrypoint-num-cpus", "1"]  # what a slot is for a worker: Ray starts no more at once than it has
    if needs.get("cuda"):
        words += ["--entrypoint-num-gpus", f"{needs['cuda']:g}"]
    if needs.get("memory"):
        words += ["--entrypoint-memory", str(int(needs["memory"] * GB))]
    own = {name: amount for name, amount in needs.items() if name in ("metal", "mlx")}
    if own:  # the cluster's owner names these: ray start --resources '{"metal": 1}'
        words += ["--entrypoint-resources", json.dumps(own)]
    return [*words, "--", "stallguard", "fleet", "job", job]


def hand_over(
    address: str, job: str, attempt: str, needs: Mapping[str, float],
    run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run,
) -> Sequence[str]:  # fmt: skip
    """Hand a job to Ray; return the command that did it.  Raises StallguardError."""
    ray = shutil.which("ray")
    if ray is None:
        raise StallguardError(
            "there is no program ray",
            why="a job is handed to a Ray cluster with Ray's own command line",
            cure="install it: stallguard-train[ray]; the job is in the store, so --ray can be repeated with --again",
            code=CANNOT_RUN,
        )
    words = ray_command(ray, address, job, attempt, needs)
    try:
        done = run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired as error:
        raise _refused(address, f"it did not answer within {LIMIT:.0f} s") from error
    if done.returncode:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise _refused(address, "; ".join(lines[-3:])[:400] or f"exit code {done.returncode}")
    return words


def _refused(address: str, why: str) -> StallguardError:
    return StallguardError(
        f"the Ray cluster at {address} did not take the job",
        why=why,
        cure="the job is in the store: hand it over again with --again when the cluster answers",
        code=CANNOT_RUN,
    )


class SweepFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a sweep file."""

    name: str
    command: list[str]
    parameters: dict[str, list[Value]]
    needs: list[str] = []
    priority: int = 0
    method: str = GRID
    runs: int = 0
    seed: int = 0
    options: list[str] = []
    environment: dict[str, str] = {}


def jobs_of_sweep(text: str, path: str) -> list[Wish]:
    """Return the jobs of a sweep file.  `path`: for errors.  Raises StallguardError."""
    try:
        sweep = msgspec.convert(tomllib.loads(text), SweepFile)
    except (ValueError, RecursionError) as error:
        raise _wrong(path, str(error)) from error
    _check(sweep, path)
    wanted, found = needs(sweep.needs), combinations(sweep, path)
    digits = max(DIGITS, len(str(len(found))))
    return [
        Wish(
            job=f"{sweep.name}-{number:0{digits}}", words=words(sweep.command, chosen), options=tuple(sweep.options),
            needs=wanted, priority=sweep.priority, environment=sweep.environment, sweep=sweep.name,
        )
        for number, chosen in enumerate(found, start=1)
    ]  # fmt: skip


def combinations(sweep: SweepFile, path: str = "") -> list[dict[str, Value]]:
    """Return the values of each job, in order.  Raises StallguardError."""
    names, values = list(sweep.parameters), list(sweep.parameters.values())
    if sweep.method == LIST:
        lengths = {len(one) for one in values}
        if len(lengths) > 1:
            raise _wrong(path, f"a list takes as many values of each parameter; here: {sorted(lengths)}")
        return [dict(zip(names, one, strict=True)) for one in zip(*values, strict=True)]
    total = 1
    for one in values:
        total *= len(one)
    if total > MOST and sweep.method == GRID:
        raise _wrong(path, f'it has {total} combinations; {MOST} are the most: method = "random" takes some of them')
    if sweep.method == GRID:
        return [dict(zip(names, one, strict=True)) for one in itertools.product(*values)]
    shuffled = random.Random(sweep.seed)  # noqa: S311 - no secret
    chosen = shuffled.sample(range(total), min(sweep.runs, total))
    return [_combination(number, names, values) for number in chosen]


def words(command: Sequence[str], chosen: Mapping[str, Value]) -> tuple[str, ...]:
    """Return a command with the values of one job: in place of {name}, else as options --name VALUE."""
    # All at once: a value that looks like the place of another parameter stays as it is.
    places = re.compile("|".join(re.escape(f"{{{name}}}") for name in chosen))
    made = [places.sub(lambda place: _text(chosen[place[0][1:-1]]), word) for word in command]
    for name, value in chosen.items():
        if not any(f"{{{name}}}" in word for word in command):
            made += [f"--{name}", _text(value)]
    return tuple(made)


def _combination(number: int, names: Sequence[str], values: Sequence[Sequence[Value]]) -> dict[str, Value]:
    """Return the combination of that number in the order of the grid."""
    found: dict[str, Value] = {}
    for name, one in zip(reversed(names), reversed(values), strict=True):
        number, place = divmod(number, len(one))
        found[name] = one[place]
    return {name: found[name] for name in names}


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check(sweep: SweepFile, path: str) -> None:
    if not JOB_NAME.fullmatch(sweep.name):
        raise _wrong(path, f"name = {sweep.name!r}: letters, digits, dots, dashes and underscores")
    if not sweep.command:
        raise _wrong(path, "command is empty")
    if sweep.method not in (GRID, LIST, RANDOM):
        raise _wrong(path, f"method = {sweep.method!r}: grid, list or random")
    if empty := [name for name, values in sweep.parameters.items() if not values]:
        raise _wrong(path, f"the parameter {empty[0]} has no values")
    if not sweep.parameters:
        raise _wrong(path, "there are no parameters")
    if sweep.method == RANDOM and not 0 < sweep.runs <= MOST:
        raise _wrong(path, f"runs = {sweep.runs}: a random sweep needs 1 to {MOST}")


def _wrong(path: str, why: str) -> StallguardError:
    return StallguardError(f"{path} is not a sweep", why=why, cure="docs/fleet.md has one", code=USAGE)
