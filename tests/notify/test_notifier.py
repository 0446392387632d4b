"""Notifications go out, not too often, and never disturb the run."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from stallguard import notify
from stallguard.notify import channels, message, notifier
from stallguard.notify.channels import Channel
from tests.host.children import eventually, is_alive


def note(kind: str = "run.finished", text: str = "x", title: str = "t") -> notify.Notification:
    return notify.notification(kind, title, text, "20261120-230001-train")


def allowed(*steps: tuple[str, float]) -> list[bool]:
    sent, answers = message.Sent(), []
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


def test_a_command_gets_the_words_as_environment_and_as_json_not_as_code(tmp_path: Path) -> None:
    words = '"$STALLGUARD_EVENT|$STALLGUARD_RUN_ID|$STALLGUARD_TITLE|$STALLGUARD_TEXT"'
    send = channels.command_sender(
        f'printf "%s" {words} > {tmp_path}/out; cat > {tmp_path}/in', dict(os.environ)
    )

    send(note("training.stalled", "$(touch /tmp/no) `no` 'quoted'", "train"))

    run = "20261120-230001-train"
    assert (tmp_path / "out").read_text() == f"stall|{run}|train|$(touch /tmp/no) `no` 'quoted'"
    given = json.loads((tmp_path / "in").read_text())
    assert given.pop("time").endswith("Z")
    assert given == {
        "schema": 1, "event": "stall", "message": "training.stalled", "title": "train",
        "text": "$(touch /tmp/no) `no` 'quoted'", "run": run,
    }  # fmt: skip


def test_a_command_that_reads_nothing_is_no_failure() -> None:
    channels.command_sender("exec true", dict(os.environ))(note(text="x" * 100_000))


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
    assert [(one.channel, one.why) for one in results] == [
        ("slow", "it did not end within 0.2 s"),
        ("quick", ""),
    ]


def test_a_channel_that_cannot_send_at_all_is_reported_at_the_start_and_left_out() -> None:
    announced: list[str] = []
    got: list[str] = []
    useless = Channel("x", lambda one: got.append(one.text), lambda: "no such service")
    sending = notify.Notifier([useless], announced.append)
    sending.notify(note(), 0.0)
    sending.close()

    assert (got, announced) == ([], ["notifications by x are not sent: no such service"])


def test_a_command_that_hangs_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "DEADLINE", 1.0)
    announced: list[str] = []
    send = channels.command_sender(f"sleep 600 & echo $! > {tmp_path}/pid; wait", dict(os.environ))
    sending = notify.Notifier([Channel("the command", send)], announced.append)
    sending.notify(note(), 0.0)
    sending.close()

    assert announced == ["notifications by the command are not sent: it did not end within 1 s"]
    child = int((tmp_path / "pid").read_text())
    assert eventually(lambda: not is_alive(child), 20)


def test_a_command_that_fails_is_not_quoted() -> None:
    announced: list[str] = []
    failing = channels.command_sender("exit 3 # token=hunter2", dict(os.environ))
    sending = notify.Notifier([Channel("the command", failing)], announced.append)
    sending.notify(note(), 0.0)
    sending.close()

    assert announced == ["notifications by the command are not sent: it ended with exit code 3"]


@pytest.mark.parametrize(
    ("platform", "found", "there"), [("darwin", None, True), ("linux", None, False), ("linux", "x", True)]
)
def test_the_desktop_is_used_where_there_is_one(platform: str, found: str | None, there: bool) -> None:
    assert (channels.desktop(lambda _: found, platform) is not None) == there
