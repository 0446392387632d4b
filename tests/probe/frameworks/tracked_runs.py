"""What the attempts of a run said to a tracker."""

from __future__ import annotations

from tests.guarded.runs import Guarded


def ids(done: Guarded) -> list[str]:
    """Return the ids of the runs that the attempts used, in order."""
    assert done.code == 0, done.err
    assert done.outcome()["attempts"] == 2
    return [line.split()[1] for line in done.out.decode().splitlines() if line.startswith("run ")]


def goes_on(done: Guarded) -> str:
    """Return the id of the run that both attempts used, which was noted once."""
    first, second = ids(done)
    assert first == second
    noted = [one.text for one in done.events if getattr(one, "kind", "") == "tracker"]
    assert len(noted) == 1
    assert noted[0].endswith(first)
    return first
