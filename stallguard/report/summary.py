"""The story of a run in a few sentences: what happened, when, why it is thought so, what was done, what it cost.

Chooses facts; the words are narrative.py's.  Pure; must not read files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from stallguard.core import messages
from stallguard.core.diagnosis.causes import CAUSES, WRONG_NUMBERS, title
from stallguard.core.text import count, duration, loss_words
from stallguard.errors import STOPPED_ON_TIME
from stallguard.report.attempt_rows import AttemptRow
from stallguard.report.incidents import CRASH, RECOVERED, STALL, Incident
from stallguard.report.narrative import batch, prose, sentence
from stallguard.report.programs import TrainingRow
from stallguard.report.slowness import BottleneckText
from stallguard.report.totals import RunTotals

ENDINGS = {
    "finished": "story finished",
    "gave up": "story gave up",
    "stopped": "story stopped",
    "interrupted": "story by request",
    "lost": "story lost",
    "running": "story running",
}
ENOUGH_TO_SAY = 1.0  # seconds


def story(
    state: str,
    facts: dict[str, str],
    totals: RunTotals,
    attempts: Sequence[AttemptRow],
    incidents: Sequence[Incident],
    clock: Callable[[float], str],
    trainings: Sequence[TrainingRow] = (),
    inexact: Sequence[str] = (),
    unsaved: str = "",
    slow: Sequence[BottleneckText] = (),
) -> list[str]:
    """Return the story in paragraphs: its end, what went wrong, what was done, what that changed, what helps.

    `state`: as outcome.state has it; `facts`: code and why of the end, and what changed for the mathematics;
    `clock`: the time of day as text; `inexact`: what the probe said is not exact, outside of the incidents;
    `unsaved`: why the last checkpoints could not be written, "" if they could; `slow`: what made it slow,
    the worst first.
    """
    facts = {"duration": duration(totals.seconds), "progress": progress(totals), **facts}
    on_time = facts.get("code") == str(STOPPED_ON_TIME)
    ending = "story by request" if state == "stopped" and not on_time else ENDINGS.get(state, "story ended")
    beginning = [sentence(ending, facts)]
    if trainings:
        done = sum(one.how == "ended" for one in trainings)
        ended = "all" if done == len(trainings) else str(done) if done else "none"
        beginning.append(sentence("story trainings", {"count": str(len(trainings)), "done": ended}))
    paragraphs = (
        beginning,
        [*_trouble(incidents, clock), *filter(None, [totals.broken_loss])],
        _deeds(totals, attempts),
        [
            sentence("story slow", {"headline": one.headline[:1].lower() + one.headline[1:]})
            for one in slow[:1]
        ],
        [
            sentence("training.changed", {"text": text})
            for text in [facts.get("mathematics")]
            if text and not totals.broken_loss
        ],
        [sentence("attempt.inexact", {"text": text}) for text in inexact],
        [sentence("story unsaved", {"why": unsaved})] if unsaved else [],
        [sentence("stall.advice", {"text": text}) for text in (advice(incidents) or loss_advice(totals))[:1]],
    )
    joined = (" ".join(map(prose, paragraph)) for paragraph in paragraphs)
    return [text for text in joined if text]


def progress(totals: RunTotals) -> str:
    """Return how far a training came: batches, epochs, loss."""
    parts = [count(totals.batches, "batch", "batches") if totals.batches else "no batch"]
    if totals.epoch is not None:
        parts.append(f"epoch {totals.epoch}" + (f" of {totals.epochs}" if totals.epochs else ""))
    loss = loss_words(totals.loss, totals.loss_not_finite)
    if loss:
        so_far = " so far in its epoch" if totals.loss_so_far else ""
        first = "" if totals.first_loss is None else f" (from {loss_words(totals.first_loss)})"
        parts.append(f"loss {loss}{so_far}{first}")
    return ", ".join(parts)


def times(number: int) -> str:
    """Return how often."""
    return {1: "once", 2: "twice"}.get(number) or f"{number} times"


def _trouble(incidents: Sequence[Incident], clock: Callable[[float], str]) -> Iterator[str]:
    stalls = [one for one in incidents if one.kind == STALL]
    for kind, some in (
        ("story stalled", stalls),
        ("story crashed", [i for i in incidents if i.kind == CRASH]),
    ):
        if some:
            first = "first " if len(some) > 1 else ""
            yield sentence(
                kind, some[0].facts | {"times": times(len(some)), "first": first, "at": clock(some[0].began)}
            )
    if not incidents:
        yield sentence("story healthy", {})
    recovered = sum(one.outcome == RECOVERED for one in stalls)
    if recovered:
        yield sentence("story recovered", {"times": times(recovered)})
    places = {one.where for one in stalls if one.where}
    if len(places) == 1:
        kind = "story hung again" if len(stalls) > 1 else "story hung"
        yield sentence(kind, {"where": places.pop()})
    known = [one.findings[0] for one in incidents if one.findings]
    causes = Counter(finding.cause for finding in known)
    if len(causes) == 1:
        diagnosed = messages.diagnosis(known[:1])[0]
        yield sentence(diagnosed.message, diagnosed.facts)
    elif causes:
        named = [f"{title(cause)} ({times(number)})" for cause, number in causes.most_common()]
        yield sentence("story causes", {"causes": "; ".join(named)})


def _deeds(totals: RunTotals, attempts: Sequence[AttemptRow]) -> Iterator[str]:
    if totals.restarts:
        facts = {
            "times": times(totals.restarts),
            "last": "the last time " if totals.restarts > 1 else "",
            "batch": batch(attempts[-1].factor),
            "device": sentence("on cpu", {}) if attempts[-1].device == "cpu" else "",
        }
        yield sentence("story restarted", facts)
    if totals.effective is not None:
        rest = messages.ineffective_time(totals.spent)
        facts = {"share": messages.percent(totals.effective), "rest": f"; the rest: {rest}" if rest else ""}
        yield sentence("story effective", facts)
    if totals.lost >= ENOUGH_TO_SAY and (totals.stalls or totals.crashes or totals.restarts):
        number = totals.repeated or 0
        twice = sentence("story repeated", {"count": count(number, "batch", "batches")}) if number else ""
        yield sentence("story cost", {"lost": duration(totals.lost), "repeated": twice})
    if totals.spent.machine_asleep >= ENOUGH_TO_SAY:
        yield sentence("story slept", {"duration": duration(totals.spent.machine_asleep)})


def loss_advice(totals: RunTotals) -> list[str]:
    """Return what helps against a loss that is not finite; nothing if it is."""
    return [one.text for one in CAUSES[WRONG_NUMBERS].advice[:1]] if totals.broken_loss else []


def advice(incidents: Sequence[Incident]) -> list[str]:
    """Return what helps, each piece once: what the surest and most frequent causes ask for comes first."""
    weight: Counter[str] = Counter()
    for one in incidents:
        for finding in one.findings:
            for place, text in enumerate(finding.advice):
                weight[text] += round(1000 * finding.confidence / (1 + place))
    return [text for text, _ in weight.most_common()]
