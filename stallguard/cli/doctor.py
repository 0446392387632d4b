"""`stallguard doctor`: checks whether a training would run through the night here."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import click
import msgspec

from stallguard import config, jsontext
from stallguard.cli._console import echo
from stallguard.cli._json import prints_json
from stallguard.cli._options import given, settings
from stallguard.config.table import KEYS
from stallguard.doctor.facts import FAIL, NOTE, OK, WARN, CheckResult, MachineFacts, worst
from stallguard.launch.command import choose_interpreter
from stallguard.report.sanitize import plain

SCHEMA = 1
COLORS = {OK: "green", NOTE: "cyan", WARN: "yellow", FAIL: "red"}


class CheckedMachine(msgspec.Struct, frozen=True):
    """The findings, and the facts that they follow from."""

    schema: int
    verdict: str  # the worst severity of the findings: ok, note, warn or fail
    findings: list[CheckResult]
    facts: MachineFacts


@click.command("doctor")
@prints_json("One JSON object: the findings and their facts.", "stallguard.cli.doctor:CheckedMachine")
@click.option(
    "--deep", is_flag=True, help="Import the framework in its environment and compute on its devices."
)
@settings((KEYS["run.python"], KEYS["store.url"]))
@click.pass_context
def command(ctx: click.Context, /, *, as_json: bool, deep: bool, **parameters: Any) -> None:
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
        echo(jsontext.readable(CheckedMachine(SCHEMA, verdict, findings, facts)))
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
        return (
            f"No finding would make a training fail; {count[WARN]} warning{'s' if count[WARN] > 1 else ''}."
        )
    return "Ready for the night."
