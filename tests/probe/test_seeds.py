"""The programs that stallguard was made for: each batch of theirs is a beat, and they end as without it.

They lie beside the checkout, not in it; where they are absent these tests are skipped.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from stallguard.probe import wire
from tests.probe.imported import ForkReceiver
from tests.probe.receiver import ROOT

SEEDS = ROOT.parent / "shared" / "seeds"
# file: batches, the hook that counts them; a program that fails by itself fails the same way
BEATS = {
    "000_1.py": (20, "callbacks"),
    "000_2.py": (20, "callbacks"),
    "000_3.py": (20, "function"),
    "001_1.py": (1000, "on_batch"),
    "001_2.py": (1000, "on_batch"),
    "001_3.py": (2, "on_batch"),
    "002_1.py": (2, "on_batch"),
    "002_2.py": (10, "function"),
    "002_3.py": (1, "on_batch"),
    "003_1.py": (0, "none"),
    "003_2.py": (0, "none"),
    "003_3.py": (0, "none"),
    "004_1.py": (0, "none"),
    "004_2.py": (0, "none"),
    "004_3.py": (0, "none"),
    "derived/002_3_fixed.py": (4, "on_batch"),
    "derived/003_2_cpu.py": (0, "none"),
    "derived/003_3_cpu.py": (10, "optimizer"),
    "derived/004_1_filled.py": (100, "callbacks"),
    "derived/004_2_filled.py": (10, "function"),
    "derived/004_3_filled.py": (100, "callbacks"),
}
# Their batches and epochs are alike and take long: they train on fewer rows, and end after the first epoch.
FEWER_ROWS = {
    "002_1.py": ("samples = 1000", "samples = 600"),
    "derived/002_3_fixed.py": ("samples = 500", "samples = 100"),
}
ENDED_EARLY = """
import sys
def print(*words, show=print):
    show(*words)
    if words == ("Epoch 1 complete.",):
        sys.exit()
"""
# One script for each way to end: by itself, in a library, in the script.
COMPARED = ("000_3.py", "002_3.py", "004_1.py")


@pytest.fixture(scope="module", autouse=True)
def seeds():
    if not SEEDS.is_dir():
        pytest.skip("the programs are not here: ../shared/seeds beside the checkout")


@pytest.mark.live
@pytest.mark.tf
@pytest.mark.parametrize("name", BEATS)
def test_each_batch_is_a_beat(name, tmp_path, servers):
    script = SEEDS / name
    if name in FEWER_ROWS:
        text = script.read_text()
        assert FEWER_ROWS[name][0] in text
        script = tmp_path / script.name
        script.write_text(ENDED_EARLY + text.replace(*FEWER_ROWS[name]))
    command = [sys.executable, str(script)]
    with ForkReceiver(servers) as receiver:
        heartbeat = receiver.run(command, 600, cwd=tmp_path)
    beats, source = BEATS[name]
    assert (heartbeat.last()["beats"], wire.SOURCES[heartbeat.last()["source"]]) == (beats, source)
    assert not heartbeat.last()["flags"] & wire.FLAG_STEPPED_ASIDE
    if name in COMPARED:
        plain = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert heartbeat.code == plain.returncode
        assert heartbeat.err.splitlines()[-1:] == plain.stderr.splitlines()[-1:] or heartbeat.code == 0
