"""What a pipeline writes to a file is there once, although a resume draws its batches again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from stallguard.probe.checkpoint import file_events
from stallguard.probe.checkpoint.generations import CheckpointStore
from stallguard.probe.checkpoint.object_walk import Walk
from stallguard.probe.checkpoint.written_files import WrittenFiles
from tests.probe.checkpoint.restarts import Restarts


def test_a_line_that_a_thread_writes_while_its_file_is_shortened_leaves_no_null_bytes(tmp_path, monkeypatch):
    path = str(tmp_path / "log.txt")
    number = os.open(path, os.O_WRONLY | os.O_CREAT)
    truncate = os.truncate

    def and_a_line(path, size):
        truncate(path, size)
        os.write(number, b"6\n")  # of the input pipeline's thread

    monkeypatch.setattr(os, "truncate", and_a_line)
    try:
        os.write(number, b"0\n1\n2\n3\n4\n5\n")
        WrittenFiles(str(tmp_path / "copies"))._shorten(path, 4, number, [])
        os.write(number, b"7\n")
        os.lseek(number, 0, os.SEEK_SET)
        os.write(number, b"8")  # it does not append for ever
    finally:
        os.close(number)
    assert Path(path).read_bytes() == b"8\n1\n6\n7\n"


OPENED = {"appending": "a", "anew": "w"}


def attempt(folder):
    """Return what another attempt has of a fit's files, after the call of `fit` has cut them."""
    files = WrittenFiles(str(folder / "copies"))
    files.begin()
    files.cut_to_beginning()
    return files


def drawn(handle, *lines):
    """Write lines as the function of a pipeline does."""
    for line in lines:
        handle.write(f"{line}\n")
    handle.flush()


@pytest.mark.parametrize("mode", OPENED.values(), ids=OPENED)
def test_batches_that_are_drawn_again_find_the_file_as_they_found_it_first(tmp_path, mode):
    log, found = tmp_path / "log.txt", []
    with log.open(mode) as handle:
        first = attempt(tmp_path)
        drawn(handle, "built")  # Keras draws a batch to build the model
        first.loop_begins()
        first.data_open(again=False)
        drawn(handle, 0, 1)
        first.data_open(again=False)
        drawn(handle, 2)
        kept = first.keep(Walk(), [])
        drawn(handle, 3)
        first.end()
    with log.open(mode) as handle:
        second = attempt(tmp_path)
        drawn(handle, "built")
        second.loop_begins()
        second.restore(kept, Walk(), [])
        second.draw_again()
        found.append(log.read_text().split())
        second.data_open(again=True)  # an epoch that needs no drawing was passed over
        found.append(log.read_text().split())
        drawn(handle, 2, 3)  # one more than was drawn by then
        assert second.drawn_again() == ["log.txt"]
        found.append(log.read_text().split())
        drawn(handle, 3)
        second.end()
    assert found == [["built"], ["built", "0", "1"], ["built", "0", "1", "2"]]
    assert log.read_text().split() == ["built", "0", "1", "2", "3"]


def test_a_file_that_is_opened_for_each_line_is_as_it_was_when_the_pipeline_opens_it(tmp_path):
    log, found = tmp_path / "log.txt", []

    def append(*lines):
        with log.open("a") as handle:
            drawn(handle, *lines)
        found.append(log.read_text().split())

    first = attempt(tmp_path)
    first.loop_begins()
    first.data_open(again=False)
    append(0, 1)
    first.data_open(again=False)
    append(2)
    kept = first.keep(Walk(), [])
    append(3)
    first.end()
    found.clear()
    second = attempt(tmp_path)
    second.loop_begins()
    second.restore(kept, Walk(), [])
    second.draw_again()
    append(0)
    second.data_open(again=True)
    append(2)
    second.drawn_again()
    append(3)
    second.end()
    assert found == [["0"], ["0", "1", "2"], ["0", "1", "2", "3"]]


@pytest.mark.parametrize("mode", OPENED.values(), ids=OPENED)
@pytest.mark.parametrize("again", [True, False], ids=["drawn again", "not drawn again"])
def test_a_fit_that_starts_over_finds_the_file_with_the_batch_that_built_the_model(tmp_path, mode, again):
    """Keras on torch and JAX does not build a model again; the first batch of a generator is drawn in each fit."""
    log = tmp_path / "log.txt"
    with log.open(mode) as handle:
        files = attempt(tmp_path)
        drawn(handle, "built")
        files.loop_begins()
        drawn(handle, 0, 1)
        kept = files.keep(Walk(), [])
        files.end()
    with log.open(mode) as handle:
        files = attempt(tmp_path)
        drawn(handle, "built")
        files.loop_begins()
        files.restore(kept, Walk(), [])
        drawn(handle, 2)
        files.rewind()
        if again:
            drawn(handle, "built")
        files.loop_begins()
        drawn(handle, 0)
        files.end()
    assert log.read_text().split() == ["built", "0"]


@pytest.mark.parametrize("others", ["", "of another program\n"])
def test_what_a_script_appends_before_its_fit_is_there_once_if_the_fit_appends_too_and_no_other_program(
    tmp_path, others, monkeypatch
):
    log, starts = tmp_path / "log.txt", tmp_path / "starts.txt"
    for is_last in (False, True):
        monkeypatch.setattr(file_events.events, "appended", {})  # as in a new process
        for file in (log, starts):
            with file.open("a") as handle:
                drawn(handle, "a start")
        files = attempt(tmp_path)
        if is_last:  # the other is killed before it opens the file
            with log.open("a") as handle:
                drawn(handle, 1)
        files.end()
        with os.fdopen(os.open(log, os.O_WRONLY), "w") as handle:
            handle.seek(0, os.SEEK_END)
            handle.write(others)
    assert log.read_text() == (f"a start\n{others}a start\n1\n{others}" if others else "a start\n1\n")
    assert starts.read_text() == "a start\n" * 2


def test_the_beginning_of_the_files_and_what_was_cut_off_outlive_a_start_over(tmp_path):
    store = CheckpointStore(str(tmp_path / "fit-0001"))
    store.write({"format": 2}, [b"tensors"])
    for name in ("base", "cut-off", "1"):
        (tmp_path / "fit-0001" / "files").mkdir(exist_ok=True)
        (tmp_path / "fit-0001" / "files" / name).write_text("7 log.txt\n")
    store.start_over()
    assert not store.names()
    left = sorted(path.name for path in (tmp_path / "fit-0001").rglob("*") if path.is_file())
    assert left == ["base", "cut-off"]


PIPELINE = """
import os, signal, sys
import keras, numpy as np
log = open("log.txt", "w", buffering=1)
descriptor = os.open("descriptor.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
def row(n):
    log.write("%d\\n" % n)
    os.write(descriptor, b"%d\\n" % n)
    with open("each_time.txt", "a") as file:
        file.write("%d\\n" % n)
    return np.full(4, n, "float32"), np.ones(1, "float32")
def batches():
    while True:
        for n in range(0, 8, 2):
            yield tuple(map(np.stack, zip(row(n), row(n + 1))))
class Killed(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        log.write("epoch %d\\n" % epoch)
    def on_train_batch_end(self, batch, logs=None):
        if os.environ["KILL"] == "%d,%d" % (self.epoch, batch):
            os.kill(os.getpid(), signal.SIGKILL)
if os.environ["KERAS_BACKEND"] == "tensorflow":
    import tensorflow as tf
    specs = tf.TensorSpec((4,)), tf.TensorSpec((1,))
    data = tf.data.Dataset.from_generator(lambda: map(row, range(8)), output_signature=specs).batch(2).prefetch(1)
    steps = None
else:
    data, steps = batches(), 4
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(data, epochs=3, steps_per_epoch=steps, verbose=0, callbacks=[Killed()])
"""


@pytest.mark.tf
@pytest.mark.parametrize(
    ("backend", "kills"), [("torch", ["0,2"]), ("torch", ["1,1"]), ("torch", ["2,0", "2,2"]), ("tensorflow", ["1,2"])]
)
def test_lines_that_the_pipeline_writes_are_there_once_although_its_batches_are_drawn_again(
    receiver, tmp_path, other_python, backend, kills
):
    found = []
    for name in ("plain", "killed"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "train.py").write_text(PIPELINE)
        interpreter = sys.executable if backend == "tensorflow" else other_python(backend)
        script = Restarts(receiver, folder, folder / "train.py", interpreter, KERAS_BACKEND=backend)
        for number, kill in enumerate([*kills, ""] if name == "killed" else [""]):
            last = script.attempt(kill=kill, resume=number > 0, guarded=name == "killed")
        found.append({path.name: path.read_text() for path in folder.glob("*.txt")})
    assert len(found[0]) == 3
    assert not any("not restored" in text for text in last.notes())
    if backend == "tensorflow":  # how far it is ahead depends on time
        (sentence,) = last.notes("inexact")
        assert sentence.endswith("to descriptor.txt, each_time.txt, log.txt can come twice or be missing")
        assert {path: set(text.split()) for path, text in found[1].items()} == {
            path: set(text.split()) for path, text in found[0].items()
        }
    else:
        assert last.notes("inexact") == []
        assert found[1] == found[0]
