"""Every cause is named from the readings that really come with it, and the evidence is told in words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

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


@pytest.mark.parametrize(
    "pattern", PATTERNS, ids=[f"{n} {row.cause} {row.mode}" for n, row in enumerate(PATTERNS)]
)
def test_every_row_of_the_table_is_what_names_some_night(
    pattern: Pattern, stories: dict[str, Simulation]
) -> None:
    def names(story: Simulation, *, ended: bool) -> bool:
        scene = scene_of(story, ended=ended)
        found = _fit(pattern, _asker(scene), scene)
        announced = diagnose._findings(scene)
        return found is not None and any(found == other for other in announced)

    assert any(names(story, ended=ended) for story in stories.values() for ended in (True, False))


STEPS = {causes.SAME, causes.HALF, causes.CPU}
INSTEAD = {causes.WAIT, causes.NOTIFY, causes.STOP, causes.FINISH}


@pytest.mark.parametrize("key", causes.CAUSES)
def test_every_cause_has_every_column(key: str) -> None:
    row = causes.CAUSES[key]
    assert row.key == key == getattr(causes, key.replace("-", "_").upper())
    assert row.title
    assert row.remedy.why
    assert set(row.remedy.ladder) <= STEPS
    assert row.remedy.instead in INSTEAD if not row.remedy.ladder else not row.remedy.instead
    assert all(piece.text and set(piece.when.split()) <= set(diagnose.CLUES) for piece in row.advice)
    assert {type(flag) for flag in (row.advisory, row.urgent, row.any_batch_size)} == {bool}


def test_every_cause_has_a_pattern_and_its_own_title() -> None:
    forecast = {causes.MEMORY_RUNS_OUT, causes.STEPS_NEED_MORE}  # found by core.memory_ahead
    assert {pattern.cause for pattern in PATTERNS} == set(causes.CAUSES) - {causes.UNKNOWN} - forecast
    assert len({row.title for row in causes.CAUSES.values()}) == len(causes.CAUSES)


def test_a_cause_of_another_version_is_called_by_its_key() -> None:
    assert causes.title("never-heard-of") == "never-heard-of"


def test_the_names_of_clues_are_unique() -> None:
    assert all(clue.name == name for name, clue in diagnose.CLUES.items())
    rows = [(*row.requires, *row.proofs, *row.supports, *row.against, *row.excludes) for row in PATTERNS]
    assert all(diagnose.CLUES[clue.name] is clue for row in rows for clue in row)


def test_findings_come_in_order_of_confidence_and_name_a_cause_once(stories: dict[str, Simulation]) -> None:
    for story in stories.values():
        found = story.findings()
        assert [finding.confidence for finding in found] == sorted(
            (f.confidence for f in found), reverse=True
        )
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


@pytest.mark.parametrize(
    ("signature", "line", "error"),
    [
        ("xla_oom", "RESOURCE_EXHAUSTED: Out of memory", "JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory"),
        ("cuda_oom", "CUDA out of memory. Tried to allocate 140 MiB", "torch.OutOfMemoryError: Exception encountered"),
        ("tf_oom", "OOM when allocating tensor with shape[9]", "ResourceExhaustedError: Graph execution error:"),
        ("python_memory", "MemoryError", "MemoryError"),
    ],
)  # fmt: skip
def test_an_error_that_is_the_lack_of_memory_is_no_error_of_the_script(
    signature: str, line: str, error: str
) -> None:
    short = linux.box().line(signature, line)
    assert causes.SCRIPT_ERROR not in {
        f.cause for f in short.line("python_traceback", error).exit(1).findings()
    }


def test_an_error_of_another_kind_after_a_lack_of_memory_is_reported_too() -> None:
    story = (
        linux.box()
        .line("xla_oom", "RESOURCE_EXHAUSTED: Out of memory")
        .line("python_traceback", "KeyError: 'x'")
    )
    found = {finding.cause for finding in story.exit(1).findings()}
    assert {causes.GPU_OUT_OF_MEMORY, causes.SCRIPT_ERROR} <= found


def test_a_healthy_training_has_no_finding() -> None:
    assert linux.box().findings() == ()
    assert darwin.mac().findings() == ()


def test_an_old_error_explains_no_new_stall() -> None:
    story = darwin.mac().line("iogpu_hang").train(600)
    assert causes.GPU_ERROR not in {finding.cause for finding in darwin.quiet(story.enter("step")).findings()}


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


def test_data_that_ended_before_the_last_batch_is_no_excuse() -> None:
    story = linux.box().line("keras_out_of_data").train(30)
    assert linux.idle(story.enter("step")).findings()[0].cause == causes.DEVICE_WAIT


@pytest.mark.parametrize("phase", ["step", "between"])
def test_data_that_ended_an_epoch_is_no_excuse_for_a_stall_in_the_next(phase: str) -> None:
    story = linux.box().line("keras_out_of_data").train(1)
    found = linux.idle(story.enter(phase)).findings()
    assert found
    assert causes.DATA_ENDED not in [finding.cause for finding in found]


def test_a_stopped_process_is_nothing_but_stopped() -> None:
    assert [finding.cause for finding in linux.sigstop().findings()] == [causes.STOPPED]


def test_a_kill_that_the_kernel_disowns_is_no_lack_of_memory() -> None:
    found = linux.box().be(memory_pressure="critical").train(10).exit(-9, memory_kill=False).findings()
    assert causes.OUT_OF_MEMORY_KILL not in {finding.cause for finding in found}


def test_a_gpu_busy_by_others_is_not_blamed_on_a_training_that_never_used_it() -> None:
    story = linux.box().exit(-9)
    story.system.device = replace(darwin.IDLE, utilisation=1.0, used_by_run=False)
    assert story.silent(120).diagnosed() == ()


def test_a_gpu_hidden_on_purpose_is_no_fallback() -> None:
    from stallguard.core.events import Launched

    story = training(device=replace(darwin.IDLE, used_by_run=False))
    story.tell(Launched, attempt=2, pid=43, device="cpu").be(cores=5.0).train(200)
    assert story.findings() == ()


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


def _by_name(name: str) -> Callable[[], Simulation]:
    return darwin.MANY[name][2]


def test_advice_fits_the_machine() -> None:
    on_metal = _by_name("F2 swap crawl")().findings()[0].advice
    on_linux = linux.waits_for_memory().findings()[0].advice
    assert any("TF_MPS_DISABLE_ALLOCATION_CACHE" in text for text in on_metal)
    assert not any("MPS" in text for text in on_linux)
    assert on_metal[0].startswith("a smaller batch")


def test_the_advice_against_a_list_that_grows_names_it_and_no_smaller_batch() -> None:
    for story in (linux.list_that_grows(), linux.out_of_memory_with_a_list_that_grew()):
        advice = story.findings()[0].advice
        assert advice[0].startswith("callbacks[0].seen of Keeps (train.py:4) grows with the training")
        assert not any("clear_session" in one or "batch_size" in one for one in advice)


def test_a_leak_of_which_no_object_is_known_is_not_told_to_free_a_model_that_is_built_once() -> None:
    advice = darwin.f2_leak().findings()[0].advice
    assert not any("clear_session" in one for one in advice)
    assert any("keeps of each batch" in one for one in advice)


@pytest.mark.parametrize(
    ("feed", "site", "advised"),
    [
        ("generator", "sock", "give the socket for which train.py:5 in gen waits a time limit"),
        ("generator", "read", "train.py:5 in gen waits for a pipe or a file"),
        ("pydataset", "sleep", "show for what train.py:5 in gen waits"),
    ],
)
def test_the_advice_against_an_input_that_delivers_nothing_names_its_line_and_no_prefetch(
    feed: str, site: str, advised: str
) -> None:
    story = linux.box().note("feed", feed=feed).enter("step")
    story.be(census={**(story.tree.census or {}), site: 1})
    linux.idle(story, 1000).stacks("tf_wait", "generator", where="train.py:5 in gen")
    finding = next(one for one in story.findings() if one.cause == causes.INPUT_STARVATION)
    assert advised in finding.advice[0]
    assert "prefetch" not in "".join(finding.advice)


def test_no_advice_where_evidence_is_thin() -> None:
    (only,) = linux.busy_generator().findings()
    assert only.cause == causes.INPUT_STARVATION
    assert only.confidence < diagnose.ADVISED_FROM
    assert only.advice == ()


SHELL = ("while True: yield", "pip ", "stallguard ", "python ", "pmset ", "kill ", "TF_", "TURN_", "AGX_")


def test_code_in_advice_is_python_or_a_command() -> None:
    codes = [piece.code for row in causes.CAUSES.values() for piece in row.advice if piece.code]
    for code in codes:
        if not code.startswith(SHELL):
            compile(f"{code}\ndef step(): ..." if code.startswith("@") else code, "advice", "exec")


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
