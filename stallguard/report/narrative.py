"""The one set of sentences: terminal, journal, report and notification tell the same story in the same words.

Each entry is a template over the facts of a core.actions.Tell.  This module may not look anything up.
"""

from __future__ import annotations

import string
from collections.abc import Mapping

# Spoken on the terminal.
SPOKEN = {
    "guarding": "guarding {command} (run {run})",
    "taken_up": "stallguard had ended without a word; guarding run {run} again: {what}",
    "outside": "cannot look inside: {why}; guarding from outside",
    "beyond": "{text}",
    "aside": "the probe stepped aside: {text}; guarding from outside",
    "stalled": "stalled: {silence}; {what}",
    "evidence": "evidence kept in {where}{line}",
    "diagnosis": "most likely {cause} ({confidence}): {because}",
    "also": "it could also be {cause} ({confidence}): {because}",
    "advice": "what helps: {text}",
    "holding": "it may come back by itself; acting in {seconds} unless it does",
    "observing": "observing only: nothing is done about it",
    "recovered": "recovered by itself after {gap} of silence",
    "stopping": "ending attempt {attempt}: {why}",
    "killing": "it did not answer SIGTERM within {grace}; SIGKILL",
    "unkillable": "process {pid} cannot be ended ({state}); it is stuck in the kernel: a reboot will be needed",
    "crashed": "attempt {attempt} ended by itself: {how}",
    "waiting": "next attempt in {delay}",
    "restart": "starting attempt {attempt}: {why}; {mathematics}",
    "resumed": "{text}",
    "smaller": "{text}",
    "interrupted": "passed your interrupt on to the training; once more ends it at once",
    "ending": "ending the training",
    "gave_up": "gave up: {why}",
    "finished": "finished: {batches} batches in {duration}{trouble}",
    "ended": "the training ended with exit code {code} after {duration}{trouble}",
    "slept": "the machine slept for {duration}; that is not counted as silence",
    "trouble": "{text}",
    "signature": "the output says: {line} ({meaning})",
    "report": "the whole story: {path}",
}
# Kept in the journal and the report; too small for the terminal of a healthy run.
QUIET = {
    "interpreter": "the interpreter is {python}: {why}",
    "suspect": "silent: {silence}; watching closely",
    "cleared": "a batch ended after {gap}: nothing was wrong",
    "slow": "batches take {factor} times as long as before: {cause}",
    "broken": "{text}",
    "sensor": "the sensor {sensor} does not answer",
    "note": "{text}",
}


class _Lenient(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "?"


def sentence(kind: str, facts: Mapping[str, str]) -> str:
    """Return the sentence for `kind`; an unknown fact shows as "?", an unknown kind as its name."""
    template = SPOKEN.get(kind) or QUIET.get(kind) or kind
    return string.Formatter().vformat(template, (), _Lenient(facts))


def spoken(kind: str) -> bool:
    """Tell whether this kind is said on the terminal."""
    return kind in SPOKEN
