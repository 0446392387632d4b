"""What a user tries before a night: `stallguard doctor`, `drill` and `notify test`.

`doctor` checks whether a training would run through the night here, `drill` rehearses a stall in the real training
environment, `notify` sends a test over each channel.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from stallguard import config, jsontext
from stallguard.cli import guard
from stallguard.cli._console import echo, note, prints_json
from stallguard.cli._options import given, settings
from stallguard.config.table import KEYS
from stallguard.doctor.facts import FAIL, NOTE, OK, WARN, CheckResult, MachineFacts, worst
from stallguard.errors import CANNOT_RUN, USAGE, StallguardError
from stallguard.host import tool
from stallguard.launch.command import choose_interpreter
from stallguard.notify.notifier import SendResult
from stallguard.report.sanitize import plain
from stallguard.storage import paths, private

SCHEMAS = {"CheckedMachine": 1, "Tested": 2}
COLORS = {OK: "green", NOTE: "cyan", WARN: "yellow", FAIL: "red"}
TRAIN = Path(__file__).resolve().parent.parent / "drills" / "train.py"
HAS_TENSORFLOW = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tensorflow') is None)"
DEADLINE = 60.0  # seconds; importlib looks only for files, but the first look into an environment on a network is slow
# A rehearsal must be short: shorter timeouts, a restart at once, the batch halved at once.
SOON = {"policy.on_stall": "halve", "detector.act_after": "1s"}
KINDS = {
    "op": SOON,
    "lock": SOON,
    "gil": SOON,
    "spin": {**SOON, "detector.rows.step.spin": "20s", "detector.rows.step.prior_spin": "20s"},
    # `on_stall` is no order for a cause that no restart helps against, and the verdict is certain at once.
    "stopped": {"policy.causes": "stopped=halve"},
}
OPTIONS = tuple(key for key in KEYS.values() if key.path in ("run.python", "output.quiet", "output.color"))
TITLE, TEXT = "stallguard: a test", "This is a test. No training is concerned."


class CheckedMachine(msgspec.Struct, frozen=True):
    """The findings, and the facts that they follow from."""

    schema: int
    verdict: str  # the worst severity of the findings: ok, note, warn or fail
    findings: list[CheckResult]
    facts: MachineFacts


@click.command("doctor")
@prints_json("One JSON object: the findings and their facts.", "stallguard.cli.rehearsal:CheckedMachine")
@click.option("--deep", is_flag=True, help="Import the framework in its environment and compute on its devices.")
@settings((KEYS["run.python"], KEYS["store.url"]))
@click.pass_context
def doctor(ctx: click.Context, /, *, as_json: bool, deep: bool, **parameters: Any) -> None:
    """Check what can make a training fail: versions, GPU, memory, power, disk; exit code 1 if something will.

    It checks the environment that `stallguard run` would use here, without importing TensorFlow.
    """
    from stallguard.doctor import checks, gather, interrogate
    from stallguard.fleet import seam

    wanted = config.load(given(parameters), os.environ, Path.cwd()).config
    choice = choose_interpreter(wanted.run.python, os.environ, shutil.which, cwd=Path.cwd())
    environment = interrogate.environment(choice, deep=deep)
    store = seam.store_facts(wanted.store.url) if wanted.store.url else None
    facts = gather.facts(environment, os.environ, wanted, store, seam.fleet_facts(os.environ))
    findings = checks.examine(facts)
    verdict = worst(findings)
    if as_json:
        echo(jsontext.readable(CheckedMachine(SCHEMAS["CheckedMachine"], verdict, findings, facts)))
    else:
        for finding in findings:
            click.echo("\n".join(lines(finding)), color=False if "NO_COLOR" in os.environ else None)
        echo(summary(findings))
    ctx.exit(1 if verdict == FAIL else 0)


def lines(finding: CheckResult) -> list[str]:
    """Return the lines of a finding: its severity and name, what was found, and the cure."""
    mark = click.style(f"{finding.severity:<4}", fg=COLORS[finding.severity], bold=finding.severity == FAIL)
    shown = [f"{mark}  {finding.name:<14} {plain(finding.what)}"]
    return [*shown, f"{'':<21} -> {plain(finding.cure)}"] if finding.cure else shown


def summary(findings: list[CheckResult]) -> str:
    """Return the last line."""
    count = {severity: sum(1 for f in findings if f.severity == severity) for severity in COLORS}
    if count[FAIL]:
        return f"{count[FAIL]} of {len(findings)} findings would make a training fail."
    if count[WARN]:
        return f"No finding would make a training fail; {count[WARN]} warning{'s' if count[WARN] > 1 else ''}."
    return "Ready for the night."


@click.command("drill")
@click.option(
    "--kind", type=click.Choice(tuple(KINDS)), default="op", show_default=True,
    help="How the step blocks: in an operation of the TensorFlow runtime, on a lock, in native code that holds "
    "the GIL, in a busy loop, or stopped by a signal.",
)  # fmt: skip
@settings(OPTIONS)
def drill(kind: str, **parameters: Any) -> None:
    """Rehearse a stall: a small Keras training blocks, is restarted with smaller batches, and finishes.

    Run it with the interpreter of your training: `stallguard drill --python ~/envs/tf/bin/python`.
    """
    flags = KINDS[kind] | {k: v for k, v in given(parameters).items() if v is not None}
    loaded = config.load(flags, os.environ, Path.cwd())
    require_tensorflow(loaded.config.run.python)
    if not loaded.config.output.quiet:
        ours = ", ".join(f"{name} = {value}" for name, value in KINDS[kind].items())
        note(f"stallguard: the drill sets {ours}, so that it is over soon")
    sys.exit(guard((str(copied()), "--kind", kind), config.CurrentSettings(loaded)))


def copied() -> Path:
    """Return a copy of the training outside of the installed package, whose lines would be those of a library.

    Raises StallguardError (exit code 126).
    """
    place, text = paths.home() / "drills" / TRAIN.name, TRAIN.read_bytes()
    try:
        private.ensure(place.parent)
        if not place.is_file() or place.read_bytes() != text:
            private.write(place, text)
    except OSError as error:
        raise StallguardError(f"the drill cannot be copied to {place}", why=str(error), code=CANNOT_RUN) from error
    return place


def require_tensorflow(python: str) -> None:
    """Refuse an interpreter that has no TensorFlow.  Raises StallguardError (exit code 126)."""
    chosen = choose_interpreter(python or None, os.environ, shutil.which, cwd=Path.cwd())
    found = tool.run([chosen.path, "-c", HAS_TENSORFLOW], DEADLINE, env=os.environ)
    if found.incomplete:
        raise StallguardError(f"{chosen.path} does not answer", why=found.incomplete, code=CANNOT_RUN)
    if found.code:
        raise StallguardError(
            f"{chosen.path} has no TensorFlow",
            why=f"a drill rehearses in the training's own environment; this one was chosen because: {chosen.why}",
            cure="name the Python that trains: stallguard drill --python /path/to/bin/python",
            code=CANNOT_RUN,
        )


class Tested(msgspec.Struct, frozen=True):
    """The result of each configured channel."""

    schema: int
    channels: list[SendResult]


@click.command("notify")
@click.argument("word", type=click.Choice(["test"]), metavar="[test]", required=False)
@click.option("--test", "is_test", is_flag=True, help="Send a test to each channel of the settings.")
@prints_json("One JSON object: the result of each channel.", "stallguard.cli.rehearsal:Tested")
@settings(())
def notify(word: str | None, is_test: bool, as_json: bool, **parameters: Any) -> None:
    """Send a test notification to each configured channel; exit code 1 if one fails or none is configured.

    \b
    Examples:
      stallguard notify test
      stallguard notify test --set notify.command='say "$STALLGUARD_TEXT"'
    """  # noqa: D301 - click wants the real backspace
    from stallguard import notify as notifications

    if not (is_test or word):
        raise StallguardError("nothing to do", cure="send a test to each channel: stallguard notify test", code=USAGE)
    wanted = config.load(given(parameters), os.environ, Path.cwd()).config.notify
    channels = notifications.configured(wanted, os.environ)
    results = notifications.test(channels, notifications.notification(notifications.TEST, TITLE, TEXT))
    if as_json:
        echo(jsontext.readable(Tested(SCHEMAS["Tested"], results)))
    for one in results if not as_json else ():
        ending = f"failed: {one.why}" if one.why else f"accepted, in {one.seconds:.1f} s"
        echo(f"{one.channel}: {ending}")
    if not results:
        note("no channel is configured: see notify.desktop, notify.command, notify.urls")
    if wanted.desktop and notifications.desktop() is None:
        note("nothing is shown on a desktop: there is no notify-send here")
    if sys.platform == "darwin" and wanted.desktop:
        note(f"if no notification appears: {notifications.ALLOW_ON_MAC}")
    sys.exit(1 if not results or any(one.why for one in results) else 0)
