"""The settings: their values in sections, and one row each with meaning, unit and option.

A setting is a promise: it is something that a user looks for, and its help says what the user sees change.  From the
rows come the options of `stallguard run`, docs/configuration.md and the JSON schema.  `Config` has the values with
their defaults; a test holds the two equal, key by key.  The core's own sections (detector, policy, stop) are in
core.limits.

What only tunes the detector is no setting but a row of the tuning table (core.limits).  A row can stand in the file
that `detector.table` names, which replaces some of them, and in every place of a setting.

This module must not read anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, reduce
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stallguard.config.kinds import (
    CLOCK,
    COUNT,
    DURATION,
    NUMBER,
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
    pairs,
    some,
)
from stallguard.core.diagnosis import causes
from stallguard.core.limits import (
    LEAST_PATIENCE,
    MEMORY_AHEAD,
    NEVER,
    ON_NONFINITE,
    ON_STALL,
    SCALINGS,
    DetectorLimits,
    Limits,
    PhaseLimits,
    PhaseTable,
    PolicyLimits,
    Row,
    StopLimits,
    rows_of,
)
from stallguard.probe.settings import ProbeSettings


class RunSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a training is started and how long it runs."""

    python: str = ""
    observe: bool = False
    probe: bool = True
    resume: str = ""
    let_sleep: bool = False
    display_sleep: bool = False
    stop_at: str = ""
    max_time: float = NEVER
    segments: float = NEVER
    cool_down: float = 30.0


class CheckpointSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The checkpoints that stallguard makes itself."""

    enabled: bool = True
    every: float = ProbeSettings.checkpoint_every
    cost: float = ProbeSettings.checkpoint_cost
    inexact: str = ProbeSettings.checkpoint_inexact
    most: int = ProbeSettings.checkpoint_most
    keep_randomness: bool = True


class TrackersSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where people look at a training: W&B, MLflow, TensorBoard."""

    resume: bool = True


class MetricsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the state of a run is written for other programs."""

    textfile: str = ""
    otlp: str = ""


class OutputSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """stallguard's messages on the terminal."""

    quiet: bool = False
    verbose: bool = False
    color: str = "auto"


class KeepSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many runs are kept, and how much of each."""

    runs: int = 50
    age: float = 60 * 86400.0
    size: int = 5_000_000_000
    output: int = 64_000_000
    journal: int = 256_000_000  # a week of samples at 1 Hz takes about 100 MB


class NotifySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where notifications go, and for what."""

    desktop: bool = True
    command: str = ""
    urls: tuple[str, ...] = ()
    on: tuple[str, ...] = ("stall", "restart", "give_up", "finish", "loss")
    every: float = 60.0


class EvidenceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is gathered at a stall."""

    include_source: bool = False


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The store that several machines share; it is used for a run that names a job."""

    url: str = ""
    job: str = ""
    project: str = ""
    lease: float = 120.0  # seconds; a holder renews three times in it, its machine twice
    if_away: str = "end"
    cost: float = 0.01  # share of the time, as processor time of publishing


class AgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The job that launchd or systemd starts."""

    throttle: float = 30.0
    max_restarts: int = 5  # launchd has no limit and started one broken job 38 771 times


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings."""

    run: RunSettings = RunSettings()
    detector: DetectorLimits = DetectorLimits()
    policy: PolicyLimits = PolicyLimits()
    stop: StopLimits = StopLimits()
    checkpoint: CheckpointSettings = CheckpointSettings()
    evidence: EvidenceSettings = EvidenceSettings()
    trackers: TrackersSettings = TrackersSettings()
    metrics: MetricsSettings = MetricsSettings()
    output: OutputSettings = OutputSettings()
    notify: NotifySettings = NotifySettings()
    keep: KeepSettings = KeepSettings()
    agent: AgentSettings = AgentSettings()
    store: StoreSettings = StoreSettings()

    def limits(self) -> Limits:
        """Return the limits for the core."""
        return Limits(
            detector=self.detector,
            policy=self.policy,
            stop=self.stop,
            observe=self.run.observe,
            saves=self.checkpoint.enabled,
            segment=self.run.segments,
            cool_down=self.run.cool_down,
        )


OCCASIONS = ("stall", "restart", "give_up", "finish", "loss", "morning")


class Key(NamedTuple):
    """One setting, or a row.  `path`: section.name; `flag`: its option of `run`; `live`: can change during a run."""

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


_SETTINGS = [
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
        "run.display_sleep", SWITCH,
        "Put a Mac's display to sleep when the first batches of an attempt have run; elsewhere nothing.",
        "--display-sleep",
    ),
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
        "detector.patience", at_least(LEAST_PATIENCE),
        "Multiplies all stall timeouts: at 2, stalls are seen half as soon; 0.25 at least.",
        "--patience",
        live=True,
    ),
    Key("detector.table", TEXT, "File with rows of the detector's tuning table, for experts.", live=True),
    Key(
        "policy.on_stall", choice(*ON_STALL),
        "What to do about a stall; auto: the remedy for its cause.",
        "--on-stall", live=True,
    ),
    Key(
        "policy.causes", pairs("cause", causes.CAUSES, "order", ON_STALL),
        'The same for single causes: ["device-wait=halve"]; overrides on_stall.', live=True,
    ),
    Key("policy.min_batch", POSITIVE, "Rows of a batch below which it is not made smaller.", "--min-batch", live=True),
    Key(
        "policy.max_restarts", COUNT,
        "Restarts within the window before the run gives up.",
        "--max-restarts", live=True,
    ),
    Key(
        "policy.restart_window", DURATION,
        "Time after which a restart no longer counts for --max-restarts.",
        "--restart-window", live=True,
    ),
    Key(
        "policy.no_progress_limit", POSITIVE,
        "Restarts in a row without new progress before the run gives up.",
        live=True,
    ),
    Key("policy.healthy", DURATION, "Time of progress after which earlier failures no longer count.", live=True),
    Key("policy.backoff", DURATION, "Pause before the second restart in a row; it doubles from there.", live=True),
    Key(
        "policy.microbatches", POSITIVE,
        "Slices that each batch is trained in from the start, with one update; never fewer.",
        "--microbatches",
        live=True,
    ),
    Key(
        "policy.batch", COUNT,
        "Rows of a batch that the script is given at first, by {batch}, batch_flag or batch_env; 0: none.",
        "--batch", live=True,
    ),
    Key(
        "policy.batch_flag", TEXT,
        "The option of the script that takes its batch size, such as --batch-size.",
        "--batch-flag", live=True,
    ),
    Key(
        "policy.batch_env", TEXT,
        "The environment variable that the script reads its batch size from.",
        "--batch-env", live=True,
    ),
    Key(
        "policy.resume_with", TEXT,
        "Words that each later attempt's command ends with; {checkpoint} is the script's own newest whole checkpoint.",
        "--resume-with",
    ),
    Key(
        "policy.really_smaller_batch", SWITCH,
        "Make Model.fit train on fewer rows instead of in slices, if it takes a batch size.",
        "--really-smaller-batch",
        live=True,
    ),
    Key(
        "policy.scale_lr", choice(*SCALINGS),
        "How the learning rate changes if fit trains on fewer rows.",
        "--scale-lr", live=True,
    ),
    Key(
        "policy.memory_ahead", choice(*MEMORY_AHEAD),
        "What to do before memory runs out: restart from a checkpoint, only notify, or off.", "--memory-ahead",
        live=True,
    ),
    Key(
        "policy.empty_caches", SWITCH,
        "If memory is short, have PyTorch and MLX give back what they only keep for later arrays.",
        live=True,
    ),
    Key(
        "policy.on_nonfinite", choice(*ON_NONFINITE),
        "If the loss stops being finite: notify, stop, or roll back to the last finite checkpoint and stop.",
        "--on-nonfinite",
        live=True,
    ),
    Key(
        "policy.leave_machine", SWITCH,
        "Give up if the machine is at fault, so that another one continues the job; `fleet worker` sets it.",
        live=True,
    ),
    Key("stop.grace", DURATION, "Time between SIGTERM and SIGKILL, for a last checkpoint.", "--grace", live=True),
    Key("stop.batch_wait", DURATION, "Longest wait for the end of a batch and of the script at a set time.", live=True),
    Key(
        "stop.saving_wait", DURATION,
        "Longest wait for a checkpoint that is still growing, before a training is ended.",
        live=True,
    ),
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
    Key(
        "evidence.include_source", SWITCH,
        "Keep the script's text in the evidence of an incident.",
        "--include-source", live=True,
    ),
    Key("output.quiet", SWITCH, "Print errors only.", "--quiet"),
    Key("output.verbose", SWITCH, "Print what otherwise only the journal contains.", "--verbose"),
    Key("output.color", choice("auto", "always", "never"), "Colour of stallguard's messages.", "--color"),
    Key("notify.desktop", SWITCH, "Show notifications on the desktop.", live=True),
    Key("notify.command", TEXT, "Command to run for each notification; STALLGUARD_TEXT is its text.", live=True),
    Key("notify.urls", TEXTS, "Apprise addresses to notify (needs the extra 'notify').", live=True),
    Key(
        "notify.on", some(*OCCASIONS),
        "Events to notify of; `loss`: it stops being finite; `morning`: the summary of a night.",
        live=True,
    ),
    Key("notify.every", DURATION, "Least time between two notifications of one event.", live=True),
    Key("keep.runs", POSITIVE, "Runs to keep, the newest."),
    Key("keep.age", DURATION, "Age from which a run is removed."),
    Key("keep.size", SIZE, "Disk space for all runs; the oldest are removed first."),
    Key("keep.output", SIZE, "Disk space for one run's output.log; its oldest parts are removed first."),
    Key("keep.journal", SIZE, "Disk space for one run's journal; its oldest parts are removed first."),
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

KEYS: dict[str, Key] = {key.path: key for key in _SETTINGS}
_OF_PROBE = {name: path for path in KEYS if (name := path.replace(".", "_")) in ProbeSettings.__annotations__}


def for_probe(config: Config) -> dict[str, Any]:
    """Return the settings that act in the probe, as arguments of ProbeSettings."""
    return {name: value_of(config, path) for name, path in _OF_PROBE.items()}


# Settings of earlier versions, with their options: each is said and does nothing, so that old commands go on working.
# By path: the option, a switch, "" for none; and the reason.
REMOVED = {
    "agent.exit_timeout": ("", "it follows from stop.grace and stop.saving_wait"),
    "evidence.budget": ("", "evidence is gathered for 10 s at most"),
    "policy.backoff_cap": ("", "a pause is 2 minutes at most, or policy.backoff if that is longer"),
    "policy.max_factor": ("", "a batch of unknown size is trained in 64 slices at most"),
    "policy.regrow": ("--regrow", "a run keeps its smaller batch to its end"),
    "policy.regrow_after": ("", "it belonged to policy.regrow: a run keeps its smaller batch to its end"),
    "stop.kill_wait": ("", "a process is reported as unkillable 20 s after SIGKILL"),
}


TUNING_SECTION, PHASES = "detector", "detector.rows"
TUNING_FILE = "detector.table"
_KINDS = {"s": DURATION, "share": SHARE, "bytes/s": SIZE, "count": COUNT}


class RowGroup(NamedTuple):
    """Rows that stand together in a file: those of one phase, or a single one.  `about`: meaning and reason."""

    name: str
    about: str
    keys: tuple[Key, ...]


def _kind(row: Row) -> Kind:
    if row.least:
        return POSITIVE if row.unit == "count" and row.least == 1 else at_least(row.least)
    return _KINDS.get(row.unit, NUMBER)


def _about(row: Row) -> str:
    return f"{row.meaning.rstrip('.')}{'; ' if row.reason else ''}{row.reason}."


@cache
def tuning_groups() -> tuple[RowGroup, ...]:
    """Return the whole table, in its order."""
    single = [
        RowGroup(name, _about(row), (Key(f"{TUNING_SECTION}.{name}", _kind(row), row.meaning, live=True),))
        for name, row in rows_of(DetectorLimits).items()
    ]
    fields = rows_of(PhaseLimits)
    phases = [
        RowGroup(
            f"rows.{phase}", _about(about),
            tuple(
                Key(f"{PHASES}.{phase}.{name}", _kind(row), f"In {about.meaning}: {row.meaning}.", live=True)
                for name, row in fields.items()
            ),
        )
        for phase, about in rows_of(PhaseTable).items()
    ]  # fmt: skip
    return (*single, *phases)


@cache
def tuning_rows() -> Mapping[str, Key]:
    """Return the rows of the table by path."""
    return {key.path: key for group in tuning_groups() for key in group.keys}


def all_keys() -> Mapping[str, Key]:
    """Return what can be set, by path: the settings, and the rows of the table."""
    return {**KEYS, **tuning_rows()}


def key_of(path: str) -> Key | None:
    """Return the setting or the row at `path`; None if there is none."""
    return KEYS.get(path) or tuning_rows().get(path)


@cache
def section_names() -> tuple[str, ...]:
    """Return every name that is not a setting but holds some: run, detector, detector.rows, ..."""
    parents = {path.rsplit(".", depth)[0] for path in all_keys() for depth in range(1, path.count(".") + 1)}
    return tuple(sorted(parents))


def tuning_file(toml: Callable[[Key], str]) -> str:
    """Return a file for `detector.table` in which every row is a remark with its default.  `toml`: a value in TOML."""
    lines = [
        "# Rows of the tuning table of stallguard's detector; a row can change in any version.",
        f'# [{TUNING_SECTION}] table = "THIS FILE" in stallguard.toml puts in force what is no remark here.',
    ]
    for group in tuning_groups():
        lines += ["", f"## {group.about}"]
        if len(group.keys) == 1:
            lines.append(f"# {group.name} = {toml(group.keys[0])}")
        else:
            cells = ", ".join(f"{key.path.rpartition('.')[2]} = {toml(key)}" for key in group.keys)
            lines.append(f"# {group.name} = {{ {cells} }}")
    return "\n".join(lines) + "\n"


def file_of(named: str, base: Path) -> Path:
    """Return the path of the table that the setting `detector.table` names.  `base`: where a relative one begins."""
    return base / Path(named).expanduser()


DRAFT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of stallguard.toml."""
    root = _object()
    for key in KEYS.values():
        *parents, name = key.path.split(".")
        branch = root
        for parent in parents:
            branch = branch["properties"].setdefault(parent, _object())
        default = msgspec.to_builtins(key.default)
        branch["properties"][name] = {"description": key.help, "default": default, **key.kind.schema}
    return {"$schema": DRAFT, "title": "stallguard settings", **root}


def _object() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def markdown_table() -> str:
    """Return the settings as a Markdown table."""
    tuning_rows = ["| setting | option of `run` | default | meaning |", "|---|---|---|---|"]
    return "\n".join([*tuning_rows, *map(_row, KEYS.values())])


def _row(key: Key) -> str:
    option = f"`{key.flag}{' ' + key.kind.metavar if key.kind.metavar else ''}`".replace("|", "\\|") if key.flag else ""
    return f"| `{key.path}` | {option} | {key.kind.show(key.default)} | {key.help} |"
