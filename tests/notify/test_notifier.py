"""Notifications go out, not too often, and never disturb the run."""

from __future__ import annotations

import threading

import pytest

from stallguard import notify
from stallguard.notify import notifier
from stallguard.notify.channels import Channel


def note(kind: str = "run.finished", text: str = "x", title: str = "t") -> notify.Notification:
    return notify.notification(kind, title, text, "20261120-230001-train")


def test_a_failing_channel_is_reported_once_and_the_others_still_get_the_message() -> None:
    got: list[str] = []
    announced: list[str] = []

    def broken(_note: notify.Notification) -> None:
        raise OSError("no desktop")

    both = [Channel("desktop", broken), Channel("other", lambda one: got.append(one.text))]
    sending = notify.Notifier(both, announced.append)
    sending.notify(note("training.stalled", "one"), 0.0)
    sending.notify(note("run.finished", "two"), 1.0)
    sending.close()

    assert got == ["one", "two"]
    assert announced == ["notifications by desktop are not sent: no desktop"]
    assert [(one.channel, one.sent, one.failed, one.why) for one in sending.records] == [
        ("desktop", 0, 2, "no desktop"), ("other", 2, 0, ""),
    ]  # fmt: skip


def test_a_channel_that_failed_gets_the_next_word_and_its_next_failure_is_reported_again() -> None:
    got: list[str] = []
    announced: list[str] = []

    def away_at_times(one: notify.Notification) -> None:
        if one.text != "over":
            raise OSError("no network")
        got.append(one.text)

    sending = notify.Notifier([Channel("net", away_at_times)], announced.append)
    texts = ["one", "two", "over", "four"]
    for at, text in enumerate(texts):
        sending.notify(note("run.finished", text), float(at))
    sending.close()

    assert got == ["over"]
    assert announced == ["notifications by net are not sent: no network"] * 2


def test_a_channel_that_hangs_keeps_no_other_from_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "DEADLINE", 0.2)
    monkeypatch.setattr(notifier, "LATEST", 0.1)
    release, got = threading.Event(), list[str]()
    both = [Channel("slow", lambda _: release.wait(60)), Channel("quick", lambda one: got.append(one.text))]  # type: ignore[arg-type, return-value]
    try:
        results = notifier.send_all(both, note(text="news"))
    finally:
        release.set()

    assert got == ["news"]
    assert [(one.channel, one.why) for one in results] == [("slow", "it did not end within 0.2 s"), ("quick", "")]


def test_a_channel_that_cannot_send_at_all_is_reported_at_the_start_and_left_out() -> None:
    announced: list[str] = []
    got: list[str] = []
    useless = Channel("x", lambda one: got.append(one.text), lambda: "no such service")
    sending = notify.Notifier([useless], announced.append)
    sending.notify(note(), 0.0)
    sending.close()

    assert (got, announced) == ([], ["notifications by x are not sent: no such service"])
