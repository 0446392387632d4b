"""Causes that the processes show: how they ended, with the line of a crash, and that they are stopped."""

from __future__ import annotations

import pytest

from stallguard.core import messages
from stallguard.core.diagnosis import causes
from tests.core.scenarios import linux
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
    assert sentence in messages.diagnosis([finding])[0].facts["because"], "it is among those that are announced"


def test_a_stopped_process_is_nothing_but_stopped() -> None:
    assert [finding.cause for finding in linux.sigstop().findings()] == [causes.STOPPED]


def test_a_kill_that_the_kernel_disowns_is_no_lack_of_memory() -> None:
    found = linux.box().be(memory_pressure="critical").train(10).exit(-9, memory_kill=False).findings()
    assert causes.OUT_OF_MEMORY_KILL not in {finding.cause for finding in found}
