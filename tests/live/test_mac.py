"""What only a Mac with Apple silicon can show.  Run by scripts/live; skipped everywhere else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from stallguard.host import system

pytestmark = pytest.mark.live


def stallguard(*words, seconds=900, **variables):
    return subprocess.run(
        [sys.executable, "-m", "stallguard", *words],
        check=False, capture_output=True, text=True, timeout=seconds, env=os.environ | variables,
    )  # fmt: skip


def test_the_gpu_is_listed_and_can_be_read_without_root():
    assert system.preferences().gpus
    began = time.monotonic()
    reading = system.Gpu().read(())
    assert reading is not None
    assert reading.utilisation is not None
    assert time.monotonic() - began < 3.0  # the deadline of its sensor


def test_a_process_that_replaces_itself_by_the_same_program_has_another_image():
    again = "import os, sys; input(); os.execv(sys.executable, [*sys.orig_argv])"
    child = subprocess.Popen([sys.executable, "-c", again], stdin=subprocess.PIPE)
    try:
        time.sleep(1.0)  # its interpreter is itself an exec away, if it is one of a framework build
        before = system.program_image(child.pid)
        assert before is not None
        assert system.program_image(child.pid) == before
        child.stdin.write(b"\n")
        child.stdin.flush()
        time.sleep(1.0)
        assert system.program_image(child.pid) not in (before, None)
    finally:
        child.kill()
        child.communicate()


def test_the_sleep_settings_are_read():
    sleep = system.preferences().sleep
    assert sleep is not None
    assert sleep.after is not None


def test_the_doctor_computes_on_metal():
    announced = json.loads(stallguard("doctor", "--json", "--deep", "--python", sys.executable).stdout)
    devices = announced["facts"]["environment"]["deep"]["devices"]
    assert [name for name in devices if "GPU" in name], announced["findings"]


@pytest.mark.tf
def test_a_drill_on_this_machine_ends_well(tmp_path):
    done = stallguard("drill", STALLGUARD_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
