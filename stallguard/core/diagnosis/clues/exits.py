"""Clues from the end of a process: how it went, and what went before."""

# ruff: noqa: D103 - a clue is documented by its sentence

from __future__ import annotations

from stallguard.core.diagnosis.clues import Facts, Scene, clue
from stallguard.core.text import in_words

# Numbers of Linux and macOS together: SIGILL TRAP ABRT BUS(Linux) FPE BUS(macOS) SEGV.
CRASHES = {4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 10: "SIGBUS", 11: "SIGSEGV"}
ASKED = {1: "SIGHUP", 2: "SIGINT", 15: "SIGTERM"}
USERS = (
    "SIGUSR1",
    "SIGUSR2",
)  # their numbers differ between systems; no program is ended by them but on purpose
WORKER = "worker"  # of events.Exited
KILL, SHELL = 9, 128  # a shell reports a signal as 128 + number
QUIET = 20.0  # seconds without progress before the end that were more than a pause


def _signal(scene: Scene) -> int:
    """Return the signal that ended the process, 0 if none did; not one of USERS, whose numbers can be a crash's."""
    code = scene.exited.code if scene.exited else 0
    number = code - SHELL
    if scene.exited and scene.exited.signal in USERS:
        return 0
    return -code if code < 0 else number if number in {KILL, *CRASHES, *ASKED} else 0


@clue("it ended with exit code 0")
def ended_well(scene: Scene) -> bool:
    return scene.exited is not None and scene.exited.code == 0


@clue("it ended with exit code {code}")
def ended_badly(scene: Scene) -> Facts | None:
    if scene.exited is None or scene.exited.code <= 0 or _signal(scene):
        return None
    return {"code": str(scene.exited.code)}


@clue("native code crashed ({signal})")
def crashed(scene: Scene) -> Facts | None:
    name = CRASHES.get(_signal(scene))
    return {"signal": name} if scene.exited is not None and name else None


@clue("the crash was in {line}")
def crash_line(scene: Scene) -> Facts | None:
    end = scene.exited
    if end is None or not end.where or end.process == WORKER:
        return None
    return {"line": in_words(end.where) + (f" ({end.process})" if end.process else "")}


@clue("a worker process of it had crashed, in {line}")
def worker_crash(scene: Scene) -> Facts | None:
    end = scene.exited
    return {"line": in_words(end.where)} if end and end.where and end.process == WORKER else None


@clue("it was ended by {signal}, sent from outside")
def asked_to_go(scene: Scene) -> Facts | None:
    name = ASKED.get(_signal(scene))
    if scene.exited and scene.exited.signal in USERS:
        name = scene.exited.signal
    return {"signal": name} if scene.exited is not None and name else None


@clue("it was ended by SIGKILL, which stallguard did not send")
def killed(scene: Scene) -> bool:
    return scene.exited is not None and _signal(scene) == KILL


@clue(
    "its process vanished: it was killed, or it crashed; the program that started it ended with exit code {code}"
)
def killed_inside(scene: Scene) -> Facts | None:
    left = scene.history.left
    if left is None or left.how != "vanished" or not ended_badly.test(scene):
        return None
    return {"code": str(scene.exited.code if scene.exited else 0)}


@clue("the kernel reports that it killed the process for lack of memory")
def killed_for_memory(scene: Scene) -> bool:
    return scene.exited is not None and scene.exited.memory_kill is True


@clue("the kernel reports no kill for lack of memory")
def not_for_memory(scene: Scene) -> bool:
    return scene.exited is not None and scene.exited.memory_kill is False


@clue("all epochs were trained")
def all_trained(scene: Scene) -> bool:
    heartbeat = scene.history.heartbeat
    if heartbeat is None:
        return False
    last_epoch = 0 <= heartbeat.epochs <= heartbeat.epoch + 1
    return heartbeat.phase in ("idle", "finishing") or (last_epoch and heartbeat.batch >= heartbeat.batches)


@clue("the training was not over: {where}")
def cut_short(scene: Scene) -> Facts | None:
    heartbeat = scene.history.heartbeat
    if scene.exited is None or heartbeat is None or heartbeat.beats == 0 or all_trained.test(scene):
        return None
    if heartbeat.epochs > 0:
        return {"where": f"epoch {heartbeat.epoch + 1} of {heartbeat.epochs}, batch {heartbeat.batch}"}
    return {"where": f"batch {heartbeat.beats}"} if heartbeat.phase in ("step", "input") else None


@clue("it had made no progress for {seconds} s")
def quiet_before(scene: Scene) -> Facts | None:
    gap = scene.judgement.gap
    return {"seconds": f"{gap:.0f}"} if scene.exited is not None and gap >= QUIET else None
