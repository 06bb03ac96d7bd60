"""Finds settings that contradict each other, or have no effect together.

A setting without effect is a fault too, because the person who wrote it expects one.
"""

import fnmatch
import ipaddress
import re
from collections.abc import Iterator, Sequence

from dovetail.limits import CLUSTER_PORT, HOST_BYTES_MAX, NODE_NAME_BYTES_MAX
from dovetail.settings.access import AccessRule
from dovetail.settings.archive import ArchiveSettings
from dovetail.settings.cluster import ClusterSettings
from dovetail.settings.faults import SettingFault, display, key_name, with_prefix
from dovetail.settings.filters import covers, filter_fault
from dovetail.settings.limits import ARCHIVE_NAME_BYTES_MAX
from dovetail.settings.listeners import SECURE_KINDS, WEBSOCKET_KINDS, ListenerSettings
from dovetail.settings.matchers import ONE_MATCHER_NEEDED
from dovetail.settings.model import Settings
from dovetail.settings.space_checks import space_faults
from dovetail.settings.toml_lines import KeyPath

_NODE_NAME = re.compile(r"[A-Za-z0-9._-]{0,255}")
_CLUSTER_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{NODE_NAME_BYTES_MAX}}}")
_NODE_ADDRESS = re.compile(
    rf"(?:\[[A-Za-z0-9._:%-]{{1,{HOST_BYTES_MAX}}}\]|[A-Za-z0-9._%-]{{1,{HOST_BYTES_MAX}}})"
    r"(?::([0-9]{1,5}))?"
)
_PLACEHOLDER = re.compile("%[uc]")
_WEBSOCKET_PATH = re.compile(r"/[^\s?#]*")
_ORIGIN = re.compile(r"null|[a-z][a-z0-9+.-]*://[^/\s]+")
_DEFAULTS = ListenerSettings(kind="tcp")
_WITHOUT_CLUSTER = ClusterSettings()
_CERTIFICATE_KEYS = (
    "certificate",
    "key",
    "client_ca",
    "client_certificate",
    "user_from_certificate",
)


def consistency_faults(settings: Settings) -> Iterator[SettingFault]:
    """Yield the faults of settings whose types and bounds are right."""
    if _NODE_NAME.fullmatch(settings.name) is None:
        why = "will not do: it takes up to 255 letters, digits, '.', '_' and '-'."
        yield SettingFault(("name",), f"{display(settings.name)} {why}")
    elif settings.workers > 1 and len(f"{settings.name}-{settings.workers}") > NODE_NAME_BYTES_MAX:
        why = f"the last one would be NAME-{settings.workers}, of up to {NODE_NAME_BYTES_MAX}"
        yield SettingFault(("name",), f"is too long for workers: {why} characters.")
    if not settings.data:
        yield SettingFault(("data",), "is empty: it takes the path of a folder.")
    for index, listener in enumerate(settings.listeners):
        yield from with_prefix(("listeners", index), _listener_faults(listener))
    yield from with_prefix(("cluster",), _cluster_faults(settings))
    yield from _address_faults(settings)
    for index, rule in enumerate(settings.access.rules):
        yield from with_prefix(("access", "rules", index), _rule_faults(rule))
    yield from with_prefix(("access", "rules"), _order_faults(settings.access.rules))
    if settings.access.anonymous == "never" and not _can_log_in(settings):
        yield SettingFault(
            ("access", "anonymous"),
            "nobody could connect: without a password_file, and without a listener that takes user "
            "names from client certificates, there is no way to log in.",
        )
    if settings.access.administrators and not settings.access.password_file:
        why = "has no effect without a password_file: nobody could prove to be one of them."
        yield SettingFault(("access", "administrators"), why)
    yield from with_prefix(("matchers",), _matcher_faults(settings))
    yield from with_prefix(("spaces",), space_faults(settings.spaces))
    yield from with_prefix(("spaces",), _engine_faults(settings))
    yield from with_prefix(("archive",), _archive_faults(settings))
    name = settings.name
    if settings.has_archive and (name[:1] in {".", "_"} or len(name) > ARCHIVE_NAME_BYTES_MAX):
        why = f"it begins with a letter, a digit or -, and has up to {ARCHIVE_NAME_BYTES_MAX}."
        yield SettingFault(
            ("name",), f"a node with an archive has its name in those of files: {why}"
        )


def _engine_faults(settings: Settings) -> Iterator[SettingFault]:
    """A space that a stream serves needs a named archive folder."""
    if settings.archive.topics or settings.archive.folder != ArchiveSettings().folder:
        return
    for name, space in settings.spaces.items():
        if space.engine == "spark":
            why = "is spark, which reads messages from the archive: say in which folder it is"
            yield SettingFault((name, "engine"), f"{why} (folder, in [archive]).")


def _archive_faults(settings: Settings) -> Iterator[SettingFault]:
    archive = settings.archive
    for index, topic_filter in enumerate(archive.topics):
        why = filter_fault(topic_filter)
        if why is not None:
            yield SettingFault(
                ("topics", index), f"{display(topic_filter)} is no topic filter: {why}."
            )
    if not archive.folder:
        yield SettingFault(("folder",), "is empty: it takes the path of a folder.")


def _matcher_faults(settings: Settings) -> Iterator[SettingFault]:
    matchers = settings.matchers
    if matchers.count_max and not matchers.count_min:
        yield SettingFault(("count_min",), f"is 0: {ONE_MATCHER_NEEDED}.")
    elif matchers.count_most < matchers.count_min:
        yield SettingFault(("count_max",), f"is less than count_min, {matchers.count_min}.")
    if matchers.remove_below >= matchers.add_above:
        yield SettingFault(
            ("remove_below",), f"has to be less than add_above, {matchers.add_above:g}."
        )
    last = f"{settings.name}-matcher-{matchers.count_most}"
    if matchers.count_most and len(last) > NODE_NAME_BYTES_MAX:
        why = f"the last one would be NAME-matcher-{matchers.count_most}"
        yield SettingFault(("count_min",), f"{why}, of more than {NODE_NAME_BYTES_MAX} characters.")


def address_fault(text: str) -> str | None:
    """Return why `text` is not the address of a node, or None.

    `cluster.addresses` has the same rules, but this package may not import it.
    """
    found = _NODE_ADDRESS.fullmatch(text)
    if found is not None and 1 <= int(found[1] or CLUSTER_PORT) <= 65_535:
        return None
    return (
        f"{display(text)} is no address of a node: it takes host:port, or the host alone for port "
        f"{CLUSTER_PORT}; an IPv6 address stands in brackets: [::1]:{CLUSTER_PORT}."
    )


def _cluster_faults(settings: Settings) -> Iterator[SettingFault]:
    cluster = settings.cluster
    if _CLUSTER_NAME.fullmatch(cluster.name) is None:
        why = f"it takes up to {NODE_NAME_BYTES_MAX} letters, digits, '.', '_' and '-'."
        yield SettingFault(("name",), f"{display(cluster.name)} will not do: {why}")
    for index, text in enumerate(cluster.join):
        if (fault := address_fault(text)) is not None:
            yield SettingFault(("join", index), fault)
    if cluster.advertise and (fault := address_fault(cluster.advertise)) is not None:
        yield SettingFault(("advertise",), fault)
    if not cluster.enabled:
        for key in ("host", "advertise", "join", "secret_file", "certificate", "key", "ca"):
            if getattr(cluster, key) != getattr(_WITHOUT_CLUSTER, key):
                yield SettingFault((key,), "has no effect while cluster.enabled is false.")
        return
    if len(settings.name) > NODE_NAME_BYTES_MAX:
        why = f"in a cluster a node's name has up to {NODE_NAME_BYTES_MAX} characters."
        yield SettingFault(("enabled",), why)
    yield from _link_faults(cluster)


def _link_faults(cluster: ClusterSettings) -> Iterator[SettingFault]:
    host = _address(cluster.host)
    if not cluster.secret_file and (host is None or not host.is_loopback):
        yield SettingFault(
            ("secret_file",),
            f"is missing: other machines can reach {cluster.host or 'every address of this one'}, "
            "and who has no secret must not join. `(umask 077; openssl rand -hex 32 > FILE)` makes "
            "one for the first node; the others need a copy of it.",
        )
    if not cluster.advertise and (not cluster.host or (host is not None and host.is_unspecified)):
        why = "is missing: a node that listens on every address has to say where others reach it."
        yield SettingFault(("advertise",), why)
    if not cluster.certificate:
        for key in ("key", "ca"):
            if getattr(cluster, key):
                yield SettingFault((key,), "has no effect without a certificate.")


def _can_log_in(settings: Settings) -> bool:
    return bool(settings.access.password_file) or any(
        listener.client_certificate != "none" and listener.user_from_certificate
        for listener in settings.listeners
    )


def _listener_faults(listener: ListenerSettings) -> Iterator[SettingFault]:
    if listener.kind in SECURE_KINDS:
        yield from _certificate_faults(listener)
    else:
        why = "it is for tls and secure-websocket"
        yield from _idle_faults(listener, _CERTIFICATE_KEYS, why)
    if listener.kind in WEBSOCKET_KINDS:
        yield from _websocket_faults(listener)
    else:
        why = "it is for websocket and secure-websocket"
        yield from _idle_faults(listener, ("path", "allowed_origins"), why)


def _idle_faults(
    listener: ListenerSettings, keys: tuple[str, ...], why: str
) -> Iterator[SettingFault]:
    for key in keys:
        if getattr(listener, key) != getattr(_DEFAULTS, key):
            yield SettingFault((key,), f"has no effect for kind {listener.kind}; {why}.")


def _certificate_faults(listener: ListenerSettings) -> Iterator[SettingFault]:
    mode = listener.client_certificate
    if not listener.certificate:
        why = f"is missing: kind {listener.kind} needs the server's certificate."
        yield SettingFault(("certificate",), why)
    if mode != "none" and not listener.client_ca:
        why = f"is missing: client_certificate is {mode}, and needs trusted authorities."
        yield SettingFault(("client_ca",), why)
    if mode == "none":
        why = "has no effect while client_certificate is none: make that optional or required."
        if listener.client_ca:
            yield SettingFault(("client_ca",), why)
        if not listener.user_from_certificate:
            yield SettingFault(("user_from_certificate",), why)


def _websocket_faults(listener: ListenerSettings) -> Iterator[SettingFault]:
    if _WEBSOCKET_PATH.fullmatch(listener.path) is None:
        why = "will not do: it takes a path that begins with /, without spaces, ? and #."
        yield SettingFault(("path",), f"{display(listener.path)} {why}")
    for index, origin in enumerate(listener.allowed_origins):
        if _ORIGIN.fullmatch(origin) is None:
            why = "is no origin: it takes a scheme, a host and maybe a port: https://example.org:8443."
            yield SettingFault(("allowed_origins", index), f"{display(origin)} {why}")


def _rule_faults(rule: AccessRule) -> Iterator[SettingFault]:
    for key in ("publish", "subscribe", "deny", "deny_publish", "deny_subscribe"):
        for index, topic_filter in enumerate(getattr(rule, key)):
            why = filter_fault(topic_filter)
            if why is not None:
                yield SettingFault(
                    (key, index), f"{display(topic_filter)} is no topic filter: {why}."
                )


_DENIALS = {
    "deny": ("publish", "subscribe"),
    "deny_publish": ("publish",),
    "deny_subscribe": ("subscribe",),
}


def _order_faults(rules: Sequence[AccessRule]) -> Iterator[SettingFault]:
    """A filter that denies has no effect if an earlier rule allows the same."""
    for number, rule in enumerate(rules):
        for key, permissions in _DENIALS.items():
            for index, topic_filter in enumerate(getattr(rule, key)):
                wider = _allowed_before(topic_filter, permissions, rule, rules[:number])
                if wider is not None:
                    why = f"{wider}, and the first rule that matches decides. Put this one first."
                    yield SettingFault(
                        (number, key, index), f"{display(topic_filter)} has no effect: {why}"
                    )


def _allowed_before(
    topic_filter: str, permissions: Sequence[str], rule: AccessRule, before: Sequence[AccessRule]
) -> str | None:
    """Describe the earlier rule that allows `topic_filter` to all clients of `rule`."""
    if _PLACEHOLDER.search(topic_filter) or filter_fault(topic_filter):
        return None
    for number, earlier in enumerate(before):
        if _fits_all(earlier.user, rule.user) and _fits_all(earlier.client, rule.client):
            for permission in permissions:
                for wider in getattr(earlier, permission):
                    if covers(wider.split("/"), topic_filter.split("/")):
                        return f"access.rules[{number}].{permission} allows {display(wider)}"
    return None


def _fits_all(pattern: str, other: str) -> bool:
    """Return True if `pattern` certainly matches every name that `other` matches."""
    is_one_name = not any(sign in other for sign in "*?[")
    return pattern in {"*", other} or (is_one_name and fnmatch.fnmatchcase(other, pattern))


def _address_faults(settings: Settings) -> Iterator[SettingFault]:
    """Two servers cannot have one address; the later setting is at fault."""
    addresses: list[tuple[KeyPath, str, int]] = [
        (("listeners", index), listener.host, listener.port)
        for index, listener in enumerate(settings.listeners)
    ]
    if settings.http.enabled:
        addresses.append((("http",), settings.http.host, settings.http.port))
    if settings.cluster.enabled:
        addresses.append((("cluster",), settings.cluster.host, settings.cluster.port))
    for index, (path, host, port) in enumerate(addresses):
        for earlier, earlier_host, earlier_port in addresses[:index]:
            if port == earlier_port != 0 and _meet(host, earlier_host):
                yield SettingFault(
                    (*path, "port"), f"{port} is taken already, by {key_name(earlier)}."
                )
                break


def _meet(host: str, other: str) -> bool:
    """Return True if the two hosts certainly cannot have the same port."""
    if host == other or not host or not other:
        return True
    first, second = _address(host), _address(other)
    if first is None or second is None or first.version != second.version:
        return False  # 0.0.0.0 and :: do not collide: we bind IPv6 separately
    return first == second or first.is_unspecified or second.is_unspecified


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address; None for a host name, which only the machine can resolve."""
    try:
        return ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        return None
