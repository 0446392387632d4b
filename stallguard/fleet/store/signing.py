"""Signs what a member writes for the others, so that a store can only pass records on, never make any.

Who can write to the store's folder or bucket could else start a program on each machine.  Each member signs with the
key of its own certificate (ECDSA, FIPS 186-5, with SHA-256 on P-256), which the authority of the fleet has issued under
the member's name.  A record carries that certificate, so nothing else is read to verify it.  The signature covers the
fleet and the key of the store, so a record cannot be moved to another key; an old order that is put back is refused by
the log of its job, which is never removed.

Members whose certificates are void are in one list (a CRL, RFC 5280), signed by the authority, in the store and in each
member's home.  A list has a number, and none takes the place of one with a higher number: who removes the list from the
store, or puts back an old one, changes nothing for those who saw the newer one.

A certificate that has ended can still verify: it ends connections (member_tls.py), a record stays what it was.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from stallguard import jsontext
from stallguard.errors import CANNOT_RUN, UNREADABLE, StallguardError
from stallguard.fleet.store import Store, needs_package
from stallguard.fleet.store.membership import MEMBER_NAME, Membership
from stallguard.fleet.store.records import Damaged
from stallguard.storage import paths, private

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

REVOKED = "revoked"  # the key of the list in the store


class NotSigned(Damaged):
    """A record that no member wrote for this key, or one that is revoked."""


class _Signed(msgspec.Struct, frozen=True):
    place: str  # the key
    content: str
    certificate: str  # DER, base64
    signature: str  # base64


class Verified(NamedTuple):
    """What a member wrote.  `by`: its name."""

    content: bytes
    by: str


class _Signer(NamedTuple):
    name: str
    serial: int
    key: ec.EllipticCurvePublicKey


class Signatures:
    """Of one member: makes its signatures, and verifies those of others.  Can be used by several threads."""

    def __init__(self, member: Membership) -> None:
        """Raise StallguardError if cryptography is not installed.  Nothing is read before it is needed."""
        require_package()
        self.member = member
        self._signers: dict[str, _Signer] = {}  # by certificate: each was issued by the authority

    def sign(self, place: str, content: bytes) -> bytes:
        """Return `content` (JSON of ASCII alone) with this member's signature, for the key `place`."""
        from cryptography.hazmat.primitives.asymmetric import ec

        key, certificate = self._own
        signature = key.sign(self._covered(place, content), ec.ECDSA(_sha256()))
        text = base64.b64encode(signature).decode("ascii")
        return jsontext.exact(_Signed(place, content.decode("ascii"), certificate, text))

    def verified(self, place: str, data: bytes) -> Verified:
        """Return what `sign` was given for the key `place`, and who signed.  Raises NotSigned, Damaged."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric import ec

        found = _envelope(data)
        if found.place != place:
            raise NotSigned(f"it was signed as {found.place}, and copied to this name")
        signer = self._signer(found.certificate)
        try:
            content, signature = (found.content.encode("ascii"), base64.b64decode(found.signature, validate=True))
            signer.key.verify(signature, self._covered(place, content), ec.ECDSA(_sha256()))
        except (InvalidSignature, ValueError) as error:
            raise NotSigned("its signature is not of this fleet, or it was changed") from error
        if self.is_revoked(signer.serial):
            raise NotSigned(f"{signer.name} signed it, and is revoked")
        return Verified(content, signer.name)

    def is_revoked(self, serial: int) -> bool:
        """Return whether the certificate with that serial number is void."""
        return self._list.get_revoked_certificate_by_serial_number(serial) is not None

    def file(self) -> Path:
        """Return the file with the newest list, for TLS.  Raises OSError."""
        self._keep(self._list)
        return self._kept

    @property
    def is_void(self) -> bool:
        """Whether this member itself is revoked."""
        return self.is_revoked(self._signer(self._own[1]).serial)

    @property
    def number(self) -> int:
        """The number of the newest list: it grows with each revocation."""
        return _number(self._list)

    def refresh(self, store: Store) -> str:
        """Take the store's list if it is newer than all that were seen here; return what is wrong with it, or "".

        Raises StoreError.
        """
        data = store.read(REVOKED)
        if data is None:
            return "the list of revoked members is missing in the store; the one that was seen last still holds"
        try:
            found = self._checked(data)
        except Damaged as error:
            return f"the list of revoked members in the store is not used: {error}"
        if _number(found) < self.number:
            return "the list of revoked members in the store is an old one; the newer one that was seen still holds"
        if _number(found) > self.number:
            self._list = found
            try:
                self._keep(found)
            except OSError as error:
                return f"the list of revoked members cannot be kept here: {error}"
        return ""

    @property
    def _kept(self) -> Path:
        mark = hashlib.sha256(self.member.ca.encode()).hexdigest()[:16]
        return paths.home() / "fleet" / f"revoked-{mark}.pem"

    def _keep(self, found: x509.CertificateRevocationList) -> None:
        """Write a list for TLS: the list alone, because OpenSSL would trust a certificate that follows it."""
        from cryptography.hazmat.primitives.serialization import Encoding

        private.ensure(self._kept.parent)
        private.replace(self._kept, found.public_bytes(Encoding.PEM))

    @cached_property
    def _list(self) -> x509.CertificateRevocationList:
        """The newest list: of the member's file, or of an earlier process."""
        try:
            newest = self._checked(self.member.revoked.encode())
        except Damaged as error:
            raise unusable(str(error)) from error
        with contextlib.suppress(Damaged, OSError):  # then that of the member's file holds
            kept = self._checked(self._kept.read_bytes())
            if _number(kept) >= _number(newest):
                return kept
        return newest

    def _checked(self, data: bytes) -> x509.CertificateRevocationList:
        """Return a list that the authority signed.  Raises Damaged."""
        from cryptography import x509

        key: Any = self._authority.public_key()
        try:
            found = x509.load_pem_x509_crl(data)
            is_signed = found.is_signature_valid(key) and found.issuer == self._authority.subject
            _number(found)
        except Exception as error:  # who can write to the store chose the bytes: each error is of them
            raise Damaged(f"it cannot be read ({type(error).__name__})") from error
        if not is_signed:
            raise NotSigned("it is not signed by the authority of this fleet")
        return found

    @cached_property
    def _authority(self) -> x509.Certificate:
        from cryptography import x509

        try:
            return x509.load_pem_x509_certificate(self.member.ca.encode())
        except ValueError as error:
            raise unusable(str(error)) from error

    @cached_property
    def _own(self) -> tuple[ec.EllipticCurvePrivateKey, str]:
        """The member's key, and its certificate as records carry it."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

        try:
            key = load_pem_private_key(self.member.key.encode(), None)
            certificate = x509.load_pem_x509_certificate(self.member.certificate.encode())
        except (ValueError, TypeError) as error:
            raise unusable(str(error)) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise unusable("its key is of another kind")
        return key, base64.b64encode(certificate.public_bytes(Encoding.DER)).decode("ascii")

    def _signer(self, text: str) -> _Signer:
        """Return whose certificate it is.  Raises NotSigned if this fleet's authority has not issued it."""
        known = self._signers.get(text)
        if known is not None:
            return known
        authority = self._authority
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

        try:
            certificate = x509.load_der_x509_certificate(base64.b64decode(text, validate=True))
            certificate.verify_directly_issued_by(authority)
            [name] = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            key = certificate.public_key()
        except Exception as error:  # as in _checked
            raise NotSigned(
                "its signature is not of this fleet: the authority did not issue its certificate"
            ) from error
        if not MEMBER_NAME.fullmatch(str(name.value)) or not isinstance(key, ec.EllipticCurvePublicKey):
            raise NotSigned("its certificate is not that of a member")
        found = _Signer(str(name.value), certificate.serial_number, key)
        self._signers[text] = found
        return found

    def _covered(self, place: str, content: bytes) -> bytes:
        return b"\0".join((self.member.fleet.encode(), place.encode(), content))


def unverified(data: bytes) -> bytes:
    """Return the content of a record for who is in no fleet, and can verify nothing.  Raises Damaged."""
    return _envelope(data).content.encode("utf-8", "replace")


def proof(member: Membership) -> str:
    """Return what the store's card has of the authority, so that a file with another one is noticed."""
    return hashlib.sha256(member.ca.encode()).hexdigest()


def require_package() -> None:
    """Raise StallguardError if cryptography is not installed."""
    try:
        import cryptography.x509  # noqa: F401 - is it there?
    except ImportError as error:
        raise needs_package("a fleet", error) from error


def _envelope(data: bytes) -> _Signed:
    try:
        return jsontext.decode(data, _Signed)
    except UNREADABLE as error:
        raise NotSigned(f"it is not a signed record: {error}") from error


def _number(found: x509.CertificateRevocationList) -> int:
    from cryptography import x509

    return found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number


def _sha256() -> Any:
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA256()


def unusable(why: str) -> StallguardError:
    """Return the error for a fleet file whose certificates cannot be used."""
    return StallguardError(
        "the fleet file has certificates that cannot be used",
        why=why,
        cure="have it made again: stallguard fleet invite NAME",
        code=CANNOT_RUN,
    )
