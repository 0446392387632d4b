"""What the outputs of a Mac mean for stallguard: each a function of text and figures, tried on recorded outputs.

Must not ask anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from mac.table import UNASKED, Row, judged
from stallguard.agent import launchctl_answers
from stallguard.collectors.stacks import parse_sample
from stallguard.host.darwin import parsers as parse
from stallguard.host.darwin.machine import memory_reading

SENSOR_DEADLINE = 3.0  # seconds: an accelerator that takes longer counts as blocked
ANSWER = 2.0  # seconds for a stack dump that a signal asks for
AWAKE_ROW = re.compile(
    r"\(caffeinate\): \[\w+\] [\d:]+ (\w+) named:.*\n\s*Details: caffeinate asserting on behalf of Process ID (\d+)"
)
TIME = re.compile(r"(kern\.\w+time): \{ sec = (\d+)")


def gpu(text: str, seconds: float) -> Row:
    """Whether the accelerator can be read without root, and how fast."""
    found = parse.accelerators(text)
    if not found:
        return Row("gpu", UNASKED, means="ioreg shows no accelerator: is this Apple silicon?")
    best = max(found, key=lambda one: ((one.kind or "").startswith("AGX"), one.utilisation or 0.0))
    if "Paravirt" in (best.kind or ""):
        return Row("gpu", UNASKED, best.kind or "", "a virtual machine's GPU says nothing about a real one")
    use = "no utilisation" if best.utilisation is None else f"{best.utilisation:.0%} busy"
    restarts = "restarts not reported" if best.recoveries is None else f"{best.recoveries} restarts since boot"
    return judged(
        "gpu", best.utilisation is not None and seconds < SENSOR_DEADLINE,
        f"{best.kind}: {use}, {restarts}, {1e3 * seconds:.0f} ms",
        "the GPU's sensor works here", "the GPU's sensor is blind or too slow here",
    )  # fmt: skip


def memory(sysctl: str, vm_stat: str) -> Row:
    """Whether pressure, swap and compressor are reported."""
    reading = memory_reading(parse.sysctl(sysctl), parse.pages(vm_stat))
    wanted = ("total", "available", "pressure", "swap_used", "swap_outs", "compressed", "paged", "paged_limit")
    absent = [name for name in wanted if getattr(reading, name) is None]
    figure = f"not reported: {', '.join(absent)}" if absent else f"pressure {reading.pressure}"
    return judged("memory", not absent, figure, "the memory sensor sees all it needs",
                  "a finding about memory will be weaker here")  # fmt: skip


def surroundings(therm: str, power: str) -> Row:
    """Whether heat and the source of power are reported."""
    heat, source = parse.thermal(therm), parse.power(power)
    return judged("heat and power", heat.level and source, f"{heat.level}, {source}",
                  "throttling and battery are reported", "pmset has changed its words")  # fmt: skip


def sample(name: str, text: str, code: int, seconds: float) -> Row:
    """Whether `sample` shows the native stacks of a Python of ours."""
    threads = parse_sample(text)
    return judged(
        f"sample {name}", code == 0 and threads, f"{len(threads)} threads in {seconds:.1f} s",
        "native stacks are part of the evidence", "for this Python only the Python stacks are gathered",
    )  # fmt: skip


def caffeinate(during: str, after: str, pid: int) -> Row:
    """Whether our caffeinate holds the Mac awake while `pid`, on whose behalf it does, wants it, and not longer."""
    held = {kind for kind, number in AWAKE_ROW.findall(during) if int(number) == pid}
    left = {kind for kind, number in AWAKE_ROW.findall(after) if int(number) == pid}
    holds = "PreventUserIdleSystemSleep" in held and not left
    figure = ", ".join(sorted(held)) or "no assertion"
    return judged("caffeinate", holds, figure + (", and still afterwards" if left else ""),
                  "the Mac does not sleep under a training", "it may sleep, or is not let sleep again")  # fmt: skip


def slept(times: str, asleep: float) -> Row:
    """Whether our clock counts a sleep of the machine.  `times`: kern.boottime, sleeptime, waketime."""
    seconds_of = {name: int(seconds) for name, seconds in TIME.findall(times)}
    boot, fell, woke = (seconds_of.get(f"kern.{name}time", 0) for name in ("boot", "sleep", "wake"))
    if not boot <= fell < woke:
        return Row("sleep", UNASKED, f"{asleep:.0f} s", "it has not slept since it was started: let it, and come back")
    last = woke - fell
    return judged("sleep", asleep >= 0.9 * last - 2, f"{asleep:.0f} s since the start, {last} s the last time",
                  "time asleep is distinguished from a stall", "sleep would pass for silence")  # fmt: skip


class Look(NamedTuple):
    """A look at a training's GPU clients.  `at`: seconds; `gpu_time`, `submitted`: as ioreg has them."""

    at: float
    batches: int
    gpu_time: int
    submitted: int


def moves(looks: Sequence[Look]) -> Row:
    """Whether the GPU's counters of a training move whenever its batches do."""
    worked = [(before, after) for before, after in pairwise(looks) if after.batches > before.batches]
    still = [1 for before, after in worked if (after.gpu_time, after.submitted) == (before.gpu_time, before.submitted)]
    if not worked:
        return Row("gpu clients", UNASKED, means="no batch ended while it was watched")
    return judged("gpu clients", not still, f"{len(worked) - len(still)} of {len(worked)} looks saw it move",
                  "`did the GPU move` can be believed", "a still counter is no sign of a stall here")  # fmt: skip


def unit(looks: Sequence[Look], tick: float) -> Row:
    """In which unit lastSubmittedTime counts.  `tick`: seconds of a tick of mach time."""
    moving = [look for look in looks if look.submitted]
    if len(moving) < 2:  # noqa: PLR2004 - a difference has two ends
        return Row("lastSubmittedTime", UNASKED, means="no training submitted anything")
    rate = (moving[-1].submitted - moving[0].submitted) / (moving[-1].at - moving[0].at)
    for name, seconds in (("nanoseconds", 1e-9), ("ticks of mach time", tick)):
        if abs(rate * seconds - 1) < 0.2:  # noqa: PLR2004 - the last submission may be some batches old
            return judged("lastSubmittedTime", holds=True, figure=name, means="its age is known in seconds")
    return judged("lastSubmittedTime", holds=True, figure=f"{rate:.3g} a second", means="only its moving is used")


def stacks(seconds: Sequence[float], asked: int) -> Row:
    """Whether a training that waits in Metal answers with its Python stacks.  `seconds`: of the answers."""
    worst = f", the slowest in {max(seconds):.2f} s" if seconds else ""
    return judged("faulthandler", len(seconds) == asked and max(seconds) < ANSWER, f"{len(seconds)} of {asked}{worst}",
                  "Python stacks come while Metal is waited for", "the evidence has native stacks only")  # fmt: skip


def default_exit(text: str) -> Row:
    """How long launchd waits by default."""
    seconds = launchctl_answers.parse(text).exit_timeout
    return judged("launchd's ExitTimeOut", seconds is not None, f"{seconds} s",
                  "without a key of our own that is all the time for a checkpoint",
                  "`launchctl print` does not print it any more")  # fmt: skip


def in_force(text: str, exit_timeout: int) -> Row:
    """Whether launchd took up what the property list says."""
    job = launchctl_answers.parse(text)
    holds = job.running and job.exit_timeout == exit_timeout and "interactive" in job.spawn_type
    figure = f"{job.state}, exit timeout {job.exit_timeout} s, {job.spawn_type or 'no spawn type'}"
    return judged("install", holds, figure, "the job is in force as it was written",
                  "launchd reads the property list otherwise, or prints it otherwise")  # fmt: skip


def disabled(code: int, text: str, listed: str, label: str) -> Row:
    """What launchd says of a label that is switched off, and whether it lists it."""
    said = launchctl_answers.answer(code, text)
    known = said.meaning in (
        launchctl_answers.DISABLED,
        launchctl_answers.UNCLEAR,
    ) and label in launchctl_answers.parse_disabled(listed)
    return judged("disabled", known, f"bootstrap: {code}", "a job that is switched off is reported as such",
                  f"launchd says: {said.words}")  # fmt: skip


def protected(text: str, code: int | None) -> Row:
    """What a job meets in a folder that macOS guards.  `code`: None if it still waits."""
    if code is None:
        return judged(
            "guarded folder", holds=True, figure="it waits", means="macOS asks, and no user is there at night"
        )
    refused = "Operation not permitted" in text or code != 0
    return judged("guarded folder", refused, "refused" if refused else "readable",
                  "installing from there is rightly refused",
                  "this Mac lets jobs read there; stallguard refuses it all the same")  # fmt: skip
