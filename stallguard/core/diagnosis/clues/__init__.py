"""Clues: small yes-or-no questions about a run at one instant, each with the sentence for yes.

A clue reads a `Scene` and returns its facts (a dict for the template) if it holds, and None or False if it does not, or
that is not known.  patterns.py combines clues; a clue does not depend on a cause.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from stallguard.core.diagnosis import metrics
from stallguard.core.events import Exited
from stallguard.core.history import History, Match
from stallguard.core.text import cut
from stallguard.core.verdicts import Judgement

Facts = Mapping[str, str]
Test = Callable[["Scene"], "Facts | bool | None"]
QUOTE = 160  # characters of a line of the output, in a sentence
RECENT = 300.0  # seconds before the last progress for which a line of the output can explain what followed


class Scene(msgspec.Struct, frozen=True):
    """A run at one instant; `exited` if the question is why it ended."""

    history: History
    judgement: Judgement
    now: float
    exited: Exited | None = None

    @property
    def window(self) -> float:
        """Seconds to look back: as long as what was judged lasted, at most ten; before, the process can have worked."""
        gap = self.judgement.gap
        lasted = min(gap, self.judgement.threshold or gap)
        if metrics.cpu(self.history, self.now, max(2.0, lasted)) is None:  # too few readings
            lasted = gap
        return min(10.0, max(2.0, lasted)) if lasted else 10.0

    def line(self, *families: str, recent: bool = True) -> Match | None:
        """Return the newest line of the output of one of `families`, by default a recent one."""
        since = min(self.judgement.since or self.now, self.now) - RECENT if recent else 0.0
        return metrics.match(self.history, families, since)

    def stacks(self, *classes: str) -> bool:
        """Return whether the stack dump shows one of `classes`."""
        collected = self.history.collected
        return collected is not None and not set(classes).isdisjoint(collected.stacks)


class Clue(NamedTuple):
    """One question.  `template`: the sentence if it holds; empty if other clues imply it."""

    name: str
    template: str
    test: Test

    def ask(self, scene: Scene) -> str | None:
        """Return the sentence if the clue holds, None if it does not or that is not known."""
        facts = self.test(scene)
        if facts is None or facts is False:
            return None
        return self.template.format(**facts) if isinstance(facts, Mapping) else self.template


def clue(template: str = "") -> Callable[[Test], Clue]:
    """Return a decorator that makes a clue of a test; the test's name is the clue's."""
    return lambda test: Clue(test.__name__, template, test)


def seen_line(name: str, template: str, *families: str, recent: bool = True) -> Clue:
    """Return the clue that the output showed a line of one of `families`; the template may quote {line}."""

    def test(scene: Scene) -> Facts | None:
        found = scene.line(*families, recent=recent)
        return None if found is None else _quoted(found)

    return Clue(name, template, test)


def seen_signature(name: str, template: str, signature: str) -> Clue:
    """Return the clue that this attempt's output showed the line of that one `signature`."""

    def test(scene: Scene) -> Facts | None:
        found = next((match for match in scene.history.matched if match.signature == signature), None)
        return None if found is None else _quoted(found)

    return Clue(name, template, test)


def _quoted(found: Match) -> Facts:
    return {"line": cut(found.line.strip(), QUOTE), "count": str(found.count)}


def seen_stack(name: str, template: str, *classes: str) -> Clue:
    """Return the clue that the stack dump shows one of `classes`."""
    return Clue(name, template, lambda scene: scene.stacks(*classes))


def percent(share: float) -> str:
    """Return a share in readable form."""
    return f"{100 * share:.0f} %"


def gigabytes(size: float) -> str:
    """Return bytes in readable form."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"  # noqa: PLR2004
