"""What a simulation keeps: the events, the actions that followed, and the states of the detector."""

from __future__ import annotations

from typing import TypeVar

from stallguard.core.actions import Action, Announce
from stallguard.core.events import Event

A = TypeVar("A", bound=Action)


class Kept:
    """Everything in the order in which it happened."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.done: list[tuple[float, Action]] = []
        # Of the detector's state: when, to what, by what evidence.
        self.changes: list[tuple[float, str, str]] = []

    @property
    def steps(self) -> list[str]:
        """Every state of the detector, in order."""
        return [step for _, step, _ in self.changes]

    def actions(self, kind: type[A]) -> list[A]:
        """Return the actions of a kind."""
        return [action for _, action in self.done if isinstance(action, kind)]

    def when(self, kind: type[Action]) -> list[float]:
        """Return when actions of a kind were wanted."""
        return [at for at, action in self.done if isinstance(action, kind)]

    def announced(self) -> list[str]:
        """Return the messages of all announcements, in order."""
        return [action.message for action in self.actions(Announce)]

    def facts_of(self, message: str) -> list[dict[str, str]]:
        """Return the facts of the announcements of a message."""
        return [action.facts for action in self.actions(Announce) if action.message == message]
