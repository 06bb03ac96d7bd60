"""TLS between nodes: the contexts of both sides, and the channel that a proof covers.

With a `ca`, each side shows a certificate that the `ca` signed. Names in certificates are not
compared: addresses of nodes come and go. Without a `ca`, no certificate is verified. The proofs
then exclude a man in the middle: they cover the acceptor's certificate (`handshake.py`).
"""

import hashlib
import re
import ssl
from pathlib import Path

from dovetail.cluster.link_settings import LinkSettings
from dovetail.errors import ConfigError

_CERTIFICATE = re.compile(
    "-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL | re.ASCII
)


class LinkTls:
    """The TLS contexts of one node, and the digest of its certificate."""

    def __init__(self, links: LinkSettings) -> None:
        self.accepting = _context(ssl.PROTOCOL_TLS_SERVER, links)
        self.dialing = _context(ssl.PROTOCOL_TLS_CLIENT, links)
        self.channel = _own_channel(Path(links.certificate))
        """The channel of connections that we accept."""


def channel_of(connection: ssl.SSLObject) -> bytes:
    """Return the channel of a connection that we dialed."""
    certificate = connection.getpeercert(binary_form=True)
    return b"" if certificate is None else hashlib.sha256(certificate).digest()


def _own_channel(file: Path) -> bytes:
    # The first one is the node's own (RFC 8446 section 4.4.2).
    found = _CERTIFICATE.search(file.read_text(errors="replace"))
    if found is None:
        raise ConfigError(f"{file} holds no PEM certificate.")
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(found[0])).digest()


def _context(protocol: int, links: LinkSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED if links.ca else ssl.CERT_NONE
    try:
        # With an empty passphrase OpenSSL does not ask for one on the terminal.
        context.load_cert_chain(links.certificate, links.key or None, password="")
    except OSError as error:
        pair = f"{links.certificate}{' with the key ' + links.key if links.key else ''}"
        raise ConfigError(f"cannot use the certificate {pair}: {_reason(error)}.") from None
    if links.ca:
        try:
            context.load_verify_locations(links.ca)
        except OSError as error:
            why = f"cannot use the cluster's authorities {links.ca}: {_reason(error)}."
            raise ConfigError(why) from None
    return context


def _reason(error: OSError) -> str:
    text = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return (text or str(error)).lower().replace("_", " ")
