"""Each checker with clean histories, and with histories that have exactly one violation."""

from collections.abc import Callable

import pytest

from reliability.history import Completed, Publish
from reliability.tests.story import NODES, Story

# Lost ---------------------------------------------------------------------------------------------


def test_a_clean_history_breaks_nothing_and_is_judged() -> None:
    story = Story()
    story.subscriber("reader", "t/#")
    story.publish("writer:1", "t/1", to=("reader",))
    story.publish("writer:2", "t/2", qos=1, to=("reader",))
    story.publish("writer:3", "u", qos=1)
    assert story.broken() == []
    assert story.verdict("delivered").judged == 2


def test_an_acknowledged_message_that_never_arrives_is_lost() -> None:
    story = Story()
    story.subscriber("reader", "t/#")
    story.publish("writer:1", "t/1", qos=1)
    assert story.broken() == ["delivered"]
    (violation,) = story.verdict("delivered").violations
    assert (violation.client, violation.message) == ("reader", "writer:1")


@pytest.mark.parametrize(
    "fields", [{"qos": 0}, {"outcome": "fail"}, {"outcome": "unknown"}, {"outcome": None}]
)
def test_what_nobody_acknowledged_may_be_lost(fields: dict[str, object]) -> None:
    story = Story()
    story.subscriber("reader", "t/#")
    story.publish("writer:1", "t/1", **fields)  # type: ignore[arg-type]
    assert story.broken() == []


def test_what_was_acknowledged_as_wanted_by_nobody_is_lost() -> None:
    story = Story()
    story.subscriber("reader", "t/#")
    story.publish("writer:1", "t/1", qos=1, to=("reader",), reason=0x10)
    assert story.broken() == ["delivered"]


def test_a_retained_message_that_a_subscribe_asked_for_is_no_arrival() -> None:
    story = Story()
    story.subscriber("reader", "t/#")
    story.publish("writer:1", "t/1", qos=1, retain=True)
    story.deliver("reader", "writer:1", retain=True)
    assert story.broken() == ["delivered"]


def test_a_clause_says_what_is_owed() -> None:
    story = Story()
    story.subscriber("reader", "t/#", where={"x": (10.0, 20.0)})
    story.publish("writer:1", "t/1", attributes={"x": 20.0})
    story.publish("writer:2", "t/1", attributes={"y": 15.0})
    assert story.broken() == []
    story.publish("writer:3", "t/1", attributes={"x": 10.0})
    assert story.broken() == ["delivered"]


def test_a_subscription_that_is_made_in_a_cut_counts_when_the_cluster_is_whole() -> None:
    story = Story()
    cut = story.fault("cut", "two")
    story.subscriber("reader", "t/#")
    story.publish("writer:1", "t/1", node="two")
    assert story.broken() == []
    story.heal(cut)
    story.publish("writer:2", "t/1", node="two")
    assert story.broken() == ["delivered"]


def test_between_a_session_that_was_lost_and_the_next_one_nothing_is_owed() -> None:
    story = Story()
    story.subscriber("reader", "t/#")
    story.publish("writer:1", "t/1", to=("reader",))
    kill = story.fault("kill", "one")
    story.lose("reader")
    story.connect("reader", "two", present=False)
    story.publish("writer:2", "t/1", node="two")
    story.subscribe("reader", "t/#")
    story.heal(kill)
    assert story.broken() == []
    story.publish("writer:3", "t/1", node="two")
    assert story.broken() == ["delivered"]


def test_what_was_acknowledged_before_the_session_was_lost_is_owed() -> None:
    story = Story()
    story.subscriber("reader", "t/#")
    story.publish("writer:1", "t/1")
    kill = story.fault("kill", "one")
    story.lose("reader")
    story.connect("reader", "two", present=False)
    story.heal(kill)
    assert story.broken() == ["delivered"]


def test_nothing_is_owed_after_unsubscribe() -> None:
    story = Story()
    story.subscriber("reader", "t/#")
    story.unsubscribe("reader", "t/#")
    story.publish("writer:1", "t/1")
    assert story.broken() == []


# Repeated -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("qos", "promise"), [(0, "repeated"), (1, "repeated"), (2, "once")])
def test_a_message_that_arrives_twice_is_a_repetition(qos: int, promise: str) -> None:
    story = Story()
    story.subscriber("reader", "t/#", qos)
    story.publish("writer:1", "t/1", qos, to=("reader", "reader"))
    assert story.broken() == [promise]


def test_qos_1_may_be_repeated_if_its_publisher_sent_it_again() -> None:
    story = Story()
    story.subscriber("reader", "t/#", 1)
    story.publish("writer:1", "t/1", 1, to=("reader",))
    story.resend("writer:1", "two")
    story.deliver("reader", "writer:1")
    assert story.broken() == []
    assert story.verdict("repeated").excused == {"QoS 1: the publisher sent it again": 1}


@pytest.mark.parametrize(("qos", "broken"), [(1, []), (2, ["once"])])
def test_qos_1_may_be_repeated_if_the_subscriber_came_back(qos: int, broken: list[str]) -> None:
    story = Story()
    story.subscriber("reader", "t/#", qos)
    story.publish("writer:1", "t/1", qos, to=("reader",))
    story.lose("reader")
    story.connect("reader", present=True)
    story.deliver("reader", "writer:1")
    assert story.broken() == broken


@pytest.mark.parametrize(("qos", "broken"), [(1, []), (2, ["once"])])
def test_qos_1_may_be_repeated_in_a_disturbed_cluster(qos: int, broken: list[str]) -> None:
    story = Story()
    story.subscriber("reader", "t/#", qos)
    kill = story.fault("kill", "two")
    story.publish("writer:1", "t/1", qos, to=("reader", "reader"))
    story.heal(kill)
    assert story.broken() == broken


@pytest.mark.parametrize(("fault", "broken"), [("kill", []), ("cut", ["repeated"])])
def test_a_broker_that_was_killed_may_repeat_what_it_gave_to_qos_0(
    fault: str, broken: list[str]
) -> None:
    story = Story()
    story.subscriber("reader", "t/#", 0)
    story.publish("writer:1", "t/1", 2)
    story.deliver("reader", "writer:1", qos=0)
    story.heal(story.fault(fault, "one"))
    story.deliver("reader", "writer:1", qos=0)
    assert story.broken() == broken


@pytest.mark.parametrize(("fault", "broken"), [("disk", []), ("cut", ["repeated"])])
def test_what_a_full_disk_refused_may_come_to_qos_0_again(fault: str, broken: list[str]) -> None:
    story = Story()
    story.subscriber("reader", "t/#", 0)
    began = story.fault(fault, "one")
    story.publish("writer:1", "t/1", 2)
    story.deliver("reader", "writer:1", qos=0)
    story.resend("writer:1", "one")
    story.deliver("reader", "writer:1", qos=0)
    story.heal(began)
    assert story.broken() == broken


@pytest.mark.parametrize(("node", "broken"), [("two", []), ("one", ["once", "once", "group"])])
def test_a_publisher_with_two_sessions_may_publish_twice(node: str, broken: list[str]) -> None:
    story = Story()
    story.subscriber("reader", "t/#", 2, "three")
    story.subscriber("worker", "t/#", 2, "three", group="workers")
    story.connect("writer", "one")
    story.publish("writer:1", "t/1", 2, outcome=None)
    for name in ("reader", "worker"):
        story.deliver(name, "writer:1", qos=2)
    fault = story.fault("kill", "one") if node == "two" else 0
    story.lose("writer")
    story.connect("writer", node, present=True)
    story.resend("writer:1", node)
    for name in ("reader", "worker"):
        story.deliver(name, "writer:1", qos=2)
    story.complete("writer:1")
    if fault:
        story.heal(fault)
    assert story.broken() == broken


def test_who_had_two_sessions_may_get_what_both_had() -> None:
    story = Story()
    story.subscriber("reader", "t/#")
    cut = story.fault("cut", "one")
    story.publish("writer:1", "t/1", to=("reader",))
    story.lose("reader")
    story.connect("reader", "two", present=False)
    story.subscribe("reader", "t/#")
    story.deliver("reader", "writer:1")
    story.heal(cut)
    assert story.broken() == []
    assert story.verdict("once").excused == {"the client had two sessions": 1}
    story.wait(60)
    story.publish("writer:2", "t/1", to=("reader", "reader"))
    assert story.broken() == ["once"]


# Order --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_that_is_overtaken_is_out_of_order(qos: int) -> None:
    story = Story()
    story.subscriber("reader", "t/#")
    for number in (1, 2, 3):
        story.publish(f"writer:{number}", "t/1", qos)
    for number in (1, 3, 2):
        story.deliver("reader", f"writer:{number}")
    assert story.broken() == ["order"]
    assert story.verdict("order").judged == 2


def test_order_is_kept_for_each_publisher_topic_and_qos() -> None:
    story = Story()
    story.subscriber("reader", "t/#")
    story.publish("writer:1", "t/1", 1)
    story.publish("writer:2", "t/2", 1, to=("reader",))
    story.publish("writer:3", "t/1", 2, to=("reader",))
    story.publish("other:1", "t/1", 1, to=("reader",))
    story.deliver("reader", "writer:1")
    assert story.broken() == []


def test_the_first_arrival_counts() -> None:
    story = Story()
    story.subscriber("reader", "t/#", 1)
    story.publish("writer:1", "t/1", 1, to=("reader",))
    story.publish("writer:2", "t/1", 1, to=("reader",))
    story.resend("writer:1", "one")
    story.deliver("reader", "writer:1", duplicate=True)
    assert story.broken() == []


@pytest.mark.parametrize(("qos", "broken"), [(0, []), (1, ["order"])])
def test_a_subscriber_at_qos_0_may_get_the_second_copy_first(qos: int, broken: list[str]) -> None:
    story = Story()
    story.subscriber("reader", "t/#", qos)
    story.publish("writer:1", "t/1", 1)
    story.publish("writer:2", "t/1", 1)
    story.deliver("reader", "writer:2", qos=qos)
    story.resend("writer:1", "one")
    story.deliver("reader", "writer:1", qos=qos)
    assert story.broken() == broken


@pytest.mark.parametrize(
    ("qos", "cut", "broken"),
    [
        (1, "before", []),
        (2, "before", []),
        (1, "after", ["order"]),
        (1, "", ["order"]),
        (2, "", ["order"]),
        (0, "", []),
    ],
)
def test_a_publisher_may_overtake_itself_when_it_moves_in_a_disturbed_cluster(
    qos: int, cut: str, broken: list[str]
) -> None:
    story = Story()
    story.subscriber("reader", "t/#")
    fault = story.fault("cut", "one") if cut == "before" else 0
    story.publish("writer:1", "t/1", qos, node="one")
    if cut == "after":
        fault = story.fault("cut", "one")
    story.publish("writer:2", "t/1", qos, node="two", to=("reader",))
    if fault:
        story.heal(fault)
    story.deliver("reader", "writer:1")
    assert story.broken() == broken


@pytest.mark.parametrize(
    ("node", "is_cut", "broken"),
    [("two", True, []), ("two", False, ["order"]), ("one", True, ["order"])],
)
def test_what_a_subscriber_left_at_a_broker_that_is_away_may_come_later(
    node: str, is_cut: bool, broken: list[str]
) -> None:
    story = Story()
    story.subscriber("reader", "t/#", node="one")
    story.publish("writer:1", "t/1", 1, node="two")
    fault = story.fault("kill", "three") if is_cut else 0
    story.lose("reader")
    story.connect("reader", node, present=True)
    story.publish("writer:2", "t/1", 1, node="two", to=("reader",))
    if fault:
        story.heal(fault)
    story.deliver("reader", "writer:1")
    assert story.broken() == broken


def test_a_client_without_a_session_begins_a_new_order_with_each_connection() -> None:
    story = Story()
    for number in (1, 2):
        story.publish(f"writer:{number}", "t/1", 1)
    for number in (2, 1):
        story.connect("transient", clean_start=True, expiry_seconds=0)
        story.subscribe("transient", "t/#", 1)
        story.deliver("transient", f"writer:{number}")
        story.lose("transient")
    assert story.broken() == []


# Receivers and contents ---------------------------------------------------------------------------


def test_a_message_that_no_filter_matches_is_somebody_elses() -> None:
    story = Story()
    story.subscriber("reader", "t/+")
    story.publish("writer:1", "t/1/x", to=("reader",))
    assert story.broken() == ["receiver"]


def test_a_message_that_the_clause_excludes_is_somebody_elses() -> None:
    story = Story()
    story.subscriber("reader", "t/+", where={"x": (10.0, 20.0)})
    story.publish("writer:1", "t/1", attributes={"x": 20.0}, to=("reader",))
    assert story.broken() == ["receiver"]


def test_a_message_that_is_published_after_unsubscribe_is_somebody_elses() -> None:
    story = Story()
    story.subscriber("reader", "t/+")
    story.publish("writer:1", "t/1")
    story.unsubscribe("reader", "t/+")
    story.deliver("reader", "writer:1")  # it was on its way
    assert story.broken() == []
    story.publish("writer:2", "t/1", to=("reader",))
    assert story.broken() == ["receiver"]


def test_a_clean_start_ends_subscriptions() -> None:
    story = Story()
    story.subscriber("reader", "t/+")
    story.lose("reader")
    story.connect("reader", clean_start=True)
    story.publish("writer:1", "t/1", to=("reader",))
    assert story.broken() == ["receiver"]


def test_no_local_keeps_a_clients_own_messages_away() -> None:
    story = Story()
    story.subscriber("reader", "t/+", no_local=True)
    story.publish("writer:1", "t/1", to=("reader",))
    story.publish("reader:1", "t/1")
    assert story.broken() == []
    story.deliver("reader", "reader:1")
    assert story.broken() == ["receiver"]


def _deliver_damaged(story: Story) -> None:
    story.publish("writer:1")
    story.deliver("reader", "writer:1", damaged=True)


def _deliver_on_another_topic(story: Story) -> None:
    story.publish("writer:1", "t/1")
    story.deliver("reader", "writer:1", topic="t/2")


def _deliver_what_nobody_published(story: Story) -> None:
    story.deliver("reader", "writer:1", topic="t/1")


def _deliver_at_another_qos(story: Story) -> None:
    story.publish("writer:1", qos=1)
    story.deliver("reader", "writer:1", qos=2)


def _deliver_as_retained(story: Story) -> None:
    story.publish("writer:1", qos=0)
    story.deliver("reader", "writer:1", retain=True)


@pytest.mark.parametrize(
    "deliver",
    [
        _deliver_damaged,
        _deliver_on_another_topic,
        _deliver_what_nobody_published,
        _deliver_at_another_qos,
        _deliver_as_retained,
    ],
)
def test_contents_are_as_published(deliver: Callable[[Story], None]) -> None:
    story = Story()
    story.subscriber("reader", "#")
    deliver(story)
    assert story.broken() == ["content"]


# Shared subscriptions -----------------------------------------------------------------------------


def _group(qos: int) -> Story:
    story = Story()
    story.subscriber("first", "t/+", qos, "one", group="g")
    story.subscriber("second", "t/+", qos, "two", group="g")
    return story


@pytest.mark.parametrize("qos", [1, 2])
def test_one_member_of_a_group_gets_a_message(qos: int) -> None:
    story = _group(qos)
    story.publish("writer:1", "t/1", qos, to=("first",))
    story.publish("writer:2", "t/1", qos, to=("second",))
    assert story.broken() == []
    assert story.verdict("group").judged == 2


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_no_member_gets_is_lost(qos: int) -> None:
    story = _group(qos)
    story.publish("writer:1", "t/1", qos)
    assert story.broken() == ["group"]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_two_members_get_is_doubled(qos: int) -> None:
    story = _group(qos)
    story.publish("writer:1", "t/1", qos, to=("first", "second"))
    assert story.broken() == ["group"]


@pytest.mark.parametrize(("qos", "broken"), [(1, []), (2, ["group"])])
def test_after_a_fault_a_group_may_get_qos_1_again(qos: int, broken: list[str]) -> None:
    story = _group(qos)
    kill = story.fault("kill", "one")
    story.publish("writer:1", "t/1", qos, to=("first", "second"))
    story.heal(kill)
    assert story.broken() == broken


# Sessions -----------------------------------------------------------------------------------------


def test_a_session_follows_its_client() -> None:
    story = Story()
    story.subscriber("reader", "t")
    story.lose("reader")
    story.connect("reader", "two", present=True)
    assert story.broken() == []
    story.lose("reader")
    story.connect("reader", "three", present=False)
    assert story.broken() == ["session"]


@pytest.mark.parametrize(
    ("fault", "node", "broken"),
    [
        ("kill", "one", []),
        ("cut", "two", []),
        ("kill", "three", ["session"]),
        ("disk", "one", ["session"]),
    ],
)
def test_a_session_may_be_missing_while_its_broker_is_away(
    fault: str, node: str, broken: list[str]
) -> None:
    story = Story()
    story.subscriber("reader", "t")
    began = story.fault(fault, node)
    story.lose("reader")
    story.connect("reader", "two", present=False)
    story.heal(began)
    assert story.broken() == broken


def test_a_session_is_never_missing_at_its_own_broker() -> None:
    story = Story()
    story.subscriber("reader", "t")
    began = story.fault("kill", "one")
    story.lose("reader")
    story.heal(began, whole=False)
    story.connect("reader", "one", present=False)
    story.whole()
    assert story.broken() == ["session"]


@pytest.mark.parametrize(
    ("fault", "other", "broken"),
    [("clock", "one", []), ("clock", "two", ["session"]), ("kill", "one", ["session"])],
)
def test_which_of_two_sessions_is_later_clocks_decide(
    fault: str, other: str, broken: list[str]
) -> None:
    story = Story()
    story.subscriber("reader", "t", node=other)
    jump = story.fault(fault, "three")
    story.lose("reader")
    story.connect("reader", other, present=True)
    story.lose("reader")
    story.connect("reader", "two", present=True)
    story.subscribe("reader", "t")
    story.lose("reader")
    story.connect("reader", "two", present=False)
    story.heal(jump)
    assert story.broken() == broken


def test_no_session_is_said_again_until_the_client_has_built_on_it() -> None:
    story = Story()
    story.connect("writer", "one")
    for number in range(2):
        story.lose("writer")
        story.connect("writer", "two", present=False)
        story.publish(f"writer:{number}", node="two", outcome="unknown")
    assert story.broken() == []
    story.publish("writer:2", node="two")
    story.lose("writer")
    story.connect("writer", "two", present=False)
    assert story.broken() == ["session"]


# Retained messages --------------------------------------------------------------------------------


def test_brokers_that_retain_different_messages_have_diverged() -> None:
    story = Story()
    story.publish("writer:1", "r", 1, retain=True)
    story.publish("writer:2", "r", 1, retain=True)
    story.read("r", dict.fromkeys(NODES, "writer:2"))
    assert story.broken() == []
    story.read("r", {"one": "writer:2", "two": "", "three": "writer:2"})
    assert story.broken()[0] == "retained"


@pytest.mark.parametrize("value", ["writer:1", ""])
def test_an_older_retained_message_must_not_stay(value: str) -> None:
    story = Story()
    story.publish("writer:1", "r", 1, retain=True)
    story.publish("other:2", "r", 1, retain=True, node="two")
    story.read("r", dict.fromkeys(NODES, value))
    assert story.broken() == ["latest"]


def test_a_retained_message_that_was_cleared_is_gone() -> None:
    story = Story()
    story.publish("writer:1", "r", 1, retain=True)
    story.publish("writer:2", "r", 1, retain=True, clears=True)
    story.read("r", dict.fromkeys(NODES, ""))
    assert story.broken() == []
    story.read("r", dict.fromkeys(NODES, "writer:1"))
    assert story.broken() == ["latest"]


@pytest.mark.parametrize(("node", "broken"), [("two", []), ("one", ["latest"])])
def test_in_a_cut_the_clocks_decide_between_two_brokers(node: str, broken: list[str]) -> None:
    story = Story()
    cut = story.fault("cut", "two")
    story.publish("writer:1", "r", 1, retain=True)
    story.publish("other:1", "r", 1, retain=True, node=node)
    story.heal(cut)
    story.read("r", dict.fromkeys(NODES, "writer:1"))
    assert story.broken() == broken


def test_retained_messages_that_were_sent_at_once_may_come_in_any_order() -> None:
    story = Story()
    story.publish("writer:1", "r", 1, retain=True, outcome=None)
    story.publish("other:1", "r", 1, retain=True, node="two")
    story.read("r", dict.fromkeys(NODES, "writer:1"))
    assert story.broken() == []


# Wills --------------------------------------------------------------------------------------------


def _with_will(**fields: object) -> Story:
    story = Story()
    story.subscriber("watcher", "w/#")
    will = {"will": "short-lived:1", "will_topic": "w/1", "will_qos": 2}
    story.connect("short-lived", "two", **will, **fields)  # type: ignore[arg-type]
    return story


def _will(story: Story) -> None:
    story.deliver("watcher", "short-lived:1", topic="w/1", qos=2)


@pytest.mark.parametrize(("times", "broken"), [(0, ["will"]), (1, []), (2, ["will"])])
def test_the_will_of_a_lost_connection_comes_once(times: int, broken: list[str]) -> None:
    story = _with_will()
    story.lose("short-lived")
    for _ in range(times):
        _will(story)
    assert story.broken() == broken
    assert story.verdict("will").judged == 1


@pytest.mark.parametrize(("times", "broken"), [(0, []), (1, ["will"])])
def test_the_will_of_a_client_that_left_never_comes(times: int, broken: list[str]) -> None:
    story = _with_will()
    story.leave("short-lived")
    for _ in range(times):
        _will(story)
    assert story.broken() == broken


def test_a_client_may_leave_its_will_behind() -> None:
    story = _with_will()
    story.leave("short-lived", with_will=True)
    assert story.broken() == ["will"]
    _will(story)
    assert story.broken() == []


def test_a_will_does_not_come_while_its_client_is_connected() -> None:
    story = _with_will()
    _will(story)
    assert story.broken() == ["will"]
    story.lose("short-lived")
    assert story.broken() == ["will"]


@pytest.mark.parametrize(("fault", "broken"), [("kill", ["will"]), ("cut", []), ("stop", [])])
def test_a_broker_that_counts_as_down_may_have_its_wills_published_too(
    fault: str, broken: list[str]
) -> None:
    story = _with_will()
    began = story.fault(fault, "two")
    story.lose("short-lived")
    _will(story)
    story.heal(began)
    _will(story)
    assert story.broken() == broken


@pytest.mark.parametrize("fault", ["kill", "cut", "stop", "disk"])
def test_a_will_is_not_lost_in_a_fault(fault: str) -> None:
    story = _with_will()
    began = story.fault(fault, "two")
    story.lose("short-lived")
    story.heal(began)
    assert story.broken() == ["will"]


@pytest.mark.parametrize(("kills", "broken"), [(True, []), (False, ["will"])])
def test_a_will_is_lost_only_if_its_broker_dies_with_a_full_disk(
    *, kills: bool, broken: list[str]
) -> None:
    story = _with_will()
    full = story.fault("disk", "two")
    story.lose("short-lived")
    if kills:
        story.heal(story.fault("kill", "two"), whole=False)
    story.heal(full)
    assert story.broken() == broken


@pytest.mark.parametrize("times", [0, 1])
def test_nobody_knows_about_a_will_whose_connack_was_lost(times: int) -> None:
    story = _with_will(outcome=None)
    story.lose("short-lived")
    for _ in range(times):
        _will(story)
    assert story.broken() == []


# Handles ------------------------------------------------------------------------------------------


def test_a_handle_is_judged() -> None:
    story = _handle()
    story.publish("writer:1", "t/1", 1, to=("handle",))
    assert story.verdict("delivered").judged_by_client == {"handle": 1}


@pytest.mark.parametrize(("qos", "broken"), [(0, []), (1, ["handle"])])
def test_a_handle_that_moves_may_get_qos_0_twice(qos: int, broken: list[str]) -> None:
    story = _handle()
    story.publish("writer:1", "t/1", qos, to=("handle",))
    story.acknowledge("handle", "writer:1")
    story.connect("handle", "two", present=True)
    story.deliver("handle", "writer:1")
    assert story.broken() == broken


def _handle() -> Story:
    story = Story()
    story.connect("handle")
    story.subscribe("handle", "t/#", 1, is_handle=True)
    return story


def test_a_handle_gets_a_message_until_it_acknowledges_it() -> None:
    story = _handle()
    story.publish("writer:1", "t/1", 1, to=("handle", "handle"))
    story.acknowledge("handle", "writer:1")
    assert story.broken() == []
    story.deliver("handle", "writer:1")
    assert story.broken() == ["handle"]


def test_a_handle_loses_nothing() -> None:
    story = _handle()
    story.publish("writer:1", "t/1", 1)
    assert story.broken() == ["delivered"]


def test_a_handle_that_exists_is_not_unknown() -> None:
    story = _handle()
    story.connect("handle", "two", outcome="fail", reason=404)
    assert story.broken() == ["handle"]


# Answers ------------------------------------------------------------------------------------------


def _slow(node: str, seconds: float) -> Story:
    """Return a history with one publication at the broker one, while another one is stopped."""
    story = Story()
    stop = story.fault("stop", node)
    number = story.operate("writer", "one", Publish("writer:1", "t", 1), None)
    story.wait(seconds)
    story.put(Completed(story.now, number, "ok"))
    story.heal(stop)
    return story


@pytest.mark.parametrize(
    ("node", "seconds", "broken"), [("two", 5, []), ("two", 30, ["answered"]), ("one", 30, [])]
)
def test_a_publisher_does_not_wait_for_other_brokers(
    node: str, seconds: float, broken: list[str]
) -> None:
    story = _slow(node, seconds)
    assert story.broken() == broken
    assert story.verdict("answered").judged == (node != "one")


def test_a_publication_that_is_never_answered_breaks_a_promise() -> None:
    story = Story()
    story.publish("writer:1", "t", 1, outcome=None)
    assert story.broken() == []
    story.over()
    assert story.broken() == ["alive"]


# Brokers ------------------------------------------------------------------------------------------


def test_a_broker_that_ends_by_itself_breaks_a_promise() -> None:
    story = Story()
    story.exit("one", -6)
    assert story.broken() == ["alive"]


def test_a_cluster_that_does_not_become_whole_breaks_a_promise() -> None:
    story = Story()
    story.heal(story.fault("cut", "one"), whole=False)
    assert story.broken() == []  # it was interrupted
    story.over()
    assert story.broken() == ["alive"]


def test_a_cluster_that_becomes_whole_is_alive() -> None:
    story = Story()
    story.heal(story.fault("cut", "one"))
    story.over()
    assert story.broken() == []
    assert story.verdict("alive").judged == 1
