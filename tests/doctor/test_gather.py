"""The machine is looked at for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from stallguard.config import Config
from stallguard.doctor.checks import examine
from stallguard.doctor.facts import Environment, Heavy
from stallguard.doctor.gather import _working, facts, loudest, place, program_of_another, script_in

GB = 10**9

ROOT = Path(__file__).parents[2]
LONG = "#!/bin/sh\n'''exec' \"{}\" \"$0\" \"$@\"\n' '''\nimport sys\n"


def test_this_machine_can_be_examined(monkeypatch, tmp_path):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    found = facts(Environment("/x", "a test", trouble="not asked"), {"HOME": "/h", "SECRET": "s"}, Config())
    assert found.memory.total > 0
    assert {"runs", "checkpoints and results", "temporary files"} <= {one.what for one in found.places}
    assert {finding.name for finding in examine(found)} >= {"interpreter", "disk", "places"}
    assert b"SECRET" not in msgspec.json.encode(found)


def test_a_directory_that_is_not_there_yet_is_judged_by_the_one_it_would_be_made_in(tmp_path):
    announced = place("runs", tmp_path / "a/b/c")
    assert announced.writable
    assert announced.free > 0
    assert not (tmp_path / "a").exists()


def test_a_file_in_the_way_is_no_place(tmp_path):
    (tmp_path / "a").write_text("")
    assert not place("runs", tmp_path / "a/b").writable


def test_processes_of_one_name_count_together_and_the_idle_ones_not():
    found = [Heavy("web", 1, 0.2, GB), Heavy("web", 1, 0.2, GB), Heavy("idle", 1, 0.0, GB), Heavy("vm", 1, 0.0, 9 * GB)]
    assert loudest(found, total=32 * GB) == [Heavy("web", 2, 0.4, 2 * GB), Heavy("vm", 1, 0.0, 9 * GB)]


def broken(*_arguments, **_named):
    raise RuntimeError("host_statistics(HOST_VM_INFO) syscall failed: (ipc/mig) array not large enough")


@pytest.mark.parametrize("where", ["psutil", "psutil.Process"])
def test_a_machine_about_which_psutil_fails_can_be_examined_all_the_same(monkeypatch, tmp_path, where):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    machine = ("virtual_memory", "swap_memory", "cpu_times", "pids", "process_iter")
    process = ("cpu_times", "memory_info", "name", "cmdline", "create_time", "status")
    for name in machine if where == "psutil" else process:
        monkeypatch.setattr(f"{where}.{name}", broken)
    found = facts(Environment("/x", "a test", trouble="not asked"), {}, Config())
    assert found.memory.total > 0
    assert found.heavy == ()


def test_what_is_large_is_reported_although_the_memory_of_the_machine_is_not_known():
    found = [Heavy("small", 1, 0.0, GB), Heavy("vm", 1, 0.0, 9 * GB)]
    assert [one.name for one in loudest(found, total=None)] == ["vm"]


@pytest.mark.parametrize(
    ("words", "script"),
    [
        (["/opt/env/bin/python3.11", "-u", "-X", "dev", "/home/me/train.py", "--epochs", "3"], "train.py"),
        (["/Library/Frameworks/Python.framework/Versions/3.11/Python", "train.py"], "train.py"),
        (["python", "-m", "package.train"], "-m package.train"),
        (["python3", "-c", "while True: pass"], "-c"),
        (["python3"], ""),
        (["/usr/bin/bash", "train.sh"], ""),
        ([], ""),
    ],
)
def test_a_process_is_named_by_its_script(words, script):
    assert script_in(words) == script


def test_processes_of_one_name_are_distinguished_by_script_and_pid_the_hardest_first(tmp_path):
    script = tmp_path / "busy.py"
    script.write_text("while True: pass")
    child = subprocess.Popen([sys.executable, str(script)])
    try:
        found = [one for one in _working(0.3) if one.who == (f"busy.py, pid {child.pid}",)]
        assert [one.count for one in found] == [1]
    finally:
        child.kill()
        child.wait()
    many = [Heavy("python", 1, cores / 10, 0, (f"pid {cores}",)) for cores in range(1, 9)]
    assert loudest(many, total=GB)[0].who == ("pid 8", "pid 7", "pid 6")


def program(place: Path, text: str) -> str:
    place.mkdir(parents=True, exist_ok=True)
    path = place / "stallguard"
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("head", ["#!{}\nimport sys\n", LONG], ids=["short", "long"])
def test_an_environment_with_our_distribution_is_ours_and_one_with_another_is_not(tmp_path, head):
    python = tmp_path / "with blank" / "bin/python"
    script = program(python.parent, head.format(python))
    packages = tmp_path / "with blank" / "lib/python3.12/site-packages"
    (packages / "stallguard-4.0.dist-info").mkdir(parents=True)
    assert program_of_another(script) == script
    (packages / "stallguard_train-0.1.0.dist-info").mkdir()
    assert program_of_another(script) == ""


def test_a_link_to_ours_is_ours_as_uv_and_pipx_make_it(tmp_path):
    ours = program(tmp_path / "env/bin", f"#!{sys.executable}\nimport sys\n")
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin/stallguard"
    link.symlink_to(ours)
    assert program_of_another(str(link)) == ""


@pytest.mark.parametrize("text", ["\x7fELF", "#!/bin/sh\necho hello\n", "#!/usr/bin/env node\n", ""])
def test_what_is_no_script_of_a_python_with_us_is_foreign(tmp_path, text):
    script = program(tmp_path, text)
    assert program_of_another(script) == script


def test_none_on_path_is_no_finding():
    assert program_of_another(None) == ""


@pytest.mark.costly
def test_doctor_warns_of_the_other_program(tmp_path):
    script = program(tmp_path / "bin", "#!/bin/sh\nexit 1\n")
    env = os.environ | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "STALLGUARD_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "stallguard", "doctor", "--json", "--python", sys.executable]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env, cwd=ROOT)
    found = [one for one in json.loads(done.stdout)["findings"] if one["name"] == "command"]
    assert [(one["severity"], script in one["what"]) for one in found] == [("warn", True)]
