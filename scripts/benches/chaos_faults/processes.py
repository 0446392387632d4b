"""Several processes: forks, daemons, workers, recycled numbers, two guards, runs inside runs."""

from __future__ import annotations

import signal
import time

import msgspec
import psutil

from stallguard.storage import run_files
from stallguard.storage.paths import list_runs

from .fault import row
from .stage import BATCHES, Stage, counted, expect, same, until, whole

FORKS = """
import os, sys, time, stallguard
{first}
for number in range(10):
    stallguard.beat()
    print("step", number, flush=True)
    time.sleep(0.02)
{end}
"""
LATER = """
if os.fork() == 0:
    {session}
    time.sleep({seconds})
    open("later", "w").write("done")
    os._exit(0)
"""


@row()
def forks_and_ends(stage: Stage) -> str:
    """a training forks a process that works on, and ends with 0 ->
    0 at once; what it left on purpose comes to its own end"""
    text = FORKS.format(first="", end=LATER.format(session="pass", seconds=6))
    began = time.monotonic()
    ended = stage.guard(stage.script(text)).ended()
    took = time.monotonic() - began
    whole(ended, 10, 0)
    expect(not (stage.work / "later").exists(), "it was waited for")
    until((stage.work / "later").exists, "the end of what was left")
    return f"exit code 0 after {took:.1f} s, the other process ended by itself"


@row()
def daemonises(stage: Stage) -> str:
    """a training becomes a daemon: forks twice, a new session, all descriptors closed; its parent ends with 0 ->
    0; the daemon trains to its end, after that of the run"""
    text = """
import os, sys, time
from _stallguard_probe import settings
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.closerange(0, 256)
os.open(os.devnull, os.O_RDWR); os.dup(0); os.dup(0)
until = time.monotonic() + 20
while os.path.exists(settings.of(os.environ).socket) and time.monotonic() < until:
    time.sleep(0.02)
import stallguard
file = open("log", "w")
for number in range(40):
    stallguard.beat()
    print("step", number, file=file, flush=True)
    time.sleep(0.05)
open("later", "w").write("done")
"""
    stage.guard(stage.script(text)).ends(0)
    until((stage.work / "later").exists, "the daemon's end")
    written = (stage.work / "log").read_text().splitlines()
    expect(written == [f"step {number}" for number in range(40)], f"{len(written)} lines: {written[-2:]}")
    return "exit code 0, the daemon ended by itself, its file is whole"


@row()
def forks_and_fails(stage: Stage) -> str:
    """a training forks a process that would live for a minute, and ends with 3 ->
    3; what it left in its group is ended: no orphan"""
    later = LATER.format(session="pass", seconds=60)
    text = FORKS.format(first=later, end="sys.exit(3)")
    return whole(stage.guard(stage.script(text)).ended(), 10, 3)


@row()
def output_held_open(stage: Stage) -> str:
    """a process that a training leaves behind holds its output open for 5 s -> the run ends when the training does"""
    text = FORKS.format(first="", end="import subprocess; subprocess.Popen(['sleep', '5'])")
    began = time.monotonic()
    whole(stage.guard(stage.script(text)).ended(), 10, 0)
    took = time.monotonic() - began
    sleeping = [one for one in stage.living() if one.name() == "sleep"]
    expect(sleeping, "what was left on purpose was ended")
    sleeping[0].kill()
    return f"ended after {took:.1f} s, the other process lived"


@row()
def forks_while_training(stage: Stage) -> str:
    """a training forks ten times while it trains; each child counts batches too and ends ->
    the batches of the training alone are counted; same output"""
    text = """
import os, time, stallguard
for number in range(30):
    stallguard.beat()
    print("step", number, flush=True)
    if number % 3 == 2:  # the last batch too: nothing of the training's own comes after it
        child = os.fork()
        if child == 0:
            for _ in range(5): stallguard.beat()
            os._exit(0)
        os.waitpid(child, 0)
    time.sleep(0.03)
raise SystemExit(7)
"""
    seen = counted(stage.guard(stage.script(text)), 30)
    return f"{seen}, exactly 30 counted"


@row()
def hundred_workers(stage: Stage) -> str:
    """a training has 100 forked workers, which count batches too ->
    output and exit code as without stallguard; the training alone is counted; nothing is left"""
    text = """
import multiprocessing, sys, time, stallguard
def work(number):
    stallguard.beat()
    time.sleep(0.2)
    return number * number
if __name__ == "__main__":
    stallguard.beat()
    with multiprocessing.get_context("fork").Pool(100) as pool:
        for number in range(5):
            stallguard.beat()
            print("step", number, sum(pool.map(work, range(200), chunksize=1)), flush=True)
    sys.exit(7)
"""
    ended = same(stage, stage.script(text))
    expect(ended.code == 7, f"exit code {ended.code}")
    expect(stage.outcome().batches == 6, f"{stage.outcome().batches} batches counted of 6")
    return "same output, exit code 7, 6 batches counted"


@row()
def thousand_children(stage: Stage) -> str:
    """a training starts 300 programs, one after the other, and waits for none ->
    output and exit code as without stallguard"""
    text = FORKS.format(
        first="import subprocess\nleft = [subprocess.Popen(['true']) for _ in range(300)]", end="raise SystemExit(7)"
    )
    return whole(same(stage, stage.script(text)), 10)


@row()
def number_recycled(stage: Stage) -> str:
    """stallguard and its training are killed; the training's pid belongs to another process when `stop` comes ->
    the other is not touched; `stop` says that the run is over"""
    live = stage.guard(stage.script(BATCHES), "9000", "0.05")
    training = live.training()
    live.kill()
    training.kill()
    until(lambda: not psutil.pid_exists(training.pid) or training.status() == psutil.STATUS_ZOMBIE, "its end")
    other = stage.start(["sleep", "30"], start_new_session=True)
    run = stage.run()
    noted = run_files.recall_attempt(run)
    assert noted is not None  # noqa: S101 - `training` waited for it
    dead = msgspec.structs.replace(noted.process, pid=other.pid)  # started when the one before did
    run_files.write(run_files.attempt_file(run), msgspec.structs.replace(noted, process=dead))
    asked = run_files.asked(run)
    assert asked is not None  # noqa: S101 - a run has one
    supervisor = msgspec.structs.replace(asked.supervisor, pid=other.pid)
    run_files.write(run.asked, msgspec.structs.replace(asked, supervisor=supervisor))
    stopped = stage.verb("stop")
    lives = other.process.poll() is None
    other.process.kill()
    expect(lives, "the other was ended")
    expect(stopped.code in (1, 3), f"stop: exit code {stopped.code}: {stopped.err}")
    stage.remove_sockets()
    return f"exit code {stopped.code}: {stopped.err.splitlines()[0][:60]}"


@row()
def two_guards(stage: Stage) -> str:
    """two `stallguard run` of one script in one directory at once ->
    each has its own run, its own output and its own exit code"""
    script = stage.script(BATCHES)
    both = [stage.guard(script, "40", "0.05") for _ in range(2)]
    for live in both:
        whole(live.ended(), 40)
    runs = list_runs(stage.home / "runs")
    counted = [end.batches for run in runs if (end := run_files.outcome(run))]
    expect(counted == [40, 40], f"batches counted: {counted}")
    return "two runs, 40 batches each, exit code 7 each"


@row()
def two_guards_of_one_run(stage: Stage) -> str:
    """a run is resumed while it lives -> refused (2): its checkpoints are not given to a second training"""
    script = stage.script(BATCHES)
    live = stage.guard(script, "100", "0.05")
    live.training()
    (stage.run().checkpoints / "place" / "fit" / "g1").mkdir(parents=True)
    again = stage.start(stage.guarding([script, "100", "0.05"], ("--resume", stage.run().id))).ended()
    expect(again.code == 2, f"exit code {again.code}: {again.err}")
    expect("still alive" in again.err, again.err)
    return f"{again.err.splitlines()[0][:70]}; {whole(live.ended(), 100)}"


@row()
def run_in_a_run(stage: Stage) -> str:
    """`stallguard run stallguard run train.py` -> the training's own output and exit code, through both"""
    script = stage.script(BATCHES)
    inner = stage.guarding([script, "40", "0.02"])
    ended = stage.start(stage.guarding(inner)).ended()
    seen = whole(ended, 40)
    expect(len(list_runs(stage.home / "runs")) == 2, "not two runs")
    return seen


@row()
def run_in_a_run_stopped(stage: Stage) -> str:
    """SIGTERM to the outer of two runs -> both end, and the training: 143, nothing is left"""
    script = stage.script(BATCHES)
    live = stage.start(stage.guarding(stage.guarding([script, "9000", "0.05"])))
    live.reached(10)
    live.signal(signal.SIGTERM)
    live.ends(143)
    return "exit code 143, nothing left"
