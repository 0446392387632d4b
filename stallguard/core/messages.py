"""The facts of the sentences: numbers and findings as the short words that the narrative fills in.

This module must not decide anything; the sentences themselves are report.narrative.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from stallguard.core import ledger, time_spent
from stallguard.core.actions import Announce
from stallguard.core.bottleneck_kinds import KINDS
from stallguard.core.diagnosis import causes, metrics, signatures
from stallguard.core.diagnosis import known_problems as known
from stallguard.core.events import DUMP, Collected, Matched, ProbeNote
from stallguard.core.limits import LEAST_PATIENCE, NEVER
from stallguard.core.text import HOW, WHILE, counted, cut, duration, incidents, times
from stallguard.core.time_spent import Spent
from stallguard.errors import NOT_FINITE, STOPPED_ON_TIME, has_failed

if TYPE_CHECKING:  # a caller that needs only words must not import the whole core
    from stallguard.core.history import History
    from stallguard.core.run import Run, Training
    from stallguard.core.verdicts import Bottleneck, Finding

__all__ = ["HOW", "WHILE", "counted", "duration"]

LEAST_SECONDS, LEAST_SHARE = 0.05, 0.001  # of a category that is named
ALSO = 0.3  # confidence from which a second cause is announced too
LINE = 120  # characters of a line of the output
STREAM = "UNCLASSIFIED"  # the detector's row for progress of which no phase is known
STOPPED = "the process was stopped (SIGSTOP)"
REFUSED = "the GPU refuses this process after an error"
NO_LIMIT = "no time limit holds here"
LIKELY, PERHAPS = 0.75, 0.45
SIGNALS = {
    4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM",
}  # fmt: skip
DOING = {
    "deadlock": "its threads wait, and nothing in the process can wake them",
    "external wait": "it waits for something outside, and the processor is idle",
    "sleep": "the script sleeps",
    "busy device": "it waits for the GPU, which reports only that it is busy",
    "idle device": "it waits for the GPU, which does nothing",
    "shared device": "the GPU is busy, and nothing shows whether for this training or for another program",
    "spin": "the processor is busy, but nothing is read, written or new in memory",
    "working": "the processor is busy",
    "unknown": "what it does is not known",
}
# What is announced of the probe's notes, by their kind; of all others, probe.remark.
NOTES = {
    "aside": "probe.disabled", "resume": "attempt.resumed", "micro": "batch.smaller", "whole": "batch.whole",
    "trouble": "stallguard.trouble", "sensor": "probe.hooks_removed",
    "inexact": "attempt.inexact", "inexact-stop": "attempt.inexact", "nonfinite-metric": "metric.broken",
    "finite-again": "loss.finite", "nonfinite-checkpoint": "checkpoint.not_finite",
    "outside": "probe.outside", "unsaved": "checkpoint.failed", "unlisted": "checkpoint.unlisted",
    "saved": "checkpoint.again", "caches": "memory.given_back",
}  # fmt: skip


def limit(threshold: float) -> float | None:
    """Return the seconds after which a gap is a stall, None if the phase has no such limit."""
    return threshold if threshold < NEVER * LEAST_PATIENCE else None


def bottleneck(found: Bottleneck) -> dict[str, str]:
    """Return the facts of one thing that makes a training slow."""
    where = f", {'in' if '()' in found.where else 'at'} {found.where}" if found.where else ""
    numbers = f" ({'; '.join(found.evidence)})" if found.evidence else ""
    return {
        "what": KINDS[found.kind].title if found.kind in KINDS else found.kind,
        "share": f"{found.share:.0%}".replace("%", " %"), "duration": duration(found.seconds), "where": where,
        "numbers": numbers,
    }  # fmt: skip


def name(training: Training) -> str:
    """Return which of several trainings is meant."""
    what = f"{training.command}, " if training.command else ""
    which = f"training {training.number}" if training.number else "a process that has not trained"
    return f"{which} ({what}pid {training.pid})" if training.pid else "the run"


def of_one(run: Run, pid: int) -> str:
    """Return the beginning of a sentence that names its training; empty if there is only one."""
    if run.current.begun <= 1 or not pid:
        return ""
    found = [training for training in run.current.trainings if training.pid == pid]
    return f"{name(found[-1])}: " if found else ""


def trained_again(run: Run, event: ProbeNote) -> str:
    """Return how many batches a resumed training trains a second time, as the end of its note."""
    facts = event.facts
    if event.kind not in ("resume", "inexact") or not {"fit", "epoch", "batch"} <= facts.keys():
        return ""
    position = int(facts["fit"]), int(facts["epoch"]), int(facts["batch"])
    number = ledger.trained_again(run.ledger, event.pid, position)
    if number is None:
        return ""
    return f"; {number or 'no'} {'batches are' if number > 1 else 'batch is'} trained again"


def broken_loss(run: Run, event: ProbeNote) -> dict[str, str]:
    """Return the facts of a loss that is not finite: where, the last finite one, what there is to go back to."""
    facts, kept = event.facts, "stallguard has no checkpoint with finite values"
    last = f"; the last finite one was {facts['last']}" if facts.get("last") else ""
    if facts.get("checkpoint"):
        kept = f"the newest checkpoint with finite values is that of {facts['checkpoint']}"
    ends = f"; the script's {facts['ends']} ends this fit" if facts.get("ends") else ""
    return {"text": f"{of_one(run, event.pid)}{event.text}{last}{ends}; {kept}"}


def end_of_training(run: Run, gone: Training) -> dict[str, str]:
    """Return the facts of the end of one training."""
    heartbeat, how = gone.heartbeat, HOW.get(gone.over, gone.over)
    parts = [counted(gone.batches, "batch", "batches")]
    parts += [counted(heartbeat.fits, "fit")] if heartbeat is not None and heartbeat.fits > 1 else []
    lasted = duration(run.now - gone.began)
    return {"who": name(gone), "how": how, "progress": ", ".join(parts), "duration": lasted}


def place(row: str, phase: str) -> str:
    """Return where in the training a gap is, "" if not known.  `row`: of the detector; `phase`: of the probe."""
    return "" if row == STREAM else WHILE.get(phase, phase)


def silence(run: Run, training: Training | None = None) -> dict[str, str]:
    """Return the facts of a possible stall or a stall of `training`, by default of the one in focus."""
    training = training or run.training
    judgement = training.detector_state.judgement
    stopped = judgement.step == "stopped"
    wait = training.detector_state.evidence.wait
    sleeps = judgement.evidence == "external wait" and wait is not None and wait.kind == "sleep"
    doing = "sleep" if sleeps else judgement.evidence
    what = STOPPED if stopped else DOING.get(doing, DOING["unknown"])
    allowed = limit(judgement.threshold)
    told = f"no progress for {duration(judgement.gap)} {place(judgement.row, judgement.phase)}".rstrip()
    if run.current.urgent and judgement.step not in ("suspect", "stalled", "stopped"):
        told, what = REFUSED, "a batch that is counted now was not trained"
    whose = {"pid": str(training.pid)} if training.pid else {}
    whose |= {"judged": "stopped"} if stopped else {}
    return whose | {
        "silence": of_one(run, training.pid) + told,
        "what": what,
        "gap": duration(judgement.gap),
        "phase": judgement.phase,
        "threshold": NO_LIMIT if allowed is None else duration(allowed),
        "allowed": NO_LIMIT if allowed is None else f"{duration(allowed)} would be a stall",
    }


def evidence(event: Collected) -> dict[str, str]:
    """Return the directory of the evidence, and the line of the script that hangs."""
    where, verb = ("dumps", "is") if event.incident == DUMP else (f"incidents/{event.incident}", "hangs")
    return {"where": where, "line": f"; it {verb} at {event.where}" if event.where else ""}


def confidence(value: float) -> str:
    """Return a confidence between 0 and 1 as a word."""
    return "very likely" if value >= LIKELY else "likely" if value >= PERHAPS else "a guess"


def diagnosis(findings: Sequence[Finding], library: str = "", phase: str = "") -> list[Announce]:
    """Return what is announced of the findings: the first, a second if it fits too, and the first advice.

    `library`, `phase`: as in causes.title.
    """
    announced = [_finding("stall.diagnosed", finding, library, phase) for finding in findings[:1]]
    others = [finding for finding in findings[1:2] if finding.confidence >= ALSO]
    announced += [_finding("stall.alternative", finding, library, phase) for finding in others]
    advice = findings[0].advice[:1] if findings else ()
    return announced + [Announce("stall.advice", {"text": text}) for text in advice]


def explained(run: Run, findings: Sequence[Finding]) -> list[Announce]:
    """Return what is announced of the findings, and the public report that a run's trouble looks like."""
    phase = run.detector_state.judgement.phase
    greeted = run.history.greeted
    library = causes.library(greeted.versions) if greeted is not None else ""
    return [*diagnosis(findings, library, phase), *known_problems(findings, run.history, phase)]


def known_problems(findings: Sequence[Finding], history: History, phase: str) -> list[Announce]:
    """Return what is announced of the public report that looks most like the first finding; nothing without one."""
    printed = {match.signature for match in history.matched}
    found = [
        one
        for finding in findings[:1]
        for one in known.alike(finding.cause, phase, printed, metal=metrics.on_metal(history))
    ]
    return [
        Announce("stall.known_problem", {
            "problem": one.problem.key, "what": one.problem.what, "cure": one.problem.cure,
            "address": one.problem.address, "why": likeness(printed=one.printed),
        })
        for one in found[:1]
    ]  # fmt: skip


def likeness(*, printed: bool) -> str:
    """Return why an incident looks like a public report."""
    alike = "the same kind of stall; no line of the output proves it"
    return "the output has a line of it" if printed else alike


def soft(findings: Sequence[Finding]) -> list[Announce]:
    """Return what is announced while a training goes on: each cause, and its first advice."""
    announced = []
    for finding in findings:
        announced.append(_finding("training.degraded", finding))
        announced += [Announce("stall.advice", {"text": text}) for text in finding.advice[:1]]
    return announced


def _finding(message: str, finding: Finding, library: str = "", phase: str = "") -> Announce:
    because = "; ".join(finding.evidence[:3]) or "nothing else fits"
    cause, sure = causes.title(finding.cause, library, phase), confidence(finding.confidence)
    return Announce(message, {"cause": cause, "confidence": sure, "because": because})


def signature(event: Matched) -> list[Announce]:
    """Return what is announced of a matched line of the output; nothing for a harmless one."""
    if event.family in signatures.QUIET or event.family == signatures.SCRIPT_ERROR:
        return []
    known = signatures.BY_ID.get(event.signature)
    meaning = known.meaning if known else event.family
    return [Announce("output.known_line", {"meaning": meaning, "line": cut(event.line, LINE)})]


def exit_facts(attempt: int, code: int, signal: str = "") -> dict[str, str]:
    """Return how an attempt ended.  `signal`: the name of that which ended it, if it is known."""
    how = f"exit code {code}" if code >= 0 else f"killed by {signal or SIGNALS.get(-code, f'signal {-code}')}"
    return {"attempt": str(attempt), "how": how}


def ending(decision_code: int, code: int, script_code: int | None = None) -> str:
    """Return the name of the message for the end of a run.  `script_code`: as in Run."""
    if script_code == code:
        return "run.finished" if code == 0 else "run.failed"
    if decision_code == STOPPED_ON_TIME:
        return "run.paused"
    if decision_code == NOT_FINITE:
        return "run.diverged"
    return "run.finished" if code == 0 else "run.failed"


def totals(run: Run, beats: int, now: float, code: int = 0, why: str = "") -> dict[str, str]:
    """Return the sums for the end of a run; of one that failed, what was lost in place of the share that trained."""
    spent = ledger.spent(run.ledger, now)
    trouble = f", {run.current.begun} trainings" if run.current.begun > 1 else ""
    if found := incidents(run.totals.incidents, run.totals.crashes):
        trouble += f", {found}"
    if run.current.number > 1:
        trouble += f", started {times(run.current.number)}"
    broken = broken_of(run)
    trouble += f", {broken.text}" if broken is not None else ""
    time = lost_time(spent) if has_failed(code, why, run.current.script_code) else effective_time(spent)
    trouble += f"; {time}" if time else ""
    return {"batches": str(beats or "no counted"), "duration": duration(time_spent.total(spent)), "trouble": trouble}


def cured(run: Run) -> str:
    """Return that nothing is to be done about a run that finished after a stall or a crash; "" if that is not so."""
    happened = run.totals.incidents or run.totals.crashes
    if not happened or run.current.number == 1 or broken_of(run) is not None:
        return ""
    return "; nothing to do: stallguard restarted it"


def broken_of(run: Run) -> ProbeNote | None:
    """Return the note of a training whose loss is not finite: of one that lives, else of the last that trained."""
    trained = [one for one in run.current.trainings if one.trains or one.batches]
    found = [one for one in trained if not one.over and one.history.broken_loss] or trained[-1:]
    return found[0].history.broken_loss if found else None


def effective_time(times: Spent) -> str:
    """Return how much of the time of a run was effective, and what took the rest; "" if that is not known."""
    share, rest = time_spent.effective(times), ineffective_time(times)
    if share is None:
        return ""
    return f"{percent(share)} effective training time" + (f" ({rest})" if rest else "")


def lost_time(times: Spent) -> str:
    """Return what stalls, crashes and restarts cost, and of what it consists; "" if that is nothing."""
    lost = time_spent.total(times, time_spent.LOST)
    parts = _named(times, (pair for pair in time_spent.ineffective(times) if pair[0] in time_spent.LOST))
    return f"{duration(lost)} lost ({parts})" if parts else ""


def percent(share: float) -> str:
    """Return a share with one decimal, rounded down: 100 % means that nothing else took time."""
    return f"{math.floor(share * 1000 + 1e-6) / 10:g} %"


def category(name: str) -> str:
    """Return a category of the ledger as it is written."""
    return "start-up" if name == "start_up" else name.replace("_", " ")


def ineffective_time(times: Spent) -> str:
    """Return what took the time that was not effective, worst first, without trifles."""
    return _named(times, time_spent.ineffective(times))


def _named(times: Spent, parts: Iterable[tuple[str, float]]) -> str:
    least = max(LEAST_SECONDS, time_spent.total(times) * LEAST_SHARE)
    return ", ".join(f"{category(name)} {duration(seconds)}" for name, seconds in parts if seconds >= least)
