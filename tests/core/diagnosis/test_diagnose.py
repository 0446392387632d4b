"""Every cause is named from the readings that really come with it, and the evidence is told in words."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallguard.core.diagnosis import causes, diagnose
from stallguard.core.diagnosis.clues import Scene, progress
from stallguard.core.diagnosis.diagnose import _asker, _fit, gpu_wait
from stallguard.core.diagnosis.patterns import PATTERNS, Pattern
from stallguard.core.limits import PolicyLimits
from stallguard.core.policy import AttemptHistory, add_attempt, decide
from tests import examples
from tests.core.scenarios import darwin, events, linux
from tests.core.scenarios.training import training
from tests.simulation.simulation import Simulation

IDS = [f"{number} {row.cause} {row.mode}" for number, row in enumerate(PATTERNS)]
BETWEEN_ATTEMPTS = "F10 busy after the kill"


@pytest.fixture(scope="module")
def stories() -> dict[str, Simulation]:
    announced = {f"darwin: {name}": story() for name, (_, _, story) in darwin.MANY.items()}
    return announced | {f"linux: {name}": story() for name, (_, story) in linux.MANY.items()}


@pytest.mark.parametrize("name", darwin.MANY)
def test_a_night_on_a_mac_gets_its_cause_and_failure_mode(name: str, stories: dict[str, Simulation]) -> None:
    cause, mode, _ = darwin.MANY[name]
    story = stories[f"darwin: {name}"]
    first = (story.diagnosed() if name == BETWEEN_ATTEMPTS else story.findings())[0]
    assert (first.cause, first.mode) == (cause, mode), story.findings()


def test_the_scenarios_cover_every_failure_mode() -> None:
    assert {mode for _, mode, _ in darwin.MANY.values()} >= {f"F{number}" for number in range(1, 14)}


@pytest.mark.parametrize("name", linux.MANY)
def test_a_day_on_linux_gets_its_cause(name: str, stories: dict[str, Simulation]) -> None:
    story = stories[f"linux: {name}"]
    assert story.findings()[0].cause == linux.MANY[name][0], story.findings()


def scene_of(story: Simulation, *, ended: bool) -> Scene:
    if not ended or story.ended is None:
        return Scene(story.history, story.detector_state.judgement, story.now)
    return diagnose._scene_of_exit(story.history, story.ended)


@pytest.mark.costly
@pytest.mark.parametrize("pattern", PATTERNS, ids=[f"{n} {row.cause} {row.mode}" for n, row in enumerate(PATTERNS)])
def test_every_row_of_the_table_is_what_names_some_night(pattern: Pattern, stories: dict[str, Simulation]) -> None:
    def names(story: Simulation, *, ended: bool) -> bool:
        scene = scene_of(story, ended=ended)
        found = _fit(pattern, _asker(scene), scene)
        announced = diagnose._findings(scene)
        return found is not None and any(found == other for other in announced)

    assert any(names(story, ended=ended) for story in stories.values() for ended in (True, False))


def test_findings_come_in_order_of_confidence_and_name_a_cause_once(stories: dict[str, Simulation]) -> None:
    for story in stories.values():
        found = story.findings()
        assert [finding.confidence for finding in found] == sorted((f.confidence for f in found), reverse=True)
        assert len({finding.cause for finding in found}) == len(found)
        assert all(0.0 < finding.confidence < 1.0 for finding in found)


def test_two_causes_that_fit_are_both_reported() -> None:
    found = linux.blocked_generator().findings()
    assert [finding.cause for finding in found[:2]] == [causes.INPUT_STARVATION, causes.DEVICE_WAIT]
    assert "a stack shows the input pipeline waiting" in found[1].against


def test_evidence_is_reported_in_whole_sentences(stories: dict[str, Simulation]) -> None:
    found = [finding for story in stories.values() for finding in story.findings()]
    sentences = [text for finding in found for text in (*finding.evidence, *finding.against)]
    assert len(set(sentences)) > 40
    assert not [text for text in sentences if "{" in text or "None" in text or not text.strip()]


def test_a_finding_tells_since_when_and_by_what() -> None:
    story = linux.blocked_op()
    first = story.findings()[0]
    assert first.since == story.heartbeat.progress_at
    assert "the processor is idle (0.00 of a core)" in first.evidence


def test_what_nothing_explains_is_unknown_with_little_confidence() -> None:
    (only,) = linux.nothing_fits().findings()
    assert only.cause == causes.UNKNOWN
    assert only.confidence < 0.4
    assert only.advice == ()


def test_a_healthy_training_has_no_finding() -> None:
    assert linux.box().findings() == ()
    assert darwin.mac().findings() == ()


EXCUSES = {causes.STOPPED, causes.ASLEEP, causes.SAVING, causes.COMPILING, causes.DATA_ENDED}


@pytest.mark.parametrize("pattern", PATTERNS, ids=IDS)
def test_what_is_only_reported_never_explains_a_silence_away(pattern: Pattern) -> None:
    only_told = causes.CAUSES[pattern.cause].remedy.instead in (causes.NOTIFY, causes.WAIT)
    if only_told and pattern.cause not in EXCUSES:
        assert progress.silent in pattern.excludes or progress.came_back in pattern.requires


def test_a_stall_of_a_slow_training_is_a_stall() -> None:
    story = linux.neighbours()
    assert story.findings()[0].cause == causes.THROTTLED
    assert linux.idle(story.enter("step"), 60).findings()[0].cause == causes.DEVICE_WAIT


def test_a_save_that_does_nothing_is_no_excuse() -> None:
    found = darwin.quiet(darwin.mac().enter("checkpoint"), 700).stacks("checkpoint_io").findings()
    assert found[0].cause != causes.SAVING


def test_a_save_in_which_a_loop_computes_and_writes_nothing_is_a_busy_loop() -> None:
    found = linux.box().enter("checkpoint").be(cores=1.0, faults=0, io=0).silent(700).stacks("user").findings()
    assert [one.cause for one in found] == [causes.BUSY_LOOP]


@settings(max_examples=examples.of(200, fast=33), deadline=None)
@given(st.lists(events.ANY, max_size=60), st.data())
def test_any_history_gets_a_diagnosis(happened: list[events.Event], data: st.DataObject) -> None:
    story = training()
    for event in happened:
        story.feed(event)
    judgement = data.draw(events.JUDGEMENTS)
    for found in (
        diagnose.diagnose(story.history, judgement, story.now),
        diagnose.diagnose_exit(story.history, data.draw(events.EXITS)),
    ):
        assert all(0.0 < finding.confidence < 1.0 for finding in found)
    if judgement.step == "stalled":
        assert diagnose.diagnose(story.history, judgement, story.now)


def test_no_advice_where_evidence_is_thin() -> None:
    (only,) = linux.busy_generator().findings()
    assert only.cause == causes.INPUT_STARVATION
    assert only.confidence < diagnose.ADVISED_FROM
    assert only.advice == ()


def past_of(story: Simulation) -> AttemptHistory:
    return add_attempt(AttemptHistory(), story.history, story.diagnosed(), 1, "default", 0.0, story.now)


def ended() -> Simulation:
    return darwin.quiet(darwin.mac().enter("step"), 20).exit(-9)


def test_without_a_gpu_nothing_waits_for_it() -> None:
    story = linux.box().exit(-9)
    assert gpu_wait(story.history, story.now) == 0.0


def test_a_gpu_that_rests_is_free_with_its_next_reading() -> None:
    story = ended()
    assert gpu_wait(story.history, story.now) > 0
    story.be(device_utilisation=0.0, device_used_by_run=False).silent(4)
    assert gpu_wait(story.history, story.now) == 0.0


def test_a_gpu_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    story = ended()
    story.system.device = None
    story.silent(13)
    assert gpu_wait(story.history, story.now) == 0.0


def test_a_gpu_that_stays_busy_ends_the_run() -> None:
    story = ended().be(device_utilisation=1.0, device_used_by_run=False, device_moved=None)
    while gpu_wait(story.history, story.now) > 0:
        story.silent(2)
    assert 55 < story.now - story.history.exited.at < 70
    found = story.silent(2).diagnosed()
    assert found[0].cause == causes.GPU_BUSY_AFTER_KILL
    assert decide(found, past_of(story), PolicyLimits()).action == "give_up"
