"""Certificates made and read: CAs and serving certificates, P-256, with the time given by the caller."""

import ipaddress
import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import Certificate
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Key = ec.EllipticCurvePrivateKey

CA_NAME: Final = "drainproof CA"
SKEW: Final = timedelta(minutes=5)  # a client whose clock is behind takes the certificate too
_PEM: Final = serialization.Encoding.PEM
_USAGES: Final = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


def new_authority(now: datetime, life: timedelta, named: str = CA_NAME) -> tuple[Certificate, Key]:
    """A CA that lasts for `life`. Its name is its own, so that an old CA and a new one can be told apart."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"{named} {now:%Y-%m-%d} {secrets.token_hex(4)}")
    builder = (
        _builder(name, key, name, key, now, now + life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
    )
    return builder.sign(key, hashes.SHA256()), key


def new_leaf(
    authority: Certificate, authority_key: Key, names: Sequence[str], now: datetime, life: timedelta
) -> tuple[Certificate, Key]:
    """A serving certificate for `names`, addresses among them, that lasts for `life`, but never longer than its CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(now + life, authority.not_valid_after_utc)
    builder = (
        _builder(_name("drainproof"), key, authority.subject, authority_key, now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage("digital_signature"), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(_alternative, names))), critical=False)
    )
    return builder.sign(authority_key, hashes.SHA256()), key


def made(certificate: Certificate) -> datetime:
    """When a certificate of ours was made."""
    return certificate.not_valid_before_utc + SKEW


def expired(certificate: Certificate, now: datetime) -> bool:
    """Whether the time of a certificate is over."""
    return certificate.not_valid_after_utc <= now


def due(certificate: Certificate, now: datetime) -> bool:
    """Whether two thirds of a certificate's life are over."""
    end = certificate.not_valid_after_utc
    return now >= end - (end - made(certificate)) / 3


def signed(certificate: Certificate, authority: Certificate) -> bool:
    """Whether `authority` signed `certificate`."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def dns_names(certificate: Certificate) -> list[str]:
    """The DNS names of a certificate."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):
        return []
    return extension.value.get_values_for_type(x509.DNSName)


def is_authority(certificate: Certificate) -> bool:
    """Whether a certificate may sign others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):
        return False


def is_ours(certificate: Certificate) -> bool:
    """Whether a certificate is a CA that bears our name."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return is_authority(certificate) and any(str(name.value).startswith(CA_NAME) for name in names)


def pem(certificates: Iterable[Certificate]) -> bytes:
    """Certificates as text, one after the other."""
    return b"".join(one.public_bytes(_PEM) for one in certificates)


def key_pem(key: Key) -> bytes:
    """A key as text, without a passphrase."""
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _builder(
    subject: x509.Name, key: Key, issuer: x509.Name, issuer_key: Key, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(identifier, critical=False)
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _usage(*allowed: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage in allowed for usage in _USAGES})
