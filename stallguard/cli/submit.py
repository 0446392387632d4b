"""`stallguard fleet submit`: give a training to the fleet."""

from __future__ import annotations

import datetime as dt
import getpass
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stallguard import config, jsontext
from stallguard.cli import _complete, _fleet
from stallguard.cli._console import echo
from stallguard.cli._json import prints_json
from stallguard.cli._options import as_words, given, settings
from stallguard.cli.run import RunCommand
from stallguard.errors import CANNOT_RUN, NO_SUCH_RUN, USAGE, StallguardError
from stallguard.fleet.store import StoreError, membership, opening, orders, unusable
from stallguard.fleet.store.orders import DASK, RAY
from stallguard.fleet.store.records import Damaged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stallguard.fleet.jobs.submitting import Submitted, Wish
    from stallguard.fleet.store import Store
    from stallguard.fleet.store.signing import Signatures

OWN = ("store.url", "store.job")  # settings that the fleet itself gives a job


@click.command("submit", cls=RunCommand, options_metavar="[OPTIONS] [--] COMMAND...")
@click.option("--name", default="", help="Name of the job.  [that of the script, and the time]")
@click.option(
    "--needs", multiple=True, metavar="NAME[=AMOUNT]",
    help="What its machine must have: metal, cuda, mlx, memory=32GB.",
    shell_complete=_complete.words("metal", "cuda", "mlx", "memory="),
)  # fmt: skip
@click.option("--priority", type=int, default=0, help="A job of a higher number starts first.  [0]")
@click.option("--revision", default="", help="Train this revision of git, not the files as they are.")
@click.option(
    "--env", "environment", multiple=True, metavar="NAME[=VALUE]", help="Environment for the job.",
    shell_complete=_complete.variables,
)  # fmt: skip
@click.option("--yes", is_flag=True, help="Send a project of more than 50 MB.")
@click.option("--ray", metavar="ADDRESS", default="", help="Let this Ray cluster start it: http://HOST:8265.")
@click.option(
    "--again", is_flag=True, help="Hand the job --name to Ray once more; it goes on where it stopped."
)
@prints_json("One JSON object.", "stallguard.fleet.jobs.submitting:Submitted")
@settings()
@click.pass_context
def command(
    ctx: click.Context, /, name: str, needs: tuple[str, ...], priority: int, revision: str, yes: bool,
    environment: tuple[str, ...], ray: str, again: bool, as_json: bool, **parameters: Any,
) -> None:  # fmt: skip
    """Give a training to the fleet: code, command and options go into its store, and a machine trains it.

    COMMAND and the options are those of `stallguard run`.  This machine can be switched off meanwhile.

    \b
    Examples:
      stallguard fleet submit --needs metal train.py --epochs 200
      stallguard fleet submit --needs cuda,memory=32GB --priority 5 --name resnet-a -- -m mypackage.train
    """  # noqa: D301 - click wants the real backspace
    from stallguard.fleet.jobs import submitting
    from stallguard.fleet.jobs.submitting import Wish

    words = tuple(parameters.pop("words", ctx.params.get("words", ())))
    if again:
        _hand_over_again(name, words, ray)
        return
    if not words:
        raise StallguardError("a job needs a COMMAND", cure="stallguard fleet submit train.py", code=USAGE)
    flags = given(parameters)
    for path in OWN:
        if flags.get(path) is not None:
            cure = "name the job with --name; the store is that of the fleet"
            raise StallguardError(f"{path} cannot be chosen for a job of the fleet", cure=cure, code=USAGE)
    config.load(flags, os.environ, Path.cwd())  # raises now, not on another machine
    job = name or submitting.job_name(words, dt.datetime.now(dt.UTC))
    wish = Wish(
        job,
        words,
        as_words(flags),
        submitting.needs(needs),
        priority,
        variables(environment),
        engine=RAY if ray else DASK,
    )
    submitted = send([wish], revision, agreed=yes)
    if not submitted.jobs:
        raise submitting.exists(job)
    if ray:
        _hand_over(job, wish.needs, ray)
    if as_json:
        echo(jsontext.readable(submitted))
        return
    echo(f"{job}: submitted; stallguard status {job} shows it, stallguard stop {job} ends it", err=True)
    for line in submitted.notes:
        echo(line, err=True)


def _hand_over(job: str, needs: Mapping[str, float], ray: str) -> None:
    from stallguard.fleet.jobs import submitting

    submitting.hand_over(ray, job, f"{dt.datetime.now(dt.UTC):%H%M%S}-{os.urandom(2).hex()}", needs)
    echo(f"{job}: handed to the Ray cluster at {ray}", err=True)


def _hand_over_again(job: str, words: tuple[str, ...], ray: str) -> None:
    if not job or not ray or words:
        cure = "stallguard fleet submit --ray http://HOST:8265 --name JOB --again"
        raise StallguardError("--again takes the name of a job, and --ray", cure=cure, code=USAGE)
    member = membership.required(os.environ)
    store = opening.open_fleet_store(member)
    try:
        data = store.read(orders.submission_key(job)) if orders.JOB_NAME.fullmatch(job) else None
        if data is None:
            raise StallguardError(f"there is no job {job} in {member.store}", code=NO_SUCH_RUN)
        submission = orders.decode_submission(data, _fleet.fresh(store, member), job)
    except (StoreError, Damaged) as error:
        raise StallguardError(
            f"the submission of {job} cannot be read", why=str(error), code=CANNOT_RUN
        ) from error
    _hand_over(job, submission.needs, ray)


def variables(environment: Sequence[str]) -> dict[str, str]:
    """Return the variables of --env: NAME=VALUE, or NAME for that of this process.  Raises StallguardError."""
    found: dict[str, str] = {}
    for text in environment:
        name, is_given, value = text.partition("=")
        if not name or (not is_given and name not in os.environ):
            raise StallguardError(f"there is no variable {text!r}", cure="--env NAME=VALUE", code=USAGE)
        found[name] = value if is_given else os.environ[name]
    return found


def send(wishes: Sequence[Wish], revision: str, *, agreed: bool) -> Submitted:
    """Pack the project of this directory, and put it and the jobs into the fleet's store.  Raises StallguardError.

    `agreed`: as for packing.pack.
    """
    from stallguard.fleet.jobs import packing, submitting
    from stallguard.storage import run_files

    member = membership.required(os.environ)
    by = f"{getpass.getuser()}@{os.uname().nodename}"
    try:
        store = opening.open_fleet_store(member)
        signatures = _fleet.fresh(store, member)
        with tempfile.TemporaryDirectory(prefix="stallguard-pack-") as place:
            first = wishes[0].words
            packed = packing.pack(
                first, Path.cwd(), Path(place), os.environ, revision=revision, agreed=agreed
            )
            for line in packed.lines():  # before it can be read by others
                echo(line, err=True)
            submitting.put_code(store, packed.code, packed.archive)
        done = {
            wish.job: submitting.submit(store, signatures, wish, packed.code, by, run_files.utc())
            for wish in wishes
        }
        notes = _notes(store, signatures, wishes, packed.code.changed, revision)
    except StoreError as error:
        why = f"{error}; it can be that not all was submitted"
        raise unusable(member.store, why, "; then submit again") from error
    return submitting.Submitted(
        schema=submitting.SCHEMA, fleet=member.fleet, jobs=[job for job, is_new in done.items() if is_new],
        present=[job for job, is_new in done.items() if not is_new], code=packed.code.digest,
        revision=packed.code.revision, changed=packed.code.changed, files=packed.files,
        size=packed.size, left_out=list(packed.secrets), notes=notes,
    )  # fmt: skip


def _notes(
    store: Store, signatures: Signatures, wishes: Sequence[Wish], changed: bool, revision: str
) -> list[str]:
    """Return what a person should know: whether a machine fits, and which code was taken."""
    from stallguard.fleet.jobs import submitting

    notes = []
    fit, why = submitting.fitting(store, signatures, wishes[0].needs, dt.datetime.now(dt.UTC))
    if not fit:
        notes.append(f"no machine can take it now, so it waits: {why}")
    if changed and not revision:
        notes.append("the files as they are were taken; they differ from the last commit")
    return notes
