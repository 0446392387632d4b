"""The authority of a fleet: the file with the key that makes and revokes its members.

`stallguard fleet init` writes it beside the fleet file of the founder, and it goes nowhere else.  Only `fleet init
--renew`, `fleet invite` and `fleet revoke` read it, so it can be kept offline between these.  It lists what was issued:
a certificate that is not in it could not be revoked.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stallguard import jsontext
from stallguard.errors import CANNOT_RUN, NO_SUCH_RUN, UNREADABLE, USAGE, StallguardError, nearest
from stallguard.fleet import membership
from stallguard.pool import certificates
from stallguard.pool.certificates import Issued
from stallguard.storage import private

SCHEMA = 1


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate that was issued.  `serial`: its number, in hexadecimal; times: RFC 3339, UTC; `revoked`: when."""

    name: str
    serial: str
    at: str
    until: str
    revoked: str = ""


class Authority(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file.  `ca` and `key`: PEM texts; `number`: of the newest list of revoked certificates."""

    schema: int
    fleet: str
    ca: str
    key: str
    number: int = 0
    given: tuple[Given, ...] = ()

    def issue(self, name: str, days: int, now: dt.datetime) -> tuple[Authority, Issued]:
        """Return a certificate for a member, and the authority that knows it.  Raises StallguardError."""
        made = certificates.issue(self.ca, self.key, checked_name(name), days, now)
        until = now + dt.timedelta(days=days)
        given = Given(name=name, serial=f"{made.serial:x}", at=_text(now), until=_text(until))
        return replace(self, given=(*self.given, given)), made

    def revoke(self, name: str, now: dt.datetime) -> Authority:
        """Return the authority that has revoked all certificates of a member.  Raises StallguardError."""
        known = {one.name for one in self.given}
        if name not in known:
            near = nearest(name, known)
            raise StallguardError(
                f"{self.fleet} has no member {name!r}",
                cure=f"did you mean {near}?" if near else f"its members: {', '.join(sorted(known))}",
                code=NO_SUCH_RUN,
            )
        given = tuple(
            replace(one, revoked=_text(now)) if one.name == name and not one.revoked else one
            for one in self.given
        )
        return replace(self, given=given, number=self.number + (given != self.given))

    def revoked(self) -> str:
        """Return the list of revoked certificates, as PEM text."""
        voids = {
            int(one.serial, 16): dt.datetime.fromisoformat(one.revoked) for one in self.given if one.revoked
        }
        return certificates.revoked(self.ca, self.key, self.number, voids)


def make(fleet: str, now: dt.datetime) -> Authority:
    """Return a new authority, which has issued nothing."""
    ca, key = certificates.authority(fleet, now)
    return Authority(schema=SCHEMA, fleet=fleet, ca=ca, key=key)


def beside(place: Path) -> Path:
    """Return the place of the authority's file.  `place`: of the fleet file."""
    return place.with_name(f"{place.stem}-authority.json")


@contextlib.contextmanager
def alone(place: Path) -> Iterator[None]:
    """Hold off other processes that change the authority's file: each has to know what the others issued."""
    private.ensure(place.parent)
    folder = os.open(place.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def load(place: Path, fleet: str) -> Authority:
    """Return the authority of `fleet` from its file.  Raises StallguardError."""
    data = membership.private_content(place)
    if data is None:
        raise StallguardError(
            f"there is no {place}",
            why="the key that makes and revokes members is on the machine on which `stallguard fleet init` ran",
            cure="run this there, or name the file: --authority FILE",
            code=CANNOT_RUN,
        )
    try:
        found = jsontext.decode(data, Authority)
        if found.schema != SCHEMA:
            raise ValueError(f"its schema is {found.schema}; this version reads {SCHEMA}")
        certificates.revoked(found.ca, found.key, found.number, {})
    except UNREADABLE as error:
        raise StallguardError(
            f"{place} is not the file of an authority",
            why=str(error),
            cure="put it back from a backup",
            code=CANNOT_RUN,
        ) from error
    if found.fleet != fleet:
        raise StallguardError(
            f"{place} is of another fleet: {found.fleet}",
            why=f"the fleet file of this machine is of {fleet}",
            cure="name the right file: --authority FILE",
            code=USAGE,
        )
    return found


def write(place: Path, authority: Authority, *, force: bool = True) -> None:
    """Write the authority's file.  Raises FileExistsError if there is one and `force` is not set, and OSError."""
    membership.write_private(place, jsontext.exact(authority, indent=1), replace=force)


def checked_name(name: str) -> str:
    """Return `name` if a member can have it.  Raises StallguardError."""
    if membership.MEMBER_NAME.fullmatch(name):
        return name
    raise StallguardError(
        f"a member cannot be named {name!r}",
        why="a name has up to 63 letters, digits, hyphens and underscores; its machines can be called NAME and NAME.x",
        cure="name it as its machine, without a dot: mini",
        code=USAGE,
    )


def _text(at: dt.datetime) -> str:
    return at.astimezone(dt.UTC).isoformat(timespec="seconds")
