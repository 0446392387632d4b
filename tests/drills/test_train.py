"""The training of a drill blocks at its batch, and in each way that `stallguard drill` offers."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from types import SimpleNamespace

import pytest

from stallguard.cli.rehearsal import KINDS, TRAIN


@pytest.fixture
def train(monkeypatch):
    """The names of the script, which imports a TensorFlow that has nothing but two classes to inherit from."""
    keras = SimpleNamespace(
        layers=SimpleNamespace(Layer=object), callbacks=SimpleNamespace(Callback=object), __name__="keras"
    )
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(keras=keras))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    return runpy.run_path(str(TRAIN))


def test_each_kind_that_can_be_chosen_is_there(train):
    assert {"op", *train["PYTHON_BLOCKS"]} == set(KINDS)


def test_the_step_is_armed_at_its_batch_and_not_before(train):
    armed = []
    trap = SimpleNamespace(armed=SimpleNamespace(assign=armed.append))
    arm = train["Arm"](trap, 3)

    for batch in range(2):
        arm.on_train_batch_begin(batch)
    assert armed == []
    arm.on_train_batch_begin(2)

    assert armed == [True]


def test_a_stopped_training_has_sent_the_signal_to_itself(train, monkeypatch):
    sent = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))

    train["PYTHON_BLOCKS"]["stopped"]()

    assert sent == [(os.getpid(), signal.SIGSTOP)]
