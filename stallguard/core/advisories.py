"""What is announced of a training that goes on, once an attempt each; nothing is ended because of it.

- Once a minute: what slows it down or will end it.  Slow is not stalled.
- What the probe says of slices: from which note or record on a batch is trained in how many, or stays whole.  Slices
  that would train something else are not made (probe/microbatch/compare.py); then a smaller batch is no remedy for this
  script, in this attempt and in later ones, unless the script takes its size as an option.
- What sizes and devices change in the training results, attempt by attempt (policy.mathematics).
- That no batch of a loop is counted, and which line the script lacks.
- That the checkpoints of a training cannot be written: since when, why, and what a kill would cost.

Pure, as core.fold.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from stallguard.core import lifecycle, messages, policy
from stallguard.core.actions import Action, Announce, Diagnosed, SlowedBy
from stallguard.core.bottlenecks import bottlenecks
from stallguard.core.diagnosis import diagnose, metrics
from stallguard.core.diagnosis.causes import CAUSES, WRONG_NUMBERS
from stallguard.core.events import Heartbeat, ProbeNote, Profiled
from stallguard.core.limits import Limits, PolicyLimits
from stallguard.core.run import Run, Unsaved, is_loop, with_attempt
from stallguard.core.text import whole_number

EVERY = 60.0  # seconds between two diagnoses; a slow-down is diagnosed when it begins
NAMED = 3  # bottlenecks that are announced at once
SURE = 0.45  # confidence from which an advisory cause is announced
# What slow_cause of the judgement means, in words.
SLOW = {
    "input": "it waits for its input",
    "contention": "other processes take the processor",
    "memory": "memory is short",
    "heavier": "each batch takes more work",
}


def look(run: Run) -> tuple[Run, list[Action]]:
    """Return the run, and what is to be announced about it now."""
    if run.state != lifecycle.RUNNING or run.detector_state.judgement.step != "healthy":
        return run, []
    slow = run.detector_state.judgement.slow > 1.0
    begins = slow and not run.current.review.slow
    if not begins and run.now - max(run.current.review.at, run.current.launched) < EVERY:
        return with_attempt(run, review=replace(run.current.review, slow=slow)), []
    run = with_attempt(run, review=replace(run.current.review, at=run.now, slow=slow))
    judgement = run.detector_state.judgement
    announced: list[Action] = []
    if begins:
        cause = SLOW.get(judgement.slow_cause, "why is not known")
        announced.append(Announce("training.slow", {"factor": f"{judgement.slow:.1f}", "cause": cause}))
    new = tuple(
        finding
        for finding in diagnose.diagnose(run.history, judgement, run.now)
        if CAUSES[finding.cause].advisory
        and finding.confidence >= SURE
        and finding.cause not in run.current.review.announced
    )
    if new:
        known = (*run.current.review.announced, *(finding.cause for finding in new))
        run = with_attempt(run, review=replace(run.current.review, announced=known))
        announced += [Diagnosed(incident=0, findings=new), *messages.soft(new)]
    return run, announced


def loss_breaks(run: Run, event: ProbeNote) -> tuple[Run, list[Action]]:
    """Return the run after the probe's note that a loss is not finite any more, and what is announced of it."""
    training = next((one for one in run.current.trainings if one.pid == event.pid and not one.over), run.training)
    judgement = training.detector_state.judgement
    findings = tuple(
        one for one in diagnose.diagnose(training.history, judgement, run.now) if one.cause == WRONG_NUMBERS
    )
    announced: list[Action] = [Announce("loss.broken", messages.broken_loss(run, event))]
    if WRONG_NUMBERS in run.current.review.announced:
        return run, announced
    run = with_attempt(
        run, review=replace(run.current.review, announced=(*run.current.review.announced, WRONG_NUMBERS))
    )
    if findings:
        announced.append(Diagnosed(incident=0, findings=findings))
        announced += [Announce("stall.advice", {"text": text}) for text in findings[0].advice[:1]]
    return run, announced


def profiled(run: Run, event: Profiled, _limits: Limits) -> tuple[Run, list[Action]]:
    """Return the run after a profile, with what makes that training slow, and what is to be announced of it.

    A bottleneck is announced if two profiles in a row show it, once an attempt.
    """
    living = (one for one in run.current.trainings if one.pid == event.pid and one.trains and not one.over)
    if (training := next(living, None)) is None:
        return run, []
    history, review = training.history, run.current.review
    found, before = bottlenecks(history), bottlenecks(replace(history, stages=history.stages[:-1]))
    known = {*review.announced} | ({one.kind for one in found} - {one.kind for one in before})
    sure = [one for one in found[:NAMED] if one.kind not in known and run.state == lifecycle.RUNNING]
    announced = (*review.announced, *(one.kind for one in sure))
    run = with_attempt(run, review=replace(review, announced=announced))
    actions: list[Action] = []
    if found or before:
        actions.append(SlowedBy(event.attempt, event.pid, event.profile.watched, found))
    for one in sure:
        actions.append(Announce("training.bottleneck", messages.bottleneck(one)))
        actions += [Announce("bottleneck.advice", {"text": text}) for text in one.advice[:1]]
    return run, actions


UNSAVED, SAVED_AGAIN = "unsaved", "saved"  # kinds of the probe's note
OWN_BACKUP = "backup"  # the fact of a note that the script makes backups of its own, from which it resumes


# Seconds of training after which a loop that was never saved is not saved at all: a checkpoint is due after 20
# (probe/checkpoint/schedule.py), and it is said within the first minute.
NEVER_SAVED = 40.0
LOOP = (
    "the script trains in a loop of its own, and only one that calls stallguard.track(...) or "
    "stallguard.checkpoint(save, load) is saved"
)
LINES = "loop"  # kind of the probe's note with the lines that would have the script's loop saved


def checkpoint_noted(run: Run, event: ProbeNote) -> Run:
    """Return the run after a note that a process' checkpoints cannot be written, or can be again."""
    if OWN_BACKUP in event.facts:
        return replace(run, own_backup=True)
    if event.kind == LINES:
        return with_attempt(run, tracks={**run.current.tracks, event.pid: event.facts.get("lines", "")})
    if event.kind not in (UNSAVED, SAVED_AGAIN):
        return run
    others = tuple(one for one in run.current.unsaved if one.pid != event.pid)
    if event.kind == SAVED_AGAIN:
        return with_attempt(run, unsaved=others)
    seconds = event.facts.get("seconds", "")
    since = event.at - (float(seconds) if seconds.isdecimal() else 0.0)
    failed = Unsaved(event.pid, event.facts.get("why", ""), since, event.facts.get("kept") == "1")
    return with_attempt(run, unsaved=(*others, failed))


def unsaved_loop(run: Run, event: Heartbeat, limits: Limits) -> tuple[Run, list[Action]]:
    """Return the run after a record, with an announcement if it shows a loop of the script's own that is not saved."""
    own_loop = event.trains and is_loop(event) and event.source in {*LOOPS, "on_batch"}
    known = any(one.pid == event.pid for one in run.current.unsaved)
    greetings = (one.history.greeted for one in run.current.trainings if one.pid == event.pid and not one.over)
    # A loop that can be saved, and stands still before its first checkpoint.
    known = known or any(greeted is not None and "checkpoint" in greeted.hooks for greeted in greetings)
    if not (limits.saves and own_loop) or event.saves or known or event.phase == "checkpoint":
        return run, []
    began = run.current.loops.get(event.pid, event.at)
    if event.at - began < NEVER_SAVED:
        return with_attempt(run, loops={**run.current.loops, event.pid: began}), []
    run = with_attempt(run, unsaved=(*run.current.unsaved, Unsaved(event.pid, LOOP, began, is_kept=False)))
    text = f"{messages.of_one(run, event.pid)}no checkpoint is made ({LOOP}); a kill now costs all that was trained"
    text += f" so far ({messages.duration(event.at - began)}), but for what the script itself saves"
    lines = run.current.tracks.get(event.pid, "")
    text += f"; these two lines resume it: {lines}" if lines else ""
    return run, [Announce("checkpoint.failed", {"text": text, "why": LOOP})]


def unsaved_and_silent(run: Run, limits: Limits) -> tuple[Run, list[Action]]:
    """Return the same of a loop that sends no record any more: native code can keep the interpreter's lock."""
    named = {one.pid for one in run.current.unsaved}
    for pid, began in run.current.loops.items():
        newest = next((one.history.heartbeat for one in run.current.trainings if one.pid == pid and not one.over), None)
        if run.now - began >= NEVER_SAVED and pid not in named and newest is not None and not newest.saves:
            run, said = unsaved_loop(run, replace(newest, at=run.now), limits)
            if said:
                return run, said
    return run, []


def unsaved_sentence(run: Run) -> str:
    """Return why the next attempt finds no checkpoint of the present one, "" if none failed."""
    return f"no checkpoint could be written ({unsaved_reason(run)})" if run.current.unsaved else ""


def unsaved_reason(run: Run) -> str:
    """Return why no checkpoint of the present attempt could be written, "" if none failed."""
    return run.current.unsaved[-1].why if run.current.unsaved else ""


# Loops of which a hook can see no batch: when it sees one, and what a script adds after each step of others.
OWN_COUNT = {
    "jax": ("JAX", "if it updates by optax, Flax, Equinox or Keras", "state = step(state, batch); stallguard.beat()"),
    "mlx": ("MLX", "if an optimizer of MLX updates", "mx.eval(model.parameters(), optimizer.state); stallguard.beat()"),
}
JIT_SINCE = 12  # minor version of Python whose sys.monitoring shows the calls of jax.jit
UNCOUNTED = "uncounted"  # in Review.announced
SAID_AFTER, BESIDE_OTHERS = 45.0, 180.0  # seconds of a process; beside TensorFlow or PyTorch, which can still train
AT_WORK = 0.3  # cores: it computes, and does not wait for a download or a queue


def uncounted_loop(run: Run, event: Heartbeat) -> tuple[Run, list[Action]]:
    """Return the run after a record without batches, with an announcement if it can be a loop that is not counted.

    Keras counts itself on each backend, so with it no batch means that none was trained yet.
    """
    training = next((one for one in run.current.trainings if one.pid == event.pid and not one.over), None)
    if training is None or training.history.greeted is None or UNCOUNTED in run.current.review.announced:
        return run, []
    versions, since = training.history.greeted.versions, event.at - training.began
    found = [OWN_COUNT[name] for name in OWN_COUNT if name in versions and not {"keras", "tf_keras"} & set(versions)]
    least = BESIDE_OTHERS if {"torch", "tensorflow"} & set(versions) else SAID_AFTER
    works = training.history.used_gpu or (metrics.cpu(training.history, event.at, least) or 0.0) >= AT_WORK
    if not found or since < least or not works or event.phase == "finishing":
        return run, []
    review = replace(run.current.review, announced=(*run.current.review.announced, UNCOUNTED))
    (library, when, code), whose = found[0], messages.of_one(run, event.pid)
    python = versions.get("python", "")
    if library == "JAX" and (whole_number(python.partition(".")[2].partition(".")[0]) or JIT_SINCE) < JIT_SINCE:
        when = f"by itself with Python 3.{JIT_SINCE} or later (this is {python})"
    facts = {"whose": whose, "library": library, "when": when, "code": code, "duration": messages.duration(since)}
    return with_attempt(run, review=review), [Announce("training.uncounted", facts)]


CUT, WHOLE = "micro", "whole"  # kinds of the probe's notes
# Sources of beats (probe/wire.py) in loops that slices can fail to reach; of Keras' fit the probe says so.
LOOPS = frozenset({"function", "tape", "optimizer", "session", "torch", "mlx", "hand"})
IN_A_LOOP = (
    "batches stay whole: the script trains in a loop of its own, and slices are made in Keras' fit, Hugging Face's "
    'Trainer, Lightning, mlx-lm\'s trainer and a loop of stallguard.track(..., loss="mean"); --batch-flag and '
    "--batch-env give a script its batch size"
)


def noted_slices(event: ProbeNote | Announce) -> int | None:
    """Return in how many parts batches are trained from this note on; None if it does not say."""
    number = whole_number(event.facts.get("factor"))
    return None if number is None else max(1, number)


def slices_noted(run: Run, event: ProbeNote, limits: Limits) -> tuple[Run, list[Action]]:
    """Return the run after a note, and what it changes for the mathematics; other notes change nothing.

    A script may train several models: as long as one is cut in an attempt, later attempts ask for slices again.
    """
    if event.kind not in (CUT, WHOLE):
        return run, []
    said = noted_slices(event)
    if event.kind == CUT:
        run = replace(with_attempt(run, cut=True, slices=said or run.current.slices), whole="")
    else:
        slices = run.current.slices if run.current.cut else said or run.current.slices
        run = replace(with_attempt(run, slices=slices), whole=event.text)
    return announce_changes(run, limits.policy)


def loop_stays_whole(run: Run, event: Heartbeat, limits: Limits) -> tuple[Run, list[Action]]:
    """Return the run after a record; its batches stay whole if it was to train slices and trains in a loop.

    A script that cuts its batches itself (stallguard.microbatches) says so in the record's slices.
    """
    loop = event.trains and event.beats > 0 and is_loop(event) and event.source in LOOPS
    asked = run.current.slices > 1 and not run.current.cut and not run.whole and not limits.policy.gives_size
    if not (loop and asked) or event.slices > 1:
        return run, []
    run, announced = announce_changes(replace(with_attempt(run, slices=1), whole=IN_A_LOOP), limits.policy)
    facts = {"text": messages.of_one(run, event.pid) + IN_A_LOOP, "factor": "1"}
    return run, [*announced, Announce("batch.whole", facts)]


def announce_changes(run: Run, limits: PolicyLimits) -> tuple[Run, list[Action]]:
    """Announce what changed so far, if the size or the device of a batch differs from before."""
    text = policy.mathematics(run.current.slices, run.current.device, limits)
    if run.changes and run.changes[-1][1] == text:
        return run, []
    changes = (*run.changes, (run.current.number, text))
    return replace(run, changes=changes), [Announce("training.changed", {"text": changes_in_words(changes)})]


def changes_in_words(changes: Sequence[tuple[int, str]]) -> str:
    """Return the changes, pairs of attempt and sentence, in one sentence."""
    (_, first), *others = changes
    if not others:
        return first
    return "; ".join([f"at first {first}", *(f"in attempt {attempt} {text}" for attempt, text in others)])
