"""Causes that the output shows, and advice that fits the script."""

from __future__ import annotations

import pytest

from stallguard.core.diagnosis import causes
from stallguard.core.events import ProbeConnected
from tests.core.scenarios import darwin, linux


@pytest.mark.parametrize(
    ("signature", "line", "error"),
    [
        ("xla_oom", "RESOURCE_EXHAUSTED: Out of memory", "JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory"),
        ("cuda_oom", "CUDA out of memory. Tried to allocate 140 MiB", "torch.OutOfMemoryError: Exception encountered"),
        ("tf_oom", "OOM when allocating tensor with shape[9]", "ResourceExhaustedError: Graph execution error:"),
        ("python_memory", "MemoryError", "MemoryError"),
    ],
)  # fmt: skip
def test_an_error_that_is_the_lack_of_memory_is_no_error_of_the_script(signature: str, line: str, error: str) -> None:
    short = linux.box().line(signature, line)
    assert causes.SCRIPT_ERROR not in {f.cause for f in short.line("python_traceback", error).exit(1).findings()}


def test_an_error_of_another_kind_after_a_lack_of_memory_is_reported_too() -> None:
    story = linux.box().line("xla_oom", "RESOURCE_EXHAUSTED: Out of memory").line("python_traceback", "KeyError: 'x'")
    found = {finding.cause for finding in story.exit(1).findings()}
    assert {causes.GPU_OUT_OF_MEMORY, causes.SCRIPT_ERROR} <= found


def test_an_old_error_explains_no_new_stall() -> None:
    story = darwin.mac().line("iogpu_hang").train(600)
    assert causes.GPU_ERROR not in {finding.cause for finding in darwin.quiet(story.enter("step")).findings()}


def test_data_that_ended_before_the_last_batch_is_no_excuse() -> None:
    story = linux.box().line("keras_out_of_data").train(30)
    assert linux.idle(story.enter("step")).findings()[0].cause == causes.DEVICE_WAIT


@pytest.mark.parametrize("phase", ["step", "between"])
def test_data_that_ended_an_epoch_is_no_excuse_for_a_stall_in_the_next(phase: str) -> None:
    story = linux.box().line("keras_out_of_data").train(1)
    found = linux.idle(story.enter(phase)).findings()
    assert found
    assert causes.DATA_ENDED not in [finding.cause for finding in found]


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


@pytest.mark.parametrize(
    ("library", "advised", "never"),
    [
        ("mlx", "mx.clear_cache()", ("keras", "model.fit", "DataLoader", "torch.mps", "TF_")),
        ("torch", "torch.mps.empty_cache()", ("keras", "model.fit", "mx.", "TF_")),
        ("tensorflow", "TF_MPS_DISABLE_ALLOCATION_CACHE", ("mx.", "torch.mps", "DataLoader")),
    ],
)
def test_what_a_lack_of_memory_is_answered_with_is_of_the_library_that_trains(
    library: str, advised: str, never: tuple[str, ...]
) -> None:
    story = darwin.mac().tell(ProbeConnected, attempt=1, pid=42, versions={library: "2.13.0"}).train(10)
    finding = story.line("torch_mps_oom").exit(1).findings()[0]
    assert finding.cause == causes.GPU_OUT_OF_MEMORY
    said = " ".join(finding.advice)
    assert advised in said
    assert not [one for one in never if one in said]
