"""Makes the certificates of a fleet: an authority, and one certificate that all members share.

Members trust the authority alone, and its key is thrown away as soon as it has signed: no further certificate
can be made, so the fleet file is the only way into the fleet.  Both end at the same time; then a new authority is
made (`stallguard fleet init --renew`), and its file is copied to each machine again.

Elliptic curve P-256: each TLS library has it, and its keys are short.  Needs the package cryptography (extra `fleet`).
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, NamedTuple

from stallguard.errors import CANNOT_RUN, StallguardError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

# Clocks of machines differ: a certificate that begins now is not valid yet on a machine that is behind.
BACK = dt.timedelta(days=1)


class Certificates(NamedTuple):
    """PEM texts: `ca` the authority's certificate; `certificate` and `key` those of the members."""

    ca: str
    certificate: str
    key: str


def require_package() -> None:
    """Raise StallguardError if cryptography is not installed."""
    try:
        import cryptography.x509  # noqa: F401 - is it there?
    except ImportError as error:
        raise StallguardError(
            f"a fleet needs a package that is missing: {error.name}",
            cure="install the extra: stallguard-train[fleet]",
            code=CANNOT_RUN,
        ) from error


def make(fleet: str, days: int, now: dt.datetime) -> Certificates:
    """Return new certificates for `fleet` that end `days` after `now`."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"authority of {fleet}")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, fleet)])
    of_ca = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    ca = (
        _dated(issuer, issuer, ca_key, days, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_authority=True), critical=True)
        .add_extension(of_ca, critical=False)
        .sign(ca_key, _sha256())
    )
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    # A machine's name or address is not in it: members are all equal, and a laptop changes its address.
    certificate = (
        _dated(subject, issuer, key, days, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(fleet)]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(of_ca), critical=False)
        .sign(ca_key, _sha256())
    )
    return Certificates(_pem(ca), _pem(certificate), _private_pem(key))


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


def _pem(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode("ascii")


def _private_pem(key: ec.EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")
