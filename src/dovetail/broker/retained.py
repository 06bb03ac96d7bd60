"""The retained message of each topic, and the search for those that match a filter. Pure.

A dictionary has the message of each topic. The topics are besides in a tree of their levels, which
only changes when a topic gets its first message or loses its last one. The tree branches only where
topics differ: a branch with one topic is that topic, and levels that all topics below share are one
step. So there are fewer nodes than topics, however deep the topics are.

`walk` may pause between any two steps while the tree changes. So a node never changes its path: a
new node replaces it and takes over its children. A walk that holds the old node still finds every
topic that was there all the time.
"""

from collections.abc import Iterator, Sequence

from dovetail.messages import Message
from dovetail.topics.names import MULTI_LEVEL, SEPARATOR, SINGLE_LEVEL, matches

_FIRST_LEVELS_SEEN = 4
"""If topics have more first levels, `may_match` does not look at them."""


class _TopicNode:
    """A place where topics branch, or where one topic is the beginning of others."""

    __slots__ = ("children", "path", "topic")

    def __init__(
        self,
        path: Sequence[str],
        topic: bytes | None = None,
        children: "_Children | None" = None,
    ) -> None:
        self.path = _joined(path)  # the levels between this node's own level and its children's
        self.topic = topic
        self.children: _Children = {} if children is None else children

    def levels(self) -> list[str]:
        return [] if self.path is None else self.path.split(SEPARATOR)


_Children = dict[str, _TopicNode | bytes]
"""By level. A topic stands alone in its branch, and may have more levels."""


class RetainedMessages:
    """One message per topic. Callers pass valid topics and filters only."""

    def __init__(self) -> None:
        self._messages: dict[bytes, Message] = {}
        self._root: _Children = {}
        self.nbytes = 0
        self.ordinal = 0
        """The ordinal of the message that was put in last."""
        self.lacking_bytes = 0
        """The size of the smallest message that found no room; 0: all did."""

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages.values())

    def get(self, topic: bytes) -> Message | None:
        return self._messages.get(topic)

    def note_lack(self, message: Message) -> None:
        """Note that a message finds no room here. In a cluster it is fetched again later."""
        self.lacking_bytes = min(self.lacking_bytes or message.size, message.size)

    def put(self, message: Message) -> Message | None:
        """Retain this message, and return the one that it replaces."""
        self.ordinal += 1
        message.ordinal = self.ordinal
        self.nbytes += message.size
        before = self._messages.get(message.topic)
        if before is None:
            self._insert(message.topic)
        else:
            message.topic = before.topic  # equal, and in memory once
            self.nbytes -= before.size
        self._messages[message.topic] = message
        return before

    def _insert(self, topic: bytes) -> None:
        levels = _levels(topic)
        children = self._root
        at = 0
        while True:
            level = levels[at]
            child = children.get(level)
            at += 1
            if child is None:
                children[level] = topic
                return
            if isinstance(child, bytes):
                node = _node_above(child, levels, at)
            else:
                node = _node_on_path(child, levels, at)
            if node is not child:
                children[level] = node
            if node.path is not None:
                at += node.path.count(SEPARATOR) + 1
            if at == len(levels):
                node.topic = topic
                return
            children = node.children

    def remove(self, topic: bytes) -> Message | None:
        """Remove and return the message of this topic, with branches that become empty."""
        message = self._messages.pop(topic, None)
        if message is not None:
            self.nbytes -= message.size
            self._delete(topic)
        return message

    def _delete(self, topic: bytes) -> None:
        levels = _levels(topic)
        above: _Children = {}
        children = self._root
        parent: _TopicNode | None = None
        parent_level = ""
        at = 0
        while True:
            level = levels[at]
            child = children[level]
            if isinstance(child, bytes):
                del children[level]
                if parent is not None:
                    _simplify(above, parent_level, parent)
                return
            at += 1 + len(child.levels())
            if at == len(levels):
                child.topic = None
                _simplify(children, level, child)
                return
            above, parent, parent_level = children, child, level
            children = child.children

    def may_match(self, topic_filter: str) -> bool:
        """Return False if the first level of a filter obviously rules out all topics.

        Mostly there are none but those of `$SYS`, and a client subscribes to other topics.
        """
        level = topic_filter.partition(SEPARATOR)[0]
        if level not in {SINGLE_LEVEL, MULTI_LEVEL}:
            return level in self._root
        return len(self._root) > _FIRST_LEVELS_SEEN or any(
            not name.startswith("$") for name in self._root
        )

    def match(self, topic_filter: str) -> Iterator[Message]:
        """Yield the messages whose topics match this filter (not a shared one)."""
        return (message for message in self.walk(topic_filter) if message is not None)

    def walk(self, topic_filter: str) -> Iterator[Message | None]:
        """Yield matching messages, and None for each step without one, so that callers can pause.

        Messages may come and go between two steps.
        """
        get = self._messages.get
        levels = topic_filter.split(SEPARATOR)
        stack: list[tuple[_Children, int]] = [(self._root, 0)]
        while stack:
            children, at = stack.pop()
            for child in _matching_children(children, levels[at], first=not at):
                if isinstance(child, bytes):
                    yield get(child) if matches(topic_filter, child.decode()) else None
                    continue
                yield None
                # "#" is the last level, and matches the parent level too.
                end = (
                    at
                    if levels[at] == MULTI_LEVEL
                    else _match_levels(levels, at + 1, child.levels())
                )
                if end is None:
                    continue
                if end < len(levels) and levels[end] == MULTI_LEVEL:
                    for topic in _topics_below(child):
                        yield get(topic)
                elif end < len(levels):
                    stack.append((child.children, end))
                elif child.topic is not None:
                    yield get(child.topic)


def _levels(topic: bytes) -> list[str]:
    return topic.decode().split(SEPARATOR)


def _joined(path: Sequence[str]) -> str | None:
    """Join levels to one text, which takes less memory; None if there are none.

    An empty text is a path of one empty level.
    """
    return SEPARATOR.join(path) if path else None


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the number of leading levels that both share."""
    count = 0
    for level, other_level in zip(one, other, strict=False):
        if level != other_level:
            break
        count += 1
    return count


def _node_above(topic: bytes, levels: list[str], at: int) -> _TopicNode:
    """Return a node where `topic` and `levels` branch, from level `at` on."""
    other = _levels(topic)
    end = at + _common(other[at:], levels[at:])
    node = _TopicNode(other[at:end])
    if end == len(other):
        node.topic = topic
    else:
        node.children[other[end]] = topic
    return node


def _node_on_path(node: _TopicNode, levels: list[str], at: int) -> _TopicNode:
    """Return the node itself if `levels` pass through it, or a new one above it."""
    if node.path is None:
        return node
    path = node.levels()
    shared = _common(path, levels[at:])
    if shared == len(path):
        return node
    above = _TopicNode(path[:shared])
    above.children[path[shared]] = _TopicNode(path[shared + 1 :], node.topic, node.children)
    return above


def _simplify(children: _Children, level: str, node: _TopicNode) -> None:
    """Replace a node that lost a topic, if it no longer branches."""
    if len(node.children) > 1 or (node.children and node.topic is not None):
        return
    if node.topic is not None:
        children[level] = node.topic
        return
    ((next_level, child),) = node.children.items()
    if isinstance(child, _TopicNode):
        path = [*node.levels(), next_level, *child.levels()]
        child = _TopicNode(path, child.topic, child.children)
    children[level] = child


def _matching_children(
    children: _Children, level: str, *, first: bool
) -> Iterator[_TopicNode | bytes]:
    """Yield the children that a level of a filter matches."""
    if level not in {SINGLE_LEVEL, MULTI_LEVEL}:
        child = children.get(level)
        if child is not None:
            yield child
        return
    for name, child in list(children.items()):
        if not (first and name.startswith("$")):  # [MQTT-4.7.2-1]
            yield child


def _match_levels(levels: list[str], at: int, path: list[str]) -> int | None:
    """Return the position in a filter's levels behind `path`, or None without a match."""
    for name in path:
        if at == len(levels):
            return None
        level = levels[at]
        if level == MULTI_LEVEL:
            return at
        if level not in {SINGLE_LEVEL, name}:
            return None
        at += 1
    return at


def _topics_below(top: _TopicNode) -> Iterator[bytes]:
    """Yield all topics of a branch."""
    stack: list[_TopicNode | bytes] = [top]
    while stack:
        one = stack.pop()
        if isinstance(one, bytes):
            yield one
            continue
        if one.topic is not None:
            yield one.topic
        stack += one.children.values()
