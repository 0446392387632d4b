"""A job that goes on where the project, the home, the user and the interpreter's environment have other names."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zlib
from pathlib import Path

import psutil
import pytest

from stallguard.fleet.store import records
from tests.fleet.jobs.test_held_run import PATIENCE, QUICK, ROOT, SCRIPT, STEPS, Lab, assert_nothing_fenced, result

pytestmark = pytest.mark.live

# Of two machines: the home, the project below it, the user's name.
MACHINES = {"a": ("Users/alice", "project", "alice"), "b": ("home/bob", "fleet/code/0af3/xyz", "bob")}
FILES = frozenset(("moved_fit.py", "moved_layers.py", "count.py"))


class Machines(Lab):
    """Two machines with nothing in common but the store and the content of the project."""

    def project(self, machine):
        home, below, _ = MACHINES[machine]
        return self.place / home / below

    def python(self, machine):
        """Return the interpreter of an environment of this machine, with the packages of this test's own."""
        environment = self.place / MACHINES[machine][0] / "environment"
        if not environment.exists():
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
            packages = next(environment.glob("lib/python*/site-packages"))
            (packages / "all.pth").write_text(sysconfig.get_paths()["purelib"])
        return str(environment / "bin" / "python")

    def start(self, machine, *words, options=(), root=True):
        home, _, user = MACHINES[machine]
        project = self.project(machine)
        project.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            shutil.copy(SCRIPT.parent / name, project)
        python = self.python(machine)
        env = {
            **os.environ, "HOME": str(self.place / home), "USER": user, "LOGNAME": user, "PYTHONPATH": str(ROOT),
            "STALLGUARD_HOME": str(self.place / home / "sg"), "PATH": f"{Path(python).parent}:{os.environ['PATH']}",
        }  # fmt: skip
        out = (self.place / f"out-{len(self.started)}").open("a+")  # it is read meanwhile
        relative = ["--set", f"store.project={project}"] if root else []
        process = subprocess.Popen(
            [sys.executable, "-m", "stallguard", "run", "--python", python, "--store", self.url, "--job", "count",
             *QUICK, *relative, *options, "--", *(word.format(project=project) for word in words)],
            stdout=out, stderr=subprocess.STDOUT, env=env, cwd=project, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        process.out = out
        self.started.append(process)
        return process

    def close(self):
        for process in self.started:  # the trainings of those that were killed
            for pid in re.findall(r"^begins.* pid (\d+)$", self.text(process), re.MULTILINE):
                with contextlib.suppress(psutil.Error):
                    if FILES.intersection(map(os.path.basename, psutil.Process(int(pid)).cmdline())):
                        psutil.Process(int(pid)).kill()
        super().close()

    def change_claim(self, **about):
        """Change what the first claim says of its machine."""
        slot = self.place / "store" / records.slot_key("count", 1) / "content"
        claim = json.loads(slot.read_text())
        claim["holder"]["about"] = claim["holder"]["about"] | about if about else {}
        slot.write_text(json.dumps(claim))


@pytest.fixture
def machines(tmp_path):
    (tmp_path / "store").mkdir()
    made = Machines(tmp_path, f"file://{tmp_path / 'store'}")
    yield made
    made.close()


@pytest.mark.tf
def test_a_fit_goes_on_in_another_folder_of_another_user_and_ends_with_the_same_weights_and_files(machines):
    alone = machines.place / "alone"
    alone.mkdir()
    for name in FILES:
        shutil.copy(SCRIPT.parent / name, alone)
    done = subprocess.run(
        [sys.executable, "moved_fit.py", alone / "out"], capture_output=True, text=True, check=True, cwd=alone
    )
    first = machines.start("a", "moved_fit.py", "{project}/out")
    machines.until_published(1)
    first.kill()
    second = machines.start("b", "moved_fit.py", "{project}/out")
    assert second.wait(2 * PATIENCE) == 0, machines.text(second)
    said = machines.text(second)
    assert "resuming from the" in said
    assert "the script has changed" not in said
    assert "the weights can differ" not in said
    assert re.search(r"digest \w+", done.stdout)[0] in said
    for name in ("own.log", "keras.csv"):
        assert (machines.project("b") / "out" / name).read_text() == (alone / "out" / name).read_text()
    assert_nothing_fenced(machines.log())


def test_a_loop_goes_on_in_another_folder_of_another_user(machines):
    first = machines.start("a", "{project}/count.py", str(STEPS), "0.05")
    machines.until_published(1)
    first.kill()
    second = machines.start("b", "{project}/count.py", str(STEPS), "0.05")
    assert second.wait(PATIENCE) == 0, machines.text(second)
    assert int(re.search(r"begins at (\d+)", machines.text(second))[1]) > 0, machines.text(second)
    assert result() in machines.text(second)


def test_processes_that_a_shell_starts_in_an_environment_elsewhere_are_found_again(machines):
    shell = ("sh", "-c", "export OUT={project}/out PATH=$HOME/bin:$PATH; exec python {project}/count.py 300 0.05")
    first = machines.start("a", *shell)
    machines.until_published(1)
    first.kill()
    second = machines.start("b", *shell)
    assert second.wait(PATIENCE) == 0, machines.text(second)
    assert int(re.search(r"begins at (\d+)", machines.text(second))[1]) > 0, machines.text(second)


def test_without_the_projects_root_another_folder_is_another_training(machines):
    first = machines.start("a", "count.py", "100", "0.05", root=False)
    machines.until_published(1)
    first.kill()
    second = machines.start("b", "count.py", "100", "0.05", root=False)
    assert second.wait(PATIENCE) == 0, machines.text(second)
    assert "begins at 0 " in machines.text(second)


@pytest.mark.parametrize(
    ("about", "says"),
    [({"chip": "Apple M1"}, "another kind of machine (Apple M1 ->"), ({}, "it is not known on which kind of machine")],
)
def test_another_chip_is_announced(machines, about, says):
    first = machines.start("a", "count.py", "100", "0.05")
    machines.until_published(1)
    first.kill()
    machines.change_claim(**about)
    second = machines.start("b", "count.py", "100", "0.05")
    assert second.wait(PATIENCE) == 0, machines.text(second)
    assert machines.text(second).count("the weights can differ in bits") == 1
    assert says in machines.text(second)


def test_other_versions_are_announced_by_a_loop(machines):
    first = machines.start("a", "count.py", "100", "0.05")
    machines.until_published(1)
    first.kill()
    first.wait()
    # The checkpoint as another version of Python would have made it.
    log = machines.log()
    generation = next(e for e in reversed(log) if isinstance(e, records.Generation))
    data = machines.place / "store" / records.data_folder("count", 1)
    version = ".".join(map(str, sys.version_info[:3]))
    rewrite(machines, generation, data, f'"python": "{version}"', '"python": "3.9.0"')
    second = machines.start("b", "count.py", "100", "0.05")
    assert second.wait(PATIENCE) == 0, machines.text(second)
    assert f"python {version}, was 3.9.0" in machines.text(second)
    assert "begins at 0 " not in machines.text(second)


def rewrite(machines, generation, data, before, after):
    """Change a text in the facts of a generation, with all checksums."""
    slots = (machines.place / "store/jobs/count/log").iterdir()
    slot = next(one for one in sorted(slots, reverse=True) if '"generation"' in (one / "content").read_text())
    entry = json.loads((slot / "content").read_text())
    for file in entry["files"]:
        if file["path"].endswith("facts.json"):
            text = (data / file["name"]).read_bytes().partition(b"\n")[2].decode()
            assert before in text, text
            body = text.replace(before, after).encode()
            made = b"%08x\n" % zlib.crc32(body) + body
            (data / file["name"]).write_bytes(made)
            file.update(size=len(made), digest=hashlib.sha256(made).hexdigest())
    (slot / "content").write_text(json.dumps(entry))


def test_a_working_directory_outside_of_the_project_is_one_clear_error(machines):
    first = machines.start("a", "count.py", "3", "0", options=("--set", "store.project=/usr"))
    assert first.wait(PATIENCE) == 2
    assert "is not below store.project (/usr)" in machines.text(first)
