"""Settings of links are checked when they are made."""

import pytest

from dovetail.cluster.addresses import Address
from dovetail.cluster.link_settings import LinkSettings
from dovetail.errors import ConfigError


def test_a_name_is_enough() -> None:
    links = LinkSettings(name="a")
    assert (links.host, links.port, links.secret) == ("127.0.0.1", 7883, b"")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": ""}, "'' will not do as the name of a node"),
        ({"name": "a b"}, "will not do as the name of a node"),
        ({"name": "a\n"}, "will not do as the name of a node"),
        ({"cluster": "x" * 200}, "will not do as the name of a cluster"),
        ({"secret": b"short"}, "it takes 16 at least"),
        ({"key": "a.key"}, "has no effect without a certificate"),
        ({"ca": "ca.pem"}, "has no effect without a certificate"),
        ({"host": ""}, "has to say where others dial it"),
        ({"host": "::"}, "has to say where others dial it"),
        ({"advertise": Address("a b", 1)}, "is no host that others could dial"),
        ({"backlog_bytes_max": 1_000}, "a frame of 16,777,216 bytes would never fit"),
        ({"silence_seconds_max": 0.25}, "would not outlast a ping"),
    ],
)
def test_what_will_not_do(changes: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        LinkSettings(**({"name": "a"} | changes))  # type: ignore[arg-type]
