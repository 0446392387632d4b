"""Which versions load together, as data, and functions of it.

Sources: Apple's table (the page of tensorflow-metal on PyPI) says with which TensorFlow each plug-in was released;
its upper ends were checked by comparing, in the wheels for arm64, the symbols that libmetal_plugin.dylib wants
with those that TensorFlow exports: from 2.20 on, 27 and more are missing for every plug-in, from 2.18 on one is
missing for 1.1.0.  `import tensorflow` loads all of tensorflow-plugins/ without a try, so a wrong pair ends it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

Release = tuple[int, ...]

PIN = "pip install 'tensorflow==2.18.1' 'tensorflow-metal==1.2.0'"
PLUGIN_PYTHONS = ((3, 9), (3, 12))  # for which tensorflow-metal 1.2.0 has wheels


class VersionRange(NamedTuple):
    """The TensorFlow releases that a plug-in loads beside.  `broken_after`: what follows is known to fail."""

    first: Release
    last: Release
    broken_after: bool = False


PLUGINS: dict[str, VersionRange] = {
    "0.1.2": VersionRange((2, 5), (2, 5)),
    "0.2.0": VersionRange((2, 6), (2, 6)),
    "0.3.0": VersionRange((2, 7), (2, 7)),
    "0.4.0": VersionRange((2, 8), (2, 8)),
    "0.5.0": VersionRange((2, 9), (2, 9)),
    "0.6.0": VersionRange((2, 10), (2, 10)),
    "0.7.0": VersionRange((2, 11), (2, 11)),
    "0.8.0": VersionRange((2, 12), (2, 12)),
    "1.0.0": VersionRange((2, 13), (2, 13)),
    "1.1.0": VersionRange((2, 14), (2, 17), broken_after=True),
    "1.2.0": VersionRange((2, 16), (2, 19), broken_after=True),
}


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
