"""Runs of several processes, for real: launchers, shells, multiprocessing, programs that replace themselves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from stallguard.core.events import Heartbeat, ProbeConnected, ProcessLeft
from stallguard.storage.paths import RunDir

from .runs import AT_ONCE, RUN, SCRIPTS, Guarded, guard, stallguard

LOOP = SCRIPTS / "loop.py"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs the wait sites of threads, which only Linux shows")
SECONDS = 6  # of deadlock that are a stall here
QUICK = [
    word
    for row in ("step", "unclassified", "importing")
    for prior in ("", "prior_")
    for kind in ("deadlock", "external")
    for word in ("--set", f"detector.rows.{row}.{prior}{kind}={SECONDS}s")
]
STALLS = (*AT_ONCE, *QUICK)
PY = {"PY": sys.executable, "LOOP": str(LOOP)}


def shell(home: Path, script: str, *options: str, **environment: str) -> Guarded:
    return stallguard(home, "run", *options, "--", "sh", "-c", script, env={**PY, **environment})


def batches(run: Guarded) -> dict[int, int]:
    """Return the batches of each process that trained."""
    last = [event for event in run.events if isinstance(event, Heartbeat) and event.trains]
    return {event.pid: event.beats for event in last}


def evidence(run: Guarded, incident: int = 1) -> dict[str, Any]:
    assert run.run is not None
    found: dict[str, Any] = json.loads((run.run / f"incidents/{incident}/manifest.json").read_text())
    return found


def training_of(run: Guarded, words: str) -> int:
    """Return the first process that ran a command with these words in it."""
    return next(event.pid for event in run.events if isinstance(event, ProbeConnected) and words in event.command)


LAUNCHER = """
import subprocess, sys
for name in ("first", "second"):
    subprocess.run([sys.executable, *sys.argv[1:2], name, "60", "0.05", *sys.argv[2:]], check=True)
"""
SPAWNER = """
import multiprocessing, sys
sys.path.insert(0, {folder!r})
import loop
if __name__ == "__main__":
    context = multiprocessing.get_context({way!r})
    for name in ("first", "second"):
        child = context.Process(target=loop.main, args=(name, 60, 0.05, *sys.argv[2:]))
        child.start()
        child.join()
"""


def launcher(place: Path, kind: str) -> str:
    text = LAUNCHER if kind == "subprocess" else SPAWNER.format(folder=str(SCRIPTS), way=kind)
    path = place / "launcher.py"
    path.write_text(text)
    return str(path)


@LINUX
@pytest.mark.parametrize("kind", ["subprocess", "spawn", "fork", "forkserver"])
def test_a_deadlock_behind_a_launcher_is_found_and_restarted(tmp_path: Path, kind: str) -> None:
    memory = tmp_path / "memory"

    run = guard(tmp_path, *STALLS, launcher(tmp_path, kind), str(LOOP), "40", str(memory))
    for left in Path(tempfile.gettempdir()).glob("pymp-*"):
        shutil.rmtree(left)  # the socket of a fork server that was ended

    assert run.code == 0, run.err
    assert run.outcome()["attempts"] == 2
    assert run.actions("incident.diagnosed")[0]["findings"][0]["cause"] == "host-deadlock"
    assert "loop.py:31 in deadlock" in run.announced("evidence.collected")[0]["line"]
    (stalled,) = {
        event.pid for event in run.events if isinstance(event, Heartbeat) and event.attempt == 1 and event.trains
    }
    assert evidence(run)["pid"] == stalled
    assert sorted(batches(run).values()) == [40, 60, 60]
    assert run.outcome()["batches"] == 160
    assert run.out.decode().split() == ["first", "trained", "second", "trained"]


KILLED_ONCE = """
import os, signal, subprocess, sys
from pathlib import Path
if sys.argv[1] == "train":
    import stallguard
    for number in range(30):
        stallguard.beat()
    if not Path("memory").exists():
        Path("memory").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    print("trained")
else:
    subprocess.run([sys.executable, __file__, "train"], check=True)
"""


def test_a_training_that_is_killed_behind_a_launcher_is_restarted(tmp_path: Path) -> None:
    script = tmp_path / "sweep.py"
    script.write_text(KILLED_ONCE)

    run = guard(tmp_path, str(script), "launch", cwd=tmp_path)

    assert run.code == 0, run.err
    assert run.outcome()["attempts"] == 2
    assert run.actions("incident.diagnosed")[0]["findings"][0]["cause"] == "killed"
    assert run.out.decode().split() == ["trained"]


@LINUX
def test_of_two_trainings_side_by_side_the_second_stalls_and_the_first_hides_nothing(tmp_path: Path) -> None:
    """The first one computes all the time, for much longer than the stall may last."""
    script = 'BUSY=1 "$PY" "$LOOP" first $FIRST 0.02 & "$PY" "$LOOP" second 60 0.05 40 "$MEMORY" & wait'
    began = time.monotonic()

    # The second start of the first is short: what is to be seen has been seen.
    run = shell(
        tmp_path, f'FIRST=3000; [ -e "$MEMORY" ] && FIRST=50; {script}', *STALLS, MEMORY=str(tmp_path / "memory")
    )

    assert run.code == 0, run.err
    second = training_of(run, "loop.py second")
    (stalled,) = run.announced("training.stalled")
    assert stalled["pid"] == str(second) == str(evidence(run)["pid"])
    assert "(loop.py second 60" in stalled["silence"]
    assert run.actions("incident.diagnosed")[0]["findings"][0]["cause"] == "host-deadlock"
    silent = next(e for e in run.events if isinstance(e, Heartbeat) and e.pid == second and e.beats == 40)
    judged = next(entry.line.clock for entry in run.lines if entry.line.event == "training.stalled")
    assert SECONDS <= judged - silent.progress_at < 3 * SECONDS, "the usual time"
    assert time.monotonic() - began < 60, "the first one alone would have taken that long"


def test_healthy_trainings_side_by_side_of_very_different_paces_raise_no_suspicion(tmp_path: Path) -> None:
    script = '"$PY" "$LOOP" fast 2000 0.005 & BUSY=1 "$PY" "$LOOP" slow 4 3 & wait'

    run = shell(tmp_path, script, *STALLS)

    assert run.code == 0, run.err
    assert sorted(batches(run).values()) == [4, 2000]
    assert run.announced("training.suspected") == run.announced("training.stalled") == []
    assert ", 2 trainings" in run.announced("run.finished")[0]["trouble"]


def test_a_loop_of_a_shell_is_so_many_trainings_and_the_report_has_a_line_for_each(tmp_path: Path) -> None:
    run = shell(tmp_path, 'for s in 1 2 3; do "$PY" "$LOOP" seed$s 10$s 0.01; done')

    assert run.code == 0, run.err
    assert sorted(batches(run).values()) == [101, 102, 103]
    assert run.outcome()["batches"] == 306
    assert [event.how for event in run.events if isinstance(event, ProcessLeft)] == ["ended"] * 3
    assert "3 trainings" in run.err
    announced = stallguard(tmp_path, "report").out.decode()
    assert "3 trainings ran in it; all of them came to the end of their program." in " ".join(announced.split())
    for seed in "123":
        assert f"loop.py seed{seed} 10{seed} 0.01  10{seed}" in announced
    document = json.loads(stallguard(tmp_path, "report", "--json").out)
    assert [one["batches"] for one in document["trainings"]] == [101, 102, 103]
    assert run.run is not None
    page = stallguard(tmp_path, "report", "--html", str(tmp_path / "report.html"))
    assert page.code == 0, page.err
    assert "loop.py seed2 102 0.01" in (tmp_path / "report.html").read_text()


AGAIN = """
import os, sys, time, stallguard
left = int(sys.argv[1])
for _ in range(20):
    stallguard.beat()
    time.sleep(0.02)
time.sleep(3)  # longer than the silence in which the page is read
if left:
    os.execv(sys.executable, [sys.executable, sys.argv[0], str(left - 1)])
stallguard.beat()
print("done")
"""


def test_a_program_that_replaces_itself_does_not_hurt_who_reads_its_page(tmp_path: Path) -> None:
    script = tmp_path / "again.py"
    script.write_text(AGAIN)

    run = guard(tmp_path, str(script), "2")

    assert (run.code, run.out) == (0, b"done\n"), run.err
    assert run.outcome()["batches"] == 61
    assert [event.how for event in run.events if isinstance(event, ProcessLeft)] == ["replaced", "replaced", "ended"]
    assert len({event.place for event in run.events if isinstance(event, ProbeConnected)}) == 3


REPLACED = """
import os, stallguard, time
for _ in range(100):
    stallguard.beat()
    time.sleep(0.02)
os.execv("/bin/sh", ["sh", "-c", "sleep 15; echo uploaded"])
"""


def test_a_training_that_became_another_program_is_no_stall(tmp_path: Path) -> None:
    script = tmp_path / "upload.py"
    script.write_text(REPLACED)

    run = guard(tmp_path, *STALLS, str(script))

    assert (run.code, run.out) == (0, b"uploaded\n"), run.err
    assert run.announced("training.stalled") == []


def test_a_training_that_is_killed_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    script = '("$PY" "$LOOP" first 10000 0.02 || true) & "$PY" "$LOOP" second 400 0.02 & wait'
    command = [*RUN, "--", "sh", "-c", script]
    with subprocess.Popen(command, env={**os.environ, **PY, "STALLGUARD_HOME": str(tmp_path)}) as child:
        until(lambda: len(live(tmp_path).get("trainings", [])) == 2)
        trainings = live(tmp_path)["trainings"]
        first = next(one for one in trainings if "first" in one["command"])
        psutil.Process(first["pid"]).kill()
        until(lambda: [one["how"] for one in live(tmp_path)["trainings"] if one["pid"] == first["pid"]] == ["vanished"])
        text = stallguard(tmp_path, "status").out.decode()
        listed = stallguard(tmp_path, "ls", "--live").out.decode()
        assert child.wait(60) == 0

    assert f"loop.py first 10000 0.02, pid {first['pid']}: was killed, or crashed" in text
    assert "loop.py second 400 0.02, pid " in text
    assert "    training 2: loop.py" in listed


def live(home: Path) -> dict[str, Any]:
    """Return the snapshot of the run that lives; empty where none answers yet."""
    done = stallguard(home, "status", "--json")
    try:
        found: dict[str, Any] = json.loads(done.out)
    except ValueError:
        return {}
    return found if "state" in found else {}


def until(what: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.1)


def test_a_set_time_ends_what_trains_then_and_what_a_loop_would_begin_next(tmp_path: Path) -> None:
    script = 'for s in 1 2 3; do "$PY" "$LOOP" seed$s 2000 0.02 || exit $?; done'

    run = shell(tmp_path, script, "--max-time", "4s", "--set", "stop.batch_wait=3s")

    assert run.code == 75, run.err
    assert len(batches(run)) == 1


TORCH = """
import os, torch, time
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(30):
    optimizer.zero_grad(); model(torch.ones(8, 4)).sum().backward(); optimizer.step(); time.sleep(0.02)
print("rank", os.environ["RANK"])
"""


@pytest.mark.live
def test_torchrun_with_one_process_is_one_training_under_a_launcher(tmp_path: Path, other_python) -> None:
    script = tmp_path / "train.py"
    script.write_text(TORCH)
    python = other_python("torch")

    run = stallguard(
        tmp_path, "run", "--", python, "-m", "torch.distributed.run", "--nproc-per-node=1", "--master-port=0",
        f"--log-dir={tmp_path / 'logs'}", str(script),
        env={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")},
    )  # fmt: skip

    assert (run.code, run.out) == (0, b"rank 0\n"), run.err
    assert list(batches(run).values()) == [30]
    assert run.outcome()["batches"] == 30
    assert run.run is not None
    assert len(list(RunDir(run.run).probe.glob("*.page"))) == 2, "the launcher imports torch as well"
