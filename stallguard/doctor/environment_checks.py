"""The checks of the training environment: its interpreter, its frameworks, and whether they load together.

Functions of facts; a check whose facts are not known finds nothing.

Which versions load together is data.  Sources: Apple's table (the page of tensorflow-metal on PyPI) says with which
TensorFlow each plug-in was released; its upper ends were checked by comparing, in the wheels for arm64, the symbols
that libmetal_plugin.dylib wants with those that TensorFlow exports: from 2.20 on, 27 and more are missing for every
plug-in, from 2.18 on one is missing for 1.1.0.  `import tensorflow` loads all of tensorflow-plugins/ without a try, so
a wrong pair ends it.  For which Pythons there are wheels: the files of each package on the index, for macOS on arm64.

What tensorflow-metal-plugin needs is what its own documents say (README.md, setup.py and plugin_init.cc of 0.4.1): it
is built against one TensorFlow, and offers no GPU to another; dyld declines it before macOS 15.  stallguard is not
tested with it, so it is never said to be all right.  Earlier versions of it name no such limits.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stallguard.core.diagnosis.causes import COMMUNITY, PIN, PIN_LIMITS, PIN_PYTHONS
from stallguard.doctor.facts import CheckText, Installed, MachineFacts, fail, note, ok, warn

Release = tuple[int, ...]

APPLES, COMMUNITYS = "tensorflow-metal", "tensorflow-metal-plugin"
UNINSTALL = f"pip uninstall {APPLES} {COMMUNITYS}"


class VersionRange(NamedTuple):
    """The TensorFlow releases that a plug-in loads beside.

    `broken_after`: what follows is known to fail.  `pythons`: the first and last with a wheel, if that is known.
    """

    first: Release
    last: Release
    broken_after: bool = False
    pythons: tuple[Release, Release] | None = None


FOR_ONE = {  # plug-ins that were released for one TensorFlow, by its second number
    "0.1.2": 5, "0.2.0": 6, "0.3.0": 7, "0.4.0": 8, "0.5.0": 9, "0.6.0": 10, "0.7.0": 11, "0.8.0": 12, "1.0.0": 13,
}  # fmt: skip
PLUGINS = {plugin: VersionRange((2, minor), (2, minor)) for plugin, minor in FOR_ONE.items()} | {
    "1.1.0": VersionRange((2, 14), (2, 17), broken_after=True, pythons=((3, 9), (3, 11))),
    "1.2.0": VersionRange((2, 16), (2, 19), broken_after=True, pythons=((3, 9), (3, 12))),
}


class CommunityNeeds(NamedTuple):
    """What a version of tensorflow-metal-plugin needs.  `pythons`: for which that TensorFlow has a wheel."""

    tensorflow: Release
    macos: Release
    pythons: tuple[Release, Release]


COMMUNITY_PLUGINS = {"0.4.1": CommunityNeeds((2, 21), (15,), ((3, 10), (3, 13)))}


class VersionTrap(NamedTuple):
    """Versions that load and have known problems.  `metal`: only on Apple's GPU, beside the plug-in."""

    first: Release
    last: Release
    metal: bool
    what: str
    cure: str
    beside: str = ""  # only if this package is installed too
    plugin: str = ""  # only with this version of the plug-in
    slow_only: bool = False


TRAPS = (
    VersionTrap(
        (2, 16, 1), (2, 16, 1), True,
        "TensorFlow 2.16.1 has GPU regressions with Keras 3 on Metal", PIN,
    ),
    VersionTrap(
        (2, 9), (2, 9, 99), True,
        "several of the reported freezes are exactly this pair, TensorFlow 2.9 with tensorflow-metal 0.5.0",
        PIN, plugin="0.5.0",
    ),
    VersionTrap(
        (2, 11), (2, 15, 99), True,
        "the optimizers of TensorFlow 2.11 to 2.15 are slow on Metal",
        "use tf.keras.optimizers.legacy.Adam (and its like)", slow_only=True,
    ),
    VersionTrap(
        (2, 20), (2, 99), False,
        "TensorFlow 2.20 and pyarrow in one process can deadlock ([mutex.cc] Lock blocking)",
        "import pyarrow first, or pip install 'tensorflow<2.20'", beside="pyarrow",
    ),
)  # fmt: skip


def release(version: str) -> Release:
    """Return the numbers of a version: 2.16.2rc1 is (2, 16, 2); empty if it has none."""
    match = re.match(r"\d{1,9}(?:\.\d{1,9})*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def pair(tensorflow: str, plugin: str) -> str:
    """Return whether TensorFlow loads with tensorflow-metal: loads, breaks or untested."""
    span, ours = PLUGINS.get(plugin), release(tensorflow)[:2]
    if span is None or not ours:
        return "untested"
    if ours > span.last and span.broken_after:
        return "breaks"
    return "loads" if span.first <= ours <= span.last else "untested"


def traps(tensorflow: str, packages: dict[str, str], *, metal: bool) -> list[VersionTrap]:
    """Return the known problems of an environment."""
    ours, plugin = release(tensorflow), packages.get("tensorflow-metal", "")
    return [
        trap
        for trap in TRAPS
        if trap.first <= ours <= trap.last
        and (not trap.metal or (metal and bool(plugin)))
        and (not trap.plugin or trap.plugin == plugin)
        and (not trap.beside or trap.beside in packages)
    ]


def tensorflow_version(packages: dict[str, str]) -> str:
    """Return the version of the TensorFlow that `import tensorflow` finds; empty if there is none.

    tensorflow-macos 2.16 is a name that only requires tensorflow; before, it was the library itself.
    """
    names = ("tensorflow", "tensorflow-cpu", "tensorflow-macos", "tf-nightly")
    return next((packages[name] for name in names if packages.get(name)), "")


OLDEST, NEWEST = (3, 9), (3, 14)  # Pythons that the probe is tested in
OWN_LOOPS = (
    "loops of PyTorch and MLX are counted and judged unchanged; they are resumed if they call stallguard.track() or "
    'stallguard.checkpoint(), and a batch is made smaller if they say track(..., loss="mean")'
)
SLOW_IMPORT = 60.0  # seconds


def interpreter(facts: MachineFacts) -> Iterator[CheckText]:
    """Is there a Python, and can the probe be loaded into it?"""
    here = facts.environment
    if here.installed is None:
        yield fail(f"{here.path} ({here.why}) does not answer: {here.trouble}", "choose another: --python PATH")
        return
    version = here.installed.version
    words = f"{here.installed.implementation} {'.'.join(map(str, version))} at {here.installed.executable} ({here.why})"
    if version[:2] < OLDEST:
        cure = "use Python 3.9 or later; else a training is guarded from outside only"
        yield warn(f"{words}: too old for the probe", cure)
    elif version[:2] > NEWEST or here.installed.implementation != "CPython":
        yield note(f"{words}: not tested with this Python", f"rehearse: stallguard drill --python {here.path}")
    else:
        yield ok(words)


def rosetta(facts: MachineFacts) -> Iterator[CheckText]:
    """Is the interpreter translated from Intel code?"""
    here = facts.environment.installed
    if here is None or not facts.is_metal:
        return
    if _is_for_intel(here):
        cure = "make the environment with a Python for arm64 (python.org, Homebrew in /opt/homebrew, uv)"
        yield fail("the interpreter is for Intel and runs under Rosetta: slow, and without the GPU", cure)


def frameworks(facts: MachineFacts) -> Iterator[CheckText]:
    """Is there a framework to train with?"""
    here = facts.environment.installed
    if here is None:
        return
    found = [f"{name} {here.packages[name]}" for name in ("torch", "jax", "mlx") if name in here.packages]
    if version := tensorflow_version(here.packages):
        found.insert(0, f"TensorFlow {version}")
    if found:
        owns = {"torch", "mlx"} & set(here.packages) and "keras" not in here.packages
        yield ok(", ".join(found) + (f"; {OWN_LOOPS}" if owns else ""))
        return
    cure = "activate the training's environment first, or name it: --python .venv/bin/python"
    yield fail("no TensorFlow, PyTorch, JAX or MLX in this environment", cure)


def openmp(facts: MachineFacts) -> Iterator[CheckText]:
    """On a Mac: is there one runtime of OpenMP?

    Of two in one process each ends it, or, if that is forbidden, they can wait for each other at an idle processor
    (gh:pytorch/pytorch/issues/193520).
    """
    here = facts.environment.installed
    if here is None or facts.system != "Darwin" or len(here.openmp) <= 1:
        return
    several = f"{len(here.openmp)} runtimes of OpenMP: {', '.join(here.openmp)}"
    one = "have one: install what brings them from one place, conda-forge or PyPI"
    if "KMP_DUPLICATE_LIB_OK" in facts.variables:
        what = f"{several}; with KMP_DUPLICATE_LIB_OK a training that loads two can wait for ever (pytorch#193520)"
        yield warn(what, f"unset KMP_DUPLICATE_LIB_OK, and {one}")
    else:
        yield note(f"{several}; a process that loads two can end at the import (OMP: Error #15)", f"if it does, {one}")


def plugin(facts: MachineFacts) -> Iterator[CheckText]:
    """On a Mac: does a plug-in for the GPU load beside this TensorFlow?"""
    here = facts.environment.installed
    version = tensorflow_version(here.packages) if here else ""
    if here is None or not version or facts.system != "Darwin":
        return
    both = [f"{name} {here.packages[name]}" for name in (APPLES, COMMUNITYS) if name in here.packages]
    if not facts.is_metal:
        if both:
            yield warn(f"{' and '.join(both)}: not known to load on a Mac without Apple silicon", UNINSTALL)
    elif _is_for_intel(here):  # rosetta() says so
        return
    elif len(both) > 1:
        what = (
            f"{' and '.join(both)}: both are the file tensorflow-plugins/libmetal_plugin.dylib; unknown which is there"
        )
        yield warn(what, f"{UNINSTALL}; then {PIN}")
    elif APPLES in here.packages:
        yield _of_apple(here, version)
    elif both:
        yield _of_community(here, version, release(str(facts.about.get("version") or "")))
    elif here.plugins:
        yield note(f"TensorFlow will load {', '.join(here.plugins)}, which belongs to no known package")
    else:
        cure = (
            PIN if _has_wheel(here, PLUGINS["1.2.0"].pythons) else f"{PIN_LIMITS}; with Python 3.11: {PIN}; {COMMUNITY}"
        )
        yield warn(f"no tensorflow-metal: TensorFlow {version} will train on the processor", cure)


def _of_apple(here: Installed, version: str) -> CheckText:
    metal = here.packages[APPLES]
    words = f"TensorFlow {version} with tensorflow-metal {metal}"
    match pair(version, metal):
        case "loads" if _has_wheel(here, PLUGINS[metal].pythons):
            return ok(f"{words}: load together")
        case "breaks":
            cure = f"with {PIN_PYTHONS}: {PIN}; or train on the processor: pip uninstall tensorflow-metal; {COMMUNITY}"
            return fail(f"{words}: `import tensorflow` fails, the plug-in does not load with this version", cure)
        case _:
            cure = f"with {PIN_PYTHONS}: {PIN}; or test it with --deep"
            return warn(f"{words} on Python {_dotted(here.version[:2])}: a combination that is not known to load", cure)


def _of_community(here: Installed, version: str, macos: Release) -> CheckText:
    """`macos`: its version; empty if that is not known, which is not taken for a new one."""
    theirs = here.packages[COMMUNITYS]
    words, needs = f"TensorFlow {version} with {COMMUNITYS} {theirs}", COMMUNITY_PLUGINS.get(theirs)
    other = f"{COMMUNITY}; or with {PIN_PYTHONS}: {UNINSTALL}, then {PIN}"
    if needs is None:
        return warn(f"{words}: a combination that is not known to load", f"test it with --deep; {other}")
    if macos and macos < needs.macos:
        return fail(f"{words}: the plug-in does not load on macOS {_dotted(macos)}", other)
    if release(version)[:2] != needs.tensorflow:
        what = f"{words}: it was built for TensorFlow {_dotted(needs.tensorflow)}, and offers no GPU to another"
        return warn(what, other)
    if not macos or not _has_wheel(here, needs.pythons):
        where = f"Python {_dotted(here.version[:2])}, macOS {_dotted(macos) or 'unknown'}"
        return warn(f"{words}: a combination that is not known to load ({where})", f"test it with --deep; {other}")
    return note(f"{words}: fits by its documents, and is not tested with stallguard", "test it with --deep")


def _has_wheel(here: Installed, pythons: tuple[Release, Release] | None) -> bool:
    return pythons is None or pythons[0] <= here.version[:2] <= pythons[1]


def _is_for_intel(here: Installed) -> bool:
    return bool(here.translated) or here.machine == "x86_64"


def keras(facts: MachineFacts) -> Iterator[CheckText]:
    """Do `keras` and `tf.keras` import, and do they match what is installed?"""
    here = facts.environment.installed
    if here is None:
        return
    tensorflow, version = release(tensorflow_version(here.packages)), here.packages.get("keras", "")
    modern = release(version) >= (3,)
    if facts.variables.get("TF_USE_LEGACY_KERAS", "0").lower() in ("1", "true"):
        if tensorflow >= (2, 16) and "tf-keras" not in here.packages:
            cure = f"pip install 'tf-keras=={tensorflow[0]}.{tensorflow[1]}.*', or unset the variable"
            yield fail("TF_USE_LEGACY_KERAS is set and tf-keras is not installed: tf.keras cannot be imported", cure)
    elif tensorflow and tensorflow < (2, 16) and modern:
        cure = "pip install 'keras<2.16'"
        yield fail(f"Keras {version} beside TensorFlow {_dotted(tensorflow)}: tf.keras there is Keras 2", cure)
    if modern:
        yield from _backend(here)


def _backend(here: Installed) -> Iterator[CheckText]:
    """Is the framework installed on which Keras 3 will run?"""
    wanted, source = here.backend
    name = wanted or "tensorflow"
    present = {
        "tensorflow": bool(tensorflow_version(here.packages)),
        "torch": "torch" in here.packages,
        "jax": "jax" in here.packages,
    }
    if present.get(name, True):  # numpy and openvino need no framework of this table
        yield ok(f"Keras {here.packages['keras']} on {name}{f' ({source})' if source else ''}")
        return
    others = [other for other, there in present.items() if there]
    cure = f"export KERAS_BACKEND={others[0]}" if others else f"pip install {name}"
    yield fail(f"Keras would use {name} ({source or 'its default'}), which is not installed", cure)


def numpy(facts: MachineFacts) -> Iterator[CheckText]:
    """TensorFlow before 2.18 was built for NumPy 1 and does not import with NumPy 2."""
    here = facts.environment.installed
    tensorflow = release(tensorflow_version(here.packages)) if here else ()
    version = here.packages.get("numpy", "") if here else ""
    if tensorflow and tensorflow < (2, 18) and release(version) >= (2,):
        yield fail(
            f"NumPy {version} beside TensorFlow {_dotted(tensorflow)}, which needs NumPy 1", "pip install 'numpy<2'"
        )


def versions(facts: MachineFacts) -> Iterator[CheckText]:
    """Versions with known problems although they load."""
    here = facts.environment.installed
    if here is None:
        return
    found = traps(tensorflow_version(here.packages), here.packages, metal=facts.is_metal)
    for trap in found:
        yield note(trap.what, trap.cure) if trap.slow_only else warn(trap.what, trap.cure)


def customised(facts: MachineFacts) -> Iterator[CheckText]:
    """The environment's own sitecustomize: the probe's runs first and then runs it."""
    here = facts.environment.installed
    if here is not None and here.sitecustomize:
        yield note(f"every start of this Python runs {here.sitecustomize}; stallguard runs it after the probe's own")


def command(facts: MachineFacts) -> Iterator[CheckText]:
    """Does the command `stallguard` start this program?"""
    if facts.foreign_command:
        yield warn(
            f"`stallguard` starts {facts.foreign_command}, another program with that name",
            f"put this one first: export PATH={Path(sys.executable).parent}:$PATH; or uninstall that one",
        )


def deep(facts: MachineFacts) -> Iterator[CheckText]:
    """With --deep: does the framework import, and do its devices compute?"""
    here = facts.environment
    if here.deep is None:
        return
    if here.deep.trouble:
        cure = "run the import by hand in that environment and fix the error"
        signs = ("Library not loaded", "Symbol not found", "libmetal_plugin")
        if any(sign in here.deep.trouble for sign in signs):
            cure = f"the plug-in does not fit: {PIN}"
        yield fail(f"{here.framework} could not be used: {here.deep.trouble}", cure)
        return
    devices = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in here.deep.devices.items())
    words = f"{here.framework} {here.deep.version} computes; a first product took: {devices}"
    if here.deep.seconds > SLOW_IMPORT:
        yield warn(f"{words}; in total {here.deep.seconds:.0f} s", "check the disk and other processes")
    elif here.framework == "tensorflow" and facts.is_metal and not any("GPU" in name for name in here.deep.devices):
        yield warn(f"{words}; there is no GPU among them", PIN)
    else:
        yield ok(words)


def _dotted(version: Release) -> str:
    return ".".join(map(str, version))
