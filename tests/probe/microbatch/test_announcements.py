"""Notes on slices: each is sent once for each model, and again if it changes."""

from __future__ import annotations

from stallguard.probe.microbatch import announcements
from stallguard.probe.microbatch.announcements import Announcer
from stallguard.probe.settings import ProbeSettings


class Model:
    pass


class Context:
    """What an announcer uses of the probe's context."""

    def __init__(self, **settings):
        self.settings, self.announced, self.slices = ProbeSettings(**settings), False, 4
        self.notes, self.limits, self.record = [], [], {}

    def set(self, name, value):
        self.record[name] = value

    def flag(self, _flag, is_set=True):
        self.record["smaller"] = is_set

    def note(self, kind, text, **facts):
        self.notes.append((kind, text, facts))

    def beyond(self, text):
        self.limits.append(text)


def test_a_reason_is_said_once_and_the_record_has_whole_batches_again():
    context, model = Context(), Model()
    announcer = Announcer(context)
    announcer.cut()
    for _ in range(2):
        announcer.whole(model, announcements.REPLICAS)
    announcer.whole(model, announcements.TOO_EARLY)  # a step that is traced again later
    ((kind, text, facts),) = context.notes
    assert (kind, facts) == ("whole", {"factor": 1, "model": "Model"})
    assert text.startswith("Model: batches stay whole, because a distribution strategy distributes them")
    assert context.record == {"slices": 1, "smaller": False}


def test_whole_batches_are_no_fact_while_other_fits_can_get_fewer_rows():
    context = Context(fewer_rows="linear")
    Announcer(context).whole(Model(), announcements.REPLICAS)
    assert "factor" not in context.notes[0][2]


def test_a_step_that_cannot_be_reached_is_said_for_its_class_alone():
    context = Context()
    announcer = Announcer(context)
    announcer.unreached(Model())
    announcer.unreached(Model())
    assert [text.split()[0] for text in context.limits] == ["Model"]
