"""The authority of a fleet: a file with the key that makes and revokes members.

`stallguard fleet init` writes it beside the fleet file of the founder, and it goes nowhere else.  Only `fleet init
--renew`, `fleet invite` and `fleet revoke` read it, so it can be kept offline between these.  It lists what was issued:
a certificate that is not in it could not be revoked.

Members trust the authority alone.  Its certificate outlasts those of members, so that what they signed can be verified
after they were renewed.  Elliptic curve P-256: each TLS library has it, and its keys are short.  Needs the package
cryptography (extra `fleet`).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec.structs import replace

from stallguard import jsontext
from stallguard.errors import CANNOT_RUN, NO_SUCH_RUN, UNREADABLE, USAGE, StallguardError, nearest
from stallguard.fleet.store import membership
from stallguard.fleet.store.membership import Membership
from stallguard.storage import private

SCHEMA = 1
# Clocks of machines differ: a certificate that begins now is not valid yet on a machine that is behind.
BACK = dt.timedelta(days=1)
AUTHORITY_DAYS = 365 * 30


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

    def issue(self, like: Membership, name: str, days: int, now: dt.datetime) -> tuple[Authority, Membership]:
        """Return a member as `like` with a certificate of its own, and the authority that knows it.

        Raises StallguardError for a name that no member can have.
        """
        checked_name(name)
        (by, by_key), key = self._loaded(), ec.generate_private_key(ec.SECP256R1())
        # A machine's address is not in it: a laptop changes its own.
        certificate = (
            _dated(_name(name), by.subject, key, days, now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(is_authority=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(_identifier(by_key), critical=False)
            .sign(by_key, SHA256())
        )
        until = _text(now + dt.timedelta(days=days))
        given = Given(name=name, serial=f"{certificate.serial_number:x}", at=_text(now), until=until)
        made = replace(self, given=(*self.given, given))
        return made, replace(
            like, schema=membership.SCHEMA, name=name, ca=self.ca, certificate=_pem(certificate),
            key=_private_pem(key), revoked=made.revoked(),
        )  # fmt: skip

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
            replace(one, revoked=_text(now)) if one.name == name and not one.revoked else one for one in self.given
        )
        return replace(self, given=given, number=self.number + (given != self.given))

    def revoked(self) -> str:
        """Return the list of revoked certificates, as PEM text.  Raises ValueError if it is no authority.

        OpenSSL prefers the list with the later `last_update`, so that follows `number`, and no clock.  A list that has
        ended would end all connections, so it lasts as long as the authority.
        """
        by, by_key = self._loaded()
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(by.subject)
            .last_update(by.not_valid_before_utc + dt.timedelta(seconds=self.number))
            .next_update(by.not_valid_after_utc)
            .add_extension(x509.CRLNumber(self.number), critical=False)
            .add_extension(_identifier(by_key), critical=False)
        )
        for one in self.given:
            if one.revoked:
                void = x509.RevokedCertificateBuilder().serial_number(int(one.serial, 16))
                at = dt.datetime.fromisoformat(one.revoked)
                builder = builder.add_revoked_certificate(void.revocation_date(at).build())
        return _pem(builder.sign(by_key, SHA256()))

    def _loaded(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        by, key = (x509.load_pem_x509_certificate(self.ca.encode()), load_pem_private_key(self.key.encode(), None))
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != by.public_key():
            raise ValueError("its key is not that of its certificate")
        return by, key


def make(fleet: str, now: dt.datetime) -> Authority:
    """Return a new authority, which has issued nothing."""
    key, name = ec.generate_private_key(ec.SECP256R1()), _name(f"authority of {fleet}")
    ca = (
        _dated(name, name, key, AUTHORITY_DAYS, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, SHA256())
    )
    return Authority(schema=SCHEMA, fleet=fleet, ca=_pem(ca), key=_private_pem(key))


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
        found.revoked()
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


def write(place: Path, authority: Authority) -> None:
    """Write the authority's file.  Raises StallguardError."""
    try:
        membership.write_private(place, jsontext.exact(authority, indent=1), replace=True)
    except OSError as error:
        raise StallguardError(
            f"cannot write {place}",
            why=error.strerror or str(error),
            cure="it lists all members: what is not in it cannot be revoked; make it writable by you",
            code=CANNOT_RUN,
        ) from error


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


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _identifier(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _dated(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int, now: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACK)
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority, key_cert_sign=is_authority, crl_sign=is_authority, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _pem(made: Any) -> str:
    text: str = made.public_bytes(Encoding.PEM).decode("ascii")
    return text


def _private_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")
