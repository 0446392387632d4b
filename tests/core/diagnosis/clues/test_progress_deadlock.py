"""What is said of a deadlock is true of one thread that waits as of two, and its sentences agree."""

from __future__ import annotations

from stallguard.core import messages
from stallguard.core.diagnosis import causes, diagnose
from stallguard.core.events import Collected, Heartbeat, Sampled
from stallguard.core.history import History, remember
from stallguard.core.readings import Process
from stallguard.core.verdicts import Finding, Judgement

NOW = 200.0
JUDGEMENT = Judgement(
    step="stalled", row="BATCH_CALLBACKS", phase="between", evidence="deadlock", gap=20.0, since=180.0, pulse=True,
)  # fmt: skip


def history(*, members: int = 1, workers: int = 0) -> History:
    seen = History()
    for second in range(60):
        at = NOW - 59 + second
        seen = remember(seen, Heartbeat(at=at, attempt=1, beats=500, phase="between", progress_at=180.0, sent_at=at))
        reading = Process(
            state="sleeping", cpu=10.0, members=members, workers=workers, census={"futex": 30, "sleep": 1}
        )
        seen = remember(seen, Sampled(at=at, reading=reading))
    return remember(seen, Collected(at=NOW, incident=1, seconds=1.0, stacks=("lock", "user")))


def finding(seen: History) -> Finding:
    first = diagnose.diagnose(seen, JUDGEMENT, NOW)[0]
    assert first.cause == causes.HOST_DEADLOCK
    return first


def test_nothing_is_said_of_a_second_thread_that_no_process_saw():
    found = finding(history())
    said = " ".join((*found.evidence, *found.advice, causes.title(found.cause), messages.DOING["deadlock"]))

    for claim in ("two threads", "each other", "waits for another", "other threads", "between threads"):
        assert claim not in said


def test_workers_are_a_matter_only_where_there_are_any():
    assert not any("worker" in text for text in finding(history()).advice)
    assert any("worker" in text for text in finding(history(members=3)).advice)
    assert any("worker" in text for text in finding(history(workers=1)).advice)
