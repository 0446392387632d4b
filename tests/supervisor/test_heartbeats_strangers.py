"""What anyone of this user may write to the probe's socket costs nothing: no thread, no beat, no message."""

from __future__ import annotations

from stallguard.core.events import Heartbeat, ProbeNote
from tests.supervisor.listening import Ear

DEEP = "[" * 3900  # deeper than a decoder follows


def test_deeply_nested_text_without_the_token_is_counted_and_never_decoded(ear: Ear) -> None:
    probe = ear.probe()
    for text in ('{"x":' + DEEP, '{"token":78,"x":' + DEEP, '{"token": 77'):
        probe.socket.send(text.encode())
    probe.send(beats=2)
    heartbeat = ear.next()
    ear.beats.exited(0, None)

    notes = [event for event in ear.until_exit() if isinstance(event, ProbeNote)]

    assert isinstance(heartbeat, Heartbeat)
    assert (heartbeat.beats, heartbeat.aside) == (2, False)
    assert [note.text for note in notes] == [
        "messages on the probe's socket that were left out: 3 without this attempt's token"
    ]


def test_messages_of_the_probe_that_cannot_be_taken_end_nothing_and_are_reported_once(ear: Ear) -> None:
    probe = ear.probe()
    for text in ('{"token":77,"x":' + DEEP, '{"token":77,"pid":"x"}', '{"token":77,\udcff'):
        probe.socket.send(text.encode(errors="surrogateescape"))
    probe.send(beats=2)
    heartbeat = ear.next()
    ear.beats.exited(0, None)
    end = ear.until_exit()

    first = ear.announced[0]
    assert isinstance(heartbeat, Heartbeat)
    assert heartbeat.beats == 2
    # Python 3.13 nests deeper: then the text is read to its end, which is missing.
    (error,) = (name for name in ("RecursionError", "DecodeError") if name in first.text)
    assert error in first.facts["trace"]
    assert [event.text for event in end if isinstance(event, ProbeNote)] == [
        "messages on the probe's socket that were left out: 3 that cannot be read"
    ]
