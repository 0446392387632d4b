"""Every check finds what it is for, says how bad it is, and what to do."""

from __future__ import annotations

import pytest

from stallguard.core.readings import Device
from stallguard.doctor.checks import CHECKS, examine
from stallguard.doctor.facts import FAIL, NOTE, OK, WARN, Deep, FleetFacts, Heavy, PlaceFacts, StoreFacts, StorePromise
from stallguard.host.types import ListedGpu, Sleep

from .scene import GB, LINUX, MAC, packages, spoiled

TWO_OPENMP = ("/env/lib/libomp.dylib", "/env/torch/lib/libomp.dylib")
# check, severity, a piece of the finding, a piece of the cure, the facts
CASES = [
    ("interpreter", FAIL, "no answer within 20 s", "--python", spoiled(
        MAC, environment__installed=None, environment__trouble="no answer within 20 s")),
    ("interpreter", WARN, "too old", "3.9", spoiled(MAC, environment__installed__version=(3, 8, 20))),
    ("interpreter", NOTE, "not tested", "drill", spoiled(MAC, environment__installed__version=(3, 15, 0))),
    ("interpreter", NOTE, "PyPy", "drill", spoiled(MAC, environment__installed__implementation="PyPy")),
    ("rosetta", FAIL, "Rosetta", "arm64", spoiled(MAC, environment__installed__translated=True)),
    ("rosetta", FAIL, "Rosetta", "arm64", spoiled(MAC, environment__installed__machine="x86_64")),
    ("frameworks", FAIL, "no TensorFlow", "activate", packages(MAC, tensorflow=None, keras=None)),
    ("frameworks", OK, "mlx 0.32.4; loops of PyTorch and MLX are counted", "", packages(
        MAC, tensorflow=None, tensorflow_metal=None, keras=None, mlx="0.32.4")),
    ("frameworks", OK, "torch 2.13.0; loops of PyTorch and MLX are counted", "", packages(
        LINUX, tensorflow_cpu=None, keras=None, torch="2.13.0")),
    ("openmp", NOTE, "2 runtimes of OpenMP: /env/lib/libomp.dylib, /env/torch/lib/libomp.dylib", "conda-forge", spoiled(
        MAC, environment__installed__openmp=TWO_OPENMP)),
    ("openmp", WARN, "pytorch#193520", "unset KMP_DUPLICATE_LIB_OK", spoiled(
        MAC, environment__installed__openmp=TWO_OPENMP, variables={"KMP_DUPLICATE_LIB_OK": "TRUE"})),
    ("plug-in", FAIL, "2.20.0 with tensorflow-metal 1.2.0", "2.18.1", packages(MAC, tensorflow="2.20.0")),
    ("plug-in", FAIL, "does not load", "uninstall", packages(MAC, tensorflow_metal="1.1.0")),
    ("plug-in", WARN, "not known to load", "--deep", packages(MAC, tensorflow_metal="9.9")),
    ("plug-in", WARN, "on the processor", "pip install", packages(MAC, tensorflow_metal=None)),
    ("plug-in", WARN, "on the processor", "with Python 3.11", spoiled(
        packages(MAC, tensorflow_metal=None), environment__installed__version=(3, 13, 1))),
    ("plug-in", WARN, "tensorflow-metal 1.2.0 and tensorflow-metal-plugin 0.4.1: both are the file", "2.18.1", packages(
        MAC, tensorflow_metal_plugin="0.4.1")),
    ("plug-in", FAIL, "does not load on macOS 14.7", "macOS 15 or later", spoiled(packages(
        MAC, tensorflow="2.21.0", tensorflow_metal=None, tensorflow_metal_plugin="0.4.1"),
        about={**MAC.about, "version": "14.7"})),
    ("plug-in", WARN, "offers no GPU to another", "TensorFlow 2.21", packages(
        MAC, tensorflow_metal=None, tensorflow_metal_plugin="0.4.1")),
    ("plug-in", WARN, "not known to load", "--deep", packages(
        MAC, tensorflow="2.21.0", tensorflow_metal=None, tensorflow_metal_plugin="0.2.0")),
    ("plug-in", NOTE, "fits by its documents", "--deep", spoiled(packages(
        MAC, tensorflow="2.21.0", tensorflow_metal=None, tensorflow_metal_plugin="0.4.1"),
        about={**MAC.about, "version": "15.1"})),
    ("plug-in", WARN, "without Apple silicon", "uninstall", spoiled(
        MAC, about={"machine": "x86_64", "cores": 8, "rosetta": None})),
    ("plug-in", NOTE, "libother.dylib", "", spoiled(
        packages(MAC, tensorflow_metal=None), environment__installed__plugins=("libother.dylib",))),
    ("keras", FAIL, "tf-keras is not installed", "tf-keras==2.18", spoiled(
        MAC, variables={"TF_USE_LEGACY_KERAS": "1"})),
    ("keras", FAIL, "Keras 2", "keras<2.16", packages(LINUX, tensorflow_cpu="2.15.1", numpy="1.26.4")),
    ("keras", FAIL, "Keras would use jax (KERAS_BACKEND)", "KERAS_BACKEND=tensorflow", spoiled(
        LINUX, environment__installed__backend=("jax", "KERAS_BACKEND"))),
    ("keras", FAIL, "its default", "KERAS_BACKEND=torch", packages(LINUX, tensorflow_cpu=None, torch="2.13.0")),
    ("numpy", FAIL, "NumPy 2.0.2", "numpy<2", packages(MAC, tensorflow="2.16.2")),
    ("versions", WARN, "2.16.1", "2.18.1", packages(MAC, tensorflow="2.16.1", numpy="1.26.4")),
    ("versions", WARN, "freezes", "2.18.1", packages(
        MAC, tensorflow="2.9.2", tensorflow_metal="0.5.0", keras="2.9.0", numpy="1.26.4")),
    ("versions", NOTE, "optimizers", "legacy", packages(
        MAC, tensorflow="2.15.1", tensorflow_metal="1.1.0", keras="2.15.0", numpy="1.26.4")),
    ("versions", WARN, "deadlock", "2.20", packages(LINUX, pyarrow="17.0")),
    ("command", WARN, "/usr/local/bin/stallguard, another program", "PATH", spoiled(
        MAC, foreign_command="/usr/local/bin/stallguard")),
    ("notifications", FAIL, "Apprise is not installed", "unset notify.urls", spoiled(
        MAC, notifies_addresses=True, has_apprise=False)),
    ("notifications", FAIL, "of notify.urls: ntfy 2", "docs/notifications.md", spoiled(
        MAC, notifies_addresses=True, unusable_addresses=("ntfy 2",))),
    ("traces", FAIL, "OpenTelemetry is not installed", "unset metrics.otlp", spoiled(
        MAC, wants_traces=True, has_otel=False)),
    ("notifications", NOTE, "only if Script Editor is allowed", "notify test", spoiled(
        MAC, notifies_desktop=True)),
    ("plug-ins", NOTE, "smart (pkg:Sensor) of smart-sensors", "", spoiled(
        MAC, added=(("smart", "pkg:Sensor", "smart-sensors"),))),
    ("sitecustomize", NOTE, "/env/lib/sitecustomize.py", "", spoiled(
        MAC, environment__installed__sitecustomize="/env/lib/sitecustomize.py")),
    ("deep", FAIL, "Symbol not found", "2.18.1", spoiled(
        MAC, environment__deep=Deep(trouble="ImportError: Symbol not found: _TF_AssignVariable (exit code 1)"))),
    ("deep", FAIL, "no answer within 300 s", "by hand", spoiled(
        MAC, environment__deep=Deep(trouble="no answer within 300 s"))),
    ("deep", WARN, "no GPU among them", "2.18.1", spoiled(MAC, environment__deep=Deep("2.18.1", {"/CPU:0": 0.1}, 9.0))),
    ("deep", WARN, "95 s", "disk", spoiled(MAC, environment__deep=Deep("2.18.1", {"/GPU:0": 80.0}, 95.0))),
    ("gpu", WARN, "lists no GPU", "restart", spoiled(MAC, preferences__gpus=())),
    ("gpu", WARN, "virtual machine", "physical",
     spoiled(MAC, preferences__gpus=(ListedGpu("x Paravirtual", virtual=True),))),
    ("gpu", WARN, "88% busy", "shared", spoiled(MAC, device__utilisation=0.88)),
    ("gpu", NOTE, "restarted 3 times", "restart", spoiled(MAC, device__recoveries=3)),
    ("gpu build", WARN, "does not use the GPU", "and-cuda", spoiled(LINUX, device=Device(name="NVIDIA A"))),
    ("memory", FAIL, "critical", "end other", spoiled(MAC, memory__pressure="critical")),
    ("memory", FAIL, "1.0 GB of 32.0 GB", "end other", spoiled(MAC, memory__available=1 * GB)),
    ("memory", WARN, "4.0 GB of 32.0 GB", "swapping", spoiled(MAC, memory__available=4 * GB)),
    ("memory", NOTE, "limit of 8.0 GB", "", spoiled(LINUX, memory__limit=8 * GB)),
    ("swap", WARN, "20.0 GB are in swap", "restart", spoiled(MAC, memory__swap_used=20 * GB)),
    ("swap", WARN, "only 9.0 GB are free", "free 32.0 GB", spoiled(
        MAC, places=(PlaceFacts("swap", "/private/var/vm", False, 9 * GB, 2),))),
    ("power", FAIL, "battery", "mains", spoiled(MAC, machine__power="battery")),
    ("power", WARN, "low-power", "switch it off", spoiled(MAC, machine__low_power=True)),
    ("power", WARN, "low-power", "switch it off", spoiled(MAC, preferences__sleep=Sleep(0.0, low_power=True))),
    ("power", WARN, "70%", "temperature", spoiled(MAC, machine__cpu_limit=0.7)),
    ("heat", WARN, "serious", "cool", spoiled(MAC, machine__thermal="serious")),
    ("sleep", WARN, "lid", "open", spoiled(MAC, machine__lid_closed=True)),
    ("sleep", WARN, "after 10 min", "run.let_sleep", spoiled(MAC, preferences__sleep=Sleep(600.0), let_sleep=True)),
    ("sleep", WARN, "asleep at 23:00, the job night", "pmset repeat wakeorpoweron MTWRFSU 22:59:00", spoiled(
        MAC, preferences__sleep=Sleep(600.0), jobs=(("night", ("23:00",)),))),
    ("sleep", WARN, "after 1 min of idleness: if it is asleep at 23:00", "MTWRFSU 23:00:00", spoiled(
        MAC, preferences__sleep=Sleep(60.0), preferences__wakes=("22:59",), jobs=(("night", ("23:00",)),))),
    ("disk", FAIL, "0.5 GB free for runs", "ends a training", spoiled(
        MAC, places=(PlaceFacts("runs", "/r", True, GB // 2, 1),))),
    ("disk", WARN, "5.0 GB free", "free space", spoiled(MAC, places=(PlaceFacts("runs", "/r", True, 5 * GB, 1),))),
    ("places", FAIL, "cannot write /r, where runs go", "another directory", spoiled(
        MAC, places=(PlaceFacts("runs", "/r", False, 99 * GB, 1),))),
    ("places", FAIL, "no socket", "TMPDIR", spoiled(MAC, socket_trouble="the path is too long")),
    ("permissions", NOTE, "Documents/net", "elsewhere", spoiled(
        MAC, working="/Users/you/Documents/net", guarded="~/Documents")),
    ("others", WARN, "chrome (9 processes): 4.0 cores", "slower", spoiled(MAC, heavy=(Heavy("chrome", 9, 4.0, GB),))),
    ("others", WARN, "python (train.py, pid 42; -m jupyter, pid 7; pid 9; and 7 more): 4.0 cores", "slower", spoiled(
        MAC, heavy=(Heavy("python", 10, 4.0, GB, ("train.py, pid 42", "-m jupyter, pid 7", "pid 9")),))),
    ("others", WARN, "12.0 GB of memory", "slower", spoiled(MAC, heavy=(Heavy("vm", 1, 0.1, 12 * GB),))),
    ("others", NOTE, "also running: backupd", "", spoiled(MAC, heavy=(Heavy("backupd", 1, 0.5, GB),))),
    ("others", WARN, "another run is alive: r1", "one GPU", spoiled(MAC, runs=("r1",))),
    ("store", FAIL, "cannot be used: it is away", "mount it", spoiled(
        MAC, store=StoreFacts("/share", trouble="it is away", cure="mount it"))),
    ("store", FAIL, "/share must not be used: exclusive creation: 2 succeeded", "docs/fleet.md", spoiled(
        MAC, store=StoreFacts("/share", (StorePromise("exclusive creation", False, "2 succeeded"),)))),
    ("fleet", FAIL, "is not private", "chmod 600", spoiled(
        MAC, fleet=FleetFacts("/f", trouble="/f is not private", cure="chmod 600 /f"))),
    ("certificates", FAIL, "expired 3 days ago", "--renew", spoiled(MAC, fleet=FleetFacts("/f", "lab", days=-3.0))),
    ("certificates", WARN, "lasts 29 days", "fleet invite", spoiled(MAC, fleet=FleetFacts("/f", "lab", days=29.0))),
    ("scheduler", FAIL, "the certificate of another fleet", "files of one fleet", spoiled(MAC, fleet=FleetFacts(
        "/f", "lab", scheduler="tls://s:1", unreachable="it has the certificate of another fleet", refused=True))),
    ("scheduler", WARN, "tls://s:1 does not answer: Connection refused", "fleet scheduler --install", spoiled(
        MAC, fleet=FleetFacts("/f", "lab", scheduler="tls://s:1", unreachable="Connection refused"))),
    ("fleet's store", WARN, "it is away", "mount it", spoiled(
        MAC, fleet=FleetFacts("/f", "lab", store=StoreFacts("/share", trouble="it is away")))),
    ("fleet's store", FAIL, "not the store of this fleet", "right file", spoiled(
        MAC, fleet=FleetFacts("/f", "lab", store=StoreFacts("/share"), foreign="it is not the store of this fleet"))),
    ("fleet's store", FAIL, "must not be used: exclusive creation: 2 succeeded", "docs/fleet.md", spoiled(
        MAC, fleet=FleetFacts("/f", "lab", store=StoreFacts(
            "/share", (StorePromise("exclusive creation", False, "2 succeeded"),))))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "severity", "what", "cure", "facts"),
    CASES,
    ids=[f"{number}-{case[0]}-{case[1]}" for number, case in enumerate(CASES)],
)
def test_a_spoiled_fact_is_found_with_its_severity_and_cure(name, severity, what, cure, facts):
    found = [finding for finding in examine(facts) if (finding.name, finding.severity) == (name, severity)]
    assert any(what in finding.what and cure in finding.cure for finding in found), examine(facts)


def test_every_check_is_tried():
    assert {case[0] for case in CASES} == set(CHECKS)


@pytest.mark.parametrize("facts", [MAC, LINUX], ids=["mac", "linux"])
def test_a_machine_on_which_nothing_is_wrong_gets_no_warning(facts):
    assert [finding for finding in examine(facts) if finding.severity != OK] == []


def test_what_would_spoil_a_night_and_what_costs_results_has_a_cure():
    announced = [finding for *_, facts in CASES for finding in examine(facts)]
    assert [finding for finding in announced if finding.severity in (WARN, FAIL) and not finding.cure] == []


def test_an_environment_that_does_not_answer_hides_nothing_of_the_machine():
    facts = spoiled(MAC, environment__installed=None, environment__trouble="gone", machine__power="battery")
    assert {finding.name for finding in examine(facts) if finding.severity == FAIL} == {"interpreter", "power"}
