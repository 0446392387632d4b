"""Diagnosis: from the history and the judgement to the causes that fit, the most likely first.

Reads the table in core.diagnosis.patterns.  Two causes that fit are both returned; if none fits well, the unknown
cause is returned with them, with a low confidence.

After a process that used the GPU, the next attempt can start only when the GPU is idle.
A GPU that stays busy after its process is gone is freed by nothing but a reboot (reported for Metal); a second
training on it would hang at once.  On other systems a busy GPU is used by another program.  The fold calls `gpu_wait`
before it starts an attempt, and `gpu_busy` when the wait is over.

This module must not decide what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from stallguard.core.diagnosis import causes, metrics
from stallguard.core.diagnosis.causes import CAUSES, UNKNOWN, Advice
from stallguard.core.diagnosis.clues import Clue, Scene, device, machine, process, progress, script
from stallguard.core.diagnosis.clues.machine import DRAINED
from stallguard.core.diagnosis.patterns import AGAINST, PATTERNS, PROOF, SUPPORT, Pattern
from stallguard.core.events import Exited
from stallguard.core.history import History
from stallguard.core.verdicts import Finding, Judgement

RETURNED_FROM = 0.25  # confidence below which a cause that fits is not returned
KNOWN_FROM = 0.35  # confidence below which a cause counts as unknown
ADVISED_FROM = 0.45  # confidence below which nothing is advised
MOST_ADVICE = 4  # pieces of advice with a cause
MOST, LEAST = 0.98, 0.05  # bounds of every confidence: no diagnosis from outside is certain

_NOTHING = Finding(UNKNOWN, 0.0)
CLUES = {
    clue.name: clue
    for module in (process, progress, machine, device, script)
    for clue in vars(module).values()
    if isinstance(clue, Clue)
}

LOOK = 12.0  # seconds in which the sensor of the GPU has its next reading, if it still works
SETTLE = 1.0  # seconds after the end in which a reading can still include the process' last work


Ask = Callable[[Clue], str | None]  # returns the clue's sentence if it holds


def _asker(scene: Scene) -> Ask:
    """Return what asks the clues in one scene: each once, however many patterns use it."""
    return cache(lambda clue: clue.ask(scene))


def _held(ask: Ask, clues: Iterable[Clue]) -> list[str]:
    """Return the sentences of those clues that hold."""
    return [sentence for sentence in map(ask, clues) if sentence is not None]


def diagnose(history: History, judgement: Judgement, now: float) -> tuple[Finding, ...]:
    """Return why training makes no progress, is slow or is in danger, the most likely cause first.

    Never empty during a gap or a slow-down; otherwise usually empty.
    """
    return _findings(Scene(history, judgement, now))


def diagnose_exit(history: History, exited: Exited) -> tuple[Finding, ...]:
    """Return why the process ended, the most likely cause first; never empty."""
    return _findings(_scene_of_exit(history, exited))


def _scene_of_exit(history: History, exited: Exited) -> Scene:
    """Return the scene in which the gap from the last progress to the exit is judged."""
    heartbeat = history.heartbeat
    since = heartbeat.progress_at if heartbeat is not None and heartbeat.progress_at > 0 else history.began
    phase = heartbeat.phase if heartbeat else "importing"
    judgement = Judgement(step="exited", phase=phase, since=since, gap=max(0.0, exited.at - since))
    return Scene(history, judgement, exited.at, exited)


def _findings(scene: Scene) -> tuple[Finding, ...]:
    """Return the best finding of each cause that fits, and the unknown cause if none is likely enough."""
    ask = _asker(scene)
    best: dict[str, Finding] = {}
    for pattern in PATTERNS:
        fit = _fit(pattern, ask, scene)
        if fit is not None and fit.confidence > best.get(pattern.cause, _NOTHING).confidence:
            best[pattern.cause] = fit
    found = [finding for finding in best.values() if finding.confidence >= RETURNED_FROM]
    is_silent = ask(progress.silent) is not None
    needs_cause = scene.exited is not None or is_silent or scene.judgement.slow > 1.0
    if needs_cause and all(finding.confidence < KNOWN_FROM for finding in found):
        missing = () if scene.history.heartbeat else ("no record came from inside the process",)
        found.append(Finding(UNKNOWN, KNOWN_FROM, since=scene.judgement.since, evidence=missing))
    return tuple(sorted(found, key=lambda finding: -finding.confidence))


def _fit(pattern: Pattern, ask: Ask, scene: Scene) -> Finding | None:
    """Return the finding of a pattern; None if a required clue does not hold, or an excluding one does."""
    required = _held(ask, pattern.requires)
    if len(required) < len(pattern.requires) or _held(ask, pattern.excludes):
        return None
    proofs, supports = _held(ask, pattern.proofs), _held(ask, pattern.supports)
    against = _held(ask, pattern.against)
    sum_of_clues = pattern.base + PROOF * len(proofs) + SUPPORT * len(supports) - AGAINST * len(against)
    confidence = round(min(MOST, max(LEAST, sum_of_clues)), 2)
    return Finding(
        pattern.cause,
        confidence,
        since=scene.judgement.since,
        evidence=tuple(sentence for sentence in (*proofs, *required, *supports) if sentence),
        against=tuple(sentence for sentence in dict.fromkeys(against) if sentence),
        advice=fitting(CAUSES[pattern.cause].advice, scene, ask) if confidence >= ADVISED_FROM else (),
        mode=pattern.mode,
    )


def fitting(pieces: Iterable[Advice], scene: Scene, ask: Ask | None = None, place: str = "") -> tuple[str, ...]:
    """Return those pieces of advice that apply in this scene, as sentences, most useful first.

    `place`: what {place} stands for; by default the line that the evidence of the incident names.
    """
    ask = ask or _asker(scene)
    collected, grown = scene.history.collected, script.grown(scene.history)
    named = {
        "{place}": place or (collected.where if collected is not None else "") or "the script",
        "{pid}": str(_pid(scene.history) or "PID"),
        "{object}": grown[0] if grown is not None else "an object of the script",
    }
    found = []
    for piece in pieces:
        if all(ask(CLUES[name]) is not None for name in piece.when.split()):
            text = piece.sentence()
            for word, meaning in named.items():
                text = text.replace(word, meaning)
            found.append(text)
    return tuple(found[:MOST_ADVICE])


def _pid(history: History) -> int:
    """Return the process of the training; 0 if it is not known."""
    known = (history.heartbeat, history.greeted)
    return next((one.pid for one in known if one is not None and one.pid), 0)


def gpu_wait(history: History, now: float) -> float:
    """Return for how many seconds the next attempt should wait for the GPU; 0 if it need not wait.

    At most about a minute after the end of the attempt; what is busy by then is diagnosed as such.
    """
    if history.exited is None or not history.used_gpu or not metrics.on_metal(history):
        return 0.0
    rested = history.exited.at + SETTLE
    if not any(seen.at >= rested for seen in history.device):
        return max(0.0, history.exited.at + LOOK - now)
    busy = metrics.gpu_busy_since(history, rested)
    unsure = 0 < busy < DRAINED and now < rested + DRAINED + LOOK  # the sensor can have stopped
    return max(1.0, rested + DRAINED - now) if unsure else 0.0


def gpu_busy(history: History) -> tuple[Finding, ...]:
    """Return the finding that the GPU is busy although the process that used it has ended; nothing if it is idle."""
    if history.exited is None:
        return ()
    findings = diagnose_exit(history, history.exited)
    return tuple(finding for finding in findings if finding.cause == causes.GPU_BUSY_AFTER_KILL)
