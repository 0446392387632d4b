"""Attempts of one run, as the supervisor would start them: the same seed, another token each time."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.probe.receiver import Heard, Receiver

SEED, OTHER = "31415926535897932384626433832795", "27182818284590452353602874713526"


class Attempts:
    """A script that prints one JSON value; each attempt runs it once or several times."""

    def __init__(self, receiver: Receiver, folder: Path, code: str, interpreter: str = sys.executable) -> None:
        """Nothing is started yet."""
        self.receiver = receiver
        script = folder / "draws.py"
        script.write_text(code)
        self._command, self._folder = [interpreter, str(script)], folder
        self._tokens = 100

    def run(self, seed: str = SEED, **environment: Any) -> Heard:
        """Start an attempt and wait for its end.  `seed`: of the run; "" leaves everything random."""
        self._tokens += 1
        return self.again(seed, **environment)

    def again(self, seed: str = SEED, receiver: Receiver | None = None, **environment: Any) -> Heard:
        """Start the script once more within the attempt.  `receiver`: another one than usual."""
        environment["token"] = self._tokens
        if seed:
            environment["seed"] = seed
        heartbeat = (receiver or self.receiver).run(self._command, timeout=300, cwd=self._folder, **environment)
        assert heartbeat.code == 0, heartbeat.err[-3000:]
        assert not [note for note in heartbeat.notes if note["kind"] in ("aside", "trouble")]
        return heartbeat

    def draws(self, seed: str = SEED, **environment: Any) -> Any:
        """Return what an attempt prints."""
        return printed(self.run(seed, **environment))


def printed(heartbeat: Heard) -> Any:
    """Return the JSON value in the last line of the output."""
    return json.loads(heartbeat.out.splitlines()[-1])


def same(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    """Return the names of equal draws of two processes."""
    assert one.keys() == other.keys()
    return {name for name in one if one[name] == other[name]}


# What a script can see of Python's generators.
LOOK = """
import copy, inspect, json, pickle, random, sys
facts = {
    "signatures": [str(inspect.signature(what)) for what in (random.Random, random.Random.seed, random.seed)],
    "names": [random.seed.__qualname__, random.seed.__module__, random.Random.seed.__doc__, repr(random.Random)],
    "pickle": pickle.loads(pickle.dumps(random.Random(5))).random(),
    "copy": copy.deepcopy(random.Random(5)).random(),
    "bound": random.seed.__self__ is random._inst, "type": type(random.Random()) is random.Random,
    "system": random.SystemRandom().seed(5), "modules": sorted(set(sys.modules) - {"random"}),
}
try:
    random.seed([])
except TypeError as error:
    facts["error"] = str(error)
"""
