"""Trainings with a will of their own about signals: ignored, handled, reset, blocked, raised against themselves."""

from __future__ import annotations

import os
import signal
import time

from .fault import row
from .stage import BATCHES, SHARP, SHARPER, Stage, expect, same, until, whole

AGAIN_SOON = ("--set", "policy.backoff=0.1s")
MOST = 4  # attempts at a training that crashes each time in the same way: a crash of native code is retried three times


def _stubborn(how: str) -> str:
    """Return BATCHES without end after `how`."""
    return f"import signal\n{how}\n" + BATCHES


@row()
def sigterm_ignored(stage: Stage) -> str:
    """a training ignores SIGTERM and is asked to stop -> SIGKILL after the grace period, 137, nothing is left"""
    script = stage.script(_stubborn("signal.signal(signal.SIGTERM, signal.SIG_IGN)"))
    live = stage.guard(script, "9000", "0.05", options=("--grace", "1s"))
    live.training()
    live.reached(3)
    began = time.monotonic()
    expect(stage.verb("stop").code == 0, "stop is refused")
    live.ends(137)
    return f"exit code 137 after {time.monotonic() - began:.1f} s"


@row()
def sigterm_handled(stage: Stage) -> str:
    """a training saves and exits with 3 at SIGTERM, and is asked to stop ->
    what it saves is whole, and its own code is the run's"""
    how = """
import sys, time
def save(number, frame):
    with open("saved", "w") as file:
        for part in range(10):
            file.write("part\\n")
            time.sleep(0.05)
    sys.exit(3)
signal.signal(signal.SIGTERM, save)
"""
    live = stage.watched(_stubborn(how), "9000", "0.05")
    live.reached(3)
    live.signal(signal.SIGTERM)
    live.ends(3)
    expect((stage.work / "saved").read_text() == "part\n" * 10, "it could not save")
    return "saved, exit code 3"


@row()
def signals_blocked(stage: Stage) -> str:
    """a training blocks all signals and is asked to stop -> SIGKILL after the grace period, 137, nothing is left"""
    how = "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())"
    live = stage.watched(_stubborn(how), "9000", "0.05", options=("--grace", "1s"))
    live.reached(3)
    expect(stage.verb("stop").code == 0, "stop is refused")
    live.ends(137)
    return "exit code 137"


RESET = """
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_DFL)
"""


@row()
def signals_reset(stage: Stage) -> str:
    """a training resets every signal to its default; then `stallguard debug dump` ->
    the signal for stacks is not sent: the training ends with its own code and output"""
    live = stage.guard(stage.script("import signal, stallguard\nstallguard.beat()\n" + RESET + BATCHES), "80", "0.05")
    live.training()
    live.reached(30)  # 1.5 s: the probe looks at its handler once a second
    stage.ask("dump")
    return whole(live.ended(), 80)


@row()
def signals_reset_just_now(stage: Stage) -> str:
    """a training resets every signal to its default, and `stallguard debug dump` comes in the same moment ->
    the training ends with its own code and output"""
    wait = "import os, signal, time, stallguard\nstallguard.beat()\nwhile not os.path.exists('go'): time.sleep(0.001)\n"
    live = stage.guard(stage.script(wait + RESET + BATCHES), "40", "0.05")
    live.training()
    time.sleep(1)
    (stage.work / "go").touch()
    live.reached(1)
    stage.ask("dump")
    return whole(live.ended(), 40)


OWN_HANDLER = """
import signal, time, stallguard
calls = []
{how}
for number in range({count}):
    stallguard.beat()
    print("step", number, flush=True)
    time.sleep(0.05)
    if number == 20:
        signal.raise_signal(signal.SIGURG)
print("handled", len(calls))
raise SystemExit(7)
"""
HANDLER = "signal.signal(signal.SIGURG, lambda number, frame: calls.append(number))"


@row()
def own_urg_handler(stage: Stage) -> str:
    """a training has a handler for SIGURG and raises it once; then `stallguard debug dump` ->
    its handler is called for its own signal and no other; same output"""
    live = stage.watched(OWN_HANDLER.format(how="stallguard.beat()\n" + HANDLER, count=80))
    live.reached(45)
    stage.ask("dump")
    ended = live.ended()
    expect(ended.lines[-1:] == ["handled 1"], f"{ended.lines[-1:]}")
    return f"{whole(ended, 80)}, handled once"


@row()
def own_urg_handler_from_the_start(stage: Stage) -> str:
    """a training installs a handler for SIGURG before its first batch; `stallguard debug dump` five times ->
    its handler is called for its own signal and no other; same output"""
    live = stage.watched(OWN_HANDLER.format(how=HANDLER, count=60))
    for count in range(5, 15, 2):
        live.reached(count)
        stage.ask("dump")
    ended = live.ended()
    expect(ended.lines[-1:] == ["handled 1"], f"{ended.lines[-1:]}")
    return f"{whole(ended, 60)}, handled once"


@row()
def own_faulthandler(stage: Stage) -> str:
    """a training registers its own faulthandler for SIGURG, enables it and sets a timer of its own ->
    its stacks are in its own files, and nothing of stallguard's"""
    how = """
import faulthandler
file, late = open("stacks", "w"), open("late", "w")
faulthandler.enable(file=open("crash", "w"))
stallguard.beat()
faulthandler.register(signal.SIGURG, file=file)
faulthandler.dump_traceback_later(0.5, file=late)
"""
    live = stage.watched(OWN_HANDLER.format(how=how, count=60))
    live.reached(45)
    stage.ask("dump")
    seen = whole(live.ended(), 60)
    stacks = (stage.work / "stacks").read_text()
    expect(stacks.count("Current thread") == 1, f"{stacks.count('Current thread')} stacks in its file")
    expect("Timeout" in (stage.work / "late").read_text(), "its timer wrote nothing")
    return f"{seen}, one stack in its file"


def _ends_by(stage: Stage, end: str, code: int) -> str:
    """Run a training that always ends in the same way; return after how many attempts that was the run's end."""
    text = f"import os, signal, stallguard\nfor _ in range(5): stallguard.beat()\n{end}\n"
    live = stage.guard(stage.script(text), options=AGAIN_SOON, process_group=0)
    ended = live.ended()
    expect(ended.code == code, f"exit code {ended.code}: {ended.err[-300:]}")
    attempts = stage.outcome().attempts
    expect(attempts <= MOST, f"{attempts} attempts")
    return f"exit code {code} after {attempts} attempts"


@row()
def crashes_always(stage: Stage) -> str:
    """a training ends by SIGSEGV in each attempt -> 139 after at most 4 attempts; no loop"""
    return _ends_by(stage, "os.kill(os.getpid(), signal.SIGSEGV)", 139)


@row()
def killed_always(stage: Stage) -> str:
    """a training kills itself with SIGKILL in each attempt -> 137 after at most 4 attempts"""
    return _ends_by(stage, "os.kill(os.getpid(), signal.SIGKILL)", 137)


@row()
def group_signalled(stage: Stage) -> str:
    """a training sends SIGTERM to its process group -> 143; stallguard itself is not in it"""
    seen = _ends_by(stage, "os.killpg(0, signal.SIGTERM)\nsignal.pause()", 143)
    expect("you asked" not in stage.outcome().why, f"stallguard got the signal: {stage.outcome().why}")
    return seen


@row()
def fails_always(stage: Stage) -> str:
    """a training raises an exception -> its traceback and 1 after one attempt"""
    same(stage, stage.script(BATCHES.replace("raise SystemExit(7)", "1/0")), "3", "0")
    expect(stage.outcome().attempts == 1, f"{stage.outcome().attempts} attempts")
    return "exit code 1 after 1 attempt, same traceback"


@row()
def exits_abruptly(stage: Stage) -> str:
    """a training ends by os._exit(5) -> 5; its batches are counted"""
    # Right after its last batch, which the probe has not sent yet.
    text = BATCHES.replace("    time.sleep", "    if number == 29: __import__('os')._exit(5)\n    time.sleep")
    ended = stage.guard(stage.script(text), "30", "0.02").ended()
    seen = whole(ended, 30, 5)
    expect(stage.outcome().batches == 30, f"{stage.outcome().batches} batches counted of 30")
    return f"{seen}, all counted"


SAVES = """
import os, signal, sys, time, stallguard
number = 0
def save(path):
    with open(path, "w") as file:
        file.write(str(number))
def load(path):
    global number
    number = int(open(path).read())
stallguard.checkpoint(save, load)
while number < 40:
    number += 1
    print("step", number - 1, flush=True)
    stallguard.beat()
    time.sleep(0.05)
raise SystemExit(7)
"""


@row()
def training_killed(stage: Stage) -> str:
    """kill -9 of a training that saves itself, by a user ->
    the next attempt continues from its checkpoint and ends with its own code; no batch is missing"""
    options = ("--set", "checkpoint.every=0.5s", "--set", "checkpoint.cost=1")
    live = stage.guard(stage.script(SAVES), options=options)
    training = live.training()
    live.reached(25)
    training.kill()
    ended = live.ends(7)
    done = {int(line.split()[1]) for line in ended.lines}
    expect(done == set(range(40)), f"missing: {sorted(set(range(40)) - done)}")
    again = len(ended.lines) - 40
    expect(stage.outcome().attempts == 2 and again < 25, f"{again} batches again, {stage.outcome().attempts} attempts")
    return f"exit code 7 in attempt 2, {again} batches done again"


@row()
def training_stopped(stage: Stage) -> str:
    """SIGSTOP to a training for 5 s, by a user, then SIGCONT ->
    it is not judged to be stalled, and ends with its own code and output"""
    live = stage.guard(stage.script(BATCHES), "60", "0.05", options=SHARP)
    training = live.training()
    live.reached(20)
    os.killpg(training.pid, signal.SIGSTOP)
    time.sleep(5)
    os.killpg(training.pid, signal.SIGCONT)
    seen = whole(live.ended(), 60)
    judged = [event["facts"].get("judged") for event in stage.events("training.stalled")]
    # On a busy machine it can take longer until it works again; then what is said is that it was stopped.
    expect(set(judged) <= {"stopped"}, f"it was judged to be stalled: {judged}")
    expect(stage.outcome().attempts == 1, f"{stage.outcome().attempts} attempts")
    return f"{seen}, no stall"


@row()
def both_stopped(stage: Stage) -> str:
    """SIGSTOP to stallguard and to its training for 5 s, as a machine that sleeps ->
    nothing is judged by that time, and the training ends with its own code and output"""
    live = stage.guard(stage.script(BATCHES), "60", "0.05", options=(*SHARP, *SHARPER))
    training = live.training()
    live.reached(20)
    live.signal(signal.SIGSTOP)
    os.killpg(training.pid, signal.SIGSTOP)
    time.sleep(5)
    os.killpg(training.pid, signal.SIGCONT)
    live.signal(signal.SIGCONT)
    seen = whole(live.ended(), 60)
    expect(not stage.events("training.stalled"), "it was judged to be stalled")
    return f"{seen}, no stall"


@row()
def asked_twice(stage: Stage) -> str:
    """Ctrl-C twice while the training saves for 60 s ->
    the second one does not wait: ended at once, nothing is left"""
    how = "import time\nfor one in (signal.SIGINT, signal.SIGTERM): signal.signal(one, lambda *_: time.sleep(60))"
    live = stage.watched(_stubborn(how), "9000", "0.05", options=("--grace", "60s"))
    live.reached(3)
    began = time.monotonic()
    live.signal(signal.SIGINT)
    until(lambda: stage.events("attempt.signalled"), "the first signal to the training")
    live.signal(signal.SIGINT)
    ended = live.ends(137)
    return f"exit code {ended.code} after {time.monotonic() - began:.1f} s"
