"""The checks that take longer than a walk: a minute asleep, a short night by schedule, a logout, three days.

A logout and three days end in a later call of scripts/live: what is begun is in pending.py's file.  All that they
install and write is below `scene.place`, in the home of stallguard, and `clean` removes it.
Must not judge: verdicts_longer does.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from mac import jobs, pending, verdicts_longer
from mac.guarded import BEATS, QUIET, end_orphan, names, started
from mac.night import COMES, Night
from mac.scene import Scene, undisturbed, until
from mac.shortage import AS_ROOT
from mac.table import Row, unknown
from stallguard.host import system
from stallguard.host.darwin import parsers
from stallguard.host.darwin.machine import PMSET
from stallguard.host.psutil_errors import ERRORS
from stallguard.storage import run_files
from stallguard.storage.paths import SOCKET_PATH_MAX, RunDir
from stallguard.storage.run_files import Identity

LOGOUT, NIGHTS, DAYS = "scripts-live-logout", "scripts-live-nights", "scripts-live-days"  # the jobs
WOKEN = "scripts-live-woken"
FALLS = 180.0  # seconds awake for the Mac to fall asleep and wake
LEAST = 10.0  # seconds of a sleep that says something
SAY = 8.0  # seconds to read what is going to happen
BEFORE = 20  # batches before the sleep, and after it
HOUR = 3  # of the nightly starts
NIGHT, BEFORE_JOB = 90, 60  # seconds: from going to sleep to the job, at least; from waking to the job
TINY = """
import time
import stallguard
for _ in range(20):
    stallguard.beat()
    time.sleep(0.1)
"""
SLOW = """
import os, sys, time
import stallguard
while not os.path.exists(sys.argv[1]):
    stallguard.beat()
    time.sleep(5)
"""


def sleep(scene: Scene) -> Iterator[Row]:
    """Put the Mac to sleep under a guarded training; its user wakes it."""
    script, enough, clock = scene.home / "sleep.py", scene.home / "sleep-enough", system
    script.write_text(BEATS)
    with started(scene, "run", "--python", sys.executable, *QUIET, str(script), str(enough)) as one:
        until(lambda: one.beats > BEFORE, COMES)
        before = scene.tool("pmset_assertions_before_sleep", *PMSET, "assertions").text
        scene.say("      the Mac sleeps now: wait a minute, then press a key (or open the lid)")
        time.sleep(SAY)
        first, beats = clock.asleep(), one.beats
        said = scene.tool("pmset_sleepnow", "/usr/bin/pmset", "sleepnow")
        if not until(lambda: clock.asleep() - first > LEAST, FALLS):
            yield unknown("sleep: reported", f"the Mac did not sleep for {LEAST:.0f} s: {said.text.strip()[:120]}")
            return
        went_on = until(lambda: one.beats > beats + BEFORE and bool(one.names("clock.gap")), COMES)
        after = scene.tool("pmset_assertions_after_sleep", *PMSET, "assertions").text
        yield from verdicts_longer.asleep(
            clock.asleep() - first, one.names("clock.gap"), len(one.names("training.stalled")), went_on=went_on
        )
        yield verdicts_longer.awake(before, after, one.process.pid)


def scheduled(scene: Scene) -> Iterator[Row]:
    """Put the Mac to sleep; pmset wakes it, and a job starts at its minute.  Needs root for `pmset schedule`."""
    at = jobs.due(dt.datetime.fromtimestamp(scene.now()).astimezone() + dt.timedelta(seconds=NIGHT))
    wake = at - dt.timedelta(seconds=BEFORE_JOB)
    event = ("wakeorpoweron", f"{wake:%m/%d/%y %H:%M:%S}")  # pmset(1): the user's local time
    power = scene.tool("pmset_ps_night", *PMSET, "ps").text
    set_up = scene.tool("pmset_schedule", *AS_ROOT, "/usr/bin/pmset", "schedule", *event)
    if set_up.code:
        yield verdicts_longer.unscheduled(set_up.text)
        return
    try:
        script = scene.home / "woken.py"
        script.write_text(TINY)
        said = jobs.install(scene, WOKEN, "--at", f"{at:%H:%M}", "--", str(script))
        if said.code:
            yield jobs.refused("night by schedule", said)
            return
        scene.say(f"      the Mac sleeps now, and wakes by itself at {wake:%H:%M:%S}: leave it alone")
        time.sleep(SAY)
        first = system.asleep()
        scene.tool("pmset_sleepnow", "/usr/bin/pmset", "sleepnow")
        slept = until(lambda: system.asleep() - first > LEAST, FALLS)
        woke = scene.now() if slept else None
        until(lambda: jobs.status(scene, WOKEN).get("run_state") not in ("", None, "running"), FALLS if slept else 0.0)
        scene.tool("pmset_log_night", "/bin/sh", "-c", "/usr/bin/pmset -g log | /usr/bin/tail -60", seconds=120)
        file = scene.kept / "agents" / f"{WOKEN}.json"
        started = json.loads(file.read_text()).get("started", "") if file.exists() else ""
        yield from verdicts_longer.scheduled(
            verdicts_longer.Night(parsers.power(power), parsers.has_battery(power), wake.timestamp(), at, woke, started,
                                  str(jobs.status(scene, WOKEN).get("run_state") or ""))
        )  # fmt: skip
    finally:
        jobs.uninstall(scene, WOKEN)
        with undisturbed():
            scene.tool("pmset_schedule_cancel", *AS_ROOT, "/usr/bin/pmset", "schedule", "cancel", *event)


def logout(scene: Scene) -> Iterator[Row]:
    """Leave a job with an adopted training; after the user has logged out and in, say what became of it."""
    there, known = _at(scene, "logout"), pending.read(scene.place).get("logout")
    if known is not None:
        rows = _logged_out(there, known)
        if rows:
            clean(scene, "logout")
        yield from rows or [unknown("logout", "you have not logged out since: do it, then run scripts/live once more")]
        return
    with _left_only_if_begun(scene, "logout"):
        night = Night(there, LOGOUT, "login")
        said = night.begin()
        if said.code:
            yield jobs.refused("logout", said)
            return
        adopted, run = jobs.adopt(night), jobs.latest(there)
        record = run_files.recall_attempt(run) if run else None
        if not adopted or run is None or record is None:
            yield unknown("logout", "the training was not adopted, so there is nothing to see", f"adopted: {adopted}")
            return
        who = record.process
        pending.keep(scene.place, "logout", {"at": scene.now(), "run": str(run.path), "pid": who.pid,
                                             "started": who.started, "boot": who.boot})  # fmt: skip
    yield unknown(
        "logout", "log out and in again, then run scripts/live once more: it says what was seen", "a job trains"
    )


@contextlib.contextmanager
def _left_only_if_begun(scene: Scene, name: str) -> Iterator[None]:
    """Remove what was installed, unless it is noted for a later walk."""
    try:
        yield
    finally:
        if name not in pending.read(scene.place):
            clean(scene, name)


def _logged_out(scene: Scene, known: dict[str, Any]) -> list[Row]:
    who = Identity(pid=int(known["pid"]), started=float(known["started"]), boot=str(known["boot"]))
    run = RunDir(Path(known["run"]))
    end, job = run_files.outcome(run), jobs.status(scene, LOGOUT)
    rows = verdicts_longer.logged_out(verdicts_longer.Logout(
        float(known["at"]), verdicts_longer.newest_login(_processes(), scene.uid), run_files.is_of_another_boot(who),
        run_files.lives(who), end.code if end else None, end.why if end else "", bool(job.get("loaded")),
        str(job.get("run_state", "")),
    ))  # fmt: skip
    if rows:
        _keep_journal(scene, run)
    return rows


def _processes() -> list[tuple[str, int, float]]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(*ERRORS):
            found.append((process.name(), process.uids().real, process.create_time()))
    return found


def days(scene: Scene) -> Iterator[Row]:
    """Leave a nightly job and a long run for three days; then say which nights happened, and what is left."""
    known = pending.read(scene.place).get("three-days")
    there = _at(scene, "three-days")
    if known is None:
        with _left_only_if_begun(scene, "three-days"):
            yield _left(scene, there)
    elif why := verdicts_longer.too_early(float(known["at"]), scene.now()):
        yield unknown("three days", why)
    else:
        yield from _after(there, known)
        clean(scene, "three-days")


def _left(scene: Scene, there: Scene) -> Row:
    """Install both jobs, and leave files that are not used in the temporary directories."""
    tiny, slow, enough = there.home / "tiny.py", there.home / "slow.py", there.home / "enough"
    tiny.write_text(TINY)
    slow.write_text(SLOW)
    awake = ("--set", "run.let_sleep=on")  # a Mac that is held awake misses no night
    for name, words in ((NIGHTS, ("--at", f"{HOUR:02}:00", *awake, "--", str(tiny))),
                        (DAYS, ("--now", *awake, "--", str(slow), str(enough)))):  # fmt: skip
        said = jobs.install(there, name, *words)
        if said.code:
            return jobs.refused("three days", said)
    run = _reachable(there)
    if run is None:
        return unknown("three days", "the run of three days did not begin")
    entry = {"at": scene.now(), "run": str(run.path), "files": list(map(str, _unused()))}
    pending.keep(scene.place, "three-days", entry)
    return unknown("three days", verdicts_longer.too_early(scene.now(), scene.now()) or "", "two jobs are installed; "
                   "leave this clone where it is")  # fmt: skip


def _reachable(scene: Scene) -> RunDir | None:
    """Wait for a run that has a control socket, and return it."""

    def ready() -> bool:
        run = jobs.latest(scene)
        asked = run_files.asked(run) if run else None
        return bool(asked and asked.control)

    return jobs.latest(scene) if until(ready, COMES) else None


def _unused() -> Iterator[Path]:
    """Leave a file and a socket in each temporary directory, and return them."""
    for place in dict.fromkeys((tempfile.gettempdir(), "/tmp")):  # noqa: S108 - what macOS does to it is the question
        stem = Path(place) / f"stallguard-live-{os.urandom(4).hex()}"
        file, name = stem.with_suffix(".file"), stem.with_suffix(".socket")
        file.write_text("left by scripts/live --three-days\n")
        yield file
        if len(os.fsencode(name)) <= SOCKET_PATH_MAX:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
                made.bind(str(name))
            yield name


def _after(scene: Scene, known: dict[str, Any]) -> Iterator[Row]:
    began = dt.datetime.fromtimestamp(float(known["at"])).astimezone()
    since = f"{int(scene.now() - float(known['at'])) // 3600 + 2}h"
    said = scene.stallguard("morning", "--since", since, "--json")
    runs = json.loads(said.text.splitlines()[-1]).get("runs", []) if said.code == 0 else []
    log = scene.stallguard("agent", "logs", "--name", NIGHTS).text
    yield from verdicts_longer.nights(began, HOUR, [one for one in runs if "tiny" in one["command"]], log)
    run = RunDir(Path(known["run"]))
    asked = run_files.asked(run)
    control = asked.control if asked else ""
    there = bool(control) and Path(control).is_socket()
    status = scene.stallguard("status", run.id)
    files = {name: Path(name).exists() for name in known.get("files", [])}
    _keep_journal(scene, run)
    yield verdicts_longer.temporary(control, status.code, run_files.state(run) if asked else "", files, there=there)


def _keep_journal(scene: Scene, run: RunDir) -> None:
    if run.journal.exists():
        scene.files[f"journals/{run.id}/journal.jsonl"] = run.journal.read_text(errors="replace")


def _at(scene: Scene, name: str) -> Scene:
    """Return a scene whose files stay after the walk.

    The home of three days is so long that its sockets do not fit beside the runs: they are in a temporary directory.
    """
    home = scene.place / name
    home.mkdir(parents=True, exist_ok=True)
    kept = home / "kept"
    if name == "three-days":
        kept = home / ("kept-" + "x" * max(0, SOCKET_PATH_MAX - len(os.fsencode(home))))
    return scene.keeping(kept, home)


JOBS = {"logout": (LOGOUT,), "three-days": (NIGHTS, DAYS)}


def clean(scene: Scene, *only: str) -> list[str]:
    """Remove what these checks (all, if none is named) have installed and left; return what was removed."""
    done = []
    known = pending.read(scene.place)
    with undisturbed():
        for name in only or JOBS:
            home = scene.place / name
            if name not in known and not home.exists():
                continue
            there = _at(scene, name)
            jobs.uninstall(there, *JOBS[name])
            for run in sorted(names(there.kept / "runs")):
                end_orphan(RunDir(there.kept / "runs" / run))
            for file in known.get(name, {}).get("files", []):
                Path(file).unlink(missing_ok=True)
            shutil.rmtree(home, ignore_errors=True)
            pending.keep(scene.place, name, None)
            done.append(f"removed what --{name} had installed, and {home}")
        if not pending.read(scene.place):
            shutil.rmtree(scene.place, ignore_errors=True)
    return done
