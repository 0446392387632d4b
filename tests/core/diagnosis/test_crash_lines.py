"""A crash is reported with its line, and a crash of a worker as one of a worker."""

from __future__ import annotations

import pytest

from stallguard.core import messages
from tests.core.scenarios.training import training

LINE = "line 31 of train.py, in on_train_batch_end"


@pytest.mark.parametrize(
    ("code", "process", "cause", "sentence"),
    [
        (-11, "", "native-crash", f"the crash was in {LINE}"),
        (-6, "", "native-crash", f"the crash was in {LINE}"),
        (139, "process 8", "native-crash", f"the crash was in {LINE} (process 8)"),
        (1, "worker", "script-error", f"a worker process of it had crashed, in {LINE}"),
    ],
)
def test_the_cause_of_a_crash_names_its_line(code: int, process: str, cause: str, sentence: str) -> None:
    story = training().train(40).exit(code, where="train.py:31 in on_train_batch_end", process=process)

    [finding] = [one for one in story.findings() if one.cause == cause][:1]
    assert sentence in finding.evidence
    assert sentence in messages.diagnosis([finding])[0].facts["because"], (
        "it is among those that are announced"
    )
