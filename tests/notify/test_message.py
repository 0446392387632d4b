"""How often a notification is sent, and for which events."""

from __future__ import annotations

from stallguard import notify
from stallguard.notify import message
from stallguard.notify.channels import Channel


def note(kind: str = "run.finished", text: str = "x", title: str = "t") -> notify.Notification:
    return notify.notification(kind, title, text, "20261120-230001-train")


def allowed(*steps: tuple[str, float]) -> list[bool]:
    sent, answers = (), []
    for kind, now in steps:
        answer, sent = message.allow(sent, kind, now)
        answers.append(answer)
    return answers


def test_the_same_message_is_sent_once_a_minute() -> None:
    stalls = [("training.stalled", at) for at in (0.0, 30.0, 61.0)]

    assert allowed(stalls[0], stalls[1], ("attempt.restarting", 30), stalls[2]) == [True, False, True, True]


def test_at_most_a_dozen_an_hour_but_the_last_word_always() -> None:
    steps = [("training.stalled", 100.0 * n) for n in range(13)]

    assert allowed(*steps, ("run.gave_up", 1300.0)) == [True] * 12 + [False, True]


def sent_of(announced: list[str], on: tuple[str, ...]) -> list[str]:
    got: list[str] = []
    sending = notify.Notifier([Channel("x", lambda one: got.append(one.message))], print, notify.kinds(on))
    for at, kind in enumerate(announced):
        sending.notify(note(kind), float(at))
    sending.close()
    return got


def test_only_the_occasions_that_are_wanted_are_sent_and_healthy_chatter_never() -> None:
    announced = ["training.suspected", "training.stalled", "attempt.restarting", "run.finished"]

    assert sent_of(announced, ("stall", "finish")) == ["training.stalled", "run.finished"]
    assert sent_of(announced, ()) == []
