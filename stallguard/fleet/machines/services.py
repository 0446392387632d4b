"""Makes the services of a fleet: `stallguard fleet worker` and `fleet scheduler`, run at all times.

The same service managers run them as overnight jobs (stallguard.agent).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from stallguard import config
from stallguard.agent import manager, preflight, runner
from stallguard.agent.job import AgentJob, Schedule, exit_timeout, is_ours
from stallguard.agent.job_builder import environment
from stallguard.agent.service_manager import Places, own_system
from stallguard.config import Config
from stallguard.errors import NO_SUCH_RUN, StallguardError
from stallguard.fleet.store import membership

# How a bucket is reached.  The secret itself is in ~/.aws: other users can read the definition of a service.
BUCKET = (
    "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE", "AWS_CA_BUNDLE",
)  # fmt: skip
SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def service(
    kind: str, options: tuple[str, ...], settings: Config, env: Mapping[str, str], cwd: Path, places: Places
) -> AgentJob:
    """Return a service.

    `kind`: worker or scheduler; `options`: of `stallguard fleet KIND`; `cwd`: its working directory, whose environment
    jobs without one of their own use.  Raises StallguardError if it would not start.
    """
    name = f"fleet-{kind}"
    kept = {word: env[word] for word in BUCKET if env.get(word)}
    if env.get(membership.VARIABLE):
        kept[membership.VARIABLE] = str(Path(env[membership.VARIABLE]).absolute())
    made = AgentJob(
        name=name, python=sys.executable, run=(kind, *options), cwd=str(cwd), log=str(places.log(name)),
        schedule=Schedule(login=True), env=environment(env, ()) | kept, exit_timeout=exit_timeout(settings),
        throttle=round(settings.agent.throttle), is_service=True,
    )  # fmt: skip
    preflight.check_text(made)
    preflight.check(made, (sys.executable,), (), places.system, Path(env.get("HOME") or Path.home()))
    return made


def secrets_left_out(store: str, env: Mapping[str, str]) -> str:
    """Return what to do if the store's credentials are in variables alone, "" if they are not."""
    named = [word for word in SECRETS if env.get(word)]
    if not store.startswith("s3:") or not named:
        return ""
    return f"{' and '.join(named)} are not handed to the service: write the credentials to ~/.aws/credentials"


def install(kind: str, options: tuple[str, ...], store: str, env: Mapping[str, str]) -> list[str]:
    """Have scheduler or worker run at all times; return what a person should know.  Raises StallguardError.

    `store`: the URL of the fleet's.
    """
    own = manager(own_system(), env)
    settings = config.load({}, env, Path.cwd()).config
    job = service(kind, options, settings, env, Path.cwd(), own.places)
    own.ready()
    own.install(job)
    begins = f"{job.name}: runs from now on, and from each login on; its log: {job.log}"
    return [line for line in (begins, *own.advice(job), secrets_left_out(store, env)) if line]


def uninstall(kind: str, env: Mapping[str, str]) -> str:
    """End and remove a service; return its name.  Raises StallguardError if it is not installed."""
    own, name = manager(own_system(), env), f"fleet-{kind}"
    if not is_ours(own.program(name)) and not own.known(name).loaded:
        raise StallguardError(
            f"the {kind} of the fleet is not installed here",
            cure=f"stallguard fleet {kind} --install installs it",
            code=NO_SUCH_RUN,
        )
    own.uninstall(name)
    return name


def trim_log(kind: str) -> None:
    """Cut the log of the service, if there is one: it grows for years."""
    runner.trim(manager(own_system(), os.environ).places.log(f"fleet-{kind}"))
