"""A recorded training becomes the events that a live run would have given."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from scripts.benches.detection import traces
from stallguard.core.events import Exited, Heartbeat, ProbeConnected, Sampled
from stallguard.core.readings import Memory, Process

RECORDINGS = Path(__file__).parent / "recordings" / "traces"


def events(name: str) -> list:
    return list(traces.events(traces.read(RECORDINGS / f"{name}.jsonl")))


def heartbeats(name: str) -> list[Heartbeat]:
    return [event for event in events(name) if isinstance(event, Heartbeat)]


def test_events_come_in_order_from_the_greeting_to_the_end():
    found = events("ckpt_epoch")

    assert isinstance(found[0], ProbeConnected)
    assert isinstance(found[-1], Exited)
    assert [event.at for event in found] == sorted(event.at for event in found)


def test_a_recording_that_was_cut_by_a_kill_has_no_end():
    assert not any(isinstance(event, Exited) for event in events("stall_lock"))


def test_records_are_merged_to_what_a_live_supervisor_hears():
    found = heartbeats("lstm_small")
    seconds = found[-1].at - found[0].at

    assert 0.9 * seconds <= len(found) <= 4.2 * seconds


def test_records_count_every_batch_epoch_and_checkpoint():
    last = heartbeats("ckpt_epoch")[-1]

    assert (last.beats, last.saves, last.epoch, last.fits) == (188, 6, 5, 1)
    assert last.phase == "finishing"


def test_no_long_pause_is_lost_in_the_merging():
    trace = traces.read(RECORDINGS / "shuffle_fill_blocks.jsonl")
    marks = [at for at, code, _ in trace.marks if code in traces._CODES]
    longest = max(b - a for a, b in itertools.pairwise(marks))

    assert max(heartbeat.longest for heartbeat in heartbeats("shuffle_fill_blocks")) == pytest.approx(longest)


def test_time_inside_steps_is_that_between_begin_and_end_of_batches():
    trace = traces.read(RECORDINGS / "cnn_large_batch.jsonl")
    begins = [at for at, code, _ in trace.marks if code == "b"]
    ends = [at for at, code, _ in trace.marks if code == "e"]

    assert heartbeats("cnn_large_batch")[-1].step_s == pytest.approx(sum(ends) - sum(begins))


def test_samples_become_readings_of_the_whole_tree():
    found = [event.reading for event in events("stall_lock") if isinstance(event, Sampled)]
    process = [reading for reading in found if isinstance(reading, Process)][-1]

    assert process.state == "sleeping"
    assert process.census == {"futex": 13, "sleep": 1, "timed": 1}
    assert process.cpu == pytest.approx(7.67)
    assert any(isinstance(reading, Memory) for reading in found)


def test_a_stopped_process_sends_no_pulse():
    assert not [heartbeat for heartbeat in heartbeats("stall_sigstop") if 8.0 < heartbeat.at < 28.0]
    assert [heartbeat for heartbeat in heartbeats("stall_lock") if 8.0 < heartbeat.at < 28.0]


def test_the_last_line_may_be_torn(tmp_path):
    whole = (RECORDINGS / "ckpt_epoch.jsonl").read_bytes()
    (tmp_path / "torn.jsonl").write_bytes(whole[:-40])

    assert (
        len(traces.read(tmp_path / "torn.jsonl").samples)
        == len(traces.read(RECORDINGS / "ckpt_epoch.jsonl").samples) - 1
    )


def test_a_trace_is_known_by_its_first_line(tmp_path):
    (tmp_path / "other.jsonl").write_bytes(b'{"schema": 1, "kind": "event"}\n')

    assert not traces.is_trace(tmp_path / "other.jsonl")
    assert all(traces.is_trace(path) for path in RECORDINGS.glob("*.jsonl"))
    assert json.loads((RECORDINGS / "stall_lock.jsonl").read_text().splitlines()[0])["name"] == "stall_lock"
