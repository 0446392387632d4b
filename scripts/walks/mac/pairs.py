"""Which Pythons of this clone have a TensorFlow and a plug-in for the GPU: the checks of Metal are made with each.

Read from the names of what is installed; no interpreter is started.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

# What `scripts/setup metal218` and `scripts/setup metalplugin` make beside the environment of the walk.
BESIDE = (Path(".venvs/metal218"), Path(".venvs/metalplugin"))
_DIST = re.compile(r"(tensorflow|tensorflow_metal|tensorflow_metal_plugin)-([^-]+)\.dist-info")


def pair(names: Sequence[str]) -> str:
    """Return the pair among these names of site-packages, as "tensorflow 2.18.1 + tensorflow-metal 1.2.0"; or ""."""
    found = {match[1].replace("_", "-"): match[2] for name in names if (match := _DIST.fullmatch(name))}
    tensorflow = found.pop("tensorflow", "")
    plugins = [f"{name} {version}" for name, version in sorted(found.items())]
    return " + ".join([f"tensorflow {tensorflow}", *plugins]) if tensorflow and plugins else ""


def metal_pythons(root: Path, own: Path, beside: Sequence[Path] = BESIDE[:1]) -> dict[str, str]:
    """Return the path of each interpreter with a pair, by the name of the pair.

    `own`: the interpreter of the walk; `beside`: other environments, that of the community's plug-in only if asked for.
    `own` is the only entry, under the name "no plug-in", if there is no pair at all, as on Linux: a check then finds
    out by itself that there is no GPU.
    """
    found: dict[str, str] = {}
    for python in (own, *(root / place / "bin" / "python" for place in beside)):
        if name := pair(list(_installed(python.parent.parent))):
            found.setdefault(name, str(python))
    return found or {"no plug-in": str(own)}


def _installed(home: Path) -> Iterator[str]:
    return (entry.name for entry in home.glob("lib/python3.*/site-packages/*.dist-info"))
