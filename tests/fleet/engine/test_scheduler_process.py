"""The scheduler as a process."""

from __future__ import annotations

import os
import socket

import pytest


@pytest.mark.costly
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user, and be one")
def test_a_second_scheduler_at_the_same_port_is_one_clear_error(lab):
    place = lab.member.scheduler.rpartition("/")[2]
    host, _, port = place.rpartition(":")
    with socket.create_server((host, int(port))):
        said = lab.refused("fleet", "scheduler", "--listen", place)
    assert "the scheduler cannot listen at 127.0.0.1:" in said
    assert "in use" in said
    assert "another scheduler" in said


@pytest.mark.waits
def test_a_worker_and_a_scheduler_say_once_that_the_store_is_read_only_and_go_on(lab, mounted):
    mounted("ro")
    scheduler = lab.start("fleet", "scheduler", "--listen", lab.member.scheduler.removeprefix("tls://"))
    lab.until("the store cannot be written", "Read-only file system", of=scheduler)
    worker = lab.start("fleet", "worker", "--name", "mini")
    lab.until("is connected to", "the store cannot be written", of=worker)
    mounted("rw")
    said = lab.until("the store can be written again", of=worker)
    assert said.count("the store cannot be written") == 1
    lab.until("ready", ask=("fleet", "machines"))
