"""Causes that the machine shows: its GPU and its memory."""

from __future__ import annotations

from msgspec.structs import replace

from stallguard.core.events import Launched
from tests.core.scenarios import darwin, linux
from tests.core.scenarios.training import training


def test_a_gpu_busy_by_others_is_not_blamed_on_a_training_that_never_used_it() -> None:
    story = linux.box().exit(-9)
    story.system.device = replace(darwin.IDLE, utilisation=1.0, used_by_run=False)
    assert story.silent(120).diagnosed() == ()


def test_a_gpu_hidden_on_purpose_is_no_fallback() -> None:
    story = training(device=replace(darwin.IDLE, used_by_run=False))
    story.tell(Launched, attempt=2, pid=43, device="cpu").be(cores=5.0).train(200)
    assert story.findings() == ()


def test_advice_fits_the_machine() -> None:
    on_metal = darwin.MANY["F2 swap crawl"][2]().findings()[0].advice
    on_linux = linux.waits_for_memory().findings()[0].advice
    assert any("TF_MPS_DISABLE_ALLOCATION_CACHE" in text for text in on_metal)
    assert not any("MPS" in text for text in on_linux)
    assert on_metal[0].startswith("a smaller batch")
