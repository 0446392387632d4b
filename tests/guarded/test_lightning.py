"""Lightning under `stallguard run`, killed at random instants, comes to the same as undisturbed.

With more kills: .venv/bin/python -m tests.guarded.test_lightning SEED KILLS [WORDS OF THE SCRIPT]
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .runs import SCRIPTS
from .test_trainer import killed, main, undisturbed

SCRIPT = SCRIPTS / "lightning_resumed.py"


def test_a_fit_that_is_killed_three_times_comes_to_the_same(other_python: Callable[[str], str], tmp_path: Path) -> None:
    words = ("pause=0.05", "workers=2", "accumulation=2", "rows=64", "validate=0.5", "saves=yes")
    expected = undisturbed(other_python("hf"), tmp_path / "plain", *words, script=SCRIPT)
    lines, said, made = killed(other_python("hf"), tmp_path / "guarded", 3, 40, *words, script=SCRIPT)

    assert made == 3
    assert lines[-1] == expected, said
    firsts = [one["first"] for one in lines if "first" in one]
    assert firsts[0] == 0
    assert firsts == sorted(firsts)
    assert firsts[-1] > 0
    assert said.count("Lightning goes on from step") == sum(first > 0 for first in firsts)


if __name__ == "__main__":
    main(SCRIPT)
