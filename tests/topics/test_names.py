"""Names and filters: MQTT 5.0 section 4.7, clause by clause."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import ClientError, ReasonCode
from dovetail.topics.names import SharedFilter, check_filter, check_name, matches, split_shared
from support.strategies.topics import filters, names


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        # Section 4.7.1.2, the specification's own examples.
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("#", "sport/tennis", True),
        # Section 4.7.1.3.
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        # Section 4.7.2.
        ("#", "$SYS/monitor/Clients", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/", True),
        ("$SYS/#", "$SYS", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
        # Section 4.7.3: case, and empty levels.
        ("ACCOUNTS", "Accounts", False),
        ("/finance", "finance", False),
        ("a//b", "a/+/b", False),
        ("a/+/b", "a//b", True),
        ("//", "//", True),
        ("+/#", "a", True),
        ("+/+/#", "a", False),
        ("a/$x/#", "a/$x", True),
        ("a/#", "ab", False),
    ],
)
def test_matches_as_the_specification_says(topic_filter: str, topic: str, expected: bool) -> None:
    assert matches(topic_filter, topic) is expected


@given(names)
def test_a_name_is_a_filter_that_matches_itself(topic: str) -> None:
    assert check_name(topic) == topic.encode()
    assert check_filter(topic) == topic.encode()
    assert matches(topic, topic)


@given(filters())
def test_drawn_filters_are_valid_as_text_and_as_bytes(topic_filter: str) -> None:
    assert check_filter(topic_filter.encode()) == check_filter(topic_filter)


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("", "empty"),
        ("a/+/b", "wildcard"),
        ("a#", "wildcard"),
        ("a\0b", "null"),
        ("\ud800", "UTF-8"),
        (b"\xff", "UTF-8"),
        (b"\xed\xa0\x80", "UTF-8"),
        ("é" * 32_768, "65,536 bytes"),
    ],
)
def test_a_bad_name_is_refused_with_the_reason(topic: str | bytes, reason: str) -> None:
    with pytest.raises(ClientError, match=reason) as refused:
        check_name(topic)
    assert refused.value.reason is ReasonCode.TOPIC_NAME_INVALID
    assert len(str(refused.value).splitlines()) == 1
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("topic_filter", "reason"),
    [
        ("", "empty"),
        ("a/#/b", "last level"),
        ("a#", "whole level"),
        ("a/b#", "whole level"),
        ("#/", "last level"),
        ("a+/b", "whole level"),
        ("++", "whole level"),
        ("a\0", "null"),
        ("a" * 65_536, "65,536 bytes"),
        ("$share/", "share name"),
        ("$share/g", "{group}/{filter}"),
        ("$share/g/", "{group}/{filter}"),
        ("$share//a", "share name"),
        ("$share/g+/a", "share name"),
        ("$share/#/a", "share name"),
        ("$share/g/a/#/b", "last level"),
    ],
)
def test_a_bad_filter_is_refused_with_the_reason(topic_filter: str, reason: str | None) -> None:
    with pytest.raises(ClientError, match=reason) as refused:
        check_filter(topic_filter)
    assert refused.value.reason is ReasonCode.TOPIC_FILTER_INVALID


@pytest.mark.parametrize("topic", ["a" * 65_535, "/" * 65_535, "$share2/a", "\ufeffa", "a b"])
def test_what_looks_odd_and_is_allowed(topic: str) -> None:
    check_name(topic)
    check_filter(topic)


def test_shared_filters_are_recognised() -> None:
    assert split_shared("$share/workers/jobs/+/#") == SharedFilter("workers", "jobs/+/#")
    assert split_shared("$share/g//") == SharedFilter("g", "/")
    assert split_shared("jobs/$share/a") is None
    assert check_filter("$share/workers/jobs/+/#") == b"$share/workers/jobs/+/#"


@given(st.text(max_size=20) | st.binary(max_size=20))
def test_any_text_is_taken_or_refused_and_nothing_else(text: str | bytes) -> None:
    for check in (check_name, check_filter):
        with suppress(ClientError):
            assert check(text) == (text if isinstance(text, bytes) else text.encode())
