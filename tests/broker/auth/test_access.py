"""Access rules compared with brute force over a small world of topics."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.broker.auth.access import (
    PUBLISH_ANSWER_TOPIC_BYTES_MAX,
    PUBLISH_ANSWERS_MAX,
    AccessRules,
)
from dovetail.settings import AccessRule
from dovetail.settings.filters import covers, overlaps
from dovetail.topics.names import matches
from support.oracles.access import is_allowed
from support.strategies.topics import filters, names

# Every filter of up to three levels and `#`, and every topic that is a level deeper; "z" is a level
# that no filter names.
LITERALS = ("", "a", "$x")
TOPICS = [
    "/".join(levels)
    for depth in range(1, 5)
    for levels in product((*LITERALS, "z"), repeat=depth)
    if levels != ("",)
]
FILTERS = [
    "/".join((*levels, *tail))
    for depth in range(4)
    for levels in product((*LITERALS, "+"), repeat=depth)
    for tail in ((), ("#",))
    if (*levels, *tail) not in {(), ("",)}
]
MATCHED = {
    topic_filter: frozenset(topic for topic in TOPICS if matches(topic_filter, topic))
    for topic_filter in FILTERS
}


def test_covers_is_inclusion() -> None:
    for allowed, requested in product(FILTERS, repeat=2):
        included = MATCHED[requested] <= MATCHED[allowed]
        assert covers(allowed.split("/"), requested.split("/")) == included, (allowed, requested)


def test_overlaps_is_intersection() -> None:
    for one, other in product(FILTERS, repeat=2):
        meet = not MATCHED[one].isdisjoint(MATCHED[other])
        assert overlaps(one.split("/"), other.split("/")) == meet, (one, other)


@given(filters(), filters(), names)
def test_a_topic_shows_what_covers_and_overlaps_say(one: str, other: str, topic: str) -> None:
    if matches(one, topic) and matches(other, topic):
        assert overlaps(one.split("/"), other.split("/"))
    if covers(one.split("/"), other.split("/")) and matches(other, topic):
        assert matches(one, topic)


@given(filters(), names)
def test_a_name_is_a_filter_of_one_topic(topic_filter: str, topic: str) -> None:
    expected = matches(topic_filter, topic)
    assert covers(topic_filter.split("/"), topic.split("/")) == expected
    assert overlaps(topic_filter.split("/"), topic.split("/")) == expected


@given(filters())
def test_a_filter_covers_and_meets_itself(topic_filter: str) -> None:
    levels = topic_filter.split("/")
    assert covers(levels, levels)
    assert overlaps(levels, levels)


def test_without_rules_everything_is_allowed() -> None:
    rules = AccessRules(())
    access = rules.for_client(None, "any")
    assert access.everything
    assert access.may_publish(b"$SYS/x")
    assert access.may_subscribe("#")
    assert rules.may_publish("user", "any", b"a")
    assert rules.may_subscribe("user", "any", "$share/g/#")


def test_with_a_rule_only_what_is_allowed_is() -> None:
    rules = AccessRules([AccessRule(user="ann", publish=("a/#",), subscribe=("b/+",))])
    ann = rules.for_client("ann", "c1")
    assert not ann.everything
    assert ann.may_publish(b"a")
    assert ann.may_publish(b"a/b/c")
    assert not ann.may_publish(b"b/x")
    assert ann.may_subscribe("b/x")
    assert ann.may_subscribe("b/+")
    assert ann.may_subscribe("$share/group/b/+")
    assert not ann.may_subscribe("b/#")
    assert not ann.may_subscribe("$share/group/b/#")
    bob = rules.for_client("bob", "c1")
    assert not bob.everything
    assert not bob.may_publish(b"a")
    assert not bob.may_subscribe("b/x")


def test_the_first_filter_that_matches_decides() -> None:
    rules = AccessRules(
        [
            AccessRule(user="alice", publish=("secret/#",), subscribe=("secret/#",)),
            AccessRule(user="guest-?", deny=("private/#",)),
            AccessRule(deny=("secret/#",), deny_publish=("news",)),
            AccessRule(publish=("#",), subscribe=("#",)),
            AccessRule(deny=("late",)),
        ]
    )
    alice, guest, other = (rules.for_client(user, "c") for user in ("alice", "guest-1", "bob"))
    for access in (alice, guest, other):
        assert access.may_publish(b"open")
        assert access.may_publish(b"late")
        assert not access.may_publish(b"news")
        assert access.may_subscribe("news")
        assert access.may_subscribe("open/#")
    assert alice.may_publish(b"secret/x")
    assert alice.may_subscribe("secret/x")
    assert alice.may_subscribe("#")  # what is denied to all others was allowed before
    for access in (guest, other):
        assert not access.may_publish(b"secret/x")
        for topic_filter in ("secret/x", "secret", "secret/#", "+", "+/x", "#", "$share/g/#"):
            assert not access.may_subscribe(topic_filter)
    assert not guest.may_publish(b"private/a")
    assert not guest.may_subscribe("private/a")
    assert other.may_publish(b"private/a")
    assert other.may_subscribe("private/#")


def test_a_rule_denies_before_it_allows() -> None:
    rules = AccessRules([AccessRule(publish=("#",), subscribe=("#",), deny=("a/b",))])
    access = rules.for_client("u", "c")
    assert access.may_publish(b"a/c")
    assert not access.may_publish(b"a/b")
    assert access.may_subscribe("a/c")
    assert not access.may_subscribe("a/+")


def test_topics_with_a_dollar_have_to_be_named() -> None:
    everyone = AccessRule(publish=("#", "+/+"), subscribe=("#",))
    plain = AccessRules([everyone]).for_client("u", "c")
    assert not plain.may_publish(b"$SYS/x")
    assert not plain.may_subscribe("$SYS/#")
    named = AccessRules([everyone, AccessRule(subscribe=("$SYS/#",))]).for_client("u", "c")
    assert named.may_subscribe("$SYS/broker/uptime")
    assert named.may_subscribe("#")


def test_who_did_not_log_in_is_an_empty_user() -> None:
    rules = AccessRules(
        [AccessRule(user="", publish=("anonymous",)), AccessRule(user="?*", publish=("known",))]
    )
    assert rules.may_publish(None, "c", b"anonymous")
    assert not rules.may_publish(None, "c", b"known")
    assert rules.may_publish("ann", "c", b"known")
    assert not rules.may_publish("ann", "c", b"anonymous")


def test_rules_go_by_client_identifier_too_and_heed_case() -> None:
    rules = AccessRules([AccessRule(client="meter-*", publish=("m",))])
    assert rules.may_publish(None, "meter-\n5", b"m")
    assert not rules.may_publish(None, "Meter-5", b"m")
    assert not rules.may_publish(None, "x-meter-5", b"m")


def test_placeholders() -> None:
    rules = AccessRules([AccessRule(publish=("u/%u/%c/x%cx", "100%/#"), subscribe=("%u/#",))])
    assert rules.may_publish("ann", "c1", b"u/ann/c1/xc1x")
    assert not rules.may_publish("ann", "c2", b"u/ann/c1/xc1x")
    assert rules.may_publish("ann", "c2", b"100%/any")
    assert rules.may_subscribe("ann", "c", "ann/+")
    assert not rules.may_subscribe("ann", "c", "bob/+")
    # A name is not searched for placeholders itself.
    assert rules.may_publish("%c", "c1", b"u/%c/c1/xc1x")
    assert not rules.may_publish("%c", "c1", b"u/c1/c1/xc1x")


@pytest.mark.parametrize("name", ["+", "#", "a/b", "a+", "", "/", "$SYS", "a/#", "$share"])
def test_a_name_does_not_widen_a_filter(name: str) -> None:
    rules = AccessRules([AccessRule(publish=("%u/x", "%u/%c"), subscribe=("%u", "%u/#"))])
    access = rules.for_client(name, "c")
    for topic in ("a/x", "a/b/x", f"{name}/x", f"{name}/c", "/x", "$SYS/x", "/c"):
        assert not access.may_publish(topic.encode())
    for topic_filter in ("#", "+", "a", "a/b", "$SYS/#", "/#", "+/#", "$SYS"):
        assert not access.may_subscribe(topic_filter)


@given(st.text(alphabet="+#/$ab", max_size=4), names)
def test_what_a_client_chooses_reaches_only_its_own_level(client_id: str, topic: str) -> None:
    rules = AccessRules([AccessRule(publish=("%c/#", "a/%c"))])
    if rules.may_publish(None, client_id, topic.encode()):
        levels = topic.split("/")
        assert client_id
        assert client_id in {levels[0], levels[-1]}
        assert not topic.startswith("$")


def test_a_dollar_behind_the_first_level_is_a_letter_like_others() -> None:
    rules = AccessRules([AccessRule(publish=("u/%u",))])
    assert rules.may_publish("$x", "c", b"u/$x")


def test_a_name_over_several_levels_is_denied_as_it_stands() -> None:
    rules = AccessRules([AccessRule(publish=("#",), deny_publish=("private/%u", "x/%c"))])
    assert not rules.may_publish("a/b", "c", b"private/a/b")
    assert rules.may_publish("a/b", "c", b"private/a")
    assert not rules.may_publish("u", "$c", b"x/$c")
    assert rules.may_publish("u", "+", b"x/a")


def test_clients_with_the_same_filters_share_them() -> None:
    rules = AccessRules([AccessRule(publish=("a/#",)), AccessRule(user="ann", publish=("%c",))])
    bob = rules.for_client("bob", "1")
    assert rules.for_client("eve", "2") is bob
    assert rules.for_client("ann", "1") is not rules.for_client("ann", "2")


def test_answers_are_remembered_within_bounds() -> None:
    access = AccessRules([AccessRule(publish=("a/+",))]).for_client("u", "c")
    for number in range(PUBLISH_ANSWERS_MAX + 10):
        assert access.may_publish(b"a/%d" % number)
        assert not access.may_publish(b"b/%d" % number)
    assert access.may_publish(b"a/0")
    long = b"a/" + b"x" * PUBLISH_ANSWER_TOPIC_BYTES_MAX
    assert access.may_publish(long)
    assert len(access._answers) == PUBLISH_ANSWERS_MAX
    assert long not in access._answers


some_filters = st.lists(filters(), max_size=2).map(tuple)
any_rules = st.lists(
    st.builds(
        AccessRule,
        user=st.sampled_from(["*", "u", "other"]),
        publish=some_filters,
        subscribe=some_filters,
        deny=some_filters,
        deny_publish=some_filters,
        deny_subscribe=some_filters,
    ),
    min_size=1,
    max_size=4,
)


@given(any_rules, st.lists(names, max_size=10))
def test_publishing_goes_by_the_first_filter_that_matches(
    rules: list[AccessRule], topics: list[str]
) -> None:
    access = AccessRules(rules).for_client("u", "c")
    for topic in topics * 2:  # the second time from memory
        assert access.may_publish(topic.encode()) == is_allowed(rules, "u", "publish", topic)


@given(any_rules, filters(), st.lists(names, max_size=20))
def test_who_may_subscribe_may_have_every_topic(
    rules: list[AccessRule], topic_filter: str, topics: list[str]
) -> None:
    access = AccessRules(rules).for_client("u", "c")
    if access.may_subscribe(topic_filter):
        for topic in topics:
            if matches(topic_filter, topic):
                assert is_allowed(rules, "u", "subscribe", topic)


# Rules over a small world of filters, so that they meet.
few_filters = st.lists(st.sampled_from(FILTERS), max_size=2).map(tuple)
small_rules = st.lists(
    st.builds(AccessRule, subscribe=few_filters, deny=few_filters), min_size=1, max_size=4
)


@given(small_rules, st.sampled_from(FILTERS))
def test_subscribing_against_every_topic(rules: list[AccessRule], topic_filter: str) -> None:
    """Who may subscribe may have all topics. Who may not is denied one, or has no filter for all.

    That there is no such filter is the one way in which a rule refuses more than it has to.
    """
    may = AccessRules(rules).for_client("u", "c").may_subscribe(topic_filter)
    is_all_allowed = all(
        is_allowed(rules, "u", "subscribe", topic) for topic in MATCHED[topic_filter]
    )
    if may:
        assert is_all_allowed
    elif is_all_allowed:
        denied = [one for rule in rules for one in rule.deny]
        allowed = [one for rule in rules for one in rule.subscribe]
        assert not any(MATCHED[topic_filter] <= MATCHED[one] for one in allowed) or any(
            MATCHED[topic_filter] & MATCHED[one] for one in denied
        )
