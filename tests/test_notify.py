"""Notifications go out, not too often, and never disturb the run."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from stallguard import notify


def allowed(*steps: tuple[str, float]) -> list[bool]:
    sent, answers = notify.Sent(), []
    for kind, now in steps:
        answer, sent = notify.allow(sent, kind, now)
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
    notifier = notify.Notifier({"x": lambda _, text: got.append(text)}, print, notify.kinds(on))
    for at, kind in enumerate(announced):
        notifier.notify(kind, "t", kind, float(at))
    notifier.close()
    return got


def test_only_the_occasions_that_are_wanted_are_sent_and_healthy_chatter_never() -> None:
    announced = ["training.suspected", "training.stalled", "attempt.restarting", "run.finished"]

    assert sent_of(announced, ("stall", "finish")) == ["training.stalled", "run.finished"]
    assert sent_of(announced, ()) == []


def test_a_command_gets_the_words_as_environment_not_as_code(tmp_path: Path) -> None:
    out = tmp_path / "out"
    send = notify.command_sender(
        f'printf "%s|%s" "$STALLGUARD_TITLE" "$STALLGUARD_TEXT" > {out}', dict(os.environ)
    )

    send("train", "$(touch /tmp/no) `no` 'quoted'")

    assert out.read_text() == "train|$(touch /tmp/no) `no` 'quoted'"


def test_a_failing_channel_is_reported_once_and_the_others_still_get_the_message() -> None:
    got: list[str] = []
    announced: list[str] = []

    def broken(title: str, text: str) -> None:
        raise OSError("no desktop")

    notifier = notify.Notifier(
        {"desktop": broken, "other": lambda _, text: got.append(text)}, announced.append
    )
    notifier.notify("training.stalled", "t", "one", 0.0)
    notifier.notify("run.finished", "t", "two", 1.0)
    notifier.close()

    assert got == ["one", "two"]
    assert announced == ["notifications by desktop are not sent: no desktop"]


def test_a_channel_that_failed_gets_the_next_word() -> None:
    got: list[str] = []
    announced: list[str] = []

    def away_at_first(_title: str, text: str) -> None:
        if text != "over":
            raise OSError("no network")
        got.append(text)

    notifier = notify.Notifier({"net": away_at_first}, announced.append)
    for at, (kind, text) in enumerate(
        [("training.stalled", "one"), ("attempt.restarting", "two"), ("run.finished", "over")]
    ):
        notifier.notify(kind, "t", text, float(at))
    notifier.close()

    assert got == ["over"]
    assert announced == ["notifications by net are not sent: no network"]


def test_a_command_that_hangs_is_ended_with_what_it_started(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(notify, "DEADLINE", 1.0)
    announced: list[str] = []
    send = notify.command_sender(f"sleep 600 & echo $! > {tmp_path}/pid; wait", dict(os.environ))
    notifier = notify.Notifier({"the command": send}, announced.append)
    notifier.notify("run.finished", "t", "x", 0.0)
    notifier.close()

    assert announced == ["notifications by the command are not sent: it did not end within 1 s"]
    child = int((tmp_path / "pid").read_text())
    until = time.monotonic() + 20
    while is_alive(child) and time.monotonic() < until:
        time.sleep(0.02)
    assert not is_alive(child)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_command_that_fails_is_not_quoted() -> None:
    announced: list[str] = []
    notifier = notify.Notifier(
        {"the command": notify.command_sender("exit 3 # token=hunter2", dict(os.environ))}, announced.append
    )
    notifier.notify("run.finished", "t", "over", 0.0)
    notifier.close()

    assert announced == ["notifications by the command are not sent: it ended with exit code 3"]


@pytest.mark.parametrize(
    ("platform", "found", "there"), [("darwin", None, True), ("linux", None, False), ("linux", "x", True)]
)
def test_the_desktop_is_used_where_there_is_one(platform: str, found: str | None, there: bool) -> None:
    assert (notify.desktop(lambda _: found, platform) is not None) == there
