"""stallguard is upgraded or removed while a training runs: the next attempt resumes, or says why it cannot."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from stallguard.core.events import Launched
from stallguard.storage.paths import RunDir
from tests.guarded.runs import COUNTER, GUARDED, Guarded

ROOT = Path(__file__).parent.parent.parent
BEGIN = """
import os, shutil, sys, time, stallguard
site, how = sys.argv[1:]
home, begun, step = os.environ["STALLGUARD_HOME"], not os.path.exists("begun"), 0
open("begun", "a").close()
"""
REST = """
first = step
for _ in range(40):
    step += 1
    stallguard.beat()
    time.sleep(0.05)
print("from", first > 0, "to", step > first, flush=True)
if begun:
    while not (os.path.isdir(home + "/probes") and not any(n.startswith("tmp") for n in os.listdir(home + "/probes"))):
        time.sleep(0.05)
    shutil.rmtree(os.path.join(site, "stallguard"))
    if how == "without a copy":
        shutil.rmtree(home + "/probes")
    os.kill(os.getpid(), 9)
"""
SCRIPT = BEGIN + COUNTER + REST


def removed(place: Path, how: str) -> Guarded:
    site = place / "site"
    shutil.copytree(ROOT / "stallguard", site / "stallguard", ignore=shutil.ignore_patterns("__pycache__"))
    text = SCRIPT.replace(", stallguard\n", "\n", 1)
    # Without a probe and without an installation there is no `stallguard` to import: the script does without it.
    begin = "try:\n    import stallguard\nexcept ImportError:\n    print('alone')\n    sys.exit(0)\n"
    (place / "script.py").write_text(text.replace("\nsite, how", f"\n{begin}site, how", 1))
    env = {**os.environ, "STALLGUARD_HOME": str(place / "home"), "PYTHONPATH": str(site)}
    words = ["run", "--checkpoint-every", "0.2s", "--checkpoint-cost", "1", "--python", GUARDED]
    done = subprocess.run(
        [sys.executable, "-m", "stallguard", *words, "script.py", str(site), how],
        env=env, cwd=place, capture_output=True, check=False, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    run = (place / "home" / "runs" / "latest").resolve()
    return Guarded(done.returncode, done.stdout, done.stderr.decode(), run)


def launches(run: Guarded) -> list[tuple[bool, str]]:
    return [(one.resumed, one.unresumed) for one in run.events if isinstance(one, Launched)]


def test_the_next_attempt_resumes_with_the_probe_that_the_run_began_with(tmp_path: Path) -> None:
    run = removed(tmp_path, "with its copy")

    assert run.code == 0, run.err
    assert run.out.decode().splitlines() == ["from False to True", "from True to True"]
    assert launches(run) == [(False, ""), (True, "")]


def test_an_attempt_without_a_probe_is_said_to_be_one_and_not_to_resume(tmp_path: Path) -> None:
    run = removed(tmp_path, "without a copy")

    assert run.code == 0, run.err
    assert run.out.decode().splitlines()[-1] in ("alone", "from False to True")
    assert RunDir(run.run).has_checkpoints() if run.run else False
    assert launches(run)[1] == (False, "without the probe, its checkpoints cannot be used")
    assert "stallguard cannot look inside the training (stallguard's files are gone" in run.err
    assert "the training starts from the beginning: without the probe" in run.err
    assert "resuming" not in run.err
