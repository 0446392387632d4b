"""The option table: one row a setting, feeding the options of `stallguard run`, docs/configuration.md and the schema.

The values and defaults are config.sections; a test holds the two equal, key by key.  This module must not read
anything.
"""

from __future__ import annotations

from functools import cache, reduce
from typing import Any, NamedTuple

from stallguard.config import detector_keys, policy_keys
from stallguard.config.kinds import (
    CLOCK,
    DURATION,
    POSITIVE,
    SHARE,
    SIZE,
    SWITCH,
    TEXT,
    TEXTS,
    TIME,
    Kind,
    at_least,
    choice,
    some,
)
from stallguard.config.sections import Config
from stallguard.core.limits import LEAST_PATIENCE

OCCASIONS = ("stall", "restart", "give_up", "finish", "loss", "morning")


class Key(NamedTuple):
    """One setting.  `path`: section.name; `flag`: its option of `run`; `live`: can change during a run."""

    path: str
    kind: Kind
    help: str
    flag: str = ""
    live: bool = False

    @property
    def default(self) -> Any:
        """The default value."""
        return value_of(Config(), self.path)

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "STALLGUARD_" + self.path.upper().replace(".", "__")


def value_of(config: Config, path: str) -> Any:
    """Return the value of the setting at `path`.  Raises AttributeError if there is none."""
    return reduce(getattr, path.split("."), config)


_EVERYDAY = [
    Key("run.python", TEXT, "Interpreter that runs a script; empty: the active environment's.", "--python"),
    Key("run.observe", SWITCH, "Report stalls and crashes, never act on them.", "--observe", live=True),
    Key("run.probe", SWITCH, "Load the probe into the training; off: guard it from outside only.", "--probe"),
    Key(
        "run.resume", TEXT,
        "Resume from the checkpoints of an earlier run: its id, or `last`; jobs do so by default; `no`: never.",
        "--resume",
    ),
    Key("run.let_sleep", SWITCH, "Let the machine sleep while the training runs.", "--let-sleep"),
    Key(
        "run.stop_at", CLOCK, "Time of day to end the training at, after a checkpoint.", "--stop-at", live=True
    ),
    Key(
        "run.max_time", TIME, "Time after which to end the training, with a checkpoint.", "--max-time", live=True
    ),
    Key(
        "run.segments", TIME, "Restart after this time, for scripts that leak memory.", "--segments", live=True
    ),
    Key("run.cool_down", DURATION, "Pause between two segments.", "--cool-down", live=True),
    Key(
        "detector.patience", at_least(LEAST_PATIENCE), "Multiplies all stall timeouts; 0.25 at least.",
        "--patience",
        live=True,
    ),
    *(Key(f"policy.{name}", kind, words, flag, live=True) for name, kind, words, flag in policy_keys.KEYS),
    Key("stop.grace", DURATION, "Time between SIGTERM and SIGKILL, for a last checkpoint.", "--grace", live=True),
    Key("stop.kill_wait", DURATION, "Time after SIGKILL until a process is reported as unkillable.", live=True),
    Key("stop.batch_wait", DURATION, "Longest wait for the end of a batch and of the script at a set time.", live=True),
    Key("stop.saving_wait", DURATION, "Longest wait for a checkpoint that is still growing.", live=True),
    Key("checkpoint.enabled", SWITCH, "Make checkpoints to resume from.", "--checkpoint"),
    Key(
        "checkpoint.every", DURATION, "Time between two checkpoints; 0: after every batch, within the cost.",
        "--checkpoint-every",
    ),
    Key(
        "checkpoint.cost", SHARE,
        "Largest share of the training's time for checkpoints; beyond it 2 s at 0.01 for reading the state of objects.",
        "--checkpoint-cost",
    ),
    Key(
        "checkpoint.inexact", choice("fallback", "continue", "stop"),
        "What to do if a training cannot be resumed exactly; fallback: back to the start of the epoch or the fit.",
        "--inexact",
    ),
    Key("checkpoint.most", SIZE, "Largest size of the callbacks' data in a checkpoint."),
    Key(
        "checkpoint.keep_randomness", SWITCH,
        "Seed what the script leaves unseeded alike in each attempt of a run.", "--keep-randomness",
    ),
    Key(
        "trackers.resume", SWITCH,
        "Let a restarted attempt go on in the W&B, MLflow and TensorBoard runs of the attempt before.",
    ),
    Key("metrics.textfile", TEXT, "File for the textfile collector of node_exporter; it ends in .prom."),
    Key("metrics.otlp", TEXT, "Address to send a trace of the run to, by OTLP over HTTP (needs the extra 'otel')."),
    Key("evidence.budget", DURATION, "Longest time for gathering evidence before a restart.", live=True),
    Key("evidence.include_source", SWITCH, "Keep the script's text as evidence.", "--include-source", live=True),
    Key("output.quiet", SWITCH, "Print errors only.", "--quiet"),
    Key("output.verbose", SWITCH, "Print what otherwise only the journal contains.", "--verbose"),
    Key("output.color", choice("auto", "always", "never"), "Colour of stallguard's messages.", "--color"),
    Key("notify.desktop", SWITCH, "Show notifications on the desktop.", live=True),
    Key("notify.command", TEXT, "Command to run for each notification; STALLGUARD_TEXT is its text.", live=True),
    Key("notify.urls", TEXTS, "Apprise addresses to notify (needs the extra 'notify').", live=True),
    Key("notify.on", some(*OCCASIONS), "Events to notify of; `loss`: it is not finite; `morning`: a night.", live=True),
    Key("notify.every", DURATION, "Least time between two notifications of one event.", live=True),
    Key("keep.runs", POSITIVE, "Runs to keep, the newest."),
    Key("keep.age", DURATION, "Age from which a run is pruned."),
    Key("keep.size", SIZE, "Disk space for all runs; the oldest are removed first."),
    Key("keep.output", SIZE, "Disk space for one run's output.log; its oldest parts are removed first."),
    Key("keep.journal", SIZE, "Disk space for one run's journal; its oldest parts are removed first."),
    Key("agent.exit_timeout", DURATION, "Least time that launchd or systemd waits before it kills stallguard."),
    Key("agent.throttle", DURATION, "Least time between two starts of an agent by launchd or systemd."),
    Key("agent.max_restarts", POSITIVE, "Deaths of stallguard itself within an hour after which its job gives up."),
    Key("store.url", TEXT, "Store that machines share: file:///folder or s3://bucket/prefix.", "--store"),
    Key("store.job", TEXT, "Name of the training in the store: one machine at a time trains it.", "--job"),
    Key(
        "store.project", TEXT,
        "Root of the project: paths below it can differ between machines that continue each other's checkpoints.",
    ),
    Key("store.lease", DURATION, "Silence after which another machine takes a job over."),
    Key(
        "store.if_away", choice("end", "continue"),
        "What to do with a training whose lease cannot be renewed; continue: two machines can train, one can publish.",
    ),
    Key("store.cost", SHARE, "Largest share of the time for publishing checkpoints, as processor time."),
]  # fmt: skip

_TUNING = [Key(f"detector.{name}", kind, words, live=True) for name, kind, words in detector_keys.KEYS]

KEYS: dict[str, Key] = {key.path: key for key in (*_EVERYDAY, *_TUNING)}
EVERYDAY: tuple[Key, ...] = tuple(_EVERYDAY)


# Settings of earlier versions, with their options: each is said and does nothing, so that old commands go on working.
# By path: the option, a switch, "" for none; and the reason.
REMOVED = {
    "policy.regrow": ("--regrow", "a run keeps its smaller batch to its end"),
    "policy.regrow_after": ("", "it belonged to policy.regrow: a run keeps its smaller batch to its end"),
}


@cache
def sections() -> tuple[str, ...]:
    """Return every name that is not a setting but holds some: run, detector, detector.rows, ..."""
    parents = {path.rsplit(".", depth)[0] for path in KEYS for depth in range(1, path.count(".") + 1)}
    return tuple(sorted(parents))
