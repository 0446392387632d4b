"""The process that trains is found by its page, and another process is not taken for it."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from stallguard.collectors import training_process
from stallguard.probe import wire
from stallguard.storage.paths import RunDir


@pytest.fixture
def sleeper():
    started = []

    def start():
        started.append(subprocess.Popen(["sleep", "60"]))
        return started[-1].pid

    yield start
    for each in started:
        each.kill()
        each.wait()


def page(run, pid, age=0.0, **fields):
    values = [0] * wire.SLOTS
    for name, value in ({"magic": wire.MAGIC, "pid": pid} | fields).items():
        values[wire.SLOT[name]] = value
    run.probe.mkdir(exist_ok=True)
    path = run.probe / f"{pid}.page"
    path.write_bytes(wire.pack(values))
    os.utime(path, (time.time() - age, time.time() - age))


def test_a_live_process_with_a_page_is_found_with_what_it_allows(tmp_path, sleeper):
    run, pid = RunDir(tmp_path), sleeper()
    page(run, pid, beats=7, flags=wire.FLAG_STACKS_ARMED)
    found = training_process.find(run)
    assert (found.pid, found.beats, found.armed) == (pid, 7, True)


def test_a_process_that_began_after_its_page_was_written_is_another(tmp_path, sleeper):
    run = RunDir(tmp_path)
    page(run, sleeper(), age=3600, flags=wire.FLAG_STACKS_ARMED)
    assert training_process.find(run) is None


def test_of_several_the_one_counts_that_has_trained_and_then_come_no_further_for_longest(tmp_path, sleeper):
    run, launcher, silent, trains = RunDir(tmp_path), sleeper(), sleeper(), sleeper()
    page(run, launcher, sent_ns=30, progress_ns=1)
    page(run, trains, beats=1, sent_ns=10, progress_ns=20)
    assert training_process.find(run).pid == trains
    page(run, silent, beats=1, sent_ns=20, progress_ns=10)
    assert training_process.find(run).pid == silent


def test_of_several_that_have_not_trained_the_latest_received_counts(tmp_path, sleeper):
    run, launcher, child = RunDir(tmp_path), sleeper(), sleeper()
    page(run, launcher, sent_ns=10)
    page(run, child, sent_ns=20)
    assert training_process.find(run).pid == child


def test_each_of_several_can_be_asked_by_its_number(tmp_path, sleeper):
    run, one, other = RunDir(tmp_path), sleeper(), sleeper()
    page(run, one, beats=1, progress_ns=1)
    page(run, other, beats=1, progress_ns=2)
    assert [training_process.find(run, pid).pid for pid in (one, other)] == [one, other]
    assert training_process.find(run, os.getpid()) is None


def test_dead_processes_and_damaged_pages_are_passed_by(tmp_path):
    run = RunDir(tmp_path)
    over = subprocess.Popen(["true"])
    over.wait()
    page(run, over.pid)
    (run.probe / "1.page").write_bytes(b"short")
    assert training_process.find(run) is None
