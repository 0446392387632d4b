"""The one set of sentences: terminal, journal, report and notification use the same words.

MESSAGES has what is announced during a run, by the names that the journal uses; STORY has what a report says of the
whole.  Each entry is a template over the facts of a core.actions.Announce.  This module must not look anything up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from stallguard.report.sanitize import one_line


class Message(NamedTuple):
    """A sentence about a run: a template over facts; how much it matters; whether the terminal shows it."""

    text: str
    level: str  # info, warning or error
    terminal: bool


# By what the journal calls them.  A template that is {text} alone: the probe, in another process, has written the
# sentence, or an error says itself what failed.
_INFO = {
    "run.continues": "resuming from the checkpoints of run {run}",
    "run.started": "guarding {command} (run {run})",
    "run.stopping": "ending the training: stallguard was asked to",
    "watch.started": "watching process {pid}, and never ending it: {command} (run {run})",
    "watch.limits": "batches, epochs and losses are not seen; a process that computes is not judged; {output}",
    "watch.ended": "the watch ends; the process goes on",
    "watch.over": "the process has ended, {duration} after the watch began{trouble}; its exit code is not known",
    "run.end_is_due": "{why}: ending the training after this batch, with a checkpoint if one can be made",
    "run.finished": "finished: {batches:batch|batches} in {duration}{trouble}",
    "run.paused": "ended at the set time after {duration}, {batches:batch|batches}{trouble}",
    "run.resumable": "to continue from its checkpoint: stallguard run --resume {run} with the same command",
    "run.rolled_back": "to continue from {checkpoint}: stallguard run --resume {run} with the same command",
    "interpreter.differs": "the script runs with {python}; {hint}",
    "interpreter.chosen": "the interpreter is {python}: {why}",
    "probe.inside": "the probe is in the process: its batches are counted from now on, those of a fit that runs "
    "already from its next one on",
    "probe.outside": "{text}",
    "probe.remark": "{text}",
    "attempt.delayed": "it is started again in {delay}",
    "attempt.resumed": "{text}",
    "checkpoint.again": "{text}",
    "training.limitation": "{text}",
    "training.recovered": "the training goes on by itself after {gap} without progress; nothing to do",
    "training.continued": "the process was continued from outside after {gap}; nothing to do",
    "training.suspected": "possible stall: {silence}; {what}; {allowed}",
    "training.cleared": "a batch ended after {gap}: no stall",
    "bottleneck.advice": "to make it faster: {text}",
    "training.changed": "{text}",
    "loss.finite": "{text}",
    "metric.broken": "{text}",
    "process.ended": "{who} {how}, after {progress} in {duration}",
    "stall.alternative": "also possible: {cause} ({confidence}): {because}",
    "stall.advice": "suggestion: {text}",
    "stall.known_problem": "this looks like {problem} ({why}): {what}; what helped, by that report: {cure}; {address}",
    "stall.deferred": "it can go on by itself; if it does not, stallguard acts in {seconds}",
    "stalls.muted": "stalls are left alone for {duration}",
    "stalls.unmuted": "stalls are acted upon again",
    "evidence.collected": "evidence saved in {where}{line}",
    "evidence.dumped": "the requested dump is in {where}{line}",
    "batch.smaller": "{text}",
    "batch.known_parts": "find-batch saw this script survive with its batches in {parts} slices: beginning there",
    "batch.known_rows": "find-batch saw this script survive with batches of up to {rows:row|rows}: none is larger",
    "interrupt.forwarded": "forwarded your interrupt to the training; a second interrupt ends it at once",
    "interrupt.unused": "the training continued after your interrupt: guarding it as before",
    "signal.forwarded": "passed {signal} on to the training",
    "signal.unused": "{signal} came between two attempts: there is no training that could handle it",
    "memory.given_back": "{text}",
    "memory.checkpoint": "memory is short: asked the training for a checkpoint",
    "machine.slept": "the machine slept for {duration}; that time does not count",
    "job.watched": "{host} trains job {job} (pid {pid}); it is taken over here unless {host} renews its claim within "
    "{duration}",
    "job.taken": "job {job} is trained here",
    "job.fetched": "job {job} goes on from the checkpoint that run {run} published at {at}",
    "job.done": "job {job} is done: run {run} finished it at {at}; nothing is trained",
    "report.written": "report: {path}",
    "runs.pruned": "removed {count} to free disk space (stallguard debug prune --help)",
}
_WARNING = {
    "run.taken_over": "stallguard ended unexpectedly during run {run}; it guards the run again: {what}",
    "run.not_resumable": "there is no checkpoint: the next run starts from the beginning",
    "run.not_saved": "no checkpoint could be written ({why}): the next run starts from the beginning",
    "run.not_rolled_back": "stallguard run --resume {run} with the same command goes on from the newest checkpoint, "
    "whose values are not finite; with --on-nonfinite rollback it goes on from {checkpoint}",
    "probe.impossible": "stallguard cannot look inside the training ({why}): it watches from outside",
    "probe.disabled": "stallguard no longer looks inside the training ({text}): it watches from outside",
    "probe.hooks_removed": "{text}",
    "attempt.stopping": "ending the training: {why}",
    "attempt.killing": "the training did not end within {grace}; killing it (SIGKILL)",
    "attempt.sigterm_unused": "the training does not react to the request to end, and saves nothing; killing it "
    "(SIGKILL)",
    "attempt.restarting": "starting the training again: {why}; {mathematics}",
    "attempt.from_scratch": "the training starts from the beginning: there is no checkpoint",
    "attempt.not_resumed": "the training starts from the beginning: {why}",
    "attempt.own": "{text}",
    "checkpoint.failed": "{text}",
    "attempt.inexact": "not exact: {text}",
    "training.degraded": "the training goes on, but {cause} ({confidence}): {because}",
    "training.uncounted": "{whose}no batch was counted in the first {duration}, and a silence of this process is not "
    "judged as one of a step: a loop of {library} is counted only {when}; add after each step: {code}",
    "training.slow": "batches take {factor} times as long as before: {cause}",
    "training.bottleneck": "slow: {what}, {share} of the time{where}{numbers}",
    "checkpoint.not_finite": "{text}",
    "checkpoint.unlisted": "{text}",
    "checkpoints.set_aside": "{count} with values that are not finite are set aside in {place}",
    "process.vanished": "{who} {how}, after {progress} in {duration}",
    "stall.diagnosed": "why: {cause} ({confidence}): {because}",
    "stall.left_alone": "no action for now: {why}",
    "stall.observed": "nothing is done about it: this run is only observed",
    "batch.whole": "{text}",
    "memory.trend": "memory runs out {when} if it goes on like this: {what} by {hourly} an hour, and {room} are left",
    "memory.others": "the machine's memory runs out {when}: other processes take {hourly} more each hour, and {room} "
    "are left; end what is not needed",
    "memory.left_alone": "memory is about to run out, and the training is not started again: {why}",
    "output.known_line": "output: {line} ({meaning})",
    "sensor.silent": "sensor {sensor} does not respond",
    "job.orphan_ended": "job {job}: the training of run {run}, whose stallguard was killed, is ended: a new run has "
    "the job",
    "job.generation_damaged": "the checkpoint of job {job} that was published at {at} cannot be used ({why}); it "
    "goes on from the one before, of {before}",
    "job.generation_foreign": "no checkpoint of job {job} in the store can be used ({why}): its training starts over",
    "job.another_machine": "the checkpoint was made on {host}, another kind of machine ({differences}): the weights "
    "can differ in bits from those of one machine",
    "job.unknown_machine": "it is not known on which kind of machine the checkpoint was made: the weights can differ "
    "in bits",
    "job.not_concluded": "job {job}: the end of this run is not published ({why}); it is kept here, and published "
    "later by this machine's worker or by the next run of the job here. If another machine takes the job before, it "
    "is trained again from its newest published checkpoint",
    "stallguard.trouble": "{text}",
}
_ERROR = {
    "run.gave_up": "gave up: {why} ({batches:batch|batches} in {duration}{trouble})",
    "run.diverged": "ended after {duration}, {batches:batch|batches}: {why}",
    "run.failed": "{why} (exit code {code}, after {duration}{trouble})",
    "run.unguarded": "stallguard itself failed ({error}): the training goes on unguarded; please report it: "
    "stallguard debug bundle has what is needed",
    "attempt.unkillable": "process {pid} cannot be ended ({state}): it is stuck in the kernel; reboot the machine",
    "attempt.crashed": "the training ended: {how}",
    "training.stalled": "stalled: {silence}; {what}",
    "training.also_stalled": "a second training stalled: {silence}; {what}",
    "loss.broken": "{text}",
    "stallguard.failed": "stallguard itself failed at {doing} ({error}); please report it: stallguard debug bundle "
    "has what is needed",
}
# Too small for the terminal of a healthy run; the journal and the report have them.
_JOURNAL_ONLY = frozenset((
    "interpreter.chosen", "probe.hooks_removed", "probe.remark", "training.suspected", "training.cleared",
    "training.slow", "training.changed", "process.ended", "sensor.silent", "runs.pruned",
))  # fmt: skip
MESSAGES = {
    key: Message(text, level, key not in _JOURNAL_ONLY)
    for level, texts in (("info", _INFO), ("warning", _WARNING), ("error", _ERROR))
    for key, text in texts.items()
}
# The start and the end of an attempt in the journal, whose events are facts of their own; and the story of a whole
# run, for the report.  Its incidents use the sentences above.
STORY = {
    "attempt started": "attempt {attempt} started: process {pid}",
    "attempt ended with a code": "attempt {attempt} ended with exit code {code}",
    "attempt ended by a signal": "attempt {attempt} ended by signal {code}",
    "attempt ended somehow": "attempt {attempt} ended; its exit code is not known",
    "story finished": "the training finished after {duration}: {progress}",
    "story watched": "{why}, {duration} after the watch began",
    "story ended": "{why} (exit code {code}, after {duration}): {progress}",
    "story stopped": "the training was ended at its set time after {duration}, to be resumed later: {progress}",
    "story by request": "the training was ended after {duration}, because {why}: {progress}",
    "story gave up": "stallguard gave up after {duration}: {why}; the training had reached {progress}",
    "story lost": "stallguard itself ended unexpectedly after {duration}; this is what it had recorded; "
    "the training had reached {progress}",
    "story running": "the training is under way, for {duration} so far: {progress}",
    "story healthy": "no stall",
    "story unsaved": "the last training was in no checkpoint: {why}",
    "story stalled": "it stalled {times}, {first}at {at}: {silence}; {what}",
    "story trainings": "{count:training|trainings} ran in it; {done} of them came to the end of their program",
    "story recovered": "it went on by itself {times}",
    "story crashed": "its process ended {times}, {first}at {at}: {how}",
    "story hung": "it hung at {where}",
    "story hung again": "it hung at {where}, and so it did each time that its stacks could be read",
    "story causes": "most likely these were the causes: {causes}",
    "story restarted": "it was started again {times}, {last}with {batch}{device}",
    "story cost": "{lost} were lost in all to stalls and restarts{repeated}",
    "story repeated": ", with {count} trained a second time",
    "story effective": "{share} of the time was effective training{rest}",
    "story caches": "memory was short, and {size} of a library's cache were given back while it trained",
    "story slept": "the machine slept for {duration} in all; that is no stall",
    "first stalled": "it stalled {times}{where}: {cause}",
    "first crashed": "its process ended by itself {times}{where}: {cause}",
    "first cause": "{cause} ({word})",
    "first others": " and {count} more",
    "first failed": "your script failed: {error}",
    "first raised": "the script raised {error}",
    "first ended": "{why}",
    "first lost": "stallguard itself ended unexpectedly; no stall until then",
    "first healthy": "nothing: no stall, no crash",
    "next nothing": "nothing to do{cured}",
    "next cured": ": stallguard restarted it",
    "next avoid": "nothing to do for this run{cured}; to avoid it next time: {advice}",
    "next first": "{advice}",
    "next corrected": "correct {place}: until then the same command ends in the same way",
    "next resume": "the same command in the same directory continues from its checkpoint",
    "next anew": "there is no checkpoint: the same command starts from the beginning",
    "next in fleet": "the job of the fleet says which machine has it, and whether it goes on",
    "next running": "it is under way; its present state",
    "next unguarded": "its training is still alive without stallguard; end it before you resume it",
    "compared": "{pace}; {share}",
    "compared pace": "the second run trains {factor} times as many batches a second",
    "compared pace same": "both runs train equally fast",
    "compared pace unknown": "the pace of both is not known",
    "compared share": "{first} and {second} of the time were effective training",
    "compared share unknown": "their effective training time is not known",
    "bottleneck": "{what}{where}: {share} of the time, {duration}",
    "story slow": "what made it slow: {headline}",
    "flame graph": "each bar is a call, as wide as the time of all samples in it; below it are the calls that it made, "
    "those with the most time first; long runs of calls inside libraries are folded",
    "flames left out": "not drawn: {count} with less time",
    "incident new": "seen for the first time",
    "incident this week": "{ordinal} time this week; first seen {first}",
    "incident again": "{ordinal} time in all; last seen {last}, first seen {first}",
    "incident helped": "what helped: {remedy}",
    "incident unhelped": "nothing helped so far: the training did not go on healthily ({times} tried)",
    "incident without cause": "no cause was found",
    "incident without name": "no name: its run kept too little for one",
    "same stacks": "its stacks are those of stall {number}",
    "no stacks": "no Python stacks: {why}",
    "device did": "the GPU meanwhile: {account}",
    "story quiet": "never anything but zero: {names}",
    "whole batch": "the whole batch at once",
    "part batch": "1/{factor} of the batch at a time",
    "on cpu": ", on the CPU",
    "secrets": "secrets were removed from what is shown here ({rules}); look before you send it",
    "nothing removed": "nothing was found here that looks like a secret; look before you send it",
}
# What a thread does, by its class in collectors.stacks.
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
    "library_callback": "runs a function of the script that the library called",
    "sleep": "sleeps",
    "io": "waits for a file, a network or another process",
    "importing": "imports a module",
    "gil_native": "waits for the interpreter's lock",
}


class _Lenient(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return _Fact("?")

    def __getitem__(self, key: str) -> str:
        return _Fact(super().__getitem__(key))


class _Fact(str):
    """A fact; {batches:batch|batches} is a number with the noun that agrees with it."""

    __slots__ = ()

    def __format__(self, nouns: str) -> str:
        one, _, many = nouns.partition("|")
        return f"{self!s} {one if self == '1' else many}" if many else str(self)


def sentence(key: str, facts: Mapping[str, str]) -> str:
    """Return the sentence for `key`, in one line; an unknown fact shows as "?", an unknown key as itself.

    A name or an argument can contain line ends and what steers a terminal: they are visible (report.sanitize), also for
    other programs that print a message of the journal.
    """
    text = template(key)
    return key if not text else one_line(text.format_map(_Lenient(facts)))


def template(key: str) -> str:
    """Return the sentence for `key` with the names of its facts in braces; "" if there is none."""
    return MESSAGES[key].text if key in MESSAGES else STORY.get(key, "")


def prose(text: str) -> str:
    """Return a sentence as it stands in a text: with a capital, but for our own name, and a full stop."""
    begun = text if text.startswith("stallguard") else text[:1].upper() + text[1:]
    return begun if not begun or begun[-1] in ".?!:" else f"{begun}."


def batch(factor: int) -> str:
    """Return how a batch is computed."""
    return sentence("whole batch" if factor == 1 else "part batch", {"factor": str(factor)})
