"""The one set of sentences: terminal, journal, report and notification use the same words.

MESSAGES has what is announced during a run, by the names that the journal uses; STORY has what a report says of the
whole.  Each entry is a template over the facts of a core.actions.Announce.  This module must not look anything up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from stallguard.report.sanitize import one_line


class Message(NamedTuple):
    """A sentence about a run: a template over facts; how much it matters; whether the terminal shows it.

    What the terminal does not show is too small for a healthy run; the journal and the report have it.
    """

    text: str
    level: str = "info"  # info, warning or error
    terminal: bool = True


# By what the journal calls them.  A template that is {text} alone: the probe, in another process, has written the
# sentence, or an error says itself what failed.
MESSAGES = {
    "run.continues": Message("resuming from the checkpoints of run {run}"),
    "run.started": Message("guarding {command} (run {run})"),
    "run.taken_over": Message(
        "stallguard ended unexpectedly during run {run}; it guards the run again: {what}", level="warning"
    ),
    "run.stopping": Message("ending the training: stallguard was asked to"),
    "run.end_is_due": Message(
        "{why}: ending the training after this batch, with a checkpoint if one can be made"
    ),
    "run.gave_up": Message("gave up: {why} ({batches:batch|batches} in {duration}{trouble})", level="error"),
    "run.finished": Message("finished: {batches:batch|batches} in {duration}{trouble}"),
    "run.paused": Message("ended at the set time after {duration}, {batches:batch|batches}{trouble}"),
    "run.resumable": Message(
        "to continue from its checkpoint: stallguard run --resume {run} with the same command"
    ),
    "run.not_resumable": Message(
        "there is no checkpoint: the next run starts from the beginning", level="warning"
    ),
    "run.not_saved": Message(
        "no checkpoint could be written ({why}): the next run starts from the beginning", level="warning"
    ),
    "run.diverged": Message("ended after {duration}, {batches:batch|batches}: {why}", level="error"),
    "run.rolled_back": Message(
        "to continue from {checkpoint}: stallguard run --resume {run} with the same command"
    ),
    "run.not_rolled_back": Message(
        "stallguard run --resume {run} with the same command goes on from the newest checkpoint, whose values are "
        "not finite; with --on-nonfinite rollback it goes on from {checkpoint}",
        level="warning",
    ),
    "run.failed": Message("{why} (exit code {code}, after {duration}{trouble})", level="error"),
    "run.unguarded": Message(
        "stallguard itself failed ({error}): the training goes on unguarded; "
        "please report it: stallguard debug bundle has what is needed",
        level="error",
    ),
    "interpreter.differs": Message("the script runs with {python}; {hint}"),
    "interpreter.chosen": Message("the interpreter is {python}: {why}", terminal=False),
    "probe.impossible": Message(
        "stallguard cannot look inside the training ({why}): it watches from outside", level="warning"
    ),
    "probe.outside": Message("{text}"),
    "probe.disabled": Message(
        "stallguard no longer looks inside the training ({text}): it watches from outside", level="warning"
    ),
    "probe.hooks_removed": Message("{text}", level="warning", terminal=False),
    "probe.remark": Message("{text}", terminal=False),
    "attempt.stopping": Message("ending the training: {why}", level="warning"),
    "attempt.killing": Message(
        "the training did not end within {grace}; killing it (SIGKILL)", level="warning"
    ),
    "attempt.sigterm_unused": Message(
        "the training does not react to the request to end, and saves nothing; killing it (SIGKILL)",
        level="warning",
    ),
    "attempt.unkillable": Message(
        "process {pid} cannot be ended ({state}): it is stuck in the kernel; reboot the machine",
        level="error",
    ),
    "attempt.crashed": Message("the training ended: {how}", level="error"),
    "attempt.delayed": Message("it is started again in {delay}"),
    "attempt.restarting": Message("starting the training again: {why}; {mathematics}", level="warning"),
    "attempt.from_scratch": Message(
        "the training starts from the beginning: there is no checkpoint", level="warning"
    ),
    "attempt.not_resumed": Message("the training starts from the beginning: {why}", level="warning"),
    "attempt.resumed": Message("{text}"),
    "checkpoint.failed": Message("{text}", level="warning"),
    "checkpoint.again": Message("{text}"),
    "attempt.inexact": Message("not exact: {text}", level="warning"),
    "training.limitation": Message("{text}"),
    "training.stalled": Message("stalled: {silence}; {what}", level="error"),
    "training.recovered": Message(
        "the training goes on by itself after {gap} without progress; nothing to do"
    ),
    "training.continued": Message("the process was continued from outside after {gap}; nothing to do"),
    "training.also_stalled": Message("a second training stalled: {silence}; {what}", level="error"),
    "training.degraded": Message(
        "the training goes on, but {cause} ({confidence}): {because}", level="warning"
    ),
    "training.suspected": Message("possible stall: {silence}; {what}; {allowed}", terminal=False),
    "training.cleared": Message("a batch ended after {gap}: no stall", terminal=False),
    "training.slow": Message(
        "batches take {factor} times as long as before: {cause}", level="warning", terminal=False
    ),
    "training.bottleneck": Message("slow: {what}, {share} of the time{where}{numbers}", level="warning"),
    "bottleneck.advice": Message("to make it faster: {text}"),
    "training.changed": Message("{text}", terminal=False),
    "loss.broken": Message("{text}", level="error"),
    "loss.finite": Message("{text}"),
    "metric.broken": Message("{text}"),
    "checkpoint.not_finite": Message("{text}", level="warning"),
    "checkpoints.set_aside": Message(
        "{count} with values that are not finite are set aside in {place}", level="warning"
    ),
    "process.vanished": Message("{who} {how}, after {progress} in {duration}", level="warning"),
    "process.ended": Message("{who} {how}, after {progress} in {duration}", terminal=False),
    "stall.diagnosed": Message("why: {cause} ({confidence}): {because}", level="warning"),
    "stall.alternative": Message("also possible: {cause} ({confidence}): {because}"),
    "stall.advice": Message("suggestion: {text}"),
    "stall.known_problem": Message(
        "this looks like {problem} ({why}): {what}; what helped, by that report: {cure}; {address}"
    ),
    "stall.deferred": Message("it can go on by itself; if it does not, stallguard acts in {seconds}"),
    "stall.left_alone": Message("no action for now: {why}", level="warning"),
    "stall.observed": Message("nothing is done about it: this run is only observed", level="warning"),
    "stalls.muted": Message("stalls are left alone for {duration}"),
    "stalls.unmuted": Message("stalls are acted upon again"),
    "evidence.collected": Message("evidence saved in {where}{line}"),
    "evidence.dumped": Message("the requested dump is in {where}{line}"),
    "batch.smaller": Message("{text}"),
    "batch.known_parts": Message(
        "find-batch saw this script survive with its batches in {parts} slices: beginning there"
    ),
    "batch.known_rows": Message(
        "find-batch saw this script survive with batches of up to {rows:row|rows}: none is larger"
    ),
    "batch.whole": Message("{text}", level="warning"),
    "interrupt.forwarded": Message(
        "forwarded your interrupt to the training; a second interrupt ends it at once"
    ),
    "interrupt.unused": Message("the training continued after your interrupt: guarding it as before"),
    "signal.forwarded": Message("passed {signal} on to the training"),
    "signal.unused": Message("{signal} came between two attempts: there is no training that could handle it"),
    "memory.trend": Message(
        "memory runs out {when} if it goes on like this: {what} by {hourly} an hour, and {room} are left",
        level="warning",
    ),
    "memory.others": Message(
        "the machine's memory runs out {when}: other processes take {hourly} more each hour, and {room} are left; "
        "end what is not needed",
        level="warning",
    ),
    "memory.checkpoint": Message("memory is short: asked the training for a checkpoint"),
    "memory.left_alone": Message(
        "memory is about to run out, and the training is not started again: {why}", level="warning"
    ),
    "machine.slept": Message("the machine slept for {duration}; that time does not count"),
    "output.known_line": Message("output: {line} ({meaning})", level="warning"),
    "sensor.silent": Message("sensor {sensor} does not respond", level="warning", terminal=False),
    "job.watched": Message(
        "{host} trains job {job} (pid {pid}); it is taken over here unless {host} renews its claim within {duration}"
    ),
    "job.taken": Message("job {job} is trained here"),
    "job.orphan_ended": Message(
        "job {job}: the training of run {run}, whose stallguard was killed, is ended: a new run has the job",
        level="warning",
    ),
    "job.fetched": Message("job {job} goes on from the checkpoint that run {run} published at {at}"),
    "job.generation_damaged": Message(
        "the checkpoint of job {job} that was published at {at} cannot be used ({why}); it goes on from the "
        "one before, of {before}",
        level="warning",
    ),
    "job.generation_foreign": Message(
        "no checkpoint of job {job} in the store can be used ({why}): its training starts over",
        level="warning",
    ),
    "job.another_machine": Message(
        "the checkpoint was made on {host}, another kind of machine ({differences}): the weights can differ in bits "
        "from those of one machine",
        level="warning",
    ),
    "job.unknown_machine": Message(
        "it is not known on which kind of machine the checkpoint was made: the weights can differ in bits",
        level="warning",
    ),
    "job.done": Message("job {job} is done: run {run} finished it at {at}; nothing is trained"),
    "job.not_concluded": Message(
        "job {job}: the end of this run is not published ({why}); it is kept here, and published later by this "
        "machine's worker or by the next run of the job here. If another machine takes the job before, it is trained "
        "again from its newest published checkpoint",
        level="warning",
    ),
    "report.written": Message("report: {path}"),
    "runs.pruned": Message(
        "removed {count} to free disk space (stallguard debug prune --help)", terminal=False
    ),
    "stallguard.trouble": Message("{text}", level="warning"),
    "stallguard.failed": Message(
        "stallguard itself failed at {doing} ({error}); please report it: stallguard debug bundle has what is needed",
        level="error",
    ),
}
# The start and the end of an attempt in the journal, whose events are facts of their own; and the story of a whole
# run, for the report.  Its incidents use the sentences above.
STORY = {
    "attempt started": "attempt {attempt} started: process {pid}",
    "attempt ended with a code": "attempt {attempt} ended with exit code {code}",
    "attempt ended by a signal": "attempt {attempt} ended by signal {code}",
    "attempt ended somehow": "attempt {attempt} ended; its exit code is not known",
    "story finished": "the training finished after {duration}: {progress}",
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
