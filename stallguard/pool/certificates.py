"""Makes the certificates of a fleet: its authority's, one for each member, and the list of those that are revoked.

Members trust the authority alone.  Its key is in a file of its own (authority.py): who has that key can make a member.
The authority's certificate outlasts those of members, so that what they signed can be verified after they were renewed.

Elliptic curve P-256: each TLS library has it, and its keys are short.  Needs the package cryptography (extra `fleet`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

# Clocks of machines differ: a certificate that begins now is not valid yet on a machine that is behind.
BACK = dt.timedelta(days=1)
AUTHORITY_DAYS = 365 * 30


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
