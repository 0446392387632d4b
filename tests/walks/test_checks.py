"""The checks that are no launchd's, run here: tools say what was recorded, a small script plays the training."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

RECORDINGS = Path(__file__).parent.parent / "recordings" / "macos"
ASSERTIONS = "pmset_g_assertions_caffeinate_w.txt"
TRAINING = """
import faulthandler, signal, sys, time
faulthandler.register(signal.SIGUSR1, file=open(sys.argv[1], "a"))
print("gpus", {gpus}, flush=True)
for number in range(10_000):
    print("batch", number, flush=True)
    time.sleep(0.01)
"""


def recorded(name: str) -> str:
    return (RECORDINGS / name).read_text()


@pytest.fixture
def tools(scene):
    """What the tools say, by their last word."""
    from mac.scene import Said

    power = "Now drawing from 'AC Power'\n"
    times = "kern.boottime: { sec = 1 }\nkern.sleeptime: { sec = 0 }\nkern.waketime: { sec = 0 }"
    announced = {
        "IOAccelerator": recorded("ioreg_ioaccelerator_g14x_41pct_trimmed.txt"),
        "iogpu.wired_limit_mb": recorded("sysctl_memory_loaded_48g_18core.txt")
        + "\nhw.memsize: 51539607552\nvm.compressor_bytes_used: 1\n"
        + "vm.compressor_segment_limit: 1629615\nvm.compressor_segment_buffer_size: 65536\n",
        "/usr/bin/vm_stat": recorded("vm_stat_m_series_32g_healthy.txt"),
        "therm": recorded("pmset_g_therm_apple_silicon_nominal.txt"),
        "ps": power,
        "kern.waketime": times,
        "-mayDie": recorded("sample_python_blocked_lock_excerpt.txt"),
        "/dev/stdout": recorded("sample_python_blocked_lock_excerpt.txt"),
        "assertions": "",
    }
    scene.answers.update({word: Said(0, text, 0.04) for word, text in announced.items()})
    return scene.answers


def verdicts(scene, *names) -> dict[str, str]:
    from mac import checks

    return {row.check: row.verdict for row in checks.walk(scene, checks.chosen(names), lambda: None)}


def test_the_sensors_are_read_from_tools(scene, tools):
    assert verdicts(scene, "gpu", "memory", "heat", "sleep") == {
        "gpu": "held", "gpu when wedged": "not asked", "memory": "held", "heat and power": "held", "sleep": "not asked",
    }  # fmt: skip
    assert {"ioreg_accelerator", "sysctl_memory", "pmset_therm", "pmset_log_sleeps"} <= set(scene.recordings)


def test_every_python_is_sampled(scene, tools):
    rows = verdicts(scene, "samples")
    assert rows["sample stallguard's"] == "held"
    assert "sample_stallguards" in scene.recordings


def test_tools_of_a_bundle_that_do_not_answer_are_named(scene, tools):
    from mac import machine

    [row] = machine.evidence(scene)
    assert row.verdict == "did not hold"
    absent = row.means.removeprefix("without: ").split(", ")
    assert "threads" in absent
    assert "sample" not in absent


def at_work(scene, monkeypatch, gpus: int):
    """Put the small script in the place of the training."""
    from mac import gpu

    script = scene.home / "load.py"
    script.write_text(TRAINING.format(gpus=gpus))
    monkeypatch.setattr(gpu, "LOAD", script)
    monkeypatch.setattr(gpu, "WATCH", 0.6)
    monkeypatch.setattr(gpu, "EVERY", 0.2)
    monkeypatch.setattr(gpu.libproc, "seconds_a_tick", lambda: 1e-9)


@pytest.mark.waits
def test_a_training_at_work_is_watched_and_asked_for_its_stacks(scene, tools, monkeypatch):
    from mac import gpu

    at_work(scene, monkeypatch, gpus=1)
    seen = []
    real = gpu._look

    def look(scene, load):
        """The registry as if the training had used the GPU a little more each time."""
        seen.append(real(scene, load))
        return seen[-1]._replace(gpu_time=len(seen), submitted=round(seen[-1].at * 1e9))

    monkeypatch.setattr(gpu, "_look", look)
    rows = verdicts(scene, "work")

    assert rows == {
        "gpu at work": "held",
        "gpu clients": "held", "lastSubmittedTime": "held", "faulthandler": "held", "sample of a training": "held",
    }  # fmt: skip


def test_without_a_gpu_nothing_is_said_of_it(scene, tools, monkeypatch):
    at_work(scene, monkeypatch, gpus=0)
    assert verdicts(scene, "work") == {"gpu at work": "not asked"}


def test_caffeinate_is_held_for_a_moment_and_looked_for(scene, tools, monkeypatch):
    from mac import machine
    from mac.scene import Said

    class Held:
        def __init__(self, _plan):
            text = recorded(ASSERTIONS).replace("30490", str(os.getpid()))
            tools["assertions"] = Said(0, text, 0.0)

        def close(self):
            tools["assertions"] = Said(0, "", 0.0)

    monkeypatch.setattr(machine.awake, "Awake", Held)
    assert verdicts(scene, "caffeinate") == {"caffeinate": "held"}


def test_the_doctor_and_the_drill_are_believed(scene, tools):
    import sys

    from mac.scene import Said

    announced = {"verdict": "good", "facts": {"environment": {"deep": {"devices": ["/physical_device:GPU:0"]}}}}
    tools[sys.executable] = Said(0, f"loading\n{json.dumps(announced)}\n", 1.0)
    assert verdicts(scene, "doctor", "drill") == {"doctor": "held", "drill": "held"}
    scene.metal_pythons = {"pinned": sys.executable, "recommended": "/beside/python"}
    tools["/beside/python"] = Said(0, json.dumps({"verdict": "good"}), 1.0)
    assert verdicts(scene, "doctor") == {"doctor": "held", "doctor: recommended": "did not hold"}
    scene.metal_pythons = {"pinned": sys.executable}
    tools[sys.executable] = Said(125, "stallguard itself failed", 1.0)
    assert verdicts(scene, "doctor", "drill") == {"doctor": "did not hold", "drill": "did not hold"}


def test_the_tests_last_line_is_the_figure(scene, tools):
    from mac import machine
    from mac.scene import Said

    tools[str(machine.ROOT / "tests/live")] = Said(0, "....\n==== 9 passed in 2.00s ====\n", 2.0)
    [row] = machine.live_tests(scene)
    assert (row.verdict, row.figure) == ("held", "9 passed in 2.00s")
