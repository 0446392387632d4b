"""Clues from the machine: heat, power, sleep, and who else works on it; and from the versions that run."""

# ruff: noqa: D103 - a clue is documented by its sentence

from __future__ import annotations

from stallguard.core.diagnosis import metrics
from stallguard.core.diagnosis.clues import Facts, Scene, clue, gpu, percent

CROWDED = 0.15  # share of the machine that is idle
SLOWED = 0.9  # of the full clock
AWAKE = 30.0  # seconds after waking for which the sleep explains a silence


@clue()
def in_background(scene: Scene) -> bool:
    """The training runs mostly as background work of macOS, by the newest reading."""
    known = [one.reading.background for one in scene.history.process if one.reading.background is not None]
    return bool(known) and known[-1]


@clue("the machine is hot ({level})")
def hot(scene: Scene) -> Facts | None:
    seen = metrics.newest(scene.history.machine, scene.now, 60.0)
    return (
        {"level": seen.thermal}
        if seen is not None and seen.thermal in ("serious", "critical", "fair")
        else None
    )


@clue("the system limits the processor to {share} of its speed")
def clocked_down(scene: Scene) -> Facts | None:
    seen = metrics.newest(scene.history.machine, scene.now, 60.0)
    limit = None if seen is None else seen.cpu_limit
    return {"share": percent(limit)} if limit is not None and limit < SLOWED else None


@clue("low-power mode is on")
def low_power(scene: Scene) -> bool:
    seen = metrics.newest(scene.history.machine, scene.now, 60.0)
    return seen is not None and bool(seen.low_power)


@clue("it runs on battery")
def on_battery(scene: Scene) -> bool:
    seen = metrics.newest(scene.history.machine, scene.now, 60.0)
    return seen is not None and seen.power == "battery"


@clue("other programs keep the machine busy: {names}")
def crowded(scene: Scene) -> Facts | None:
    seen = metrics.newest(scene.history.machine, scene.now, 60.0)
    if seen is None or not seen.busiest or seen.idle is None or seen.idle > CROWDED:
        return None
    return {"names": ", ".join(seen.busiest)}


@clue("the machine slept for {seconds} s meanwhile")
def slept(scene: Scene) -> Facts | None:
    found = scene.history.slept
    if found is None or found.why != "asleep" or scene.now - found.at > AWAKE:
        return None
    return {"seconds": f"{found.seconds:.0f}"}


@clue("the interpreter is an Intel program, translated by Rosetta")
def translated(scene: Scene) -> bool:
    """An Intel interpreter on a machine with an Apple GPU."""
    greeted = scene.history.greeted
    intel = greeted is not None and greeted.versions.get("machine") == "x86_64"
    return intel and bool(gpu.on_metal.test(scene))
