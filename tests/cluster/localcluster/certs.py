"""Keys, certificates and kubeconfig files of a cluster."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LIFETIME = dt.timedelta(days=30)
PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class Pair:
    """Files of a certificate and its key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Authority:
    """The cluster's certificate authority, and its signer of service account tokens."""

    folder: Path

    @property
    def certificate(self) -> Path:
        """The authority's own certificate."""
        return self.folder / "ca.crt"

    @property
    def tokens(self) -> Path:
        """Key that signs service account tokens."""
        return self.folder / "tokens.key"

    def pair(self, file: str) -> Pair:
        """The files of a certificate."""
        return Pair(self.folder / f"{file}.crt", self.folder / f"{file}.key")

    def create(self) -> None:
        """Make new keys."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("cpufinetune-test-ca", ())
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            _builder(name, name, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(key, hashes.SHA256())
        )
        _write(self.pair("ca"), certificate, key)
        _write_key(self.tokens, ec.generate_private_key(ec.SECP256R1()))

    def issue(self, file: str, user: str, groups: Iterable[str] = (), addresses: Iterable[str] = ()) -> Pair:
        """Issue a certificate for `user`, which also serves on `addresses` (names or IP addresses)."""
        authority = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        signer = serialization.load_pem_private_key((self.folder / "ca.key").read_bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = _builder(_name(user, groups), authority.subject, key)
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        names = [_alternative(address) for address in addresses]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        pair = self.pair(file)
        _write(pair, builder.sign(signer, hashes.SHA256()), key)
        return pair

    def kubeconfig(self, target: Path, server: str, pair: Pair) -> Path:
        """Write a kubeconfig for the holder of `pair`."""
        cluster = {"server": server, "certificate-authority": str(self.certificate)}
        user = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
            "current-context": "test",
        }
        target.touch(PRIVATE)
        target.write_text(yaml.safe_dump(content), encoding="utf-8")
        return target


def _name(user: str, groups: Iterable[str]) -> x509.Name:
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user), *organisations])


def _alternative(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
    )


def _write(pair: Pair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_key(pair.key, key)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(PRIVATE)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
