"""Addresses as text, and what is known of them without the network."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.cluster.addresses import (
    Address,
    is_loopback,
    is_unspecified,
    network_of,
    parse_address,
)
from dovetail.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("a.example:1234", "a.example", 1234),
        ("a_b", "a_b", 7883),
        ("10.0.0.1:1", "10.0.0.1", 1),
        ("[::1]:7000", "::1", 7000),
        ("[fe80::1%eth0]", "fe80::1%eth0", 7883),
    ],
)
def test_read(text: str, host: str, port: int) -> None:
    assert parse_address(text) == Address(host, port)
    assert parse_address(str(parse_address(text))) == Address(host, port)


@pytest.mark.parametrize(
    "text", ["", ":1", "a:", "a:0", "a:65536", "::1", "[::1", "a b:1", "a:1\n", "a:1:2", "[]:1"]
)
def test_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no address of a node"):
        parse_address(text)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        address = parse_address(text)
    except ConfigError:
        return
    assert parse_address(str(address)) == address


def test_which_are_of_this_machine() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"]))
    assert not any(map(is_loopback, ["", "10.0.0.1", "localhost", "::", "::ffff:10.0.0.1", "?"]))
    assert all(map(is_unspecified, ["", "0.0.0.0", "::"]))  # noqa: S104
    assert not any(map(is_unspecified, ["127.0.0.1", "::1", "localhost"]))


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("a.example", "a.example"),
        ("local", "local"),
    ],
)
def test_what_one_party_has_to_itself(host: str, network: str) -> None:
    assert network_of(host) == network
