"""The checks that take longer than a walk: what they leave, what a later call says, what is removed."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "tests" / "recordings" / "macos"
HELD, FAILED, UNASKED = "held", "did not hold", "not asked"
DAY = 86400.0
ZONE = dt.timezone(dt.timedelta(hours=1))
BEGAN = dt.datetime(2026, 11, 23, 18, 0, tzinfo=ZONE)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    from mac import night, scene

    monkeypatch.setattr(night, "QUIET", 1.0)
    monkeypatch.setattr(scene, "POLL", 0.05)


def by_check(rows) -> dict[str, str]:
    return {row.check: row.verdict for row in rows}


def test_what_is_pending_survives_and_ends(tmp_path):
    from mac import pending

    place = tmp_path / "live"
    assert pending.read(place) == {}
    pending.keep(place, "logout", {"at": 5, "pid": 7})
    pending.keep(place, "three-days", {"at": 6.0})
    assert pending.read(place) == {"logout": {"at": 5.0, "pid": 7}, "three-days": {"at": 6.0}}
    pending.keep(place, "logout", None)
    assert list(pending.read(place)) == ["three-days"]


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"schema": 2, "pending": {}}', '{"schema": 1, "pending": {"logout": {}}}',
     '{"schema": 1, "pending": []}', '{"schema": 1, "pending": {"logout": {"at": "x"}}}'],
)  # fmt: skip
def test_a_damaged_file_is_kept_beside_and_nothing_is_pending(tmp_path, text):
    from mac import pending

    (tmp_path / pending.FILE).write_text(text)
    assert pending.read(tmp_path) == {}
    assert (tmp_path / "pending.damaged").read_text() == text


def test_what_was_begun_is_looked_at_by_each_later_walk_without_asking():
    from mac.checks import longer_ones

    [asked] = longer_ones(["three-days"], [])
    assert asked.asks
    [begun] = longer_ones([], ["logout"])
    assert (begun.name, begun.asks) == ("logout", "")
    assert longer_ones([], []) == []


def gap(seconds: float, why: str = "asleep") -> dict:
    return {"event": "clock.gap", "seconds": seconds, "why": why}


@pytest.mark.parametrize(
    ("gaps", "stalls", "went_on", "verdicts"),
    [
        ([gap(61.0)], 0, True, [HELD, HELD]),
        ([gap(20.0), gap(3.0, "starved"), gap(40.0)], 0, True, [HELD, HELD]),
        ([], 0, True, [FAILED, HELD]),
        ([gap(61.0, "starved")], 0, True, [FAILED, HELD]),
        ([gap(61.0)], 1, True, [HELD, FAILED]),
        ([gap(61.0)], 0, False, [HELD, FAILED]),
    ],
)
def test_a_sleep_must_be_reported_and_be_no_stall(gaps, stalls, went_on, verdicts):
    from mac import verdicts_longer as say

    assert [row.verdict for row in say.asleep(60.0, gaps, stalls, went_on=went_on)] == verdicts


def test_caffeinate_must_hold_before_and_after_a_sleep():
    from mac import verdicts_longer as say

    text = (RECORDINGS / "pmset_g_assertions_caffeinate_w.txt").read_text()
    assert say.awake(text, text, 30490).verdict == HELD
    assert say.awake(text, "", 30490).verdict == FAILED
    assert say.awake(text, text, 1).verdict == FAILED


def seen(**other):
    from mac.verdicts_longer import Logout, logged_out

    usual = {"at": 100.0, "logged_in": 200.0, "restarted": False, "lives": False, "code": 143, "why": "SIGTERM",
             "loaded": True, "run": "stopped"}  # fmt: skip
    return [row.verdict for row in logged_out(Logout(**usual | other))]


def test_a_logout_is_judged_once_it_has_happened():
    assert seen() == [HELD, HELD]
    assert seen(logged_in=50.0) == seen(logged_in=None) == []
    assert seen(logged_in=50.0, restarted=True) == [HELD, HELD]
    assert seen(lives=True) == [FAILED, HELD]
    assert seen(code=None) == [FAILED, HELD]
    assert seen(loaded=False) == [HELD, FAILED]


def test_the_login_is_that_of_this_users_loginwindow():
    from mac.verdicts_longer import newest_login

    processes = [("loginwindow", 501, 10.0), ("loginwindow", 502, 90.0), ("Dock", 501, 50.0)]
    assert newest_login(processes, 501) == 10.0
    assert newest_login(processes[2:], 501) == 50.0
    assert newest_login([], 501) is None


def run(stamp: str, state: str = "finished") -> dict:
    return {"run": f"{stamp}-tiny", "state": state, "batches": 20}


def test_each_night_happened_or_was_reported():
    """Runs are named in UTC; the zone is an hour ahead."""
    from mac import verdicts_longer as say

    log = "scripts-live-nights: the start at 03:00 on 25 Nov did not happen: the machine slept"
    runs = [run("20261124-020002Z"), run("20261126-033000Z", "failed")]
    rows = list(say.nights(BEGAN, 3, runs, log))
    assert [(row.check, row.verdict, row.figure) for row in rows] == [
        ("night of 2026-11-24", HELD, "started at 03:00:02, finished, 20 batches"),
        ("night of 2026-11-25", HELD, "no start; reported"),
        ("night of 2026-11-26", FAILED, "started at 04:30:00, failed, 20 batches"),
    ]
    assert [row.verdict for row in say.nights(BEGAN, 3, [run("of-no-time")], "")] == [FAILED] * 3
    early = BEGAN.replace(hour=1)
    assert next(say.nights(early, 3, [], "")).check == "night of 2026-11-23", "it had not come yet"


def test_sockets_after_three_days():
    from mac import verdicts_longer as say

    files = {"/tmp/a.file": False, "/tmp/a.socket": True}
    row = say.temporary("/var/folders/x/T/s/control", 0, "running", files, there=True)
    assert row.verdict == HELD
    assert row.figure.endswith("there; status: exit code 0; unused files: 1 of 2 left")
    assert say.temporary("/tmp/control", 3, "running", files, there=True).verdict == FAILED
    assert say.temporary("/tmp/control", 0, "running", files, there=False).verdict == FAILED
    assert say.temporary("/tmp/control", 3, "lost", files, there=False).verdict == UNASKED


def test_three_days_are_three_days():
    from mac.verdicts_longer import too_early

    assert too_early(0.0, 3 * DAY) is None
    assert too_early(0.0, 2.5 * DAY).startswith("day 3 of 3")
    assert too_early(0.0, 0.0).startswith("day 1 of 3")


def test_the_sockets_of_three_days_are_in_a_temporary_directory(scene):
    from mac import longer

    from stallguard.storage.paths import CONTROL, SOCKET_PATH_MAX

    place = Path(tempfile.mkdtemp())
    try:
        scene.place = place
        lengths = {
            name: len(os.fsencode(longer._at(scene, name).kept / "s" / "stallguard-01234567" / CONTROL))
            for name in ("logout", "three-days")
        }
    finally:
        shutil.rmtree(place)
    assert lengths["logout"] <= SOCKET_PATH_MAX < lengths["three-days"]


@pytest.fixture
def later(scene, monkeypatch):
    """The scene with a clock of ours, and the verbs that are not `agent` as real programs."""
    from mac import scene as scenes

    fake = scene._run

    def run(words, seconds, env, cwd):
        verb = words[4] if words[3:4] == ("stallguard",) else ""
        if verb == "agent":
            os.environ["STALLGUARD_HOME"] = env["STALLGUARD_HOME"]  # the verbs of the fixture run in this process
            return fake(words, seconds, env, cwd)
        return scenes.run(words, seconds, env, cwd) if verb else fake(words, seconds, env, cwd)

    home = os.environ["STALLGUARD_HOME"]
    monkeypatch.setattr(scene, "_run", run)
    scene.place = Path(home).parent.parent / "live"
    scene.time = 1_795_000_000.0
    scene.now = lambda: scene.time
    yield scene
    os.environ["STALLGUARD_HOME"] = home


def nothing_left(scene, launchd) -> bool:
    return launchd.state["jobs"] == {} and not scene.place.exists()


@pytest.mark.live
def test_a_job_is_left_for_a_logout_and_looked_at_afterwards(later, launchd, monkeypatch):
    from mac import longer, pending

    monkeypatch.setattr(longer, "_processes", lambda: [("loginwindow", 501, later.time - 50)])
    assert by_check(longer.logout(later)) == {"logout": UNASKED}
    begun = pending.read(later.place)["logout"]
    assert list(launchd.state["jobs"]) == [f"com.stallguard.{longer.LOGOUT}"]

    assert by_check(longer.logout(later)) == {"logout": UNASKED}, "no logout yet"
    assert pending.read(later.place)["logout"] == begun

    launchd.ask(["bootout", f"gui/501/com.stallguard.{longer.LOGOUT}"])  # as a logout does
    [file] = (later.home.parent / "Library" / "LaunchAgents").glob(f"*{longer.LOGOUT}*")
    while launchd.ask(["bootstrap", "gui/501", str(file)]).code:  # as a login does
        pass
    later.time += 100
    rows = list(longer.logout(later))
    assert by_check(rows) == {"logout: training": HELD, "logout: job": HELD}, rows
    assert nothing_left(later, launchd)


@pytest.mark.live
def test_jobs_are_left_for_three_days_and_looked_at_afterwards(later, launchd):
    from mac import longer, pending

    later.time = time.time() - 3 * DAY - 60
    assert by_check(longer.days(later)) == {"three days": UNASKED}
    labels = {f"com.stallguard.{name}" for name in (longer.NIGHTS, longer.DAYS)}
    begun = pending.read(later.place)["three-days"]
    assert set(launchd.state["jobs"]) == labels
    assert all(Path(file).exists() for file in begun["files"])

    later.time += DAY
    [row] = longer.days(later)
    assert (row.verdict, row.means[:10]) == (UNASKED, "day 2 of 3")
    assert set(launchd.state["jobs"]) == labels

    asked = json.loads((Path(begun["run"]) / "run.json").read_text())
    later.time += 2 * DAY + 60
    rows = list(longer.days(later))
    assert not asked["control"].startswith(str(later.place)), "the home is too long for a socket"
    assert by_check(rows)["sockets after three days"] == HELD, rows
    assert [row.figure for row in rows[:3]] == ["no start, and no report"] * 3, "no night came in a moment"
    assert nothing_left(later, launchd)
    assert not any(Path(file).exists() for file in begun["files"])


@pytest.mark.live
def test_what_was_left_can_be_removed_at_any_time(later, launchd):
    from mac import longer, pending

    list(longer.days(later))
    begun = pending.read(later.place)["three-days"]
    assert len(longer.clean(later)) == 1
    assert nothing_left(later, launchd)
    assert not any(Path(file).exists() for file in begun["files"])
    assert longer.clean(later) == []


def test_a_job_that_cannot_be_installed_leaves_nothing(later, launchd, monkeypatch):
    from mac import longer

    launchd.ask(["print", "gui/501"])
    (launchd.place / "state.json").write_text('{"jobs": {}, "session": false}')
    monkeypatch.setattr(sys, "platform", "darwin")
    assert by_check([*longer.days(later), *longer.logout(later)]) == {"three days": FAILED, "logout": FAILED}
    monkeypatch.undo()
    assert not later.place.exists()


@pytest.mark.live
def test_a_mac_that_does_not_fall_asleep_is_no_answer(tmp_path, monkeypatch):
    from mac import longer
    from mac.scene import Scene

    monkeypatch.setattr(longer, "SAY", 0.0)
    monkeypatch.setattr(longer, "FALLS", 0.2)
    env = {**os.environ, "STALLGUARD_HOME": str(tmp_path / "kept"), "PYTHONPATH": str(ROOT)}
    [row] = longer.sleep(Scene(tmp_path, env, lambda _line: None))
    assert row.verdict == UNASKED
    assert "did not sleep" in row.means


def test_unused_files_are_left_where_macos_removes_them():
    from mac import longer

    place = Path(tempfile.gettempdir())
    files = list(longer._unused())
    try:
        here = [file for file in files if file.parent == place]
        assert sorted(file.suffix for file in here) == [".file", ".socket"]
        assert [file.is_socket() for file in here] == [False, True]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, pytest.raises(ConnectionRefusedError):
            sender.connect(str(next(file for file in here if file.is_socket())))
    finally:
        for file in files:
            file.unlink(missing_ok=True)


def night(**other):
    from mac.verdicts_longer import Night, scheduled

    at = BEGAN.replace(hour=19)
    usual = {"source": "ac", "battery": False, "wake": at.timestamp() - 60, "at": at, "woke": at.timestamp() - 58,
             "started": at.isoformat(), "state": "finished"}  # fmt: skip
    return list(scheduled(Night(**usual | other)))


def test_a_night_by_schedule_needs_a_wake_and_a_start():
    wake = BEGAN.replace(hour=19).timestamp() - 60
    [row] = night()
    assert (row.check, row.verdict) == ("night by schedule (ac)", HELD)
    assert row.figure == "woke +2 s from its schedule; the job started +0 s from its minute, finished"
    assert night(started="")[0].verdict == FAILED
    assert night(state="failed")[0].verdict == FAILED
    assert night(started=BEGAN.replace(hour=19, minute=3).isoformat())[0].verdict == FAILED
    assert night(woke=wake + 120)[0].verdict == FAILED
    assert night(woke=wake - 30)[0].verdict == UNASKED, "a user has pressed a key"
    assert night(woke=None)[0].verdict == UNASKED


def test_a_night_on_the_other_source_of_power_is_left_open():
    rows = night(battery=True, source="battery")
    assert [(row.check, row.verdict) for row in rows] == [
        ("night by schedule (battery)", HELD), ("night by schedule (ac)", UNASKED),
    ]  # fmt: skip
    assert rows[1].means == "plug it in, and run scripts/live --night once more"
    assert len(night(battery=None, source=None)) == 1


def test_without_root_no_night_is_scheduled_and_the_mac_does_not_sleep(scene):
    from mac import longer

    [row] = longer.scheduled(scene)
    assert (row.verdict, "sudo -v; scripts/live --night" in row.means) == (UNASKED, True)
    assert "pmset_sleepnow" not in scene.recordings


@pytest.mark.parametrize("asleep", [True, False])
def test_a_scheduled_night_leaves_neither_a_job_nor_a_wake(scene, launchd, monkeypatch, asleep):
    from mac import longer
    from mac.scene import Said

    fake, called, state = scene._run, [], {"asleep": 0.0}

    def run(words, seconds, env, cwd):
        if "/usr/bin/pmset" not in words:
            return fake(words, seconds, env, cwd)
        called.append(words[words.index("/usr/bin/pmset") + 1 :])
        if words[-1] == "sleepnow" and asleep:
            state["asleep"] += 60.0
            scene.time += 60.0
        return Said(0, "Now drawing from 'AC Power'" if words[-1] == "ps" else "", 0.0)

    scene.time = time.time()
    monkeypatch.setattr(scene, "_run", run)
    monkeypatch.setattr(scene, "now", lambda: scene.time)
    monkeypatch.setattr(longer.system, "asleep", lambda: state["asleep"])
    monkeypatch.setattr(longer, "SAY", 0.0)
    monkeypatch.setattr(longer, "FALLS", 0.1)
    rows = list(longer.scheduled(scene))

    assert rows[0].check == "night by schedule (ac)"
    assert rows[0].verdict == UNASKED, "the Mac woke too early, or did not sleep"
    schedule = [words for words in called if words[0] == "schedule"]
    assert schedule[1] == ("schedule", "cancel", *schedule[0][1:])
    assert launchd.state["jobs"] == {}
