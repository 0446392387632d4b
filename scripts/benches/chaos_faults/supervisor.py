"""Faults of stallguard itself: killed, stopped, out of memory, out of descriptors."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time

import psutil

from .fault import linux, row
from .stage import BATCHES, SHARP, SHARPER, Stage, counted, expect, limit, steps, until, whole

# Prints as well as it writes to a file of its own: 400 KB, which is more than a pipe holds.
PRINTING = """
import sys, time, stallguard
for number in range(int(sys.argv[1])):
    stallguard.beat()
    with open("steps", "a") as file:
        print("step", number, file=file)
    print("step", number, "x" * 8000, flush=True)
    time.sleep(0.05)
with open("end", "w") as file:
    file.write("whole")
"""
# Writes to a file of its own, so that it needs no reader.
SILENT = """
import sys, time, stallguard
with open("steps", "w") as file:
    for number in range(int(sys.argv[1])):
        stallguard.beat()
        print("step", number, file=file, flush=True)
        time.sleep(0.05)
with open("end", "w") as file:
    file.write("whole")
"""
UNTIL_ENOUGH = """
import os, sys, time, stallguard
number = 0
while not os.path.exists("enough"):
    stallguard.beat()
    print("step", number, flush=True)
    number += 1
    time.sleep(0.05)
sys.exit(3)
"""


@row()
def supervisor_killed(stage: Stage) -> str:
    """kill -9 of stallguard while a training prints and writes to a file ->
    the training ends by itself with all its results and what it prints; `ls --live` names its pid until then"""
    live = stage.guard(stage.script(PRINTING), "60")
    pid = live.training().pid
    live.kill()
    named = stage.verb("ls", "--live")
    expect(str(pid) in named.out.decode(), f"ls does not name pid {pid}: {named.out!r}")
    until((stage.work / "end").exists, "the training's end")
    written = (stage.work / "steps").read_text().splitlines()
    expect(written == steps(60), f"{len(written)} of 60 lines")
    until(lambda: not stage.living(), "the end of all processes")
    printed = live.out.read_bytes()
    expect(b"step 59 " in printed and printed.count(b"step ") > 55, "what it printed is lost")
    stage.remove_sockets()
    return "60 batches to their end, named by ls"


@row()
def supervisor_killed_and_stopped_by_hand(stage: Stage) -> str:
    """kill -9 of stallguard, then `stallguard stop` ->
    the training that is left is ended with its group; the run has an outcome"""
    live = stage.watched(SILENT, "6000", options=("--grace", "2s"))
    live.kill()
    stopped = stage.verb("stop")
    expect(stopped.code == 0, f"stop: exit code {stopped.code}: {stopped.err}")
    expect(not stage.living(), f"it lives on: {stage.living()}")
    expect(stage.outcome().code == 143, f"outcome {stage.outcome().code}")
    stage.remove_sockets()
    return "ended, outcome 143"


@row()
def supervisor_killed_at_start(stage: Stage) -> str:
    """kill -9 of stallguard as soon as its run has a directory ->
    the training ends by itself or never began; the next run begins and finds nothing in its way"""
    script = stage.script(SILENT)
    live = stage.guard(script, "10")
    stage.run(wait=True)
    live.kill()
    until(lambda: not stage.living(), "the end of all processes")
    again = stage.guard(script, "10").ended()
    expect(again.code == 0, f"the next run: exit code {again.code}: {again.err[-300:]}")
    stage.remove_sockets()
    return "the next run ended with 0"


@row()
def job_killed_three_times(stage: Stage) -> str:
    """kill -9 of the stallguard of a job, three times, restarted as by its service manager ->
    the training goes on each time, is guarded again, and its own exit code is the run's"""
    job = stage.job(stage.script(UNTIL_ENOUGH))
    live = job()
    pid = live.training().pid
    for times in range(3):
        live.kill()
        live = job()
        until(lambda: len(stage.events("run.taken_over")) > times, "that it is taken over")  # noqa: B023 - now
    (stage.work / "enough").touch()
    live.ended()
    end = stage.outcome()
    expect((end.code, end.attempts) == (3, 1), f"exit code {end.code} after {end.attempts} attempts")
    printed = stage.run().output.read_text().splitlines()
    expect(printed == steps(len(printed)), "its output has a hole")
    expect(end.batches == len(printed), f"{end.batches} batches counted of {len(printed)}")
    return f"pid {pid and 'the same'} in 4 lives of stallguard, {len(printed)} batches, exit code 3"


@row()
def job_killed_and_training_ends(stage: Stage) -> str:
    """kill -9 of the stallguard of a job; the training ends with 3 before stallguard is back ->
    the exit code is known, and nothing is trained again"""
    job = stage.job(stage.script(UNTIL_ENOUGH))
    live = job()
    training = live.training()
    live.kill()
    (stage.work / "enough").touch()
    until(lambda: not training.is_running() or training.status() == psutil.STATUS_ZOMBIE, "its end")
    job().ended()
    end = stage.outcome()
    expect((end.code, end.attempts) == (3, 1), f"exit code {end.code} after {end.attempts} attempts")
    return "exit code 3 after 1 attempt"


@row()
def job_and_training_killed(stage: Stage) -> str:
    """kill -9 of the stallguard of a job and of its training ->
    the next stallguard starts the training again, once"""
    job = stage.job(stage.script(UNTIL_ENOUGH))
    live = job()
    training = live.training()
    live.kill()
    training.kill()
    until(lambda: not training.is_running() or training.status() == psutil.STATUS_ZOMBIE, "its end")
    (stage.work / "enough").touch()
    job().ended()
    end = stage.outcome()
    expect((end.code, end.attempts) == (3, 2), f"exit code {end.code} after {end.attempts} attempts")
    return "exit code 3 after 2 attempts"


@row()
def supervisor_stopped(stage: Stage) -> str:
    """SIGSTOP to stallguard for 4 s while batches end ->
    the training keeps its pace, is not judged, and ends with its own code"""
    live = stage.watched(SILENT, "100", options=(*SHARP, *SHARPER))
    live.signal(signal.SIGSTOP)
    file = stage.work / "steps"
    before = len(file.read_text().splitlines())
    time.sleep(4)
    done = len(file.read_text().splitlines()) - before
    live.signal(signal.SIGCONT)
    expect(done >= 15, f"only {done} batches in 4 s")  # 80 on a quiet machine
    live.ends(0)
    expect(not stage.events("training.stalled"), "it was judged to be stalled")
    expect(stage.outcome().batches == 100, f"{stage.outcome().batches} batches counted of 100")
    return f"{done} batches meanwhile, all 100 counted, no stall"


@row()
def supervisor_stopped_at_the_end(stage: Stage) -> str:
    """SIGSTOP to stallguard; the training prints 200 kB, ends with 7; SIGCONT; the reader takes nothing for 2 s ->
    its exit code and its last output arrive"""
    text = BATCHES.replace("raise", "print('x' * 200_000, flush=True)\nraise")
    live = stage.guard(stage.script(text), "40", "0.03", stdout=subprocess.PIPE)
    training, pipe = live.training(), live.pipe
    live.signal(signal.SIGSTOP)
    until(lambda: training.status() == psutil.STATUS_ZOMBIE, "the training's end")
    live.signal(signal.SIGCONT)
    time.sleep(2)
    out = pipe.read()
    pipe.close()
    ended = live.ended()._replace(out=out)
    expect(out.count(b"x") == 200_000, f"{out.count(b'x')} of 200000 bytes at its end")
    return whole(ended, 40)


@row(needs=linux)
def supervisor_out_of_memory(stage: Stage) -> str:
    """the address space of a running stallguard is limited to what it has; then `dump` three times ->
    the dumps are answered, and the training ends with its own code and output"""
    live = stage.watched(BATCHES, "100", "0.05")
    used = psutil.Process(live.pid).memory_info().vms
    limit(live.pid, resource.RLIMIT_AS, (used, used))
    for count in (1, 2, 3):  # each wants a thread, for which there is no stack any more
        stage.ask("dump")
        until(lambda: len(stage.events("evidence.dumped")) >= count, "the answer to a dump")  # noqa: B023 - now
    return whole(live.ended(), 100)


@row(needs=linux)
def supervisor_out_of_descriptors(stage: Stage) -> str:
    """a running stallguard can open no descriptor any more -> the training ends with its own code and output"""
    live = stage.watched(BATCHES, "80", "0.05")
    until(lambda: stage.events("probe.note"), "that what goes on beside the run has begun")
    opened = {int(name) for name in os.listdir(f"/proc/{live.pid}/fd")}  # noqa: PTH208 - bare names
    lowest = next(number for number in range(1000) if number not in opened)
    limit(live.pid, resource.RLIMIT_NOFILE, (lowest, 1000))
    return counted(live, 80)
