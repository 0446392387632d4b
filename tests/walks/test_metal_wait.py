"""A Metal call that never returns: the verdicts, and the same course with a call of this machine that never returns."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HELD, FAILED, UNASKED = "held", "did not hold", "not asked"
CAME_BACK = "wait_in_a_command_buffer returned after 5 s: status 5, Caused GPU Timeout Error"


def verdicts(**other):
    from mac.verdicts_wait import Seen, waited

    usual = {
        "began": 100.0, "returned": (), "suspected": 115.4, "stalled": 131.0, "restarted": 226.0,
        "line": "; it hangs at metal_calls.py:118 in wait_in_a_command_buffer", "causes": (("device-wait", 0.62),),
        "native": True, "attempts": 2, "code": 0, "said": "",
    }  # fmt: skip
    return list(waited(Seen(**usual | other)))


def test_a_wait_is_found_named_and_acted_upon():
    rows = verdicts()
    assert [row.verdict for row in rows] == [HELD, HELD, HELD]
    assert rows[0].figure == "a stall after 31 s (possible stall: 15 s)"
    assert rows[1].figure == (
        "device-wait (62%); it hangs at metal_calls.py:118 in wait_in_a_command_buffer; native stacks name the call"
    )
    assert rows[2].figure == "started again after 126 s; 2 attempts, exit code 0"


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({"stalled": None, "suspected": None, "restarted": None, "causes": (), "line": "", "attempts": 1,
          "code": None}, [FAILED, FAILED, FAILED]),
        ({"stalled": 170.0}, [FAILED, HELD, HELD]),
        ({"causes": (("host-deadlock", 0.6), ("device-wait", 0.4))}, [HELD, FAILED, HELD]),
        ({"line": ""}, [HELD, FAILED, HELD]),
        ({"line": "; it hangs at other.py:3"}, [HELD, FAILED, HELD]),
        ({"native": False}, [HELD, FAILED, HELD]),
        ({"restarted": 290.0}, [HELD, HELD, FAILED]),
        ({"attempts": 3}, [HELD, HELD, FAILED]),
        ({"code": 1}, [HELD, HELD, FAILED]),
        ({"code": None}, [HELD, HELD, FAILED]),
    ],
)  # fmt: skip
def test_each_part_can_fail_alone(seen, expected):
    assert [row.verdict for row in verdicts(**seen)] == expected


def test_a_wait_that_macos_ends_is_no_stall_and_no_failure():
    [row] = verdicts(
        stalled=None,
        restarted=None,
        attempts=1,
        returned=(CAME_BACK, "wait_for_an_event returned after 0 s: there is no"),
    )
    assert (row.verdict, row.figure.startswith(CAME_BACK)) == (UNASKED, True)
    [row] = verdicts(began=None, said="ModuleNotFoundError")
    assert (row.verdict, row.means) == (UNASKED, "the fit did not come to its wait: ModuleNotFoundError")


def test_the_second_way_to_wait_begins_later():
    rows = verdicts(returned=(CAME_BACK,), stalled=175.0, restarted=290.0)
    assert [row.verdict for row in rows] == [HELD, HELD, HELD]
    assert CAME_BACK in rows[0].figure


def test_a_gpu_that_does_not_compute_afterwards_is_said():
    from mac.verdicts_wait import usable

    assert usable(0, "the GPU filled 4096 bytes", 0.4).verdict == HELD
    row = usable(124, "no answer within 30 s", 30.0)
    assert (row.verdict, "restart the Mac" in row.means) == (FAILED, True)


def test_without_metal_nothing_waits(scene):
    from mac import metal_wait

    [row] = metal_wait.checks(scene)
    assert (row.verdict, "Metal does not compute here" in row.means) == (UNASKED, True)


@pytest.mark.tf
@pytest.mark.live
@pytest.mark.waits
def test_a_step_that_waits_is_ended_and_the_second_attempt_does_not_wait(tmp_path):
    from mac import metal_wait
    from mac.scene import Scene

    env = {**os.environ, "STALLGUARD_HOME": str(tmp_path / "kept"), "PYTHONPATH": str(ROOT)}
    scene = Scene(tmp_path, env, lambda _line: None)
    scene.metal_pythons = {"main": sys.executable}
    found, named, acted = metal_wait.checks(scene, "pause")

    assert (found.verdict, acted.verdict) == (HELD, HELD), (found, acted)
    assert "waiting_load.py:" in named.figure
    assert acted.figure.endswith("2 attempts, exit code 0")


def test_how_a_wait_ended_is_not_in_the_output(tmp_path):
    """An error of the GPU there is a known line: the cause would be that error, not the wait that follows."""
    from mac import metal_wait

    class Run:
        run, output, events = None, "waiting since 100.000\n", ()
        process = type("Ended", (), {"poll": staticmethod(lambda: 0)})

        def names(self, _event):
            return []

    once = tmp_path / "once"
    once.write_text(f"{CAME_BACK}\n")
    seen = metal_wait._seen(Run(), once)
    assert (seen.began, seen.returned) == (100.0, (CAME_BACK,))
    assert metal_wait._seen(Run(), tmp_path / "none").returned == ()


RETURNING = """
class Metal:
    def wait_in_a_command_buffer(self):
        return "status 5, Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)"

    def wait_for_an_event(self):
        return "there is no such call"

if __name__ == "__main__":
    print("the GPU filled 4096 bytes")
"""


@pytest.mark.tf
@pytest.mark.live
def test_a_metal_that_ends_each_wait_leaves_the_fit_to_its_end(tmp_path, monkeypatch):
    from mac import metal_wait
    from mac.scene import Scene

    for name in ("LOAD", "CALLS"):
        monkeypatch.setattr(metal_wait, name, Path(shutil.copy(getattr(metal_wait, name), tmp_path)))
    metal_wait.CALLS.write_text(RETURNING)
    env = {**os.environ, "STALLGUARD_HOME": str(tmp_path / "kept"), "PYTHONPATH": str(ROOT)}
    scene = Scene(tmp_path, env, lambda _line: None)
    scene.metal_pythons = {"main": sys.executable}
    waited, usable = metal_wait.checks(scene)

    assert (waited.verdict, usable.verdict) == (UNASKED, HELD), (waited, usable)
    assert "wait_in_a_command_buffer returned after 0 s: status 5" in waited.figure
    assert "no such call" in waited.figure
