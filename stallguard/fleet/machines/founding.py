"""Makes a fleet: its authority, its mark in the store, and the files of its members; and revokes members.

The store is tried before anything is written, and marked before the file is: a fleet file whose store belongs to
another fleet would be of no use, and a mark without a file would make the store useless.

**The authority** is a file with the key that makes and revokes members.  `stallguard fleet init` writes it beside the
fleet file of the founder, and it goes nowhere else.  Only `fleet init --renew`, `fleet invite` and `fleet revoke` read
it, so it can be kept offline between these.  It lists what was issued: a certificate that is not in it could not be
revoked.

Members trust the authority alone.  Its certificate outlasts those of members, so that what they signed can be verified
after they were renewed.  Elliptic curve P-256: each TLS library has it, and its keys are short.  Needs the package
cryptography (extra `fleet`).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import os
import re
import secrets
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from stallguard import jsontext
from stallguard.errors import CANNOT_RUN, NO_SUCH_RUN, UNREADABLE, USAGE, StallguardError, nearest
from stallguard.fleet.machines import member_tls, trial
from stallguard.fleet.store import Store, StoreError, membership, opening, orders, signing
from stallguard.fleet.store.membership import Membership
from stallguard.fleet.store.opening import open_store
from stallguard.storage import private

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

DAYS = 730  # that certificates last
MOST_DAYS = 3650
TOKEN = 32  # bytes
SCHEMA = 1
# Clocks of machines differ: a certificate that begins now is not valid yet on a machine that is behind.
BACK = dt.timedelta(days=1)
AUTHORITY_DAYS = 365 * 30


def found(
    store_url: str, scheduler: str, days: int, place: Path, authority_file: Path, now: dt.datetime, *,
    force: bool, name: str = "",
) -> Membership:  # fmt: skip
    """Make a fleet, and write the file of its first member to `place`.

    `scheduler`: HOST[:PORT]; `force`: replace a fleet file; `name`: of the member, "" for that of this machine.
    Returns the content of the fleet file.  Raises StallguardError.
    """
    signing.require_package()
    address = scheduler_address(scheduler)
    if not force:
        for one in (place, authority_file):
            if one.exists():
                raise _exists(one)
    store = _tried(store_url)
    made = make(f"fleet-{secrets.token_hex(6)}", now)
    empty = Membership(
        schema=membership.SCHEMA, fleet=made.fleet, store=store_url, scheduler=address,
        token=secrets.token_hex(TOKEN), ca=made.ca, certificate="", key="",
    )  # fmt: skip
    made, member = _member(made, empty, name or own_name(), days, now)
    membership.text(member)  # raises if an address cannot be written, before the store is marked
    try:
        opening.claim_store(store, member)
        try:
            store.replace(signing.REVOKED, member.revoked.encode())
            _write_authority(authority_file, made)
            _write(place, member, force=force)
        except StallguardError:
            opening.release_store(store, made.fleet)
            raise
    except StoreError as error:
        raise _no_store(store_url, str(error)) from error
    return member


def own_name() -> str:
    """Return the name that a member gets on this machine by itself: that of the machine, up to the first dot."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", membership.owner(orders.host_name(socket.gethostname())))[:63]


def renew(
    member: Membership, days: int, place: Path, authority_file: Path, now: dt.datetime, name: str = ""
) -> Membership:
    """Give the member of this machine a new certificate, and write its file again; all else stays.

    A fleet of which all members had the same file (membership.SHARED) gets an authority, and `name` for this machine.
    Raises StallguardError.
    """
    signing.require_package()
    is_shared = member.schema == membership.SHARED
    with alone(authority_file):
        is_new = is_shared and not authority_file.exists()
        made = make(member.fleet, now) if is_new else load(authority_file, member.fleet)
        made, renewed = _member(made, member, name or own_name() if is_shared else member.name, days, now)
        try:
            if is_new and open_store(member.store).read(signing.REVOKED) is not None:
                raise StallguardError(
                    f"{member.fleet} has an authority already, made on another machine",
                    why="what that one issued would be refused",
                    cure="on that machine: stallguard fleet invite NAME",
                    code=USAGE,
                )
            _write_authority(authority_file, made)
            if is_shared:
                opening.claim_store_again(open_store(member.store), renewed)
                open_store(member.store).replace(signing.REVOKED, renewed.revoked.encode())
        except StoreError as error:
            raise _no_store(member.store, str(error)) from error
        _write(place, renewed, force=True)
    return renewed


def invite(
    member: Membership,
    name: str,
    days: int,
    file: Path,
    authority_file: Path,
    now: dt.datetime,
    *,
    force: bool,
) -> Membership:
    """Write the fleet file of one more member to `file`; return its content.  Raises StallguardError."""
    signing.require_package()
    with alone(authority_file):
        made, invited = _member(load(authority_file, member.fleet), member, name, days, now)
        _write_authority(authority_file, made)  # first: what is not in it could not be revoked
        _write(file, invited, force=force)
    return invited


def revoke(member: Membership, name: str, authority_file: Path, now: dt.datetime) -> None:
    """Make all certificates of a member void, and say so in the store.  Raises StallguardError."""
    signing.require_package()
    if name == member.name:
        raise StallguardError(
            f"{name} is the member of this machine, which has the authority's file",
            why="who has that file can make members: if it was lost, no list can keep out who found it",
            cure="make a new fleet in another folder or prefix: stallguard fleet init",
            code=USAGE,
        )
    store = opening.open_fleet_store(member)
    with alone(authority_file):
        made = load(authority_file, member.fleet).revoke(name, now)
        _write_authority(authority_file, made)
        try:
            store.replace(signing.REVOKED, made.revoked().encode())
        except StoreError as error:
            raise StallguardError(
                f"{name} is not revoked yet: the store cannot be written",
                why=str(error),
                cure=f"when it can be written: stallguard fleet revoke {name}",
                code=CANNOT_RUN,
            ) from error


def _member(
    by: Authority, like: Membership, name: str, days: int, now: dt.datetime
) -> tuple[Authority, Membership]:
    made, issued = by.issue(name, days, now)
    return made, replace(
        like, schema=membership.SCHEMA, name=name, ca=made.ca, certificate=issued.certificate, key=issued.key,
        revoked=made.revoked(),
    )  # fmt: skip


def scheduler_address(text: str) -> str:
    """Return HOST[:PORT] as an address: "tls://host:port"; "" is this machine.  Raises StallguardError."""
    host = text or socket.gethostname()
    if host.count(":") > 1 and not host.startswith("["):
        host = f"[{host}]"  # IPv6
    try:
        name, port = member_tls.endpoint(f"tls://{host}")
    except ValueError as error:
        raise StallguardError(
            f"{text!r} is not an address of a scheduler",
            why="it is HOST or HOST:PORT, as the other machines know it",
            cure="--scheduler studio-1.local:8786",
            code=USAGE,
        ) from error
    return f"tls://[{name}]:{port}" if ":" in name else f"tls://{name}:{port}"


def _tried(url: str) -> Store:
    """Return the store if it keeps what stallguard relies on.  Raises StallguardError."""
    try:
        store = open_store(url)
        broken = [one for one in trial.tried(store) if not one.kept]
    except StoreError as error:
        raise _no_store(url, str(error)) from error
    if broken:
        raise _no_store(url, "; ".join(f"{one.promise}: {one.seen}" for one in broken))
    return store


def _write(place: Path, member: Membership, *, force: bool) -> None:
    try:
        membership.write(place, member, replace=force)
    except FileExistsError as error:
        raise _exists(place) from error
    except OSError as error:
        raise StallguardError(
            f"cannot write {place}",
            why=error.strerror or str(error),
            cure=f"make that folder writable by you, or name another file: {membership.VARIABLE}=FILE",
            code=CANNOT_RUN,
        ) from error


def _write_authority(place: Path, made: Authority) -> None:
    try:
        write(place, made)
    except OSError as error:
        raise StallguardError(
            f"cannot write {place}",
            why=error.strerror or str(error),
            cure="it lists all members: what is not in it cannot be revoked; make it writable by you",
            code=CANNOT_RUN,
        ) from error


def _exists(place: Path) -> StallguardError:
    return StallguardError(
        f"this machine is in a fleet already: {place}",
        why="without that file its jobs cannot be continued, and without the authority's no member can be made",
        cure=f"--force replaces it; or keep both: {membership.VARIABLE}=FILE names another file",
        code=USAGE,
    )


def _no_store(url: str, why: str) -> StallguardError:
    return StallguardError(
        f"{url} cannot be the store of a fleet",
        why=why,
        cure=f"a folder must exist, and be writable; stallguard doctor --store {url} tries it",
        code=CANNOT_RUN,
    )


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
        made = issue(self.ca, self.key, checked_name(name), days, now)
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
        return revoked(self.ca, self.key, self.number, voids)


def make(fleet: str, now: dt.datetime) -> Authority:
    """Return a new authority, which has issued nothing."""
    ca, key = authority(fleet, now)
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
        revoked(found.ca, found.key, found.number, {})
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


class Issued(NamedTuple):
    """A member's certificate and its key, as PEM texts.  `serial`: the number by which it can be revoked."""

    certificate: str
    key: str
    serial: int


def authority(fleet: str, now: dt.datetime) -> tuple[str, str]:
    """Return certificate and key of a new authority for `fleet`, as PEM texts."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), _name(f"authority of {fleet}")
    ca = (
        _dated(name, name, key, AUTHORITY_DAYS, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, _sha256())
    )
    return _pem(ca), _private_pem(key)


def issue(ca: str, ca_key: str, member: str, days: int, now: dt.datetime) -> Issued:
    """Return a new certificate for a member, which ends `days` after `now`.  Raises ValueError for no authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    by, by_key = _loaded(ca, ca_key)
    key, both = ec.generate_private_key(ec.SECP256R1()), (
        ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH,
    )  # fmt: skip
    # A machine's address is not in it: a laptop changes its own.
    certificate = (
        _dated(_name(member), by.subject, key, days, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(member)]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_identifier(by_key), critical=False)
        .sign(by_key, _sha256())
    )
    return Issued(_pem(certificate), _private_pem(key), certificate.serial_number)


def revoked(ca: str, ca_key: str, number: int, serials: Mapping[int, dt.datetime]) -> str:
    """Return the list of revoked certificates, as PEM text.  `serials`: when each was revoked.  Raises ValueError.

    OpenSSL prefers the list with the later `last_update`, so that follows `number`, and no clock.  A list that has
    ended would end all connections, so it lasts as long as the authority.
    """
    from cryptography import x509

    by, by_key = _loaded(ca, ca_key)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(by.subject)
        .last_update(by.not_valid_before_utc + dt.timedelta(seconds=number))
        .next_update(by.not_valid_after_utc)
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(_identifier(by_key), critical=False)
    )
    for serial, at in serials.items():
        one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(at).build()
        builder = builder.add_revoked_certificate(one)
    return _pem(builder.sign(by_key, _sha256()))


def _loaded(ca: str, ca_key: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    by, key = x509.load_pem_x509_certificate(ca.encode()), load_pem_private_key(ca_key.encode(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != by.public_key():
        raise ValueError("its key is not that of its certificate")
    return by, key


def _name(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _identifier(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    from cryptography import x509

    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _dated(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int, now: dt.datetime
) -> x509.CertificateBuilder:
    from cryptography import x509

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
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not is_authority, key_cert_sign=is_authority, crl_sign=is_authority, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _sha256() -> hashes.SHA256:
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA256()


def _pem(made: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    text: str = made.public_bytes(Encoding.PEM).decode("ascii")
    return text


def _private_pem(key: ec.EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")
