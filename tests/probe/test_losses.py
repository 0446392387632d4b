"""What the probe knows of a loss, and when it says that one is not finite."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from stallguard.probe import losses as module
from stallguard.probe import outbox, wire
from stallguard.probe.beats import Beats
from stallguard.probe.frameworks import keras
from stallguard.probe.losses import Losses
from stallguard.supervisor.heartbeats import heartbeat

NAN, INF = math.nan, math.inf


class Told:
    """Losses over a page in memory; `notes` is what they report."""

    def __init__(self) -> None:
        self.beats = Beats(outbox.begin(outbox.private(), 1, 2, 3))
        self.notes: list[tuple[str, str, dict[str, str]]] = []
        self.losses = Losses(self.beats, lambda kind, text, **facts: self.notes.append((kind, text, facts)))

    @property
    def kinds(self):
        return [kind for kind, _, _ in self.notes]

    def record(self):
        """Return the record as the supervisor sees it."""
        return heartbeat(wire.unpack(bytes(self.beats.slots)), 1, 0.0, 0)


@pytest.fixture
def told():
    return Told()


def test_the_mean_of_an_epoch_is_reported_once_with_its_place_and_the_last_finite_one(told):
    told.losses.checkpoint = lambda: "epoch 1, batch 5, made at 09:00"
    told.beats.slots[wire.SLOT["epoch"]] = 1
    for batch, loss in enumerate((0.5, NAN, NAN, INF)):
        told.losses.of_epoch_so_far(loss, batch)
    told.losses.of_epoch({"loss": NAN}, 1)

    [(kind, text, facts)] = told.notes
    assert (kind, text) == (module.BROKEN, "the loss is nan from epoch 2, batch 2 on")
    assert facts["last"] == "0.5000 in epoch 2, batch 1"
    assert facts["checkpoint"] == "epoch 1, batch 5, made at 09:00"


def test_the_record_never_has_an_old_finite_loss_for_one_that_is_not_finite(told):
    assert (told.record().loss, told.record().loss_not_finite) == (None, "")
    told.losses.of_epoch({"loss": 0.25}, 0)
    assert (told.record().loss, told.record().loss_of_epoch, told.record().loss_not_finite) == (0.25, True, "")
    for loss, word in ((NAN, "nan"), (INF, "inf"), (-INF, "-inf")):
        told.losses.of_epoch_so_far(loss, 0)
        assert (told.record().loss, told.record().loss_of_epoch) == (None, False)
        assert told.record().loss_not_finite == word
    told.losses.fit_begins()
    assert (told.record().loss, told.record().loss_not_finite) == (None, "")


def test_a_loss_of_zero_is_known(told):
    told.losses.of_batch(0.0)
    assert told.record().loss == 0.0
    assert math.copysign(1.0, told.record().loss) == 1.0


def test_a_single_batch_without_a_finite_loss_is_no_divergence_and_two_in_a_row_are(told):
    for loss in (1.0, NAN, 1.0, INF, 2.0):
        told.losses.of_batch(loss)
    assert told.notes == []

    told.losses.of_batch(NAN)
    told.beats.slots[wire.SLOT["beats"]] = 9
    told.losses.of_batch(NAN)
    told.losses.of_batch(NAN)
    assert [(kind, facts["where"]) for kind, _, facts in told.notes] == [(module.BROKEN, "batch 0")]


def test_only_a_loss_that_is_a_number_already_is_taken(told):
    told.losses.of_batch(0.25)
    for other in (object(), None, 1, "nan"):
        told.losses.of_batch(other)
    assert told.record().loss == 0.25


def test_what_gradients_are_computed_of_shows_whether_it_is_finite_and_no_number(told):
    told.losses.of_gradient(64.0)
    assert (told.record().loss, told.record().loss_not_finite) == (None, "")
    told.losses.of_gradient(NAN)
    told.losses.of_gradient(NAN)
    assert told.record().loss_not_finite == "nan"
    assert [facts["last"] for _, _, facts in told.notes] == ["batch 1"]
    told.losses.of_gradient(64.0)
    assert (told.record().loss, told.record().loss_not_finite) == (None, "")
    assert told.kinds == [module.BROKEN, module.FINITE]


def test_a_metric_alone_is_reported_as_that_metric_once(told):
    for epoch in range(3):
        told.losses.of_epoch({"loss": 0.5, "val_loss": NAN, "masked": INF}, epoch)

    assert [(kind, text) for kind, text, _ in told.notes] == [
        (module.METRIC, "val_loss is nan at the end of epoch 1; the loss is finite"),
        (module.METRIC, "masked is inf at the end of epoch 1; the loss is finite"),
    ]
    assert not told.losses.broken


def test_metrics_beside_a_broken_loss_add_nothing(told):
    told.losses.of_epoch({"mae": NAN, "loss": NAN, "val_loss": NAN}, 0, ends="TerminateOnNaN")
    assert told.kinds == [module.BROKEN]
    assert told.notes[0][2]["ends"] == "TerminateOnNaN"


def test_a_loss_that_recovers_is_said_once_and_another_fit_is_reported_anew(told):
    for loss in (0.5, NAN, 0.5, NAN, 0.5):
        told.losses.of_epoch_so_far(loss, 0)
    assert told.kinds == [module.BROKEN, module.FINITE]
    assert not told.losses.broken

    told.losses.fit_begins()
    told.losses.of_epoch({"loss": NAN}, 0)
    assert told.kinds == [module.BROKEN, module.FINITE, module.BROKEN]
    assert told.notes[-1][2]["last"] == ""  # of another fit


class Lists:
    """Keras' list of callbacks, as far as a loss is read from it."""

    def __init__(self) -> None:
        self.converted: list[object] = []

    def _on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self.converted.append(logs)


class Failed:
    """A result of a step that failed: JAX raises the step's error where the result is read."""

    def __float__(self) -> float:
        raise RuntimeError("INTERNAL: CpuCallback error")


@pytest.fixture
def hooks(told):
    surprises: list[str] = []
    context = SimpleNamespace(
        beats=told.beats, losses=told.losses, surprise=lambda where, error: surprises.append(where)
    )
    made, lists = keras.CallbackHooks(context), Lists()
    told.beats.own = lists
    return made, lists, surprises


def test_the_loss_of_the_next_batch_is_read_once_and_leaves_nothing_behind(told, hooks):
    made, lists, _ = hooks
    made.read_next_loss(lists)
    made.read_next_loss(lists)
    for batch, loss in enumerate((0.5, 0.25)):
        lists._on_train_batch_end(batch, {"loss": loss})

    assert told.record().loss == 0.5
    assert lists.converted == [{"loss": 0.5}, {"loss": 0.25}]
    assert "_on_train_batch_end" not in vars(lists)


def test_the_loss_of_a_step_that_failed_is_not_known_and_no_error_of_the_probe(told, hooks):
    made, lists, surprises = hooks
    made.read_next_loss(lists)
    lists._on_train_batch_end(0, {"loss": Failed()})

    assert (told.record().loss, surprises) == (None, [])
