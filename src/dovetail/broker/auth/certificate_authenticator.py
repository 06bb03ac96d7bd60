"""Authenticates clients by their TLS certificate.

TLS has verified the certificate before MQTT begins. The listener decides whether its common name is
a user name (`user_from_certificate`).
"""

from dovetail.broker.auth.authenticator import Credentials, Grant, IsWaiting


class CertificateAuthenticator:
    """The common name of a certificate is the user, whatever the CONNECT says."""

    def authenticate(self, credentials: Credentials, _is_waiting: IsWaiting) -> Grant | None:
        name, listener = credentials.certificate_name, credentials.listener
        if name and listener is not None and listener.user_from_certificate:
            return Grant(name)
        return None
