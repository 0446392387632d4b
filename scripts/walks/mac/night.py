"""The checks of launchd: a job is installed, replaced, killed, ended, switched off and removed.

Nothing of it stays.  Must not judge what launchctl prints: verdicts does.
"""

from __future__ import annotations

import json
import os
import plistlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mac import verdicts
from mac.gpu import IMPORT, LOAD
from mac.scene import Said, Scene, undisturbed, until
from mac.table import Row, judged
from stallguard import config
from stallguard.agent import launchctl_answers
from stallguard.agent.job import exit_timeout, label

NAME, BARE = "scripts-live", "scripts-live-bare"  # the jobs that the walk makes; no user's has such a name
SCRIPT = """
import os, sys, time
import stallguard
number = 0
while not os.path.exists(sys.argv[1]):
    print("step", number, flush=True)
    stallguard.beat()
    number += 1
    time.sleep(0.1)
"""
COMES = 60.0  # seconds for a job to do what it was asked
QUIET = 12.0  # seconds in which a job that has ended must not come back: twice its ThrottleInterval
THROTTLE = "5s"
STEPS = 20  # of the training, before stallguard is killed


class Night:
    """The job of the walk, and what is known of it."""

    def __init__(self, scene: Scene, name: str = NAME, at: str = "") -> None:
        """Put its script in place.  `at`: when the job starts by itself; "": not while the walk lasts."""
        self.scene, self.name = scene, name
        self.at = at or f"{(time.localtime().tm_hour + 12) % 24:02}:00"
        self.enough = scene.home / "enough"
        self.script = scene.home / "beats.py"
        self.script.write_text(SCRIPT)

    @property
    def target(self) -> str:
        """Its name for launchctl."""
        return f"{self.scene.domain}/{label(self.name)}"

    def install(self, *words: str) -> Said:
        """Install it, to start at once; `words`: COMMAND."""
        options = ("--name", self.name, "--at", self.at, "--now", "--set", f"agent.throttle={THROTTLE}",
                   "--set", "notify.desktop=off", "--python", sys.executable)  # fmt: skip
        return self.scene.stallguard("agent", "install", *options, "--", *words)

    def begin(self) -> Said:
        """Install it with the script that beats."""
        self.enough.unlink(missing_ok=True)
        return self.install(str(self.script), str(self.enough))

    def exit_timeout(self) -> int:
        """Return what its property list asks for."""
        return exit_timeout(config.load({}, self.scene.env, self.scene.home).config)

    def status(self) -> dict[str, Any]:
        """Return what `agent status` says."""
        said = self.scene.stallguard("agent", "status", "--name", self.name, "--json")
        job: dict[str, Any] = json.loads(said.text.splitlines()[-1])["job"] if said.code in (0, 1) else {}
        return job

    def is_running(self) -> bool:
        """Return whether the job has a process and its run is guarded."""
        now = self.status()
        return bool(now.get("running")) and now.get("run_state") == "running"

    def print(self, name: str = "") -> launchctl_answers.PrintedService:
        """Return what launchctl prints of it."""
        return launchctl_answers.parse(self.scene.launchctl("print", self.target, name=name).text)

    def output(self) -> list[str]:
        """Return what the training has printed."""
        file = self.scene.kept / "runs/latest/output.log"
        return file.read_text().splitlines() if file.exists() else []

    def remove(self) -> None:
        """Remove what is there of it."""
        with undisturbed():
            self.enough.touch()
            self.scene.stallguard("agent", "uninstall", "--name", self.name)
            for name in (self.name, BARE):
                self.scene.launchctl("bootout", f"{self.scene.domain}/{label(name)}")
                self.scene.launchctl("enable", f"{self.scene.domain}/{label(name)}")


def removed(part: Callable[[Night], Iterator[Row]]) -> Callable[[Scene], Iterator[Row]]:
    """Return the check of a part, after which nothing of the job is left, even where it was interrupted."""

    def check(scene: Scene) -> Iterator[Row]:
        night = Night(scene)
        try:
            yield from part(night)
        finally:
            night.remove()

    return check


@removed
def job(night: Night) -> Iterator[Row]:
    """Take a job through its whole life."""
    said = night.begin()
    until(night.is_running, COMES)
    text = night.scene.launchctl("print", night.target, name="launchctl_print_running").text
    yield verdicts.in_force(text, night.exit_timeout()) if said.code == 0 else _refused("install", said)
    yield from _replaced(night)
    yield from _killed(night)
    yield from _finished(night)
    yield from _stopped(night)
    yield from _uninstalled(night)


def _refused(check: str, said: Said) -> Row:
    return judged(check, holds=False, figure=f"exit code {said.code}", means=" ".join(said.text.split())[:200])


def _replaced(night: Night) -> Iterator[Row]:
    before = night.print().pid
    said = night.begin()
    until(night.is_running, COMES)
    now = night.print().pid
    figure = f"{said.seconds:.1f} s, pid {before}, then {now}"
    yield judged("reinstall", said.code == 0 and now not in (None, before), figure,
                 "the old job is ended before the new one is loaded", said.text.strip()[-200:])  # fmt: skip
    night.scene.launchctl("kickstart", night.target)
    again = night.print().pid
    yield judged("kickstart", again == now, f"pid {now}, then {again}", "a running job is not started twice")


def _killed(night: Night) -> Iterator[Row]:
    until(lambda: len(night.output()) > STEPS, COMES)
    first, began = night.print().pid, time.monotonic()
    if first is None:
        yield judged("kill -9", holds=False, figure="no process", means="it had ended before it could be killed")
        return
    os.kill(first, signal.SIGKILL)
    until(lambda: night.print().pid not in (None, first) and night.is_running(), COMES)
    took = time.monotonic() - began
    now = night.print("launchctl_print_after_kill")
    done = len(night.output())
    went_on = until(lambda: len(night.output()) > done, COMES)
    unbroken = night.output() == [f"step {number}" for number in range(len(night.output()))]
    yield judged("kill -9", now.pid not in (None, first) and went_on and unbroken,
                 f"back after {took:.0f} s; {'the same' if unbroken else 'another'} training",
                 "the training outlives stallguard, which finds it again",
                 "the training was lost or started twice: see the log of the job")  # fmt: skip


def _finished(night: Night) -> Iterator[Row]:
    night.enough.touch()
    until(lambda: not night.status().get("running"), COMES)
    before = night.print("launchctl_print_finished").runs
    time.sleep(QUIET)
    now, end = night.print(), night.status()
    holds = end.get("run_state") == "finished" and not now.running and now.runs == before
    yield judged("finish", holds, f"{end.get('run_state')}, {end.get('ending')}, {before} starts, then {now.runs}",
                 "launchd leaves a job alone that ended in good order", "it is started again for nothing")  # fmt: skip


def _stopped(night: Night) -> Iterator[Row]:
    night.begin()
    until(night.is_running, COMES)
    said = night.scene.stallguard("agent", "stop", "--name", NAME)
    now = night.print("launchctl_print_stopped")
    yield judged("stop", said.code == 0 and not now.running, f"{said.seconds:.1f} s",
                 "the job ends and stays installed", said.text.strip()[-200:])  # fmt: skip


def _uninstalled(night: Night) -> Iterator[Row]:
    said = night.scene.stallguard("agent", "uninstall", "--name", NAME)
    absent = night.scene.launchctl("print", night.target, name="launchctl_print_not_found")
    file = Path.home() / "Library/LaunchAgents" / f"{label(NAME)}.plist"
    yield judged("uninstall", said.code == 0 and absent.code != 0 and not file.exists(), f"print: {absent.code}",
                 "nothing is left", said.text.strip()[-200:])  # fmt: skip


@removed
def answers(night: Night) -> Iterator[Row]:
    """Ask for what is documented badly: the default time to end, the answer for a label that is switched off."""
    scene = night.scene
    file = _bare(scene, "/bin/sleep", "60")
    scene.launchctl("bootstrap", scene.domain, str(file))
    said = scene.launchctl("print", f"{scene.domain}/{label(BARE)}", name="launchctl_print_bare")
    yield verdicts.default_exit(said.text)
    scene.launchctl("bootout", f"{scene.domain}/{label(BARE)}")
    until(lambda: scene.launchctl("print", f"{scene.domain}/{label(BARE)}").code, COMES)
    scene.launchctl("disable", f"{scene.domain}/{label(BARE)}")
    refused = scene.launchctl("bootstrap", scene.domain, str(file), name="launchctl_bootstrap_disabled")
    listed = scene.launchctl("print-disabled", scene.domain)
    yield verdicts.disabled(refused.code, refused.text, listed.text, label(BARE))


@removed
def guarded(night: Night) -> Iterator[Row]:
    """Look into a guarded folder: stallguard refuses to install there; what would launchd's job have met?"""
    scene, folder = night.scene, f"{Path.home()}/Documents/"
    said = night.install(str(night.script), folder)
    yield judged("refusal", said.code == 126 and "protects" in said.text, f"exit code {said.code}",  # noqa: PLR2004 - cannot run
                 "a path in a guarded folder is refused at install", said.text.strip()[-200:])  # fmt: skip
    file = _bare(scene, "/bin/ls", folder)
    scene.launchctl("bootstrap", scene.domain, str(file))
    target = f"{scene.domain}/{label(BARE)}"
    until(lambda: _ended(scene, target) is not None, QUIET)
    log = scene.home / "bare.log"
    yield verdicts.protected(log.read_text() if log.exists() else "", _ended(scene, target))


def _ended(scene: Scene, target: str) -> int | None:
    return launchctl_answers.parse(scene.launchctl("print", target, name="launchctl_print_guarded").text).exit_code


def _bare(scene: Scene, *program: str) -> Path:
    """Write the property list of a job that has nothing but a program; return its file."""
    file, log = scene.home / f"{label(BARE)}.plist", str(scene.home / "bare.log")
    keys = {"Label": label(BARE), "ProgramArguments": list(program), "RunAtLoad": True,
            "StandardOutPath": log, "StandardErrorPath": log}  # fmt: skip
    file.write_bytes(plistlib.dumps(keys))
    file.chmod(0o644)
    return file


@removed
def gpu(night: Night) -> Iterator[Row]:
    """Look whether a training under launchd sees the GPU."""
    said = night.install(str(LOAD), str(night.scene.home / "agent.stacks"))
    until(lambda: "batch 3" in night.output(), IMPORT)
    seen = next((line for line in night.output() if line.startswith("gpus")), "gpus 0")
    yield judged("gpu under launchd", said.code == 0 and "batch 3" in night.output() and seen != "gpus 0", seen,
                 "a job of launchd trains on Metal", "a job of launchd would train on the processor")  # fmt: skip
