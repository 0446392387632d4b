"""The probe comes in by PYTHONPATH, and the program cannot tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from stallguard.probe import wire
from tests.probe.receiver import INJECT, TOKEN, python

FACTS = '''
"""A program that says what it sees of itself."""
import inspect, json, pickle, sys, threading

class Thing:
    """Pickled by name."""

def facts():
    main = sys.modules["__main__"]
    return {
        "argv": sys.argv, "path": sys.path, "name": __name__, "main": sorted(vars(main)),
        "source": inspect.getsource(facts), "pickle": pickle.dumps(Thing()).hex(),
        "threads": [thread.name for thread in threading.enumerate()], "flags": str(sys.flags),
        "doc": main.__doc__, "file": main.__file__, "customised": "sitecustomize" in sys.modules,
        "importers": [key for key in sys.path_importer_cache if "inject" in key],
    }

print(json.dumps(facts()))
'''


def bare(command, cwd, **environment):
    """Run a command without the probe."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("STALLGUARD_")}
    return subprocess.run(command, cwd=cwd, env={**clean, **environment}, capture_output=True, text=True, check=False)


def test_greets_and_says_goodbye(receiver):
    heartbeat = receiver.run(python("import stallguard; stallguard.beat()"))
    kinds = [wire.KINDS[record["kind"]] for record in heartbeat.records]
    assert (kinds[0], kinds[-1]) == ("hello", "bye")
    assert heartbeat.hello()["armed"] is True
    assert heartbeat.hello()["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert heartbeat.hello()["versions"]["machine"] == os.uname().machine
    assert {record["token"] for record in heartbeat.records} == {TOKEN}
    assert heartbeat.pages[heartbeat.last()["pid"]]["phase"] == wire.PHASES.index("finishing")


def test_comes_in_on_every_python(receiver, any_python):
    heartbeat = receiver.run(python("import stallguard; stallguard.beat(3)", any_python))
    assert (heartbeat.code, heartbeat.err) == (0, "")
    assert heartbeat.last()["beats"] == 3


@pytest.mark.parametrize("how", ["script", "module"])
def test_the_program_sees_no_difference(receiver, tmp_path, how):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").touch()
    file = tmp_path / "pack" / "program.py"
    file.write_text(FACTS)
    command = [sys.executable, *(["-m", "pack.program"] if how == "module" else [str(file)]), "--epochs", "3"]
    heartbeat = receiver.run(command, cwd=tmp_path)
    plain = bare(command, tmp_path)
    assert json.loads(heartbeat.out) == json.loads(plain.stdout)
    assert (heartbeat.code, heartbeat.err) == (plain.returncode, plain.stderr)


def test_stays_out_without_a_token(tmp_path):
    code = "import sys; print('_stallguard_probe' in sys.modules, any('inject' in p for p in sys.path))"
    done = bare(python(code), tmp_path, PYTHONPATH=str(INJECT))
    assert (done.stdout, done.stderr) == ("False False\n", "")


@pytest.mark.parametrize("broken", [{"token": "x"}, {"pages": "/dev/null/at/all"}])
def test_a_broken_environment_is_not_the_programs_problem(receiver, broken):
    heartbeat = receiver.run(python("print('fine')"), **broken)
    assert (heartbeat.code, heartbeat.out, heartbeat.err) == (0, "fine\n", "")


def test_the_next_sitecustomize_runs_as_the_only_one(receiver, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.theirs = __file__, __name__\n")
    code = "import sys; print(sys.theirs, sys.modules['sitecustomize'].__file__)"
    heartbeat = receiver.run(python(code), PYTHONPATH=str(tmp_path))
    assert heartbeat.out == bare(python(code), tmp_path, PYTHONPATH=str(tmp_path)).stdout
    assert str(tmp_path / "sitecustomize.py") in heartbeat.out


@pytest.mark.costly
@pytest.mark.parametrize("error", ["1 / 0", "import not_there_at_all", "raise ImportError('x', name='y')"])
def test_errors_of_the_next_sitecustomize_look_as_ever(receiver, tmp_path, any_python, error):
    (tmp_path / "sitecustomize.py").write_text(error + "\n")
    heartbeat = receiver.run(python("print('on')", any_python), PYTHONPATH=str(tmp_path))
    plain = bare(python("print('on')", any_python), tmp_path, PYTHONPATH=str(tmp_path))
    assert (heartbeat.code, heartbeat.out, heartbeat.err) == (plain.returncode, plain.stdout, plain.stderr)
    assert "Error in sitecustomize" in heartbeat.err


def test_usercustomize_still_runs(receiver, tmp_path):
    (tmp_path / "usercustomize.py").write_text("import sys\nsys.stdout.write('mine\\n')\n")
    command = [sys._base_executable, "-c", "pass"]
    plain = bare(command, tmp_path, PYTHONPATH=str(tmp_path), PYTHONUSERBASE=str(tmp_path))
    heartbeat = receiver.run(command, PYTHONPATH=str(tmp_path), PYTHONUSERBASE=str(tmp_path))
    assert heartbeat.out == plain.stdout == "mine\n"


def test_isolated_mode_keeps_the_probe_out(receiver):
    heartbeat = receiver.run([sys.executable, "-I", "-c", "print('alone')"])
    assert (heartbeat.out, heartbeat.records, heartbeat.pages) == ("alone\n", [], {})


WORKERS = """
import multiprocessing, os, subprocess, sys
import stallguard

def work(_):
    stallguard.beat(100)
    return os.getpid()

if __name__ == "__main__":
    stallguard.beat()
    for way in ("spawn", "fork", "forkserver"):
        with multiprocessing.get_context(way).Pool(1) as pool:
            pool.map(work, range(2))
    subprocess.run([sys.executable, "-c", "import stallguard; stallguard.beat(100)"], check=True)
    child = os.fork()
    if not child:
        stallguard.beat(100)
        sys.exit(0)  # with all of Python's farewell, as a fork of the script's own would
    os.waitpid(child, 0)
    stallguard.beat()
"""


def test_worker_processes_stay_silent(receiver, tmp_path):
    file = tmp_path / "train.py"
    file.write_text(WORKERS)
    heartbeat = receiver.run([sys.executable, str(file)], cwd=tmp_path)
    assert (heartbeat.code, heartbeat.err) == (0, "")
    assert len(heartbeat.pages) == 1
    assert len({record["pid"] for record in heartbeat.records}) == 1
    assert heartbeat.last()["beats"] == 2


def test_an_installed_stallguard_goes_before_the_probes_own(receiver, tmp_path):
    (tmp_path / "stallguard.py").write_text("where = 'installed'\n")
    heartbeat = receiver.run(python("import stallguard; print(stallguard.where)"), PYTHONPATH=str(tmp_path))
    assert heartbeat.out == "installed\n"


def test_costs_a_start_a_few_milliseconds(receiver):
    """Importing nothing heavy is what keeps it so; the figure itself is the bench's."""
    code = "import sys; print(*sorted(sys.modules))"
    loaded = set(receiver.run(python(code)).out.split()) - set(bare(python(code), receiver.folder).stdout.split())
    assert not loaded & {"typing", "json", "threading", "socket", "re", "enum", "importlib.abc", "functools", "inspect"}
