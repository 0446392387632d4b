"""One batch is one beat, however many hooks see it; the rest of the record follows."""

from __future__ import annotations

import threading

import pytest

from stallguard.probe import beats as b
from stallguard.probe import outbox, wire

LIST = object()  # a list of callbacks


@pytest.fixture
def beats():
    return b.Beats(outbox.begin(outbox.private(), 1, 2, 3))


def field(beats, name):
    beats.publish()
    return beats.slots[wire.SLOT[name]]


def call(beats, source):
    beats.call_ends(beats.call_begins(), source)


def dispatch(beats, callback=lambda: None):
    """Return the end of a Keras batch as the hook makes it."""
    return beats.around_batch_end(lambda self, batch, logs: callback(), lambda callbacks, logs: None)


def fit(beats, ends, batches=-1, stride=1, epochs=1, before=0, early=False):
    """Run Keras' loop: `ends` are the indices that it shows at the end of each execution.

    `before`: batches of the first epoch that an earlier attempt trained; `early`: said before the epoch begins.
    """
    entered = beats.fit_begins()
    beats.fitting += 1
    beats.own = LIST
    beats.stride = stride
    end = dispatch(beats)
    for epoch in range(epochs):
        if before and early and not epoch:
            beats.epoch_goes_on(before)
        beats.epoch_begins(epoch, epochs, batches)
        beats.epoch_begun()
        if before and not early and not epoch:
            beats.epoch_goes_on(before)
        for index in ends if epoch else (index for index in ends if index >= before):
            end(LIST, index, None)
    beats.fitting -= 1
    beats.fit_ends()
    beats.leave(entered)


def test_each_batch_of_keras_is_a_beat(beats):
    fit(beats, range(5), batches=5, epochs=2)
    assert field(beats, "beats") == field(beats, "fit_beats") == 10
    assert (field(beats, "epoch"), field(beats, "batch"), field(beats, "fits")) == (1, 5, 1)
    assert wire.SOURCES[field(beats, "source")] == "callbacks"


@pytest.mark.parametrize(
    ("ends", "batches", "expected"),
    [
        ((3, 7, 9), 10, 10),  # Keras 2: the last batch of each execution, exactly
        ((3, 7, 11), 10, 10),  # Keras 3: the last execution says more than there is
        ((3, 7, 11), -1, 12),
        ((0, 4, 8), 10, 10),  # Keras 3.0 to 3.5: the first of each
        ((0, 4, 8), -1, 12),
    ],
)
def test_an_execution_of_several_batches_counts_each(beats, ends, batches, expected):
    fit(beats, ends, batches, stride=4)
    assert field(beats, "beats") == expected


@pytest.mark.parametrize("early", [False, True])  # Keras 3; Keras 2
@pytest.mark.parametrize(
    ("ends", "stride", "before", "trained"),
    [(range(10), 1, 4, 6), (range(10), 1, 10, 0), ((3, 7, 9), 4, 4, 6), ((3, 7, 11), 4, 4, 6), ((0, 4, 8), 4, 4, 6)],
)
def test_a_resumed_epoch_counts_on_and_only_what_is_trained_is_a_beat(beats, ends, stride, before, trained, early):
    fit(beats, ends, 10, stride, before=before, early=early)
    assert (field(beats, "beats"), field(beats, "batch")) == (trained, 10)
    fit(beats, ends, 10, stride, epochs=2, before=before, early=early)
    assert (field(beats, "beats"), field(beats, "batch")) == (2 * trained + 10, 10), "the next epoch begins at 0"


def test_calls_inside_keras_loop_do_not_count(beats):
    before = beats.fit_begins()
    beats.fitting += 1
    assert not beats.may_open()
    beats.beat(b.TORCH)
    beats.fitting -= 1
    beats.fit_ends()
    beats.leave(before)
    assert field(beats, "beats") == 0


@pytest.mark.parametrize(
    "batch",
    [
        (b.FUNCTION,),
        (b.TAPE, b.OPTIMIZER),
        (b.FUNCTION, b.OPTIMIZER),
        (b.FUNCTION, b.FUNCTION, b.TAPE, b.OPTIMIZER),
        (b.FUNCTION, b.ON_BATCH),
        (b.SESSION,),
    ],
)
def test_however_many_hooks_see_a_batch_it_is_one_beat(beats, batch):
    for _ in range(50):
        for source in batch:
            call(beats, source)
    assert 50 <= field(beats, "beats") <= 51  # before the best hook was seen, one may have counted twice


def test_when_the_loop_changes_its_hook_takes_over_and_nothing_is_lost(beats):
    for _ in range(10):
        call(beats, b.TAPE)
    for _ in range(10):
        call(beats, b.FUNCTION)
    assert field(beats, "beats") == 20
    assert wire.SOURCES[field(beats, "source")] == "function"


def test_the_scripts_own_beats_silence_the_hooks(beats):
    for _ in range(20):
        call(beats, b.FUNCTION)
        call(beats, b.FUNCTION)
        beats.beat(b.HAND)
    assert field(beats, "beats") == 21


def test_a_call_that_raised_is_no_batch(beats):
    beats.call_failed(beats.call_begins())
    assert (field(beats, "beats"), field(beats, "phase")) == (0, b.IDLE)


def test_a_helper_thread_inside_a_call_does_not_hide_the_main_thread(beats):
    helper = threading.Thread(target=beats.call_begins)  # never comes back
    helper.start()
    helper.join()
    assert beats.may_open()
    call(beats, b.FUNCTION)
    assert field(beats, "beats") == 1


def test_a_helper_threads_calls_inside_the_main_threads_are_no_batches(beats):
    before = beats.call_begins()
    seen = []
    helper = threading.Thread(target=lambda: seen.append(beats.may_open()))
    helper.start()
    helper.join()
    beats.call_ends(before, b.FUNCTION)
    assert seen == [False]


def test_the_first_run_follows_the_tracing_of_a_step(beats):
    before = beats.call_begins()
    inner = beats.enter(b.TRACING)
    beats.trace_ends(inner)
    assert field(beats, "phase") == b.FIRST_RUN
    beats.call_ends(before, b.FUNCTION)
    assert (field(beats, "phase"), field(beats, "traces")) == (b.BETWEEN, 1)


def test_tracing_outside_of_a_step_promises_no_run(beats):
    beats.trace_ends(beats.enter(b.TRACING))
    assert field(beats, "phase") == b.IDLE


def test_the_callbacks_of_a_batch_run_between_two_steps(beats):
    seen = []
    beats.fit_begins()
    beats.fitting += 1
    beats.epoch_begins(0, 1, 10)
    beats.epoch_begun()
    end = dispatch(beats, lambda: seen.append(field(beats, "phase")))
    end(LIST, 0, None)
    assert seen == [b.BETWEEN]
    assert field(beats, "phase") == b.STEP


def running(beats, callback=lambda: None, batches=100):
    """Return the end of a batch in a fit that has come past its first batches."""
    beats.fit_begins()
    beats.fitting += 1
    beats.own = LIST
    beats.epoch_begins(0, 1, batches)
    beats.epoch_begun()
    end = dispatch(beats, callback)
    for index in range(3):
        end(LIST, index, None)
    return end


def test_what_callbacks_do_meanwhile_is_shown_and_then_the_next_step_begins(beats):
    seen = []

    def save():
        seen.append(field(beats, "phase"))
        before = beats.enter(b.CHECKPOINT)
        seen.append(field(beats, "phase"))
        beats.leave(before)
        seen.extend([field(beats, "phase"), field(beats, "beats")])

    end = running(beats)
    end = dispatch(beats, save)
    end(LIST, 3, None)
    assert seen == [b.BETWEEN, b.CHECKPOINT, b.BETWEEN, 4]
    assert (field(beats, "phase"), field(beats, "beats"), beats.index) == (b.STEP, 4, 3)
    end(LIST, 4, None)
    assert field(beats, "batch") == 5


def test_a_list_inside_a_callback_does_not_take_the_place_of_the_fits_own(beats):
    inner = dispatch(beats)
    end = running(beats, lambda: inner("another list", 700, None))
    for index in range(3, 6):
        end(LIST, index, None)
        assert beats.index == index
        assert field(beats, "beats") == 2 * (index + 1)  # its batches are batches too


def test_a_callback_that_raises_has_seen_a_batch(beats):
    def fail():
        raise KeyError

    running(beats)
    with pytest.raises(KeyError):
        dispatch(beats, fail)(LIST, 3, None)
    beats.leave(b.IDLE)
    assert field(beats, "beats") == 4


def test_time_in_steps_and_the_longest_of_them_are_exact(beats, monkeypatch):
    now = [beats._last]
    monkeypatch.setattr(b, "monotonic_ns", lambda: now[0])

    def callbacks():
        now[0] += 5_000

    end = running(beats, callbacks)
    beats.reported(field(beats, "longest_ns"))
    before = field(beats, "step_ns")
    for index, step in enumerate((7_000, 9_000, 8_000), start=3):
        now[0] += step
        end(LIST, index, None)
    assert field(beats, "step_ns") - before == 24_000
    assert (field(beats, "longest_ns"), field(beats, "longest_phase")) == (9_000, b.STEP)
    assert field(beats, "beat_ns") == now[0] - 5_000


def test_if_keras_fetches_in_python_the_wait_for_a_batch_is_input_and_no_part_of_its_step(beats, monkeypatch):
    now, phases = [beats._last], []
    monkeypatch.setattr(b, "monotonic_ns", lambda: now[0])
    beats.ahead = b.INPUT
    end = running(beats)
    begin = beats.around_batch_begin(lambda self, batch, logs: None)
    beats.reported(field(beats, "longest_ns"))
    before = field(beats, "step_ns"), field(beats, "input_ns")
    for index in (3, 4):
        for passes, event in ((9_000, begin), (5_000, end)):
            beats.publish()
            phases.append((field(beats, "phase"), beats.is_fetching()))
            now[0] += passes
            event(LIST, index, None)
    assert (field(beats, "step_ns") - before[0], field(beats, "input_ns") - before[1]) == (10_000, 18_000)
    assert phases == [(b.INPUT, True), (b.STEP, False)] * 2
    assert (field(beats, "longest_ns"), field(beats, "longest_phase")) == (9_000, b.INPUT)
    begin(LIST, 5, None)
    assert beats.enter(b.CHECKPOINT) == b.STEP


def test_in_the_loop_of_a_library_the_step_begins_with_its_batch(beats, monkeypatch):
    now = [1000]
    monkeypatch.setattr(b, "monotonic_ns", lambda: now[0])
    beats.fit_begins()
    beats.fitting = 1

    def fetched(_):
        now[0] += 7_000
        return 1

    following = beats.around_next(fetched, lambda: None)
    beats.step_ends(b.TORCH)
    before = field(beats, "step_ns"), field(beats, "input_ns"), field(beats, "changes")
    following(None)
    assert wire.PHASES[field(beats, "phase")] == "step"
    beats.step_begins()
    now[0] += 10_000
    beats.step_ends(b.TORCH)
    added = [field(beats, name) - one for name, one in zip(("step_ns", "input_ns", "changes"), before, strict=True)]
    assert added == [10_000, 7_000, 4], "a beat, and three phases: each costs a look at the clock"


def test_a_page_that_is_fresh_has_the_events_of_steps_when_it_is_published(beats, monkeypatch):
    now = [beats._last]
    monkeypatch.setattr(b, "monotonic_ns", lambda: now[0])
    names = ("phase", "phase_ns", "progress_ns", "changes", "beat_ns", "input_ns", "step_ns")

    def page():
        return [beats.slots[wire.SLOT[name]] for name in names]

    beats.fit_begins()
    beats.fitting = 1
    beats.enter(b.STEP)
    beats.publish()
    beats.published()
    before = page()
    now[0] += 10_000
    beats.step_ends(b.TORCH)
    assert beats.slots[wire.SLOT["beats"]] == 1, "a process that crashes has counted its batches"
    now[0] += 1_000
    beats.enter(b.INPUT)
    now[0] += 7_000
    beats.input_ends(b.STEP)
    beats.step_ends(b.TORCH, b.BETWEEN)  # it runs in the loop of a library: progress alone
    assert page() == before
    now[0] += 2_000
    beats.publish()
    after = dict(zip(names, page(), strict=True))
    assert after == {
        "phase": b.STEP, "phase_ns": now[0] - 2_000, "progress_ns": now[0], "changes": before[3] + 5,
        "beat_ns": now[0] - 10_000, "input_ns": 7_000, "step_ns": 10_000,
    }  # fmt: skip


@pytest.mark.parametrize("phase", [b.CHECKPOINT, b.VALIDATION, b.EPOCH_END, b.NAMED, b.FIRST_RUN])
def test_a_phase_in_which_no_sender_can_run_is_in_the_page_at_once(beats, phase):
    beats.enter(b.STEP)
    beats.published()
    before = beats.enter(phase)
    assert beats.slots[wire.SLOT["phase"]] == phase
    beats.leave(before)
    assert beats.slots[wire.SLOT["phase"]] == b.STEP


def test_where_no_sender_comes_events_of_steps_are_in_the_page_again(beats, monkeypatch):
    now = [beats._last]
    monkeypatch.setattr(b, "monotonic_ns", lambda: now[0])
    beats.enter(b.STEP)
    beats.published()
    now[0] += b.STALE + 1
    beats.enter(b.INPUT)
    assert [beats.slots[wire.SLOT[name]] for name in ("phase", "phase_ns")] == [b.INPUT, now[0]]
    beats.step_ends(b.TORCH)
    assert [beats.slots[wire.SLOT[name]] for name in ("phase", "beat_ns", "source")] == [b.BETWEEN, now[0], b.TORCH]


def test_an_update_that_another_hook_counts_too_is_one_batch(beats):
    beats.mark_training()
    for _ in range(3):
        beats.step_ends(b.TORCH, b.INPUT)
    assert (field(beats, "beats"), wire.PHASES[field(beats, "phase")]) == (3, "input")
    beats.beat(b.HAND)  # the script counts itself from here on
    for _ in range(3):
        beats.step_ends(b.TORCH, b.INPUT)
        beats.beat(b.HAND)
    assert field(beats, "beats") == 6


def test_a_batch_of_a_validation_is_no_step(beats):
    beats.fit_begins()
    beats.fitting = 1
    beats.enter(b.VALIDATION)
    beats.around_next(lambda _: 1, lambda: None)(None)
    assert wire.PHASES[field(beats, "phase")] == "validation"


def test_where_no_sender_comes_the_hook_itself_keeps_the_page_fresh(beats, monkeypatch):
    now = [beats._last]
    monkeypatch.setattr(b, "monotonic_ns", lambda: now[0])
    end = running(beats)
    beats.publish()
    now[0] += b.STALE // 2
    end(LIST, 3, None)
    assert beats.slots[wire.SLOT["beat_ns"]] < now[0]
    now[0] += b.STALE
    end(LIST, 4, None)
    assert beats.slots[wire.SLOT["beat_ns"]] == now[0]


def test_a_batch_whose_callbacks_end_the_process_is_in_the_page(beats):
    seen = []
    end = running(beats, lambda: seen.append(beats.slots[wire.SLOT["beats"]]))
    seen.clear()
    for index in (3, 4, 5):
        end(LIST, index, None)

    assert seen == [4, 5, 6]


def test_who_asks_for_attention_gets_it_at_the_next_batch(beats):
    asked = []
    end = beats.around_batch_end(lambda self, batch, logs: None, lambda callbacks, logs: asked.append(logs))
    running(beats)
    end(LIST, 3, "three")
    assert not asked
    beats.request_attention()
    beats.publish()  # the sender's, meanwhile
    end(LIST, 4, "four")
    assert asked == ["four"]


def test_after_the_last_batch_no_step_is_awaited(beats):
    beats.fit_begins()
    beats.fitting += 1
    beats.epoch_begins(0, 1, 2)
    beats.epoch_begun()
    end = dispatch(beats)
    end(LIST, 0, None)
    end(LIST, 1, None)
    assert field(beats, "phase") == b.BETWEEN


def test_the_longest_pause_waits_until_it_was_reported(beats, monkeypatch):
    now = [beats._last]
    monkeypatch.setattr(b, "monotonic_ns", lambda: now[0])
    beats.enter(b.STEP)
    now[0] += 7_000
    beats.enter(b.BETWEEN)
    now[0] += 1_000
    beats.enter(b.STEP)
    assert (field(beats, "longest_ns"), field(beats, "longest_phase")) == (7_000, b.STEP)
    beats.reported(7_000)
    assert field(beats, "longest_ns") == 0
    now[0] += 9_000
    beats.enter(b.STEP)
    beats.reported(7_000)  # a longer one came while the record was on its way
    assert field(beats, "longest_ns") == 9_000


def test_a_page_that_cannot_be_had_is_private_memory(tmp_path):
    slots = outbox.begin(outbox.shared(str(tmp_path / "no" / "such" / "place")), 1, 2, 3)
    assert wire.unpack(bytes(slots))["token"] == 1


def test_the_page_is_what_another_process_reads(tmp_path):
    beats = b.Beats(outbox.begin(outbox.shared(str(tmp_path / "1.page")), 11, 22, 33))
    beats.add(b.HAND, 4)
    record = wire.unpack((tmp_path / "1.page").read_bytes())
    assert (record["token"], record["pid"], record["beats"], record["epoch"]) == (11, 22, 4, -1)


def test_a_page_that_cannot_be_made_leaves_no_draft(tmp_path):
    path = tmp_path / "7.page"
    path.mkdir()  # no file can take its place

    slots = outbox.shared(str(path))

    assert slots.nbytes == wire.SIZE
    assert list(tmp_path.iterdir()) == [path]
