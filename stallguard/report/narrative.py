"""The one set of sentences: terminal, journal, report and notification use the same words.

Each entry is a template over the facts of a core.actions.Announce.  This module must not look anything up.
"""

from __future__ import annotations

import string
from collections.abc import Mapping

# Spoken on the terminal.
SPOKEN = {
    "goes_on": "resuming from the checkpoints of run {run}",
    "guarding": "guarding {command} (run {run})",
    "taken_up": "the stallguard process of run {run} ended unexpectedly; guarding it again: {what}",
    "elsewhere": "the script runs with {python}; {hint}",
    "outside": "the probe cannot be installed: {why}; guarding from outside",
    "beyond": "{text}",
    "aside": "the probe disabled itself: {text}; guarding from outside",
    "stalled": "stalled: {silence}; {what}",
    "evidence": "evidence saved in {where}{line}",
    "dumped": "the requested dump is in {where}{line}",
    "diagnosis": "most likely {cause} ({confidence}): {because}",
    "also": "also possible: {cause} ({confidence}): {because}",
    "advice": "suggestion: {text}",
    "holding": "it can recover by itself; acting in {seconds} unless it does",
    "left_alone": "no action for now: {why}",
    "observing": "observe mode: no action",
    "muted": "stall handling is paused for {duration}",
    "unmuted": "stall handling is on again",
    "recovered": "recovered without a restart after {gap} without progress",
    "continued": "the process was continued from outside after {gap}; no action",
    "stopping": "ending attempt {attempt}: {why}",
    "killing": "no exit within {grace} after SIGTERM; sending SIGKILL",
    "unheeded": "SIGTERM has no effect: the training makes no progress and saves nothing; sending SIGKILL",
    "unkillable": "process {pid} cannot be ended ({state}); it is stuck in the kernel: a reboot will be needed",
    "crashed": "attempt {attempt} ended: {how}",
    "waiting": "next attempt in {delay}",
    "restart": "starting attempt {attempt}: {why}; {mathematics}",
    "from_scratch": "attempt {attempt} starts from scratch: there is no checkpoint to resume from",
    "resumed": "{text}",
    "inexact": "not exact: {text}",
    "stalled_too": "a second training stalled: {silence}; {what}",
    "vanished": "{who} {how}, after {progress} in {duration}",
    "smaller": "{text}",
    "whole": "{text}",
    "interrupted": "forwarded your interrupt to the training; a second interrupt ends it at once",
    "outlived": "the training continued after your interrupt: guarding it as before",
    "ending": "ending the training",
    "arranged": "{why}: ending the training after this batch, with a checkpoint if one can be made",
    "noticed": "the training continues; there are signs of {cause} ({confidence}): {because}",
    "gave_up": "gave up: {why}",
    "finished": "finished: {batches} batches in {duration}{trouble}",
    "paused": "ended at the set time after {duration}, {batches} batches{trouble}",
    "resumable": "a checkpoint is there: stallguard run --resume {run} with the same command continues from it",
    "left_nothing": "there is no checkpoint: the next run starts from scratch",
    "ended": "the training ended with exit code {code} after {duration}{trouble}",
    "slept": "the machine slept for {duration}; that time does not count",
    "trouble": "{text}",
    "surprise": "stallguard itself failed at {doing} ({error}); "
    "please report it: stallguard bundle has what is needed",
    "unguarded": "stallguard itself failed ({error}): the training goes on unguarded; "
    "please report it: stallguard bundle has what is needed",
    "signature": "output: {line} ({meaning})",
    "report": "report: {path}",
}
# Kept in the journal and the report; too small for the terminal of a healthy run.
QUIET = {
    "interpreter": "the interpreter is {python}: {why}",
    "suspect": "possible stall: {silence}",
    "over": "{who} {how}, after {progress} in {duration}",
    "cleared": "a batch ended after {gap}: no stall",
    "slow": "batches take {factor} times as long as before: {cause}",
    "broken": "{text}",
    "mathematics": "{text}",
    "sensor": "sensor {sensor} does not respond",
    "note": "{text}",
    "pruned": "removed {count} to free disk space (stallguard prune --help)",
}
# What the journal calls each sentence, and how much it matters.
EVENTS = {
    "goes_on": ("run.continues", "info"),
    "guarding": ("run.started", "info"),
    "taken_up": ("run.taken_over", "warning"),
    "elsewhere": ("interpreter.differs", "info"),
    "outside": ("probe.impossible", "warning"),
    "beyond": ("training.limitation", "info"),
    "aside": ("probe.disabled", "warning"),
    "stalled": ("training.stalled", "error"),
    "evidence": ("evidence.collected", "info"),
    "dumped": ("evidence.dumped", "info"),
    "diagnosis": ("stall.diagnosed", "warning"),
    "also": ("stall.alternative", "info"),
    "advice": ("stall.advice", "info"),
    "holding": ("stall.deferred", "info"),
    "left_alone": ("stall.left_alone", "warning"),
    "observing": ("stall.observed", "warning"),
    "muted": ("stalls.muted", "info"),
    "unmuted": ("stalls.unmuted", "info"),
    "recovered": ("training.recovered", "info"),
    "continued": ("training.continued", "info"),
    "stopping": ("attempt.stopping", "warning"),
    "killing": ("attempt.killing", "warning"),
    "unheeded": ("attempt.sigterm_unused", "warning"),
    "unkillable": ("attempt.unkillable", "error"),
    "crashed": ("attempt.crashed", "error"),
    "waiting": ("attempt.delayed", "info"),
    "restart": ("attempt.restarting", "warning"),
    "from_scratch": ("attempt.from_scratch", "warning"),
    "resumed": ("attempt.resumed", "info"),
    "inexact": ("attempt.inexact", "warning"),
    "stalled_too": ("training.also_stalled", "error"),
    "vanished": ("process.vanished", "warning"),
    "smaller": ("batch.smaller", "info"),
    "whole": ("batch.whole", "warning"),
    "interrupted": ("interrupt.forwarded", "info"),
    "outlived": ("interrupt.unused", "info"),
    "ending": ("run.stopping", "info"),
    "arranged": ("run.end_is_due", "info"),
    "noticed": ("training.degraded", "warning"),
    "gave_up": ("run.gave_up", "error"),
    "finished": ("run.finished", "info"),
    "paused": ("run.paused", "info"),
    "resumable": ("run.resumable", "info"),
    "left_nothing": ("run.not_resumable", "warning"),
    "ended": ("run.failed", "error"),
    "slept": ("machine.slept", "info"),
    "trouble": ("stallguard.trouble", "warning"),
    "surprise": ("stallguard.failed", "error"),
    "unguarded": ("run.unguarded", "error"),
    "signature": ("output.known_line", "warning"),
    "report": ("report.written", "info"),
    "interpreter": ("interpreter.chosen", "info"),
    "suspect": ("training.suspected", "info"),
    "over": ("process.ended", "info"),
    "cleared": ("training.cleared", "info"),
    "slow": ("training.slow", "warning"),
    "broken": ("probe.hooks_removed", "warning"),
    "mathematics": ("training.changed", "info"),
    "sensor": ("sensor.silent", "warning"),
    "note": ("probe.remark", "info"),
    "pruned": ("runs.pruned", "info"),
}
_KINDS = {event: kind for kind, (event, _) in EVENTS.items()}
# The story of a whole run, for the report; its incidents use the sentences above.
STORY = {
    "story finished": "the training finished after {duration}: {progress}",
    "story ended": "the training ended with exit code {code} after {duration}: {progress}",
    "story stopped": "the training was ended at its set time after {duration}, to be resumed later: {progress}",
    "story by request": "the training was ended after {duration}, because {why}: {progress}",
    "story gave up": "stallguard gave up after {duration}: {why}; the training had reached {progress}",
    "story lost": "stallguard itself ended unexpectedly after {duration}; this is what it had recorded; "
    "the training had reached {progress}",
    "story running": "the training is under way, for {duration} so far: {progress}",
    "story healthy": "no stall",
    "story stalled": "it stalled {times}, {first}at {at}: {silence}; {what}",
    "story trainings": "{count} trainings ran in it; {done} of them came to the end of their program",
    "story recovered": "it recovered without a restart {times}",
    "story crashed": "its process ended {times}, {first}at {at}: {how}",
    "story hung": "it hung at {where}",
    "story hung again": "it hung at {where}, and so it did each time that its stacks could be read",
    "story causes": "most likely these were the causes: {causes}",
    "story restarted": "it was started again {times}, {last}with {batch}{device}",
    "story cost": "{lost} were lost in all to stalls and restarts{repeated}",
    "story repeated": ", with {count} trained a second time",
    "story slept": "the machine slept for {duration} in all; that time does not count",
    "same stacks": "its stacks are those of stall {number}",
    "no stacks": "no Python stacks: {why}",
    "story quiet": "never anything but zero: {names}",
    "whole batch": "the whole batch at once",
    "part batch": "1/{factor} of the batch at a time",
    "on cpu": ", on the CPU",
    "secrets": "secrets were removed from what is shown here ({rules}); look before you send it",
    "nothing removed": "nothing was found here that looks like a secret; look before you send it",
}
# What a thread does, by its class in collectors.frames.
DOES = {
    "metal_wait": "waits for the GPU",
    "compile": "builds or compiles a graph",
    "mps_compile": "compiles kernels for the GPU",
    "tf_wait": "waits inside the training library",
    "iterator": "waits for the next batch",
    "generator": "prepares data in the script",
    "checkpoint_io": "saves or loads a checkpoint",
    "lock": "waits for a lock",
    "user": "runs the script's own code",
    "importing": "imports a module",
    "gil_native": "waits for the interpreter's lock",
}


class _Lenient(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "?"


def sentence(kind: str, facts: Mapping[str, str]) -> str:
    """Return the sentence for `kind`; an unknown fact shows as "?", an unknown kind as its name."""
    text = template(kind)
    return kind if not text else string.Formatter().vformat(text, (), _Lenient(facts))


def template(kind: str) -> str:
    """Return the sentence for `kind` with the names of its facts in braces; "" if there is none."""
    return SPOKEN.get(kind) or QUIET.get(kind) or STORY.get(kind) or ""


def prose(text: str) -> str:
    """Return a sentence as it stands in a text: with a capital, but for our own name, and a full stop."""
    begun = text if text.startswith("stallguard") else text[:1].upper() + text[1:]
    return begun if not begun or begun[-1] in ".?!:" else f"{begun}."


def on_terminal(kind: str) -> bool:
    """Return whether this kind is said on the terminal."""
    return kind in SPOKEN


def batch(factor: int) -> str:
    """Return how a batch is computed."""
    return sentence("whole batch" if factor == 1 else "part batch", {"factor": str(factor)})


def kind_of(event: str) -> str | None:
    """Return the kind of the sentence that the journal calls `event`; None if it is none."""
    return _KINDS.get(event)
