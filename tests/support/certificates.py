"""An authority for tests, and certificates that it signs."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_LIFE = timedelta(days=1)


class Authority:
    """Writes its own certificate to `file`, and others beside it."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.file = folder / f"{name}.pem"
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        since = datetime.now(UTC) - _LIFE
        certificate = self._sign(self._name, self._key, x509.BasicConstraints(True, None), since)
        self.file.write_bytes(certificate)

    def issue(self, name: str, *, has_expired: bool = False) -> tuple[Path, Path]:
        """Return certificate and key of a server on this machine, or of a client of that name."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        certificate_file = self._folder / f"{name}.crt"
        since = datetime.now(UTC) - (3 if has_expired else 1) * _LIFE
        certificate_file.write_bytes(self._sign(_name(name), key, names, since))
        key_file = self._folder / f"{name}.key"
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return certificate_file, key_file

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        extension: x509.ExtensionType,
        since: datetime,
    ) -> bytes:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(since)
            .not_valid_after(since + 2 * _LIFE)
            .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
            .public_bytes(serialization.Encoding.PEM)
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
