"""The stream of output: chunks cut anywhere, progress bars, blocks, and scripts that print without end."""

from __future__ import annotations

import json
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallguard.core.events import Matched
from stallguard.sensors import log_matcher
from stallguard.sensors.log_matcher import Matcher
from tests import examples

RECORDINGS = Path(__file__).parents[1] / "recordings"
LINES = {name: row["line"] for name, row in json.loads((RECORDINGS / "signatures.json").read_text()).items()}
BLOCKS = {"mps_cb_error", "mps_cb_incomplete"}  # what they mean is decided by the lines after them
TIMEOUT = LINES["iogpu_timeout"].encode()


def fed(*chunks: bytes) -> list[Matched]:
    matcher = Matcher()
    found = [event for chunk in chunks for event in matcher.feed(chunk, 1.0)]
    return found + matcher.finish(1.0)


def ids(events: list[Matched]) -> list[str]:
    return [event.signature for event in events]


def recording(name: str) -> bytes:
    return (RECORDINGS / "macos" / name).read_bytes()


@pytest.mark.parametrize("name", sorted(set(LINES) - BLOCKS))
def test_every_signature_is_found_in_a_stream(name: str) -> None:
    found = fed(b"Epoch 1/5\n" + LINES[name].encode() + b"\nEpoch 2/5\n")
    assert name in ids(found)
    assert all(event.at == 1.0 and event.family for event in found)


@given(st.sampled_from(sorted(set(LINES) - BLOCKS)), st.lists(st.integers(1, 90), min_size=1, max_size=8))
def test_wherever_the_stream_is_cut_the_same_is_found(name: str, cuts: list[int]) -> None:
    stream = b"12/80 loss: 0.5\r" * 3 + LINES[name].encode() + b"\r\n" + b"13/80 loss: 0.4\r" * 3
    chunks, position = [], 0
    for cut in cuts:
        chunks.append(stream[position : position + cut])
        position += cut
    assert ids(fed(*chunks, stream[position:])) == ids(fed(stream))


def test_a_line_that_ends_without_a_newline_is_seen_at_the_end() -> None:
    matcher = Matcher()
    assert matcher.feed(b"Killed: 9", 1.0) == []
    assert ids(matcher.finish(2.0)) == ["shell_killed"]
    assert matcher.finish(3.0) == []


def test_a_message_between_two_states_of_a_progress_bar_is_found() -> None:
    bar = b"\x1b[1m12/80\x1b[0m \x1b[32m\xe2\x94\x81\x1b[0m 0s 2ms/step - loss: 0.5\r"
    found = fed(bar * 50 + LINES["optimizer_slow"].encode() + b"\n" + bar * 50)
    assert ids(found) == ["optimizer_slow"]
    assert "\x1b" not in found[0].line


def test_the_start_of_tensorflow_metal_is_distinguished_from_its_errors() -> None:
    families = [event.family for event in fed(recording("stdout_tensorflow_metal_device_init_m1pro.txt"))]
    assert families == ["PHASE", "PHASE", "PHASE", "BENIGN", "PHASE", "BENIGN", "PHASE_TRACE"]


def test_a_metal_error_is_one_event_with_its_reason() -> None:
    found = fed(recording("stderr_tf_m1_command_buffer_error.txt"))
    assert [(event.signature, event.family) for event in found] == [("iogpu_ignored", "GPU_FAULT_STICKY")]
    assert found[0].line == "Ignored (for causing prior/excessive GPU errors) (IOAF code 4)"


@given(st.integers(1, 500))
def test_a_metal_error_is_one_event_wherever_it_is_cut(cut: int) -> None:
    stream = recording("stderr_tf_m1_command_buffer_error.txt") * 2
    found = fed(stream[:cut], stream[cut : cut + 7], stream[cut + 7 :])
    assert ids(found) == ["iogpu_ignored"] * 2


def test_a_reason_of_an_unknown_kind_is_reported_in_its_own_words() -> None:
    stream = recording("stderr_tf_m1_command_buffer_error.txt").replace(
        b"Ignored (for causing prior/excessive GPU errors) (IOAF code 4)", b"Some Novel Failure (00000011:kIONew)"
    )
    found = fed(stream)
    assert [(event.signature, event.family) for event in found] == [("mps_cb_error", "GPU_FAULT_HEADER")]
    assert "Some Novel Failure" in found[0].line


def test_what_follows_a_metal_error_is_looked_at_again() -> None:
    found = fed(recording("stderr_tf_m1_command_buffer_error.txt") + b"done\n" + TIMEOUT + b"\n")
    assert ids(found) == ["iogpu_ignored", "iogpu_timeout"]


def test_a_victims_last_words_show_the_reason_first() -> None:
    assert ids(fed(recording("stderr_mlx_innocent_victim.txt"))) == ["iogpu_victim", "mlx_cb_failed", "libcxxabi"]


TRACEBACK = b"""Traceback (most recent call last):
  File "/home/a/train.py", line 12, in <module>
    model.fit(data)
    ~~~~~~~~~^^^^^^
ValueError: Shapes (32, 10) and (32, 1) are incompatible
"""


def test_a_traceback_is_reported_by_its_last_line() -> None:
    found = fed(b"Epoch 1/5\n" + TRACEBACK + b"bye\n")
    assert [(event.family, event.line) for event in found] == [
        ("SCRIPT_ERROR", "ValueError: Shapes (32, 10) and (32, 1) are incompatible, at train.py:12")
    ]


@pytest.mark.parametrize("rank", [b"[rank0]: ", b"[default1]:[rank1]: "])
def test_a_traceback_of_a_rank_is_reported_by_its_last_line(rank: bytes) -> None:
    found = fed(b"Epoch 1/5\n" + b"".join(rank + line + b"\n" for line in TRACEBACK.splitlines()) + b"bye\n")
    assert [(event.family, event.line) for event in found] == [
        ("SCRIPT_ERROR", "ValueError: Shapes (32, 10) and (32, 1) are incompatible, at train.py:12")
    ]


@given(st.integers(1, 200), st.integers(1, 60))
def test_a_traceback_is_whole_wherever_it_is_cut(cut: int, more: int) -> None:
    stream = b"Epoch 1/5\n" + TRACEBACK + b"bye\n"
    found = fed(stream[:cut], stream[cut : cut + more], stream[cut + more :])
    assert [event.line for event in found] == [
        "ValueError: Shapes (32, 10) and (32, 1) are incompatible, at train.py:12"
    ]


def test_an_error_that_is_a_known_sign_is_both() -> None:
    stream = TRACEBACK.replace(b"ValueError: Shapes", b"ResourceExhaustedError: OOM when allocating tensor with shape")
    assert [event.family for event in fed(stream)] == ["SCRIPT_ERROR", "GPU_OOM"]


def test_both_errors_of_a_chain_are_reported() -> None:
    stream = (
        TRACEBACK
        + b"\nDuring handling of the above exception, another exception occurred:\n\n"
        + TRACEBACK.replace(b"ValueError", b"MemoryError")
    )
    assert [event.family for event in fed(stream)] == ["SCRIPT_ERROR", "SCRIPT_ERROR", "HOST_OOM"]


def test_what_is_said_again_and_again_is_reported_now_and_then() -> None:
    matcher = Matcher()
    reported = [len(matcher.feed(TIMEOUT + b"\n", second / 10)) for second in range(1000)]
    assert sum(reported[:100]) == log_matcher.OFTEN
    assert 12 <= sum(reported) <= 16  # once in ten seconds after that


def test_what_an_attempt_said_again_and_again_is_reported_of_the_next_one_too() -> None:
    matcher = Matcher()
    for attempt in range(10):  # all within the pause between two reports
        assert len(matcher.feed(TIMEOUT + b"\n", attempt / 10)) == 1, attempt
        matcher.finish(attempt / 10)


def test_a_sign_in_a_line_of_many_megabytes_is_found_once() -> None:
    line = b"x" * 3_000_000
    matcher = Matcher()
    stream = line + TIMEOUT + line + TIMEOUT + b"\n"
    found = [event for i in range(0, len(stream), 4096) for event in matcher.feed(stream[i : i + 4096], 1.0)]
    assert ids(found) == ["iogpu_timeout"] * 2
    assert all(len(event.line) <= log_matcher.LINE_MAX for event in found)


@settings(max_examples=examples.of(60, fast=10))
@given(st.integers(3000, 12000), st.integers(0, 2500), st.integers(40, 5000))
def test_signs_across_the_cuts_of_a_long_line_are_each_found_once(before: int, between: int, size: int) -> None:
    other = b"Very slow compile?"
    stream = b"x" * before + TIMEOUT + b"y" * between + other + b"x" * 9000 + b"\n"
    found = fed(*(stream[i : i + size] for i in range(0, len(stream), size)))
    assert ids(found) == ["iogpu_timeout", "xla_slow"]
    assert TIMEOUT.decode() in found[0].line
    assert other.decode() in found[1].line


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_any_bytes_are_survived(chunks: list[bytes]) -> None:
    fed(*chunks)


STREAMS = {
    "one line": b"x" * 2_000_000,
    "empty lines": b"\n" * 1_000_000,
    "signs in one line": TIMEOUT * 10_000,
    "signs": (TIMEOUT + b"\n") * 10_000,
    "tracebacks": TRACEBACK * 4_000,
}


def _feed_all(stream: bytes) -> int:
    matcher = Matcher()
    return sum(len(matcher.feed(stream[i : i + 65536], 1.0)) for i in range(0, len(stream), 65536))


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS.keys())
def test_cost_is_bounded_for_any_output(stream: bytes) -> None:
    begun = time.thread_time()
    assert _feed_all(stream) <= 3 * log_matcher.OFTEN
    assert (time.thread_time() - begun) / len(stream) < 0.3e-6  # 3 MB/s; 34 to 90 measured on a quiet core


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS.keys())
def test_memory_is_bounded_for_any_output(stream: bytes) -> None:
    tracemalloc.start()
    _feed_all(stream)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_giant_chunk_full_of_keys_is_not_collected() -> None:
    stream = b"GPU " * 500_000
    tracemalloc.start()
    Matcher().feed(stream, 1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * len(stream)
