"""`stallguard tune compare`: how fast a training is with one setting and another."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec

from stallguard import jsontext
from stallguard.cli import tune
from stallguard.cli._console import echo, note, prints_json
from stallguard.cli._errors import INTERRUPTED
from stallguard.cli._options import as_words, given, settings
from stallguard.cli.run import RunCommand
from stallguard.cli.tune import Interrupted, Trials
from stallguard.config.table import KEYS
from stallguard.core.text import counted, shell_words
from stallguard.core.trials import Trial
from stallguard.errors import USAGE, StallguardError

SCHEMA = 1
NONE_MEASURED = 1  # the exit code
SECONDS = 5.0  # that each setting is measured for at least: steps of a millisecond say little after 50
MOST = 16  # trials
DEVICES = ("cpu", "gpu")
MEASURED, UNSEEN = "measured", "whether it used the GPU is not known"
BATCH = "policy.batch"
ONLY_CPU = {  # by library: how a training is kept on the CPU
    "tensorflow": 'tf.config.set_visible_devices([], "GPU") at the top of the script',
    "jax": "JAX_PLATFORMS=cpu in the environment",
    "torch": "CUDA_VISIBLE_DEVICES=-1 in the environment, or the device of the script",
}
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Compared(Trial, frozen=True, omit_defaults=True, kw_only=True):
    """One setting and its trial."""

    setting: str  # in words
    device: str = ""  # cpu or gpu; empty: the script decides
    batch: int | None = None  # rows that the script was given; null: the script decides
    # Variables that were set for this trial; null: not set.
    env: dict[str, str | None] = msgspec.field(default_factory=dict)


class ComparedTrials(msgspec.Struct, frozen=True):
    """What was measured, in the order of the trials.  The fields after `interrupted` are null if nothing is chosen."""

    schema: int
    trials: list[Compared]  # one a setting, in their order
    interrupted: bool  # by the user, before all settings were measured: nothing is chosen
    chosen: str | None  # the setting to use
    reason: str | None  # faster; of equally fast ones: changes (fewer), memory (less), rows (fewer), first (named)
    equal: list[str] | None  # settings that are as fast within what is uncertain
    apply: list[str] | None  # how to use it


class Variant(msgspec.Struct, frozen=True):
    """A combination of what is compared; an empty part is left to the script."""

    device: str = ""
    batch: int | None = None
    env: tuple[tuple[str, str], ...] = ()  # with an empty value: not set


@click.command("compare", cls=RunCommand, options_metavar="[OPTIONS] [--] COMMAND...")
@click.option("--device", metavar="cpu,gpu", default="", help="Train with the GPU hidden, and with it.")
@click.option("--batch", "batch", metavar="ROWS,...", default="", help="Sizes of a batch that the script takes.")
@click.option(
    "--env", "env", metavar="NAME=VALUE,...", multiple=True,
    help="Values of an environment variable; an empty one: not set. Can be given for several variables.",
)  # fmt: skip
@click.option("--steps", type=click.IntRange(1), default=50, show_default=True, help="Batches to measure, at least.")
@prints_json("Print the result as JSON.", "stallguard.cli.compare:ComparedTrials")
@settings(key for key in KEYS.values() if key.path != BATCH)
def command(
    words: tuple[str, ...], device: str, batch: str, env: tuple[str, ...], steps: int, as_json: bool, **parameters: Any
) -> None:
    """Measure how fast a training is with one setting and another, and say which to use.

    Each setting, and each combination of several options, is measured in a short guarded run of its own, one after the
    other. Each run starts the script from its beginning and ends it after at least --steps measured batches and 5
    seconds. It makes no checkpoints and resumes from none; what the script itself writes, it writes in each run.

    Not measured are the first batch, the tracing of graphs, validation, checkpoints, and what precedes the first steady
    stretch: the first sixteenth of the batches that is as fast as the second half. Settings are equally fast if they
    differ by less than is uncertain (the spread within a trial, at least 5 %). Then the one that changes less, needs
    less memory or has fewer rows is kept.

    A script gets its batch size by --batch-flag, --batch-env or {batch} in its arguments. Exit code 1 if nothing could
    be measured.

    \b
    Examples:
      stallguard tune compare --device cpu,gpu -- train.py
      stallguard tune compare --batch 32,64,128 --batch-flag=--batch-size -- train.py
      stallguard tune compare --env TF_XLA_FLAGS=,--tf_xla_auto_jit=2 train.py
    """  # noqa: D301 - click wants the real backspace
    from stallguard.report import trial_table
    from stallguard.supervisor.signals import deferred_signals

    comparison = VariantTrials(words, given(parameters), variants(device, batch, env), steps)
    is_interrupted = False
    with deferred_signals() as kept:
        try:
            comparison.run(kept)
        except Interrupted:
            is_interrupted = True
    found = comparison.found
    choice = None if is_interrupted else comparison.choice()
    apply = comparison.how_to_apply(choice.chosen) if choice else []
    if as_json:
        output = ComparedTrials(
            schema=SCHEMA, trials=found, interrupted=is_interrupted,
            chosen=found[choice.chosen].setting if choice else None, reason=choice.reason if choice else None,
            equal=[found[index].setting for index in choice.equal] if choice else None,
            apply=apply if choice else None,
        )  # fmt: skip
        echo(jsontext.readable(output))
    else:
        lines = trial_table.table("setting", [(one.setting, one) for one in found], MEASURED)
        if choice:
            lines += trial_table.choice_words([one.setting for one in found], found, choice)
            lines += [f"{'  ' if number else 'to use it: '}{one}" for number, one in enumerate(apply)]
        elif is_interrupted:
            lines.append(f"interrupted after {len(found)} of {counted(comparison.count, 'trial')}: nothing is chosen")
        else:
            lines.append("no setting could be measured")
        echo("\n".join(lines))
    sys.exit(INTERRUPTED if is_interrupted else 0 if choice else NONE_MEASURED)


def variants(device: str, batch: str, env: Sequence[str]) -> list[Variant]:
    """Return the settings to compare: each combination of the options' values.

    Raises StallguardError (exit code 2).
    """
    devices = _values(device, "--device")
    for one in devices:
        if one not in DEVICES:
            raise _error(
                f"--device knows cpu and gpu, not {one!r}", "stallguard tune compare --device cpu,gpu -- train.py"
            )
    rows = _values(batch, "--batch")
    for one in rows:
        if not re.fullmatch(r"0*[1-9][0-9]{0,11}", one):
            raise _error(f"--batch takes numbers of rows, not {one!r}", "such as --batch 32,64,128")
    variables = dict[str, list[str]]()
    for text in env:
        name, equals, values = text.partition("=")
        if not equals or not NAME.fullmatch(name):
            raise _error(f"--env takes NAME=VALUE,VALUE, not {text!r}", "such as --env OMP_NUM_THREADS=1,4")
        if name.startswith("STALLGUARD_"):
            raise _error(f"--env cannot set {name}", "it belongs to stallguard: see --set for its settings")
        variables.setdefault(name, []).extend(values.split(","))
    pairs = [[(name, value) for value in dict.fromkeys(values)] for name, values in variables.items()]
    found = [
        Variant(one, int(size) if size else None, chosen)
        for one, size, chosen in itertools.product(devices or [""], rows or [""], itertools.product(*pairs))
    ]
    if len(found) < 2:  # noqa: PLR2004 - a comparison
        raise _error(
            "there is nothing to compare", "give two values of one thing: --device cpu,gpu, --batch 32,64, --env A=1,2"
        )
    if len(found) > MOST:
        raise _error(f"these are {counted(len(found), 'trial')}, more than {MOST}", "compare fewer values at a time")
    return found


def _values(text: str, option: str) -> list[str]:
    """Return the values that a comma separates, each once."""
    values = [one.strip() for one in text.split(",")] if text else []
    if "" in values:
        raise _error(f"{option} has an empty value: {text!r}", f"separate values by one comma: {option} A,B")
    return list(dict.fromkeys(values))


def _error(what: str, cure: str) -> StallguardError:
    return StallguardError(what, cure=cure, code=USAGE)


class VariantTrials:
    """Measures the variants of one command."""

    def __init__(self, words: tuple[str, ...], flags: Mapping[str, Any], wanted: Sequence[Variant], steps: int) -> None:
        """`flags`: settings as given on the command line.  Raises StallguardError if a variant cannot be tried."""
        from stallguard.host import system
        from stallguard.launch import batch_option
        from stallguard.launch.command import Disk, reach
        from stallguard.launch.request import command_of

        self._trials, self._wanted = Trials(words, flags, steps, SECONDS), wanted
        self.count, self.found, self._libraries = len(wanted), list[Compared](), tuple[str, ...]()
        loaded = self._trials.load({}, os.environ)
        policy = loaded.config.policy
        is_sized = policy.gives_size or any(one.batch for one in wanted)
        self._slices = 1 if is_sized else policy.microbatches
        argv = command_of(words, loaded, os.environ, self._trials.cwd).argv
        inside = reach(argv, Disk(os.environ, str(self._trials.cwd)))
        if not inside.injectable or not loaded.config.run.probe:
            why = inside.why or "the probe is switched off"
            raise StallguardError("the batches of this command cannot be counted", why=why, code=USAGE)
        if any(one.device == "gpu" for one in wanted) and system.has_gpu() is False:
            raise StallguardError(
                "this machine has no GPU", why="neither a device nor its driver is there",
                cure="compare something else, or on another machine", code=USAGE,
            )  # fmt: skip
        for one in wanted:
            if one.batch:
                sized = self._trials.load({BATCH: one.batch}, os.environ).config.policy
                batch_option.given(argv, os.environ, sized)  # raises if the size cannot be passed
        try:
            self._own_batch = batch_option.given(argv, os.environ, policy).whole
        except StallguardError:  # the script has a size of its own, which only it knows
            self._own_batch = None

    def run(self, kept: list[int]) -> None:
        """Try each variant.  `kept`, and what is raised: as for Trials.run."""
        from stallguard.core.actions import Launch

        what = "what the script writes, it writes in each of them"
        note(f"stallguard: {counted(self.count, 'trial')} of this script: {what}")
        for one in self._wanted:
            label = self._label(one)
            flags = {BATCH: one.batch} if one.batch else {}
            device = "cpu" if one.device == "cpu" else "default"
            launch = Launch(attempt=1, slices=self._slices, device=device)
            trial = self._trials.run(launch, flags, self._environment(one), kept)
            shown = with_device(trial.result(), one.device)
            self._libraries = self._libraries or trial.libraries
            figures = msgspec.structs.asdict(shown) | {"rows": one.batch or shown.rows}
            env = {name: value or None for name, value in one.env}
            self.found.append(Compared(**figures, setting=label, device=one.device, batch=one.batch, env=env))
            tune.report_trial(label, shown, MEASURED)
            if trial.is_interrupted:
                raise Interrupted

    def _label(self, one: Variant) -> str:
        """Return a variant in words."""
        parts = [one.device, counted(one.batch, "row") if one.batch else ""]
        parts += [f"{name}={value}" if value else f"no {name}" for name, value in one.env]
        return ", ".join(filter(None, parts))

    def _environment(self, one: Variant) -> dict[str, str]:
        unset = {name for name, value in one.env if not value}
        env = {name: value for name, value in os.environ.items() if name not in unset}
        return env | {name: value for name, value in one.env if value}

    def choice(self) -> Any:
        """Return what to use, as core.trials says."""
        from stallguard.core import trials

        pairs = zip(self.found, self._wanted, strict=True)
        return trials.choose([trials.Candidate(trial, self._changes(one)) for trial, one in pairs])

    def _changes(self, one: Variant) -> int:
        """Return how many things differ from what the script does by itself."""
        resized = one.batch is not None and one.batch != self._own_batch
        variables = sum(os.environ.get(name, "") != value for name, value in one.env)
        return (one.device == "cpu") + resized + variables

    def how_to_apply(self, index: int) -> list[str]:
        """Return what to do to train with a variant."""
        one = self._wanted[index]
        if not self._changes(one):
            return ["nothing has to change"]
        unset = [name for name, value in one.env if not value and name in os.environ]
        flags = {**self._trials.flags, **({BATCH: one.batch} if one.batch else {})}
        words = ["env", *(word for name in unset for word in ("-u", name))] if unset else []
        words += ["stallguard", "run", *as_words(flags), "--", *self._trials.words]
        lines = []
        if one.device == "cpu":
            known = [how for library, how in ONLY_CPU.items() if library in self._libraries]
            lines.append("; ".join(known or ONLY_CPU.values()))
        if one.batch or one.env:
            assigned = [f"{name}={shell_words([value])}" for name, value in one.env if value]
            lines.append(" ".join([*assigned, shell_words(words)]))
        if one.batch and one.batch != self._own_batch:
            lines.append("another batch size changes what is learned in an epoch: adapt the learning rate")
        return lines


def with_device(trial: Trial, device: str) -> Trial:
    """Return a trial with the trouble that it was not on the wanted device, or with the note that this is not known."""
    if trial.trouble or not device or trial.used_gpu == (device == "gpu"):
        return trial
    if trial.used_gpu is None:
        note = f"{trial.note}; {UNSEEN}" if trial.note else UNSEEN
        return msgspec.structs.replace(trial, note=note if device == "gpu" else trial.note)
    trouble = "it computed on the GPU, which cannot be hidden from it" if trial.used_gpu else "it used no GPU"
    return msgspec.structs.replace(trial, trouble=trouble)
