"""The checks of the machine: memory, heat, sleep, processes, native stacks, what keeps it awake, notifications.

Must not judge: verdicts does.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from mac import verdicts, verdicts_kernel
from mac.scene import Said, Scene, until
from mac.table import Row, judged, unknown
from stallguard import awake
from stallguard.host import system
from stallguard.host.darwin import evidence_tools, libproc
from stallguard.host.darwin.machine import MEMORY_PRESSURE, PMSET, SYSCTL, VM_STAT
from stallguard.notify import ALLOW_ON_MAC, channels
from stallguard.notify.message import TEST, notification

ROOT = Path(__file__).resolve().parents[3]
IDLE = "import time; print(flush=True); time.sleep(120)"
HOLDS = f"held = bytearray(b'a') * (200 << 20); {IDLE}"  # a footprint that rounding does not hide
# Times and kinds alone: the reasons name programs, and a longer list says when its user is at the machine.
SLEEPS = (
    "/usr/bin/pmset -g log | /usr/bin/awk '$4 ~ /^(Sleep|Wake|DarkWake)$/ {print $1, $2, $3, $4}' | /usr/bin/tail -20"
)


@contextlib.contextmanager
def idle(python: str = sys.executable, source: str = IDLE) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Python that does nothing until the block ends."""
    with subprocess.Popen([python, "-c", source], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None  # noqa: S101 - a pipe, as asked
        child.stdout.readline()
        try:
            yield child
        finally:
            child.kill()


def memory(scene: Scene) -> Iterator[Row]:
    """Read what the memory sensor reads, and what else of memory a bundle has."""
    sysctl = scene.tool("sysctl_memory", SYSCTL, *evidence_tools.MEMORY)
    pages = scene.tool("vm_stat", *VM_STAT)
    scene.tool("memory_pressure", *MEMORY_PRESSURE)
    yield verdicts.memory(sysctl.text, pages.text)


def surroundings(scene: Scene) -> Iterator[Row]:
    """Read heat, power, lid and the settings of sleep."""
    heat = scene.tool("pmset_therm", *PMSET, "therm")
    power = scene.tool("pmset_ps", *PMSET, "ps")
    scene.tool("pmset_custom", *PMSET, "custom")
    scene.tool("ioreg_clamshell", "/usr/sbin/ioreg", "-r", "-d", "1", "-w", "0", "-k", "AppleClamshellState")
    yield verdicts.surroundings(heat.text, power.text)


def sleep(scene: Scene) -> Iterator[Row]:
    """Compare our clock's sleep with the kernel's own words."""
    times = scene.tool("sysctl_times", SYSCTL, "kern.boottime", "kern.sleeptime", "kern.waketime")
    scene.tool("pmset_log_sleeps", "/bin/sh", "-c", SLEEPS, seconds=120)
    yield verdicts.slept(times.text, system.asleep())


def processes(scene: Scene) -> Iterator[Row]:
    """Read the threads of a child, and how it ended."""
    with idle() as child:
        scene.tool("ps_threads", "/bin/ps", "-M", "-p", str(child.pid))
        states = libproc.thread_states(child.pid)
        yield judged("threads", states, f"{len(states)} threads, run states {sorted(set(states))}",
                     "an uninterruptible wait is seen without root", "the kernel refuses: PS state only")  # fmt: skip
        watch = system.MemoryKill(child.pid)
        child.kill()
        until(lambda: watch.killed() is not None, 5)
        answer = watch.killed()
        watch.close()
        yield judged("end of a process", answer is False, f"killed for memory: {answer}",
                     "kqueue distinguishes an end by jetsam from others",
                     "a kill for memory will not be recognised")  # fmt: skip


def pythons(home: Path, which: Callable[[str], str | None] = shutil.which) -> dict[str, str]:
    """Return the interpreters of different makes that are here, each once."""
    uv = sorted((home / ".local/share/uv/python").glob("cpython-3*/bin/python3"))
    made = {
        "stallguard's": sys.executable,
        "Apple's" if sys.platform == "darwin" else "the system's": "/usr/bin/python3"
        if Path("/usr/bin/python3").exists()
        else None,
        "Homebrew's": which("/opt/homebrew/bin/python3"),
        "python.org's": which("/usr/local/bin/python3"),
        "conda's": next((str(path) for path in home.glob("*conda*/bin/python3")), None),
        "uv's": str(uv[-1]) if uv else None,
    }
    found: dict[str, str] = {}
    for name, path in made.items():
        if path and os.path.realpath(path) not in map(os.path.realpath, found.values()):
            found[name] = path
    return found


def sampled(scene: Scene, name: str, pid: int, seconds: int) -> Said:
    """Sample a process; its report is kept as `name`.txt.  Without -file, a copy would stay in /tmp."""
    report = scene.home / f"{name}.sample.txt"
    words = (str(pid), str(seconds), "-mayDie", "-file", str(report))
    said = scene.tool(name, "/usr/bin/sample", *words, seconds=60)
    if report.exists():
        text = report.read_text(errors="replace")
        report.unlink()
        scene.recordings[name] = scene.recordings[name]._replace(text=text)
        said = said._replace(text=text)
    return said


def samples(scene: Scene) -> Iterator[Row]:
    """Sample an idle process of every Python that is here."""
    for name, python in pythons(Path.home()).items():
        with idle(python) as child:
            file = "sample_" + "".join(letter for letter in name.lower() if letter.isalnum())
            said = sampled(scene, file, child.pid, 1)
            yield verdicts.sample(name, said.text, said.code, said.seconds)


def evidence(scene: Scene) -> Iterator[Row]:
    """Run every tool of a bundle once."""
    with idle() as child:
        now = time.time()
        wanted = evidence_tools.tools(child.pid, now - 300, now)
        said = {tool.name: scene.tool(f"evidence_{tool.name}", *tool.argv, seconds=tool.seconds) for tool in wanted}
    failed = [name for name, answer in said.items() if answer.code]
    slowest = max(said, key=lambda name: said[name].seconds)
    answered = f"{len(said) - len(failed)} of {len(said)} answered"
    figure = f"{answered}; the slowest, {slowest}, in {said[slowest].seconds:.1f} s"
    # The log is for administrators alone; vmmap and footprint are refused for hardened programs.
    yield judged("evidence", set(failed) <= {"log", "maps", "footprint"}, figure,
                 f"without: {', '.join(failed) or 'nothing'}")  # fmt: skip


def caffeinate(scene: Scene) -> Iterator[Row]:
    """Hold the Mac awake for a moment, as a run does."""

    def assertions(name: str) -> str:
        return scene.tool(name, *PMSET, "assertions").text

    hold = awake.Awake(awake.plan(os.getpid()))
    try:
        until(lambda: str(os.getpid()) in assertions("pmset_assertions_caffeinate"), 5)
    finally:
        hold.close()
    during = scene.recordings["pmset_assertions_caffeinate"].text
    yield verdicts.caffeinate(during, assertions("pmset_assertions_after"), os.getpid())


def footprint(scene: Scene) -> Iterator[Row]:
    """Compare the memory that we read of a process with what Apple's own tool says."""
    with idle(source=HOLDS) as child:
        usage = libproc.rusage(child.pid)
        said = scene.tool("footprint", "/usr/bin/footprint", str(child.pid), seconds=60)
    yield verdicts_kernel.footprints(usage.phys_footprint if usage else None, said.text, said.code)


def pressure(scene: Scene) -> Iterator[Row]:
    """Compare the thermal pressure that we read with what macOS says."""
    said = scene.tool("notifyutil_thermal", "/usr/bin/notifyutil", "-g", "com.apple.system.thermalpressurelevel")
    warned = scene.tool("pmset_therm", *PMSET, "therm")
    yield verdicts_kernel.thermal(libproc.thermal_pressure(), said.text, warned.text)


def desktop_notification(scene: Scene) -> Iterator[Row]:
    """Send one notification, and ask whether it was seen: its sender exits with 0 also if none is shown."""
    send, expected = channels.desktop(), "a notification is seen"
    if send is None:
        yield unknown("notification", "this system has no way to show one", expected=expected)
        return
    send(notification(TEST, "stallguard", "This is what a finished night looks like"))
    seen = scene.ask("Did you see the notification of stallguard?")
    if seen is None:
        yield unknown("notification", "no user at a terminal said whether it was seen", "sent", expected)
        return
    yield judged("notification", seen, "sent; seen: " + ("yes" if seen else "no"), expected,
                 ALLOW_ON_MAC)  # fmt: skip


def doctor(scene: Scene) -> Iterator[Row]:
    """Have stallguard's own doctor compute on the GPU with each pair of TensorFlow and plug-in."""
    for number, (pair, python) in enumerate(scene.metal_pythons.items()):
        said = scene.stallguard("doctor", "--json", "--deep", "--python", python, seconds=300)
        answer = json.loads(said.text[max(said.text.find("{"), 0) :] if said.code in (0, 1) else "{}")
        devices = answer.get("facts", {}).get("environment", {}).get("deep", {}).get("devices", [])
        figure = f"{answer.get('verdict', f'exit code {said.code}')}; {', '.join(devices) or 'no device'}; {pair}"
        yield judged("doctor" if not number else f"doctor: {pair}", any("GPU" in name for name in devices), figure,
                     "the training environment computes on Metal",
                     "no Metal device: the checks of the GPU at work cannot be asked")  # fmt: skip


def drill(scene: Scene) -> Iterator[Row]:
    """Rehearse a stall."""
    said = scene.stallguard("drill", "--python", sys.executable, seconds=900)
    yield judged("drill", said.code == 0, f"exit code {said.code} after {said.seconds:.0f} s",
                 "a stall is noticed, reported and remedied on this Mac", said.text.strip()[-200:])  # fmt: skip


def probes(scene: Scene) -> Iterator[Row]:
    """Run a script that reports its batches with each Python that is here."""
    script = scene.home / "beats_once.py"
    script.write_text("import stallguard\nfor _ in range(20): stallguard.beat()\n")
    for name, python in pythons(Path.home()).items():
        said = scene.stallguard("run", "--python", python, "--set", "notify.desktop=off", str(script), seconds=60)
        beats = re.search(r"finished: (\d+) batches", said.text)
        yield judged(f"probe in {name}", said.code == 0 and beats and beats[1] == "20",
                     f"exit code {said.code}, {beats[1] if beats else 'no'} batches",
                     "the probe connects in this Python", f"it does not: {said.text.strip()[-200:]}")  # fmt: skip


def live_tests(scene: Scene) -> Iterator[Row]:
    """Run the tests that only a Mac can run."""
    junit = scene.home / "junit-tests.xml"
    words = (sys.executable, "-m", "pytest", "-q", f"--junitxml={junit}", "-k", "not drill", str(ROOT / "tests/live"))
    yield _tested(scene, "tests", "tests/live passes here", junit, 1800, *words)


def suite(scene: Scene) -> Iterator[Row]:
    """Run the whole suite in a fresh clone, whose environment is made without the Metal plug-in."""
    junit = scene.home / "junit-suite.xml"
    words = f"-n 5 --dist loadfile --no-loadscope-reorder --junitxml='{junit}'"
    script = f"git clone -q '{ROOT}' suite && cd suite && WITHOUT_METAL=1 sh scripts/test {words}"
    yield _tested(scene, "suite", "the whole suite passes here", junit, 5400, "/bin/sh", "-c", script)


def _tested(scene: Scene, name: str, means: str, junit: Path, seconds: float, *words: str) -> Row:
    """Run tests; their junit file is part of what is kept."""
    said = scene.tool(f"pytest_{name}", *words, seconds=seconds)
    if junit.exists():
        scene.files[junit.name] = junit.read_text(errors="replace")
    lines = said.text.strip().splitlines() or [""]
    return judged(name, said.code == 0, lines[-1].strip("= "), means, f"see pytest_{name}.txt")
