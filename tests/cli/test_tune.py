"""find-batch, for real: scripts that fail above a size, tried until the largest that survives is known."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stallguard.cli.rehearsal import TRAIN
from tests.guarded.runs import AT_ONCE, Guarded, guard, stallguard

pytestmark = pytest.mark.live
GREEDY = Path(__file__).parents[1] / "batch" / "scripts" / "greedy.py"
DRILL = str(TRAIN)


def find(home: Path, *words: str) -> Guarded:
    return stallguard(home, "tune", "find-batch", "--json", "--python", sys.executable, *words)


@pytest.mark.skipif(sys.platform != "linux", reason="macOS does not hold a process to RLIMIT_AS")
def test_the_largest_batch_that_memory_holds_is_found_and_kept_as_a_ceiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else the C library sets 64 MB apart for a thread, at a moment that a busy machine chooses.
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    found = find(tmp_path, "--steps", "5", "--batch-flag=--batch-size", str(GREEDY), "--batch-size", "100")

    assert found.code == 0, found.err
    rows = json.loads(found.out)["rows"]
    assert rows == 200  # the next size that is tried is 225; 212 MB are left
    assert all(one["survived"] == (one["rows"] <= rows) for one in json.loads(found.out)["tries"])

    run = guard(tmp_path, "--batch-flag=--batch-size", str(GREEDY), "--batch-size", "512")
    assert (run.code, run.out) == (0, f"trained with {rows}\n".encode()), run.err
    assert run.outcome()["attempts"] == 1
    assert run.err.count(f"batches of up to {rows} rows") == 1


def test_a_script_that_fails_for_other_reasons_ends_the_search(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import time\ntime.sleep(0.5)\nraise KeyError('no such column')\n")
    found = find(tmp_path, str(broken))

    assert found.code == 1
    assert "does not show its batch size" in found.err


def test_the_end_of_the_search_at_its_own_limit_says_nothing_of_larger_batches(tmp_path: Path) -> None:
    script = tmp_path / "sized.py"
    script.write_text(
        "import stallguard, sys, time\n"
        "for _ in range(100000):\n"
        "    time.sleep(0.01)\n"
        "    stallguard.beat()\n"
        "    if int(sys.argv[2]) > 11: raise MemoryError\n"
    )
    words = ("tune", "find-batch", "--python", sys.executable, "--steps", "5", "--batch-flag=-b")
    limited = stallguard(tmp_path, *words, "--most", "8", str(script), "-b", "8").out.decode()
    assert "8 rows survive, the most that was tried (--most); larger batches were not tried" in limited

    found = stallguard(tmp_path, *words, "--most", "16", str(script), "-b", "8").out.decode()
    assert "the largest batch that was seen to survive: 11 rows; 12 rows fail" in found


def test_ctrl_c_ends_the_search_with_the_sizes_tried_so_far_and_stores_nothing(tmp_path: Path) -> None:
    script, mark = tmp_path / "sized.py", tmp_path / "mark"
    script.write_text(
        "import sys, time, stallguard\n"
        "for number in range(100000):\n"
        "    time.sleep(0.02)\n"
        "    stallguard.beat()\n"
        f"    if sys.argv[2] == '16' and number == 5: open({str(mark)!r}, 'w').close()\n"
        "    if sys.argv[2] == '16': number and time.sleep(0.5)\n"
    )
    command = [sys.executable, "-m", "stallguard", "tune", "find-batch", "--python", sys.executable, "--steps", "40"]
    command += ["--batch-flag=-b", str(script), "-b", "8"]
    environment = {**os.environ, "STALLGUARD_HOME": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        give_up = time.monotonic() + 120
        while not mark.exists() and child.poll() is None:
            if time.monotonic() > give_up:
                child.kill()
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)

    assert child.returncode == 130, err
    assert [line.split()[0] for line in out.splitlines()] == ["size", "8", "interrupted"]
    assert not list((tmp_path / "learned").glob("*"))


@pytest.mark.tf
def test_a_keras_script_that_knows_nothing_of_it_is_sliced_until_it_survives(tmp_path: Path) -> None:
    found = find(tmp_path, *AT_ONCE, "--steps", "60", DRILL, "--at", "45", "--epochs", "3")

    assert found.code == 0, found.err
    assert json.loads(found.out)["factor"] == 2
    assert "the whole batch: fails: it stalled" in found.err

    run = guard(tmp_path, DRILL, "--at", "45", "--epochs", "3")
    assert run.code == 0, run.err
    assert [launch.get("factor", 1) for launch in run.actions("attempt.start_requested")] == [2]
    assert "find-batch saw this script survive with its batches in 2 slices" in run.err
