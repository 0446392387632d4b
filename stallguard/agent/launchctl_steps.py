"""How jobs are loaded and removed, as tables of steps, and the function that executes them.

launchd answers before it is done: bootout returns while the job still ends, and bootstrap returns "input/output error"
for six states, sometimes although it succeeded.  So every step lists the next step for each answer, and only `print`
shows the state.  The order is that of Homebrew's services: enable, bootout, wait until the job is gone, bootstrap,
verify.  This module must not start a process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from stallguard.agent.launchctl_codes import ABSENT, BUSY, DISABLED, LOADED, OK, UNCLEAR, Answer, answer
from stallguard.agent.service_tool import Said
from stallguard.errors import StallguardError

DONE = "done"
PAUSE = 0.25  # seconds between two tries


class ServiceStep(NamedTuple):
    """Run launchctl with `words`.  `leads`: the next step for each meaning of the answer; `tries`: at most so many."""

    words: tuple[str, ...]
    leads: Mapping[str, str]
    tries: int = 1


Steps = Mapping[str, ServiceStep]


def _until_gone(seconds: float, then: str) -> ServiceStep:
    return ServiceStep(("print", "{target}"), {OK: "gone?", ABSENT: then}, tries=round(seconds / PAUSE))


def _bootout(then: str) -> ServiceStep:
    gone = dict.fromkeys((OK, BUSY, UNCLEAR), "gone?")
    return ServiceStep(("bootout", "{target}"), gone | {ABSENT: then})


def install(exit_timeout: float) -> Steps:
    """Return the steps that load a property list, and replace the job that is loaded."""
    verify = dict.fromkeys((OK, UNCLEAR, BUSY, LOADED), "loaded?")
    return {
        "enable": ServiceStep(("enable", "{target}"), {OK: "bootout"}, tries=2),
        "bootout": _bootout("bootstrap")._replace(tries=2),
        "gone?": _until_gone(max(exit_timeout + 5, 30), "bootstrap"),
        "bootstrap": ServiceStep(
            ("bootstrap", "{domain}", "{file}"), verify | {DISABLED: "enable"}, tries=20
        ),
        "loaded?": ServiceStep(("print", "{target}"), {OK: DONE, ABSENT: "bootstrap"}, tries=20),
    }


def uninstall(exit_timeout: float) -> Steps:
    """Return the steps that end and unload a job."""
    return {"bootout": _bootout(DONE), "gone?": _until_gone(max(exit_timeout + 5, 30), DONE)}


def play(
    steps: Steps,
    names: Mapping[str, str],
    launchctl: Callable[[Sequence[str]], Said],
    sleep: Callable[[float], None],
) -> list[tuple[str, Said]]:
    """Execute `steps` from the first to DONE; return each step with launchctl's answer.

    `names` fills {domain}, {target}, {file}.  Raises StallguardError if an answer has no next step, or if a
    step was tried too often.
    """
    visits: dict[str, int] = dict.fromkeys(steps, 0)
    story: list[tuple[str, Said]] = []
    name = next(iter(steps))
    while name != DONE:
        step = steps[name]
        if visits[name] == step.tries:
            raise failure(step, names, _last_reason(story))
        if visits[name]:
            sleep(PAUSE)
        visits[name] += 1
        said = launchctl(tuple(word.format_map(names) for word in step.words))
        story.append((name, said))
        meaning = answer(*said).meaning
        if meaning not in step.leads:
            raise failure(step, names, answer(*said))
        name = step.leads[meaning]
    return story


def _last_reason(story: list[tuple[str, Said]]) -> Answer:
    """Return the last answer that gives a reason: a failed bootstrap rather than the `print` after it."""
    reasons = [answer(*said) for _, said in story if answer(*said).meaning not in (OK, ABSENT)]
    return reasons[-1] if reasons else answer(*story[-1][1])


def failure(step: ServiceStep, names: Mapping[str, str], said: Answer) -> StallguardError:
    """Return the error for a step with the answer `said`."""
    asked = " ".join(("launchctl", *(word.format_map(names) for word in step.words)))
    return StallguardError(
        f"the job {names['target']} could not be {'loaded' if 'file' in names else 'unloaded'}",
        why=f"{asked}: {said.words}",
        cure=said.cure or "try again in a minute; stallguard agent status shows the state of the job",
    )
