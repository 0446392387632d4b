"""Trainings that do odd things to themselves: descriptors, directories, output, environment, built-in functions."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zlib

import psutil

from stallguard.storage import run_files

from .fault import row
from .stage import BATCHES, Stage, counted, expect, same, whole

GIGABYTE = 1 << 30
KEPT = ("--set", "keep.output=2MB")
LARGEST = 150  # MB of resident memory that stallguard can have at its peak; 27 to 60 in a usual run

CLOSES = """
import os, sys, time, stallguard
for number in range(20):
    stallguard.beat()
    print("step", number, flush=True)
    time.sleep(0.05)
os.closerange(3, 256)
files = [open("file-%d" % number, "w+b", buffering=0) for number in range(20)]
for number in range(20, 60):
    stallguard.beat()
    print("step", number, flush=True)
    for file in files:
        file.write(b"x" * 100)
    time.sleep(0.05)
for number, file in enumerate(files):
    file.seek(0)
    assert file.read() == b"x" * 4000, "file %d of descriptor %d is damaged" % (number, file.fileno())
raise SystemExit(7)
"""


@row()
def descriptors_closed(stage: Stage) -> str:
    """a training closes every descriptor above 2, the probe's too, and opens files of its own ->
    no byte of stallguard's gets into its files, none is closed; its own code and output"""
    live = stage.watched(CLOSES)
    live.reached(40)
    stage.ask("dump")
    seen = counted(live, 60)
    return f"{seen}, 20 files whole, all counted"


@row()
def directory_deleted(stage: Stage) -> str:
    """a training removes its working directory -> output and exit code as without stallguard"""
    text = BATCHES.replace("for number", "import os, shutil\nshutil.rmtree(os.getcwd())\nfor number", 1)
    script = stage.folder / "away.py"
    script.write_text(text)
    plain = stage.plain(str(script), "20", "0.02")
    stage.work.mkdir()
    live = stage.guard(str(script), "20", "0.02")
    ended = live.ended()
    stage.work.mkdir(exist_ok=True)
    expect((ended.code, ended.out) == (plain.code, plain.out), f"exit code {ended.code}: {ended.err}")
    return whole(ended, 20)


@row()
def directory_deleted_and_crashed(stage: Stage) -> str:
    """a training removes its working directory and crashes ->
    no attempt can be started there: one error (126), no loop"""
    script = stage.folder / "away.py"
    script.write_text("import os, shutil, signal\nshutil.rmtree(os.getcwd())\nos.kill(os.getpid(), signal.SIGSEGV)")
    ended = stage.guard(str(script)).ended()
    stage.work.mkdir(exist_ok=True)
    expect(ended.code == 126, f"exit code {ended.code}: {ended.err}")
    expect("is gone" in ended.err, ended.err)
    return "exit code 126, said"


@row()
def becomes_another_program(stage: Stage) -> str:
    """a training becomes a shell (execv) -> the code and output of the shell"""
    text = BATCHES.replace("raise SystemExit(7)", "import os; os.execv('/bin/sh', ['sh', '-c', 'echo hi; exit 5'])")
    ended = same(stage, stage.script(text), "5", "0.02")
    expect((ended.code, ended.lines[-1]) == (5, "hi"), f"{ended.code}, {ended.lines[-1]}")
    expect(stage.outcome().attempts == 1, f"{stage.outcome().attempts} attempts")
    return "exit code 5, its output"


@row()
def becomes_itself(stage: Stage) -> str:
    """a training replaces itself by a second start (execv) -> the batches of both are counted"""
    text = BATCHES.replace(
        "raise SystemExit(7)",
        "import os\nif len(sys.argv) == 3: os.execv(sys.executable, [sys.executable, *sys.argv, 'again'])\nsys.exit(7)",
    )
    ended = stage.guard(stage.script(text), "30", "0.02").ended()
    expect((ended.code, len(ended.lines)) == (7, 60), f"exit code {ended.code}, {len(ended.lines)} lines")
    expect(stage.outcome().batches == 60, f"{stage.outcome().batches} batches counted of 60")
    return "exit code 7, 60 batches counted"


@row()
def environment_emptied(stage: Stage) -> str:
    """a training empties its environment and starts itself again in it ->
    output and exit code as without stallguard"""
    text = BATCHES.replace(
        "raise SystemExit(7)",
        "import os\nif len(sys.argv) == 3:\n"
        "    os.environ.clear(); os.execve(sys.executable, [sys.executable, *sys.argv, 'again'], {})\n"
        "raise SystemExit(7)",
    )
    ended = same(stage, stage.script(text), "10", "0.02")
    return f"{len(ended.lines)} lines, exit code {ended.code}"


def _flood(stage: Stage, text: str, size: int) -> str:
    """Run a script that prints `size` bytes into a pipe that is counted; return what was seen."""
    script = stage.script(text)
    live = stage.guard(script, str(size), options=KEPT, stdout=subprocess.PIPE)
    pipe, count, check, most, began = live.pipe, 0, 0, 0, time.monotonic()
    process = psutil.Process(live.pid)
    descriptor, looked = pipe.fileno(), 0.0
    while data := os.read(descriptor, 1 << 20):
        count += len(data)
        check = zlib.crc32(data, check)
        if time.monotonic() - looked > 0.2:
            looked = time.monotonic()
            most = max(most, process.memory_info().rss)
    ended = live.ended(120)
    pipe.close()
    expect(ended.code == 7, f"exit code {ended.code}: {ended.err[-300:]}")
    expected = int((stage.work / "crc").read_text())
    expect((count, check) == (size, expected), f"{count} bytes of {size}, {'other' * (check != expected)}")
    expect(most < LARGEST << 20, f"{most >> 20} MB of memory")
    kept = sum(path.stat().st_size for path in stage.run().path.glob("output*"))
    expect(kept <= 4 << 20, f"{kept >> 20} MB in output.log")
    seconds = time.monotonic() - began
    return f"{count >> 20} MB whole in {seconds:.1f} s, {most >> 20} MB of memory, {kept >> 10} kB kept"


FLOOD = """
import os, sys, zlib
chunk = {chunk}
left, check = int(sys.argv[1]), 0
while left:
    part = chunk[:left]
    check = zlib.crc32(part, check)
    written = 0
    while written < len(part):
        written += os.write(1, part[written:])
    left -= len(part)
open("crc", "w").write(str(check))
sys.exit(7)
"""
LINES = 'b"".join(b"a line of the training, number %d\\n" % n for n in range(20000))'
ONE_LINE = 'b"0123456789abcdef" * 60000'
RANDOM = "os.urandom(500000)"


@row(quick=False)
def output_of_1_gb(stage: Stage) -> str:
    """a training prints 1 GB of lines -> every byte arrives; stallguard's memory and output.log stay small"""
    return _flood(stage, FLOOD.format(chunk=LINES), GIGABYTE)


@row(quick=False)
def line_of_1_gb(stage: Stage) -> str:
    """a training prints one line of 1 GB -> every byte arrives; stallguard's memory and output.log stay small"""
    return _flood(stage, FLOOD.format(chunk=ONE_LINE), GIGABYTE)


@row()
def line_of_50_mb(stage: Stage) -> str:
    """a training prints one line of 50 MB -> every byte arrives; stallguard's memory and output.log stay small"""
    return _flood(stage, FLOOD.format(chunk=ONE_LINE), 50 << 20)


@row()
def output_not_text(stage: Stage) -> str:
    """a training prints 20 MB of random bytes: no UTF-8, NULs, escape sequences ->
    every byte arrives; `logs` and `report` can be read"""
    seen = _flood(stage, FLOOD.format(chunk=RANDOM), 20 << 20)
    for verb in (["logs"], ["report"], ["status"]):
        shown = stage.verb(*verb)
        expect(shown.code in (0, 1), f"{verb}: exit code {shown.code}: {shown.err}")
        expect(b"\x1b" not in shown.out and b"\0" not in shown.out, f"{verb} prints control characters")
    return seen


REPLACES = """
import builtins, os, signal, socket, sys, threading, time
import stallguard
stallguard.beat()
sleep, write = time.sleep, sys.stdout.write
def refuse(*words, **named):
    raise RuntimeError("replaced by the script")
for owner, names in ((time, "sleep monotonic monotonic_ns time perf_counter"), (socket, "socket create_connection"),
                     (os, "getpid write replace rename kill fork stat"), (threading, "Thread Lock RLock"),
                     (builtins, "isinstance len sorted min max sum any all")):
    for name in names.split():
        setattr(owner, name, refuse)
for number in range(int(sys.argv[1])):
    stallguard.beat()
    write("step %d\\n" % number)
    sys.stdout.flush()
    sleep(0.03)
os._exit(7)
"""


@row()
def functions_replaced(stage: Stage) -> str:
    """a training replaces time.sleep, os.getpid, socket.socket, threading.Thread, len ... by ones that raise ->
    output and exit code as without stallguard"""
    return whole(same(stage, stage.script(REPLACES), "40"), 40)


TRACES = """
import gc, sys, threading, time, warnings
seen = set()
def look(frame, event, argument):
    seen.add(frame.f_code.co_filename)
sys.settrace(look); threading.settrace(look); sys.setprofile(look); threading.setprofile(look)
sys.setswitchinterval(0.05)
gc.set_threshold(1)
import stallguard
for number in range(int(sys.argv[1])):
    stallguard.beat()
    print("step", number, flush=True)
    time.sleep(0.02)
sys.settrace(None); sys.setprofile(None)
# The sampler shortens the interval for up to 50 ms before each of its samples, twice a second.
intervals = []
for _ in range(8):
    intervals.append(sys.getswitchinterval())
    time.sleep(0.04)
print(threading.active_count(), max(intervals), sorted(gc.garbage))
raise SystemExit(7)
"""


@row()
def tracing(stage: Stage) -> str:
    """a training traces and profiles all its threads, collects garbage at each allocation, slows its switches ->
    output and exit code as without stallguard: no thread of stallguard's is seen"""
    return whole(same(stage, stage.script(TRACES), "40"), 40)


@row()
def developer_mode(stage: Stage) -> str:
    """a training runs with -X dev -W error, so that each warning is an exception ->
    output, errors and exit code as without stallguard"""
    return whole(same(stage, sys.executable, "-X", "dev", "-W", "error", stage.script(BATCHES), "20", "0.02"), 20)


@row()
def isolated(stage: Stage) -> str:
    """a training runs with -I -S -> it is guarded from outside, and the run says why: its own output and exit code"""
    text = BATCHES.replace(", stallguard", "").replace("    stallguard.beat()\n", "")
    seen = whole(same(stage, sys.executable, "-I", "-S", stage.script(text), "20", "0.02"), 20)
    asked = run_files.asked(stage.run())
    expect(asked is not None and "-I" in asked.outside, f"why the probe is not in: {asked and asked.outside!r}")
    return f"{seen}, the reason is in run.json"


@row()
def own_sitecustomize(stage: Stage) -> str:
    """the environment has a sitecustomize and a usercustomize of its own; then ones that raise ->
    they run as without stallguard, their errors are printed alike"""
    script = stage.script("import sitecustomize\n" + BATCHES)
    for name, text in (("prints", "print('mine')"), ("raises", "1/0")):
        place = stage.folder / name
        place.mkdir()
        for module in ("sitecustomize", "usercustomize"):
            # Not in stallguard's own interpreter, which reads PYTHONPATH as well.
            (place / f"{module}.py").write_text(f"import sys\nif '-m' not in sys.orig_argv: {text}")
        ended = same(stage, script, "3", "0", env={"PYTHONPATH": str(place), "PYTHONNOUSERSITE": ""})
    return f"same output and errors, exit code {ended.code}"


@row()
def own_hooks_of_the_end(stage: Stage) -> str:
    """a training has its own sys.excepthook, atexit functions, threading.excepthook and unraisablehook ->
    they are called in the same order, with the same output"""
    text = """
import atexit, sys, threading, stallguard
stallguard.beat()
sys.excepthook = lambda *error: print("hook", error[0].__name__, flush=True)
threading.excepthook = lambda args: print("thread", args.exc_type.__name__, flush=True)
sys.unraisablehook = lambda args: print("unraisable", args.exc_type.__name__, flush=True)
atexit.register(print, "first"), atexit.register(print, "second")
class Breaks:
    def __del__(self):
        1/0
Breaks()
thread = threading.Thread(target=lambda: [][1])
thread.start(); thread.join()
raise ValueError("end")
"""
    ended = same(stage, stage.script(text))
    return f"{', '.join(ended.lines)}; exit code {ended.code}"


@row()
def training_out_of_memory(stage: Stage) -> str:
    """a training limits its own address space and allocates beyond it ->
    its MemoryError and exit code after at most 4 attempts"""
    text = """
import resource, stallguard
stallguard.beat()
resource.setrlimit(resource.RLIMIT_AS, (300_000_000, 300_000_000))
held = [bytes(50_000_000) for _ in range(100)]
"""
    ended = stage.guard(stage.script(text), options=("--set", "policy.backoff=0.1s")).ends(1)
    expect("MemoryError" in ended.err, ended.err[-300:])
    expect(stage.outcome().attempts <= 4, f"{stage.outcome().attempts} attempts")
    return f"exit code 1 after {stage.outcome().attempts} attempts"


@row()
def training_out_of_descriptors(stage: Stage) -> str:
    """a training can open no descriptor from before its first batch on ->
    output and exit code as without stallguard"""
    text = BATCHES.replace(
        "for number", "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\nfor number", 1
    )
    return whole(same(stage, stage.script(text), "30", "0.02"), 30)
