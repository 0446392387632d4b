"""Diagnosis: from the history and the judgement to the causes that fit, the likeliest first.

Reads the table in core.diagnosis.patterns; two causes that fit are both told.  If nothing fits well,
that is said too, with the confidence it deserves.  This module must not decide what to do.
"""

from __future__ import annotations

from collections.abc import Iterable

from stallguard.core.diagnosis import advice
from stallguard.core.diagnosis.causes import UNKNOWN
from stallguard.core.diagnosis.clues import Clue, Scene
from stallguard.core.diagnosis.clues.heartbeat import silent
from stallguard.core.diagnosis.patterns import AGAINST, PATTERNS, PROOF, SUPPORT, Pattern
from stallguard.core.events import Exited
from stallguard.core.history import History
from stallguard.core.verdicts import Finding, Judgement

WORTH_TELLING = 0.25  # confidence below which a cause that fits is not mentioned
THIN = 0.35  # confidence below which nothing is known
MOST, LEAST = 0.98, 0.05


class _Asked:
    """The answers of one scene: a clue is asked once, however many rows use it."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._answers: dict[str, str | None] = {}

    def answer(self, clue: Clue) -> str | None:
        """Return the clue's sentence where it holds."""
        if clue.name not in self._answers:
            self._answers[clue.name] = clue.ask(self._scene)
        return self._answers[clue.name]

    def held(self, clues: Iterable[Clue]) -> list[str]:
        """Return the sentences of those clues that hold."""
        answers = map(self.answer, clues)
        return [sentence for sentence in answers if sentence is not None]


def diagnose(history: History, judgement: Judgement, now: float) -> tuple[Finding, ...]:
    """Return why training is silent, slow or in danger, the likeliest cause first.

    Never empty while it is silent or slow; while it is neither, most often empty.
    """
    return _findings(Scene(history, judgement, now))


def diagnose_exit(history: History, exited: Exited) -> tuple[Finding, ...]:
    """Return why the process ended, the likeliest cause first; never empty."""
    return _findings(_scene_of_exit(history, exited))


def _scene_of_exit(history: History, exited: Exited) -> Scene:
    heard = history.heard
    since = heard.progress_at if heard is not None and heard.progress_at > 0 else history.began
    judgement = Judgement(
        step="exited",
        phase=heard.phase if heard else "importing",
        since=since,
        gap=max(0.0, exited.at - since),
    )
    return Scene(history, judgement, exited.at, exited)


def _findings(scene: Scene) -> tuple[Finding, ...]:
    asked = _Asked(scene)
    best: dict[str, Finding] = {}
    for pattern in PATTERNS:
        found = _fit(pattern, asked, scene)
        if found is not None and found.confidence > best.get(pattern.cause, _NOTHING).confidence:
            best[pattern.cause] = found
    told = [finding for finding in best.values() if finding.confidence >= WORTH_TELLING]
    trouble = scene.exited is not None or silent.ask(scene) is not None or scene.judgement.slow > 1.0
    if trouble and all(finding.confidence < THIN for finding in told):
        told.append(_unknown(scene))
    return tuple(sorted(told, key=lambda finding: -finding.confidence))


_NOTHING = Finding(UNKNOWN, 0.0)


def _fit(pattern: Pattern, asked: _Asked, scene: Scene) -> Finding | None:
    required = asked.held(pattern.requires)
    if len(required) < len(pattern.requires) or asked.held(pattern.excludes):
        return None
    proofs, supports, against = (
        asked.held(pattern.proofs),
        asked.held(pattern.supports),
        asked.held(pattern.against),
    )
    sure = pattern.base + PROOF * len(proofs) + SUPPORT * len(supports) - AGAINST * len(against)
    confidence = round(min(MOST, max(LEAST, sure)), 2)
    return Finding(
        pattern.cause,
        confidence,
        since=scene.judgement.since,
        evidence=tuple(sentence for sentence in (*proofs, *required, *supports) if sentence),
        against=tuple(sentence for sentence in dict.fromkeys(against) if sentence),
        advice=advice.of(pattern.cause, confidence, scene),
        mode=pattern.mode,
    )


def _unknown(scene: Scene) -> Finding:
    missing = () if scene.history.heard else ("nothing was ever heard from inside the process",)
    return Finding(UNKNOWN, THIN, since=scene.judgement.since, evidence=missing)
