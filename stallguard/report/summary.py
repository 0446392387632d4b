"""The story of a run in numbers and in a few sentences: what happened, when, why it is thought so, what it cost.

`totals` has the sums: how the time was spent, what was lost, how far the trainings came.  `bottlenecks` has what made
them slow: the last word of the journal on each training, summed over all of them.  `story` chooses the facts of the
sentences; the words are narrative.py's.  Pure; must not read files.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

import msgspec

from stallguard.core import caches, messages, time_spent
from stallguard.core.actions import SlowedBy
from stallguard.core.diagnosis.causes import CAUSES, WRONG_NUMBERS, title
from stallguard.core.events import ProbeNote, Profiled
from stallguard.core.profile import PAUSED, TRAINING
from stallguard.core.text import count, duration, far, loss_words, quantity, times, whole_number
from stallguard.core.time_spent import Spent
from stallguard.core.verdicts import Bottleneck
from stallguard.errors import STOPPED_ON_TIME, has_failed
from stallguard.report.attempt_rows import AttemptRow, TrainingRow, repeated
from stallguard.report.incidents import CRASH, RECOVERED, STALL, Incident
from stallguard.report.journal_record import Record
from stallguard.report.narrative import DOES, batch, prose, sentence
from stallguard.storage.run_files import Outcome

BROKEN = "the loss is {}"  # of which training is not known


class RunTotals(msgspec.Struct, frozen=True):
    """Seconds, batches and counts of a whole run; None if it cannot be known.

    `seconds` is the sum of `spent`, `lost` that of its categories in core.time_spent.LOST.
    """

    seconds: float
    effective: float | None  # share of the time that trained, 0..1; null: not known, or the run failed
    spent: Spent
    lost: float
    batches: int
    rate: float | None
    repeated: int | None
    attempts: int
    stalls: int
    crashes: int
    restarts: int
    rows: int | None
    factors: tuple[int, ...]
    epoch: int | None
    epochs: int | None
    first_loss: float | None
    loss: float | None
    saves: int
    loss_so_far: bool = False  # the last loss is the mean of an epoch that did not end
    loss_not_finite: str = ""  # nan, inf or -inf: the last loss, and `loss` is null
    broken_loss: str = ""  # since when the last loss is not finite, as a sentence
    trainings: int = 0  # of the attempt that had the most
    given_back: int = 0  # bytes of caches that were emptied because memory was short


def totals(
    record: Record, attempts: Sequence[AttemptRow], incidents: Sequence[Incident], end: Outcome | None = None
) -> RunTotals:
    """Return the sums.  `end`: what the run itself wrote of them, with the supervisor's clock."""
    # The outcome is of the whole run; of a long one, the journal may have lost its oldest part.
    times = end.spent if end and end.spent != Spent() else record.spent
    training = time_spent.total(times, (*time_spent.EFFECTIVE, "loss_not_finite"))
    batches, twice = sum(attempt.batches for attempt in attempts), repeated(attempts)
    last = next((attempt for attempt in reversed(attempts) if attempt.batches), AttemptRow(number=0, began=0.0))
    losses = [attempt.first_loss for attempt in attempts if attempt.first_loss is not None]
    notes = [what for _, what in reversed(record.happened) if isinstance(what, ProbeNote)]
    rows = next((whole_number(note.facts["rows"]) or None for note in notes if "rows" in note.facts), None)
    emptied = [whole_number(note.facts.get("bytes", "")) or 0 for note in notes if note.kind == caches.NOTE]
    stalls = sum(one.kind == STALL for one in incidents)
    return RunTotals(
        seconds=time_spent.total(times),
        effective=None if end and has_failed(end.code, end.why, end.script_code) else time_spent.effective(times),
        spent=times,
        lost=time_spent.total(times, time_spent.LOST),
        batches=batches,
        rate=(batches - (twice or 0)) / training if training > 0 and batches > 1 else None,
        repeated=twice,
        attempts=len(attempts),
        stalls=stalls,
        crashes=len(incidents) - stalls,
        restarts=max(0, len(attempts) - 1),
        rows=rows,
        factors=tuple(dict.fromkeys(attempt.factor for attempt in attempts)),
        epoch=None if last.epoch is None else last.epoch + 1,
        epochs=last.epochs,
        first_loss=losses[0] if losses else None,
        loss=last.loss,
        saves=sum(attempt.saves for attempt in attempts),
        loss_so_far=last.loss_so_far,
        loss_not_finite=last.loss_not_finite,
        broken_loss=last.broken_loss or (BROKEN.format(last.loss_not_finite) if last.loss_not_finite else ""),
        trainings=max((attempt.trainings for attempt in attempts), default=0),
        given_back=sum(emptied),
    )


PLACES = 3  # that are named of the time before a stall


class BottleneckText(msgspec.Struct, frozen=True):
    """One thing that made the run slow.  `headline`: the whole of it as one sentence."""

    kind: str  # as the journal calls it
    headline: str
    seconds: float  # that it cost, in all trainings of the run
    share: float  # of the time that was watched, 0..1
    where: str
    file: str  # the script's file with that place; empty if none is named
    line: int  # of that file
    evidence: tuple[str, ...]
    advice: tuple[str, ...]


def bottlenecks(record: Record) -> list[BottleneckText]:
    """Return what made the run slow, the one that cost most first."""
    newest = {(what.attempt, what.pid): what for _, what in record.happened if isinstance(what, SlowedBy)}.values()
    watched = sum(one.seconds for one in newest)
    same: defaultdict[tuple[str, str], list[Bottleneck]] = defaultdict(list)
    for one in newest:
        for found in one.bottlenecks:
            same[found.kind, found.where].append(found)
    texts = []
    for group in same.values():
        worst, cost = max(group, key=lambda found: found.seconds), sum(found.seconds for found in group)
        whole = msgspec.structs.replace(worst, seconds=cost, share=cost / watched if watched else worst.share)
        facts = messages.bottleneck(msgspec.structs.replace(whole, evidence=()))
        texts.append(
            BottleneckText(
                worst.kind, prose(sentence("bottleneck", facts)), round(cost, 1), round(whole.share, 3), worst.where,
                worst.file, worst.line, worst.evidence, worst.advice,
            )
        )  # fmt: skip
    return sorted(texts, key=lambda text: -text.seconds)


def before(record: Record, at: float) -> tuple[str, ...]:
    """Return the places of the script in which the training spent most time before `at` (seconds since the epoch)."""
    profiles = [what.profile for then, what in record.happened if isinstance(what, Profiled) and then <= at]
    if not profiles or not profiles[-1].watched:
        return ()
    newest = profiles[-1]
    places: defaultdict[str, float] = defaultdict(float)
    for spot in newest.spots:
        if spot.role == TRAINING and spot.file and spot.phase not in PAUSED:
            places[f"{spot.where} ({DOES.get(spot.does, spot.does)})"] += spot.seconds
    ranked = sorted(places.items(), key=lambda item: -item[1])[:PLACES]
    return tuple(f"{seconds / newest.watched:.0%} {place}".replace("%", " %", 1) for place, seconds in ranked)


ENDINGS = {
    "finished": "story finished",
    "ended": "story watched",
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
    library: str = "",
) -> list[str]:
    """Return the story in paragraphs: its end, what went wrong, what was done, what that changed, what helps.

    `state`: as outcome.state has it; `facts`: code and why of the end, and what changed for the mathematics;
    `clock`: the time of day as text; `inexact`: what the probe said is not exact, outside of the incidents;
    `unsaved`: why the last checkpoints could not be written, "" if they could; `slow`: what made it slow,
    the worst first; `library`: that trains, "" if it is not known.
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
        [*_trouble(incidents, clock, library), *filter(None, [totals.broken_loss])],
        _deeds(totals, attempts),
        [sentence("story slow", {"headline": one.headline[:1].lower() + one.headline[1:]}) for one in slow[:1]],
        [
            sentence("training.changed", {"text": text})
            for text in [facts.get("mathematics")]
            if text and not totals.broken_loss
        ],
        [sentence("attempt.inexact", {"text": text}) for text in inexact],
        [sentence("story unsaved", {"why": unsaved})] if unsaved else [],
        [sentence("stall.advice", {"text": text}) for text in advice(incidents, totals)[:1]],
    )
    joined = (" ".join(map(prose, paragraph)) for paragraph in paragraphs)
    return [text for text in joined if text]


def progress(totals: RunTotals) -> str:
    """Return how far a training came: batches, epochs, loss."""
    done = count(totals.batches, "batch", "batches") if totals.batches else "no batch"
    loss = loss_words(totals.loss, totals.loss_not_finite)
    so_far = " so far in its epoch" if loss and totals.loss_so_far else ""
    return ", ".join(filter(None, (done, far(totals.epoch, totals.epochs, loss + so_far, totals.first_loss))))


def _trouble(incidents: Sequence[Incident], clock: Callable[[float], str], library: str) -> Iterator[str]:
    stalls = [one for one in incidents if one.kind == STALL]
    for kind, some in (("story stalled", stalls), ("story crashed", [i for i in incidents if i.kind == CRASH])):
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
    explained = [one for one in incidents if one.findings]
    causes = Counter(one.findings[0].cause for one in explained)
    if len(causes) == 1:
        first_one = explained[0]
        diagnosed = messages.diagnosis(first_one.findings[:1], library, first_one.facts.get("phase", ""))[0]
        yield sentence(diagnosed.message, diagnosed.facts)
    elif causes:
        named = [f"{title(cause, library)} ({times(number)})" for cause, number in causes.most_common()]
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
    if totals.given_back:
        yield sentence("story caches", {"size": quantity(totals.given_back, "bytes")})
    if totals.spent.machine_asleep >= ENOUGH_TO_SAY:
        yield sentence("story slept", {"duration": duration(totals.spent.machine_asleep)})


def advice(incidents: Sequence[Incident], totals: RunTotals) -> list[str]:
    """Return what helps, each piece once: what the surest and most frequent causes ask for comes first.

    Without such a cause, what helps against a loss that is not finite.
    """
    weight: Counter[str] = Counter()
    for one in incidents:
        for finding in one.findings:
            for place, text in enumerate(finding.advice):
                weight[text] += round(1000 * finding.confidence / (1 + place))
    against_loss = [one.text for one in CAUSES[WRONG_NUMBERS].advice[:1]] if totals.broken_loss else []
    return [text for text, _ in weight.most_common()] or against_loss
