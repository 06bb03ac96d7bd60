"""The promises, by short name, with their texts and pages of the documentation. Pure.

docs/reliability.md lists the same promises. A test compares the two.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Promise:
    name: str
    text: str
    page: str
    """The page that makes it."""
    checker: str
    """The module below checker/ that judges it."""
    is_eventual: bool = False
    """It can be judged only after a complete run."""


DELIVERED = Promise(
    "delivered",
    "A publication at QoS 1 or 2 that a broker acknowledged reaches every subscription that was "
    "established before, at any broker.",
    "docs/cluster.md",
    "loss",
    is_eventual=True,
)
ONCE = Promise(
    "once",
    "A message at QoS 2 reaches a subscriber once.",
    "docs/cluster.md",
    "repetition",
)
REPEATED = Promise(
    "repeated",
    "A message at QoS 0 is not repeated, and one at QoS 1 only after a fault, a reconnection or a "
    "publisher that sent it again.",
    "docs/cluster.md",
    "repetition",
)
ORDER = Promise(
    "order",
    "A subscriber gets the messages of one publisher on one topic, at one QoS, in the order in "
    "which they were published.",
    "docs/cluster.md",
    "order",
)
RECEIVER = Promise(
    "receiver",
    "A client gets only what one of its subscriptions matches by topic filter, where-clause and no "
    "local, and nothing that was published after it unsubscribed.",
    "docs/cluster.md",
    "receiver",
)
CONTENT = Promise(
    "content",
    "A message arrives with the topic, payload and QoS that it has to have, and after it was "
    "published.",
    "docs/cluster.md",
    "receiver",
)
GROUP = Promise(
    "group",
    "A shared subscription gives each acknowledged message to one member in the cluster: at QoS 2 "
    "once, at QoS 1 at least once.",
    "docs/cluster.md",
    "group",
    is_eventual=True,
)
SESSION = Promise(
    "session",
    "A client that connects at another broker finds its session there, while its last broker is up "
    "and can be reached.",
    "docs/cluster.md",
    "session",
)
RETAINED = Promise(
    "retained",
    "All brokers retain the same message on a topic, once the cluster is whole.",
    "docs/cluster.md",
    "retained",
    is_eventual=True,
)
LATEST = Promise(
    "latest",
    "Of two retained messages on a topic the later one stays.",
    "docs/cluster.md",
    "retained",
    is_eventual=True,
)
WILL = Promise(
    "will",
    "The will of a client whose connection is lost is published once, though its broker dies; the "
    "will of a client that leaves is not published.",
    "docs/cluster.md",
    "will",
    is_eventual=True,
)
HANDLE = Promise(
    "handle",
    "A message that a handle acknowledged does not come again, and a handle that exists is not "
    "called unknown.",
    "docs/handles.md",
    "handle",
)
ANSWERED = Promise(
    "answered",
    "Publishers are answered though other brokers hang, are down or are cut off: a broker waits "
    "5 s for one that is silent.",
    "docs/cluster.md",
    "answer",
)
ALIVE = Promise(
    "alive",
    "A broker ends only when it is told to, and the cluster becomes whole after every fault.",
    "docs/cluster.md",
    "recovery",
)

PROMISES = (
    DELIVERED,
    ONCE,
    REPEATED,
    ORDER,
    RECEIVER,
    CONTENT,
    GROUP,
    SESSION,
    RETAINED,
    LATEST,
    WILL,
    HANDLE,
    ANSWERED,
    ALIVE,
)
