"""Makes the services of a fleet: `stallguard fleet worker` and `fleet scheduler`, run at all times.

The same service managers run them as overnight jobs (stallguard.agent).  Reads the file system; must not write.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from stallguard.agent import preflight
from stallguard.agent.job import AgentJob, Schedule, exit_timeout
from stallguard.agent.job_builder import environment
from stallguard.agent.manager_protocol import Places
from stallguard.config import Config
from stallguard.fleet.store import membership

# How a bucket is reached.  The secret itself is in ~/.aws: other users can read the definition of a service.
BUCKET = (
    "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE", "AWS_CA_BUNDLE",
)  # fmt: skip
SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def service(
    kind: str, options: tuple[str, ...], config: Config, env: Mapping[str, str], cwd: Path, places: Places
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
        name=name,
        python=sys.executable,
        run=(kind, *options),
        cwd=str(cwd),
        log=str(places.log(name)),
        schedule=Schedule(login=True),
        env=environment(env, ()) | kept,
        exit_timeout=exit_timeout(config),
        throttle=round(config.agent.throttle),
        is_service=True,
    )
    preflight.check_text(made)
    preflight.check(made, (sys.executable,), (), places.system, Path(env.get("HOME") or Path.home()))
    return made


def secrets_left_out(store: str, env: Mapping[str, str]) -> str:
    """Return what to do if the store's credentials are in variables alone, "" if they are not."""
    named = [word for word in SECRETS if env.get(word)]
    if not store.startswith("s3:") or not named:
        return ""
    return f"{' and '.join(named)} are not handed to the service: write the credentials to ~/.aws/credentials"
