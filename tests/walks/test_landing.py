"""What scripts/live does before the walk, on simulated Macs: what it takes, installs and refuses."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import examples
from tests.walks import simulated_mac
from tests.walks.simulated_mac import DIMENSIONS, NOTHING_AGAINST, Mac, Simulated

ROOT = Path(__file__).parents[2]


@pytest.mark.costly
@pytest.mark.parametrize("dimensions", [DIMENSIONS, NOTHING_AGAINST], ids=["all", "that can be walked"])
def test_on_every_mac_the_scripts_do_what_is_promised(dimensions):
    macs = simulated_mac.every_pair(dimensions, seed=1)[: examples.of(1000, fast=25)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(simulated_mac.tried, macs))
    lines = [simulated_mac.row(mac, outcome, errors) for mac, outcome, errors, _ in results]
    print("\n".join(lines))
    assert [line for line, (_, _, errors, _) in zip(lines, results, strict=True) if errors] == []


def test_a_second_walk_asks_and_installs_nothing(tmp_path):
    mac = Simulated(Mac(), tmp_path)
    mac.live()
    _, said, log = mac.live()
    assert "downloads" not in said
    assert [line.split()[0] for line in log] == ["run"]


def test_the_first_walk_asks_the_network_once_and_says_once_what_it_downloads(tmp_path):
    _, said, log = Simulated(Mac(), tmp_path).live()
    assert (said.count("downloads about"), log.count("ask")) == (1, 1)


def test_an_environment_that_was_made_without_metal_is_made_again_with_it(tmp_path):
    mac = Simulated(Mac(), tmp_path)
    assert mac.live(WITHOUT_METAL="1")[0].pairs == frozenset()
    assert mac.live()[0].pairs == {"main", "metal218"}


def test_without_the_second_pair_the_walk_goes_on_with_the_first(tmp_path):
    mac = Simulated(Mac(), tmp_path)
    for first in (True, False):
        outcome, said, log = mac.live(SIM_BROKEN="tensorflow==2.18.1" if first else "download")  # later: no network
        assert outcome.code == 0
        assert "the walk goes on without .venvs/metal218" in said
        assert log[-1].startswith("run ")
        assert any(line.startswith("install") for line in log) == first


def test_pip_installs_if_uv_is_not_configured_for_this_network_and_pip_is(tmp_path):
    outcome, _, _ = Simulated(Mac(uv="path"), tmp_path).live(SIM_UV="offline")
    assert (outcome.code, outcome.by, outcome.pairs) == (0, "pip", {"main", "metal218"})


@pytest.mark.parametrize(
    ("named", "without", "python", "why"),
    [
        ("python3.12", "", 12, ""),
        ("python3.13", "", 0, "PYTHON=python3.13 cannot be used: a Python from 3.11 to 3.12 for arm64 is needed"),
        ("python3.13", "1", 13, ""),
    ],
)
def test_a_named_python_is_taken_if_it_can_have_metal_or_need_not(tmp_path, named, without, python, why):
    mac = Simulated(Mac(pythons=(11, 12, 13)), tmp_path)
    outcome, said, _ = mac.live(PYTHON=named, WITHOUT_METAL=without)
    assert outcome.python == python
    assert why in said


def test_no_word_is_lost_if_the_way_out_of_rosetta_leads_nowhere(tmp_path):
    outcome, said, log = Simulated(Mac(processor="rosetta"), tmp_path).live(STALLGUARD_NATIVE="1")
    assert (outcome.code, log) == (1, [])
    assert "switch off 'Open using Rosetta'" in said


def test_what_is_there_of_another_system_is_removed_or_imported_without_a_refusal(tmp_path):
    for number, word in enumerate(("--import", "--clean", "--help")):
        mac = Simulated(Mac(session="Background", words=(word,)), tmp_path / str(number))
        outcome, _, log = mac.live()
        assert outcome.code == 0
        assert log[-1].endswith(f"walk.py {word}")
        assert outcome.pairs == {"main"}


def _mac_sh(place: Path, script: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a line with the functions of scripts/_mac.sh, on this machine with its real Python and pip."""
    mac = Simulated(Mac(), place)
    body = f"set -eu; root={mac.clone}; uv=; die() {{ exit 9; }}; . {ROOT}/scripts/_mac.sh; {script}"
    return subprocess.run(
        ["/bin/sh", "-c", body], env=mac.env | env, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_real_python_is_asked_for_its_version_and_its_processor(tmp_path):
    import platform

    done = _mac_sh(tmp_path, f"about {sys.executable}")
    minor, machine, path = done.stdout.strip().split(" ", 2)
    assert (int(minor), machine) == (sys.version_info.minor, platform.machine())
    assert Path(path).samefile(sys.executable)


@pytest.mark.costly
def test_an_index_that_does_not_answer_is_found_by_pip_itself_and_its_words_are_kept(tmp_path):
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": "/dev/null"}
    done = _mac_sh(tmp_path, f"reaches {sys.executable}", **nowhere)
    assert done.returncode == 1
    assert "Connection refused" in done.stdout
    assert not list(tmp_path.glob("tmp.*"))


@pytest.mark.waits
def test_a_tool_that_does_not_end_is_ended(tmp_path):
    assert _mac_sh(tmp_path, "bounded 1 sleep 30").returncode == 124
