"""Faults of the disks: full, read-only, out of inodes, slow, emptied under a run."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

from .fault import linux, mounts, row
from .stage import BATCHES, Stage, expect, until, whole


def _fill(place: Path) -> None:
    with (place / "filler").open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass


@row(needs=mounts)
def disk_full(stage: Stage) -> str:
    """the disk of the runs becomes full while batches end ->
    the training ends with its own code and output; the loss of the journal is said; the outcome is kept"""
    # The copy of the probe has compiled files of each Python that has used it, 0.4 MB each.  A copy that does not fit
    # is removed, and its room would be the journal's.
    with stage.small_disk(stage.home, "16m"):
        live = stage.watched(BATCHES, "120", "0.05")
        until(lambda: list((stage.home / "probes").glob("[0-9]*")), "the probe's files are copied")
        _fill(stage.home)
        seen = whole(live.ended(), 120)
        error = live.err.read_text()
        expect("cannot be written" in error, f"not said: {error}")
        expect(stage.outcome().code == 7, f"outcome {stage.outcome().code}")
    return f"{seen}, said, outcome kept"


@row(needs=mounts)
def disk_full_at_start(stage: Stage) -> str:
    """the disk of the runs is full when a run is started ->
    one clear error (126) before the training begins, or the training's own end"""
    with stage.small_disk(stage.home, "256k"):
        _fill(stage.home)
        ended = stage.guard(stage.script(BATCHES), "3", "0.01").ended()
    expect(ended.code in (7, 126), f"exit code {ended.code}: {ended.err}")
    expect(ended.code == 7 or not ended.out, "it began, and was refused")
    expect("Traceback" not in ended.err and "itself failed" not in ended.err, ended.err)
    return f"exit code {ended.code}: {ended.err.splitlines()[0][:60]}"


@row(needs=mounts)
def disk_read_only(stage: Stage) -> str:
    """the disk of the runs becomes read-only while batches end ->
    the training ends with its own code and output; the loss is said"""
    with stage.small_disk(stage.home, "8m"):
        live = stage.watched(BATCHES, "60", "0.05")
        # What has a file open for writing refuses a change of the mount; a second mount over it does not.
        subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=4k", "chaos", stage.home], check=True)
        try:
            seen = whole(live.ended(), 60)
        finally:
            subprocess.run(["umount", "-l", stage.home], check=True)
        expect("removed" in live.err.read_text() or "cannot" in live.err.read_text(), live.err.read_text())
        sockets = [path for place in (stage.home / "s").glob("*") for path in place.iterdir()]
        for path in sockets:
            path.unlink()
    return f"{seen}, said"


@row(needs=mounts)
def disk_read_only_at_start(stage: Stage) -> str:
    """the disk of the runs is read-only when a run is started -> one clear error (126) before the training begins"""
    with stage.small_disk(stage.home, "256k", "ro"):
        ended = stage.guard(stage.script(BATCHES), "3", "0.01").ended()
    expect((ended.code, ended.out) == (126, b""), f"exit code {ended.code}: {ended.err}")
    expect("STALLGUARD_HOME" in ended.err, ended.err)
    return f"exit code 126: {ended.err.splitlines()[0][:60]}"


@row(needs=mounts)
def disk_out_of_inodes(stage: Stage) -> str:
    """the disk of the runs has no inode left while batches end ->
    the training ends with its own code and output; the outcome is kept"""
    with stage.small_disk(stage.home, "8m", "nr_inodes=80"):
        live = stage.watched(BATCHES, "60", "0.05")
        try:
            for number in range(100):
                (stage.home / f"filler-{number}").touch()
        except OSError:
            pass
        seen = whole(live.ended(), 60)
        expect(stage.outcome().code == 7, f"outcome {stage.outcome().code}")
    return f"{seen}, outcome kept"


@row()
def file_size_limited(stage: Stage) -> str:
    """ulimit -f: no file of stallguard and of the training can grow beyond 64 kB ->
    the training ends with its own code and output; what is not kept is said"""
    text = BATCHES.replace('print("step", number, flush=True)', 'print("step", number); print("x" * 20000, flush=True)')
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16,) * 2)  # noqa: E731 - of one start
    with (stage.folder / "pipe").open("wb"):
        pass
    live = stage.start([*stage.guarding([stage.script(text), "10", "0.05"])], preexec_fn=limit, stdout=subprocess.PIPE)
    out = live.pipe.read()
    ended = live.ends(7)
    expect(out.count(b"step") == 10 and len(out) > 200_000, f"{len(out)} bytes of output")
    expect("cannot be written" in ended.err, f"not said: {ended.err}")
    return f"{len(out)} bytes of output, exit code 7, said"


SLOW = """
import os, sys, time
from stallguard.cli import main
def slowed(whole, seconds):
    def call(*words, **named):
        time.sleep(seconds)
        return whole(*words, **named)
    return call
from stallguard.storage import journal, run_files
journal._Whole.write = slowed(journal._Whole.write, 0.2)
os.fsync = slowed(os.fsync, 0.5)
main()
"""


@row()
def disk_slow(stage: Stage) -> str:
    """each write of the journal takes 0.2 s, each fsync 0.5 s (a stand-in: the calls themselves are slowed) ->
    the training keeps its pace, is not judged, and ends with its own code and output"""
    script = stage.script(BATCHES)
    command = [sys.executable, "-c", SLOW, "run", "--python", sys.executable, script, "100", "0.02"]
    began = time.monotonic()
    live = stage.start(command)
    live.reached(100)
    took = time.monotonic() - began
    seen = whole(live.ended(), 100)
    expect(not stage.events("training.suspected"), "it was suspected")
    return f"{seen}; its last line after {took:.1f} s"


@row()
def run_directory_removed(stage: Stage) -> str:
    """the directory of the run and the home are removed while batches end ->
    the training ends with its own code and output; that nothing is kept is said"""
    live = stage.watched(BATCHES, "80", "0.05")
    for _ in range(5):  # the run writes meanwhile
        shutil.rmtree(stage.home, ignore_errors=True)
    live.said("from now on nothing of the run is kept")
    return f"{whole(live.ended(), 80)}, said"


@row()
def probe_files_removed(stage: Stage) -> str:
    """the training removes the files of its own probe ->
    it ends with its own code and output, and its batches are counted"""
    text = BATCHES.replace(
        "for number",
        "import os, shutil, sys\nstallguard.beat()\n"
        "if '_stallguard_probe' in sys.modules:\n"
        "    from _stallguard_probe import settings\n"
        "    shutil.rmtree(settings.of(os.environ).pages, ignore_errors=True)\nfor number",
        1,
    )
    seen = whole(stage.guard(stage.script(text), "40", "0.05").ended(), 40)
    expect(stage.outcome().batches == 41, f"{stage.outcome().batches} batches counted of 41")
    return f"{seen}, all counted"


@row(needs=linux)
def output_disk_full(stage: Stage) -> str:
    """the output goes to a device that is full (/dev/full) ->
    the training goes on to its own exit code; that output is lost is said; output.log has it"""
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        live = stage.guard(stage.script(BATCHES), "10", "0.02", stdout=full)
        ended = live.ends(7)
    expect("output is lost there" in ended.err, f"not said: {ended.err}")
    kept = stage.run().output.read_text().splitlines()
    expect(len(kept) == 10, f"{len(kept)} of 10 lines in output.log")
    return "exit code 7, said, 10 lines in output.log"


@row()
def settings_damaged(stage: Stage) -> str:
    """stallguard.toml becomes nonsense, then deeply nested, while batches end ->
    the training is not disturbed; that nothing changed is noted"""
    file = stage.work / "stallguard.toml"
    file.write_text("[run]\n")
    live = stage.watched(BATCHES, "100", "0.05")
    for text in ("[run]\nobserve = nonsense", "x = " + "[" * 5000):
        file.write_text(text)
        time.sleep(1)
    seen = whole(live.ended(), 100)
    expect("did not change" in stage.journal(), "it is not noted")
    return f"{seen}, noted"


@row()
def files_of_a_job_damaged(stage: Stage) -> str:
    """the stallguard of a job is killed; its run.json is emptied and its saved state is damaged ->
    the training is taken up again and its exit code is the run's"""
    until_enough = """
import os, sys, time, stallguard
while not os.path.exists("enough"):
    stallguard.beat()
    time.sleep(0.05)
sys.exit(3)
"""
    job = stage.job(stage.script(until_enough))
    live = job()
    live.training()
    live.kill()
    run = stage.run()
    run.asked.write_text("")
    for path in run.path.glob("core*"):
        path.write_bytes(b"\xff" * 100)
    with run.journal.open("ab") as file:
        file.write(b'{"event": "cut')
    live = job()
    until(lambda: stage.events("run.taken_over"), "that it is taken over")
    (stage.work / "enough").touch()
    live.ended()
    end = stage.outcome()
    expect((end.code, end.attempts) == (3, 1), f"exit code {end.code} after {end.attempts} attempts")
    return "taken up, exit code 3"
