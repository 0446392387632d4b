"""A fit on arrays gets fewer rows, and its rate is scaled where it is used, never in its variable."""

from __future__ import annotations

import types

import numpy as np
import pytest

from stallguard.probe.microbatch.fewer_rows import FewerRows
from stallguard.probe.settings import ProbeSettings

ARRAYS = np.zeros((64, 2))


class Model:
    """What Keras' `fit` shows of a model; it computes one update with the rate that it reads."""

    def __init__(self, fewer):
        self.fewer, self.optimizer, self.used = fewer, types.SimpleNamespace(rate=0.4), []

    def fit(self, x=None, y=None, batch_size=None, epochs=1, steps_per_epoch=None):
        read = self.fewer.rate.read(lambda optimizer: optimizer.rate)
        update = self.fewer.rate.updating(lambda: read(self.optimizer))
        self.used.append((batch_size, steps_per_epoch, update(), read(self.optimizer)))


@pytest.fixture
def context():
    notes = []
    return types.SimpleNamespace(
        settings=ProbeSettings(fewer_rows="linear"), slices=4, asked=4, notes=notes, set=lambda *_: None, smaller=False,
        flag=lambda *_: None, beyond=notes.append, note=lambda _kind, text: notes.append(text),
    )  # fmt: skip


def trained(context, reached=True, **arguments):
    fewer = FewerRows(context)
    fewer.rate.reached = reached
    model = Model(fewer)
    fewer.fit(Model.fit)(model, **arguments)
    return model.used


def test_a_quarter_of_the_rows_is_trained_four_times_as_often_at_a_quarter_of_the_rate(context):
    assert trained(context, x=ARRAYS, batch_size=32, steps_per_epoch=2) == [(8, 8, 0.1, 0.4)]
    (said,) = context.notes
    assert said.startswith("fit trains on batches of 8 rows instead of 32: 4 times as many updates an epoch")
    assert said.endswith("the learning rate divided by 4")
    assert not context.smaller  # the fit has ended


def test_an_optimizer_that_is_not_known_keeps_its_rate_and_that_is_said(context):
    assert trained(context, reached=False, x=ARRAYS, batch_size=32) == [(8, None, 0.4, 0.4)]
    assert "this optimizer is not known" in context.notes[0]


def test_what_makes_its_batches_itself_is_left_and_named(context):
    assert trained(context, x=iter([ARRAYS]))[0][:2] == (None, None)
    assert context.notes[0].startswith("fit takes no batch size for list_iterator")


def test_a_wrong_call_fails_as_without_the_wrapper(context):
    with pytest.raises(TypeError, match="unexpected keyword argument 'rows'") as caught:
        trained(context, x=ARRAYS, rows=3)
    assert caught.value.__context__ is None
