"""The walk's checks of the kernel, of files and of frameworks: made for real where this system has them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "tests" / "recordings" / "macos"
HELD, FAILED, UNASKED = "held", "did not hold", "not asked"
FOOTPRINT = """======================================================================
python3.12 [4711]: 64-bit    Footprint: 214 MB (16384 bytes per page)
======================================================================

  Dirty      Clean  Reclaimable    Regions    Category
    ---        ---          ---        ---    ---
 206 MB        0 B          0 B          9    MALLOC_LARGE
    ---        ---          ---        ---    ---
 214 MB        0 B          0 B        220    TOTAL

Auxiliary data:
    phys_footprint: 214 MB
    phys_footprint_peak: 414 MB
"""
NOMINAL = "pmset_g_therm_apple_silicon_nominal.txt"


@pytest.fixture
def real(tmp_path):
    """A scene that runs real programs."""
    import os

    from mac.scene import Scene

    env = {**os.environ, "STALLGUARD_HOME": str(tmp_path / "kept"), "PYTHONPATH": str(ROOT)}
    return Scene(tmp_path, env, lambda _line: None)


def by_check(rows) -> dict[str, str]:
    return {row.check: row.verdict for row in rows}


@pytest.mark.waits
def test_the_end_of_a_process_of_others_is_noticed_and_none_is_made_up(real):
    from mac import kernel

    rows = by_check(kernel.ends(real))
    names = ("an end", "a zombie", "a dead pid", "a pid that is another's")
    assert rows == {f"kqueue: {name}": HELD for name in names}


def test_an_end_that_is_waited_for_or_made_up_does_not_hold():
    from mac import verdicts_kernel as say

    assert say.no_end("a zombie", True, 0.1, "ESRCH").verdict == HELD
    assert say.no_end("a zombie", True, 0.1, "watched").verdict == FAILED, "the kernel watches what has ended"
    assert say.no_end("a zombie", False, 0.1, "ESRCH").verdict == FAILED
    assert say.no_end("a zombie", True, 9.0, "").verdict == FAILED
    assert say.watched("darwin", 3, 3, came=True).verdict == HELD
    assert say.watched("darwin", None, 3, came=True).verdict == FAILED, "kqueue reports the exit code"
    assert say.watched("linux", None, 3, came=True).verdict == HELD
    assert say.watched("linux", None, 3, came=False).verdict == FAILED


@pytest.mark.waits
def test_a_burst_loses_records_and_a_fast_loop_no_batch(real, monkeypatch):
    from mac import kernel

    monkeypatch.setattr(kernel, "BEATS", 150)
    burst, fast = kernel.bursts(real)
    assert (burst.verdict, fast.verdict) == (HELD, HELD), (burst, fast)
    lost = int(re.search(r"lost (\d+) of 150", burst.figure)[1])
    assert lost < 135, "the reader does not read"
    assert "2000 of 2000" in fast.figure


def test_a_buffer_that_the_kernel_does_not_grant_is_no_success():
    from mac import verdicts_kernel as say

    row = say.burst(65536, 4096, 65536, 700, 12, 1000)
    assert (row.verdict, row.figure) == (HELD, "lost 700 of 1000 with the kernel's 4096 bytes, 12 with our 65536")
    assert say.burst(65536, 4096, 4096, 700, 700, 1000).verdict == FAILED
    assert say.burst(65536, 4096, 65536, 700, 1000, 1000).verdict == FAILED


@pytest.mark.waits
def test_each_way_to_write_a_checkpoint_is_noticed_also_below_a_link(real):
    from mac import files

    rows = by_check(files.checks(real))
    ways = [
        f"files: {way}{where}" for where in ("", " below a symlinked cwd") for way in ("create", "rename", "overwrite")
    ]
    assert rows == dict.fromkeys(ways, HELD)


def test_a_checkpoint_that_is_not_noticed_does_not_hold(real, monkeypatch):
    from mac import files

    class Blind:
        def __init__(self, *_):
            pass

        def read(self):
            return None

        close = read

    monkeypatch.setattr(files, "FilesSensor", Blind)
    monkeypatch.setattr(files, "PATIENCE", 0.1)
    monkeypatch.setattr(files, "LOOK", 0.01)
    monkeypatch.setattr(files, "SETTLED", 0.0)
    assert set(by_check(files.checks(real)).values()) == {FAILED}


def test_a_footprint_is_read_from_each_tool_that_prints_one():
    from mac import verdicts_kernel as say

    assert say.footprint(FOOTPRINT) == 214 << 20
    head = FOOTPRINT.partition("Auxiliary")[0]
    assert say.footprint(head) == 214 << 20
    assert say.footprint((RECORDINGS / "sample_header_python313_macos27.txt").read_text()) == round(88.4 * (1 << 30))
    assert say.footprint("footprint: unable to inspect 4711") is None


def test_our_footprint_must_be_that_of_apples_tool():
    from mac import verdicts_kernel as say

    assert say.footprints(220 << 20, FOOTPRINT, 0).verdict == HELD
    assert say.footprints(20 << 20, FOOTPRINT, 0).verdict == FAILED
    assert say.footprints(None, FOOTPRINT, 0).verdict == FAILED
    refused = say.footprints(20 << 20, "footprint: unable to inspect 4711", 1)
    assert (refused.verdict, "unable to inspect" in refused.means) == (UNASKED, True)


def test_thermal_pressure_must_be_notifyds_and_pmset_must_not_contradict_it():
    from mac import verdicts_kernel as say

    nominal = (RECORDINGS / NOMINAL).read_text()
    warned = "\tCPU thermal warning level 60\n"
    level = "com.apple.system.thermalpressurelevel {}\n".format
    assert say.thermal(0, level(0), nominal).verdict == HELD
    assert say.thermal(1, level(1), nominal).verdict == HELD, "pmset warns later"
    assert say.thermal(0, level(2), nominal).verdict == FAILED
    assert say.thermal(0, level(0), warned).verdict == FAILED
    assert say.thermal(0, "notifyutil: failed", nominal).verdict == UNASKED


@pytest.mark.waits
def test_the_exit_code_of_a_training_that_ended_unwatched_is_known(real):
    from mac import orphans

    [row] = orphans.checks(real)
    assert row.verdict == HELD, row
    assert "exit code 7" in row.figure


@pytest.mark.waits
def test_a_run_is_reached_by_a_socket_beside_the_runs(real):
    from mac import sockets

    [row] = sockets.checks(real)
    assert row.verdict == HELD, row


def test_a_socket_that_does_not_answer_does_not_hold():
    from mac import sockets

    kept = Path("/Users/ada/kept")
    assert sockets.verdict("/Users/ada/kept/s/a/control", kept, 0, 3 * 86400.0).verdict == HELD
    far = sockets.verdict("/tmp/stallguard-1/control", kept, 0, None)
    assert (far.verdict, "too long" in far.means) == (HELD, True)
    assert sockets.verdict("/Users/ada/kept/s/a/control", kept, 3, None).verdict == FAILED
    assert sockets.verdict("", kept, 0, None).verdict == FAILED


def test_the_oldest_file_counts_from_its_last_use(tmp_path):
    import os

    from mac import sockets

    for name, used, written in (("a", 50, 10), ("b", 20, 40)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (used, written))
    assert sockets.oldest([*tmp_path.iterdir(), tmp_path / "gone"], 100) == 60
    assert sockets.oldest([], 100) is None


@pytest.mark.costly
def test_a_loop_is_run_with_the_first_python_that_has_its_library(real, monkeypatch):
    """A module of our own in the place of MLX, which this system does not have."""
    from mac import frameworks

    source = "import stallguard\nfor _ in range({steps}): stallguard.beat()\nprint('device', 'gpu')\n"
    loops = (frameworks.Loop("Own", "json", "gpu", source), frameworks.Loop("None", "no_such_module", "gpu", source))
    monkeypatch.setattr(frameworks, "LOOPS", loops)
    monkeypatch.setattr(frameworks, "candidates", lambda _home, _env: ["/no/such/python", sys.executable])
    own, none = frameworks.checks(real)
    assert (own.verdict, own.figure) == (HELD, "exit code 0, 50 of 50 steps on gpu")
    assert (none.verdict, none.means) == (UNASKED, "no Python here has no_such_module")


def test_a_loop_that_loses_steps_does_not_hold_and_one_without_the_gpu_is_no_answer():
    from mac import frameworks

    loop = frameworks.LOOPS[1]
    done = "device {}\nstallguard: finished: {} batches in 2 s\n".format
    assert frameworks.verdict(loop, 0, done("mps", 50), "darwin").verdict == HELD
    assert frameworks.verdict(loop, 0, done("cpu", 50), "darwin").verdict == UNASKED
    assert frameworks.verdict(loop, 0, done("cpu", 50), "linux").verdict == HELD
    assert frameworks.verdict(loop, 0, done("mps", 49), "darwin").verdict == FAILED
    assert frameworks.verdict(loop, 1, done("mps", 50), "darwin").verdict == FAILED


def test_a_loop_that_is_not_counted_must_be_said_to_be():
    from mac import frameworks

    loop = frameworks.LOOPS[-1]
    assert (loop.module, loop.counts) == ("mlx.core", False)
    said = "device gpu\nstallguard: no batch was counted in the first 46 s, and a silence\n"
    assert frameworks.verdict(loop, 0, said, "darwin").verdict == UNASKED
    assert frameworks.verdict(loop, 0, "device gpu\n", "darwin").verdict == FAILED
    assert frameworks.verdict(loop, 1, said, "darwin").verdict == FAILED


@pytest.mark.live
def test_an_unchanged_loop_of_torch_is_counted_step_by_step(real, monkeypatch, other_python):
    from mac import frameworks

    [loop] = (one for one in frameworks.LOOPS if one.name == "PyTorch, unchanged,")
    assert "stallguard" not in loop.source
    monkeypatch.setattr(frameworks, "LOOPS", (loop,))
    monkeypatch.setattr(frameworks, "candidates", lambda _home, _env: [other_python("torch")])
    [row] = frameworks.checks(real)
    assert (row.verdict, row.figure) == (HELD, "exit code 0, 50 of 50 steps on cpu")


def test_the_loops_are_programs(real):
    from mac import frameworks

    for loop in frameworks.LOOPS:
        compile(loop.source.format(steps=1), loop.name, "exec")


def test_an_active_environment_is_asked_first(tmp_path):
    from mac import frameworks

    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.touch()
    assert frameworks.candidates(tmp_path, {"CONDA_PREFIX": str(tmp_path)})[0] == str(python)


@pytest.mark.parametrize(("answer", "verdict"), [(True, HELD), (False, FAILED), (None, UNASKED)])
def test_a_notification_counts_if_its_user_has_seen_it(real, monkeypatch, answer, verdict):
    from mac import machine

    sent = []
    monkeypatch.setattr(machine.channels, "desktop", lambda: sent.append)
    real.ask = lambda _question: answer
    [row] = machine.desktop_notification(real)
    assert (row.verdict, len(sent)) == (verdict, 1)


MILLISECONDS = {"fsync": [0.001, 0.002], "F_BARRIERFSYNC": [0.004, 0.009], "F_FULLFSYNC": [0.019, 0.04]}


def test_a_disk_that_has_both_commands_holds_and_says_what_each_costs(real):
    from mac import verdicts_kernel as say

    row = say.disk_order(MILLISECONDS, {name: [0.001] for name in MILLISECONDS})
    assert row.verdict == HELD
    assert row.figure == (
        "fsync 1.5 ms (up to 2.0), F_BARRIERFSYNC 6.5 ms (up to 9.0), F_FULLFSYNC 29.5 ms (up to 40.0)"
    )


@pytest.mark.parametrize("of", ["file", "folder"])
def test_a_disk_that_refuses_one_does_not_hold_and_names_the_error(of, real):
    from mac import verdicts_kernel as say

    whole, refusing = {name: [0.001] for name in MILLISECONDS}, {**MILLISECONDS, "F_BARRIERFSYNC": "EINVAL"}
    row = say.disk_order(*((refusing, whole) if of == "file" else (whole, refusing)))
    assert row.verdict == FAILED
    assert "EINVAL" in row.figure


def test_the_walk_asks_the_disk_itself(real):
    """Linux has fsync alone, and refuses the numbers of macOS."""
    from mac import files

    (row,) = files.disk_order(real)
    assert re.match(r"fsync [\d.]+ ms \(up to [\d.]+\), F_BARRIERFSYNC ", row.figure)
    assert list(real.home.iterdir()) == []
    if sys.platform == "linux":
        assert row.verdict == FAILED
