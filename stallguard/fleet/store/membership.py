"""The fleet file: one small file that makes a machine, or a person, a member of a fleet.

`stallguard fleet init` makes that of this machine, `stallguard fleet invite` one for each other (docs/fleet.md).  It
holds the store, the scheduler's address, and the member's own certificate and key: with them it proves who it is, and
signs what it writes for others (signing.py).  Who has it can start programs on each machine of the fleet until the
member is revoked, so only its owner can read it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from stallguard.errors import CANNOT_RUN, USAGE, StallguardError
from stallguard.storage import private
from stallguard.user_folder import user_folder

SCHEMA = 2
NAME = "fleet.toml"
VARIABLE = "STALLGUARD_FLEET"  # another place of the file
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
MEMBER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")  # no dot: see `owner`
FIELDS = ("fleet", "name", "store", "scheduler", "token", "ca", "certificate", "key", "revoked")


class _FleetFileSchema(msgspec.Struct, frozen=True):
    schema: int


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a fleet file.

    `fleet`: a random name, which the store has too, so that files of two fleets are not mixed up; `name`: of the
    member, which its certificate has too; `scheduler`: "tls://host:port"; `token`: 64 hexadecimal digits, the same for
    all members, from which the key of pickles in checkpoints follows (launch/environment.py); the others are PEM texts:
    `ca` the authority's certificate, `certificate` and `key` the member's own, `revoked` the list of revoked
    certificates when the file was made.
    """

    schema: int
    fleet: str
    name: str
    store: str
    scheduler: str
    token: str
    ca: str
    certificate: str
    key: str
    revoked: str = ""


def path(env: Mapping[str, str]) -> Path:
    """Return the place of the fleet file."""
    return Path(env[VARIABLE]) if env.get(VARIABLE) else user_folder(env) / NAME


def owner(host: str) -> str:
    """Return the member that a machine belongs to: its name up to the first dot.

    So one member can have several workers (mini.a, mini.b), and none can write the card of another member's machine.
    """
    return host.partition(".")[0]


def own_host(name: str, nodename: str) -> str:
    """Return the name of the machine of member `name`: what the system calls it, if that belongs to the member."""
    return nodename if owner(nodename) == name else name


def recall(env: Mapping[str, str]) -> Membership | None:
    """Return what the fleet file says, None if there is none.  Raises StallguardError for one that cannot be used."""
    place = path(env)
    data = private_content(place)
    if data is None:
        return None
    try:
        schema = msgspec.toml.decode(data, type=_FleetFileSchema).schema
        if schema > SCHEMA:  # before the rest: it can be of other types
            raise StallguardError(
                f"{place} was made by a newer stallguard",
                why=f"its schema is {schema}; this version reads {SCHEMA}",
                cure="update stallguard on this machine, as on the others",
                code=CANNOT_RUN,
            )
        found = msgspec.toml.decode(data, type=Membership)
    except (ValueError, RecursionError) as error:
        raise _damaged(place, str(error)) from error
    if found.schema != SCHEMA:
        raise _damaged(place, f"its schema is {found.schema}; this version reads {SCHEMA}")
    if not MEMBER_NAME.fullmatch(found.name):
        raise _damaged(place, f"{found.name!r} is not the name of a member")
    if not _NAME.fullmatch(found.fleet) or not re.fullmatch(r"[0-9a-f]{64}", found.token):
        raise _damaged(place, "the name of the fleet or its token is not one that stallguard makes")
    return found


def private_content(place: Path) -> bytes | None:
    """Return what a file with a key of the fleet has, None if there is none.

    Raises StallguardError if others can read or replace it.
    """
    try:
        with place.open("rb") as file:
            facts = os.fstat(file.fileno())
            data = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StallguardError(f"cannot read {place}", why=error.strerror or str(error), code=CANNOT_RUN) from error
    if facts.st_uid not in (os.geteuid(), private.ROOT):
        raise StallguardError(
            f"{place} belongs to another user (uid {facts.st_uid})",
            why="who can replace it decides which programs are started here, and where jobs are sent",
            cure=f"copy the file as your own: cp, not mv; or name another one: {VARIABLE}=FILE",
            code=CANNOT_RUN,
        )
    if stat.S_IMODE(facts.st_mode) & private.OTHERS:
        raise StallguardError(
            f"{place} is not private",
            why="it has a key with which programs can be started on each machine of the fleet",
            cure=f"make it yours alone: chmod 600 {place}; if others could read it: stallguard fleet revoke NAME",
            code=CANNOT_RUN,
        )
    return data


def required(env: Mapping[str, str]) -> Membership:
    """Return what the fleet file says.  Raises StallguardError also if there is none."""
    found = recall(env)
    if found is None:
        raise StallguardError(
            "this machine is in no fleet",
            why=f"there is no {path(env)}",
            cure="have it made: stallguard fleet invite NAME; or make a fleet: stallguard fleet init --store URL",
            code=USAGE,
        )
    return found


def text(membership: Membership) -> str:
    """Return the fleet file as it is written: TOML, each PEM text in lines of its own.

    Raises StallguardError if an address has a character that no file of text can hold.
    """
    lines = [
        "# A member of a fleet of stallguard.  Who has this file can start programs on each machine of the fleet.",
        f"schema = {membership.schema}",
    ]
    for name in FIELDS:
        value = getattr(membership, name)
        if _CONTROL.search(value.replace("\n", "")):
            raise StallguardError(f"the {name} {value!r} has a character that a fleet file cannot hold", code=USAGE)
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'{name} = """\n{escaped}"""' if "\n" in value else f'{name} = "{escaped}"')
    return "\n".join(lines) + "\n"


def write(place: Path, membership: Membership, *, replace: bool) -> None:
    """Write the fleet file whole, for its owner alone.

    Raises FileExistsError if there is one and `replace` is not set, and OSError.
    """
    write_private(place, text(membership).encode(), replace=replace)


def write_private(place: Path, content: bytes, *, replace: bool) -> None:
    """Write a file with a key of the fleet, as `write` does."""
    private.ensure(place.parent)
    draft = place.with_name(f".{place.name}.{os.urandom(4).hex()}")
    try:
        private.write(draft, content)
        if replace:
            draft.replace(place)
        else:
            os.link(draft, place)  # unlike a rename it fails if there is a file
    finally:
        draft.unlink(missing_ok=True)


def _damaged(place: Path, why: str) -> StallguardError:
    return StallguardError(
        f"{place} is not a fleet file",
        why=why,
        cure="have it made again: stallguard fleet invite NAME; or make a new fleet: stallguard fleet init",
        code=CANNOT_RUN,
    )
