"""Journals of real runs, decided again by the core of today."""

from __future__ import annotations

from pathlib import Path

from stallguard.core import fold
from stallguard.core.actions import Action, Collect, Signal
from stallguard.core.events import Heartbeat, Sampled
from stallguard.core.limits import Limits
from stallguard.core.readings import Device
from stallguard.storage import journal

RECORDED = Path(__file__).parents[1] / "recordings" / "journals"


def test_keras_on_a_real_gpu_that_stalls_inside_a_step_is_judged_within_31_seconds() -> None:
    """Keras 3.15 on torch on an NVIDIA H200; a lock inside `train_step`, and CUDA's own threads waiting in poll."""
    events = list(journal.events(RECORDED / "h200_keras_torch_lock.jsonl"))
    run = fold.begin(events[0].at)
    judged: list[tuple[float, Action]] = []
    for event in events:
        run, actions = fold.advance(run, event, Limits())
        judged += [(event.at, action) for action in actions if isinstance(action, Collect)]
    last_batch = max(event.progress_at for event in events if isinstance(event, Heartbeat))
    devices = [e.reading for e in events if isinstance(e, Sampled) and isinstance(e.reading, Device)]

    [(at, _)] = judged
    assert at - last_batch <= 31.5
    assert max(device.utilisation or 0.0 for device in devices) > 0.2, "the device was seen at work"
    assert devices[-1].utilisation == 0.0, "and idle in the stall"


def test_a_gpu_that_is_busy_without_end_is_acted_upon_after_two_minutes() -> None:
    """A loop of torch 2.11 on an NVIDIA H200; a kernel without end below `loss.item()`, and a GPU that reads 100 %."""
    events = list(journal.events(RECORDED / "h200_torch_kernel_without_end.jsonl"))
    run = fold.begin(events[0].at)
    done: list[tuple[float, Action]] = []
    for event in events:
        run, actions = fold.advance(run, event, Limits())
        done += [(event.at, action) for action in actions if isinstance(action, Collect | Signal)]
    last_batch = max(event.progress_at for event in events if isinstance(event, Heartbeat))
    devices = [e.reading for e in events if isinstance(e, Sampled) and isinstance(e.reading, Device)]

    [(collected, _), (ended, signal)] = done
    assert collected - last_batch <= 46.5
    assert 114.0 <= ended - last_batch <= 120.0
    assert isinstance(signal, Signal)
    assert signal.name == "TERM"
    assert devices[-1].utilisation == 1.0, "the device seemed to work until then"
