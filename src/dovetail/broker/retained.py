"""The retained message of each topic, and the search for those that match a filter. Pure.

The messages are in a tree of topic levels. It branches only where topics differ: a branch with one
topic is its message, and levels that all topics below share are one step. So there are fewer nodes
than messages, however deep the topics are.

`walk` may pause between any two steps while the tree changes. So a node never changes its path: a
new node replaces it and takes over its children. A walk that holds the old node still finds every
message that was there all the time.
"""

from collections.abc import Iterator, Sequence

from dovetail.messages import Message
from dovetail.topics.names import MULTI_LEVEL, SEPARATOR, SINGLE_LEVEL, matches


class _TopicNode:
    """A place where topics branch, or where one topic is the beginning of others."""

    __slots__ = ("children", "message", "path")

    def __init__(
        self,
        path: Sequence[str],
        message: Message | None = None,
        children: "_Children | None" = None,
    ) -> None:
        self.path = _joined(path)  # the levels between this node's own level and its children's
        self.message = message
        self.children: _Children = {} if children is None else children

    def levels(self) -> list[str]:
        return [] if self.path is None else self.path.split(SEPARATOR)


_Children = dict[str, _TopicNode | Message]
"""By level. A message stands alone in its branch, and its topic may have more levels."""


class RetainedMessages:
    """One message per topic. Callers pass valid topics and filters only."""

    def __init__(self) -> None:
        self._root: _Children = {}
        self._count = 0
        self.nbytes = 0
        self.ordinal = 0
        """The ordinal of the message that was put in last."""
        self.changes = 0
        """Rises whenever a message comes or goes."""
        self.lacking_bytes = 0
        """The size of the smallest message that found no room; 0: all did."""

    def __len__(self) -> int:
        return self._count

    def get(self, topic: bytes) -> Message | None:
        levels = _levels(topic)
        children = self._root
        at = 0
        while True:
            child = children.get(levels[at])
            if not isinstance(child, _TopicNode):
                return child if child is not None and child.topic == topic else None
            path = child.levels()
            at += 1 + len(path)
            if levels[at - len(path) : at] != path:
                return None
            if at == len(levels):
                return child.message
            children = child.children

    def note_lack(self, message: Message) -> None:
        """Note that a message finds no room here. In a cluster it is fetched again later."""
        self.lacking_bytes = min(self.lacking_bytes or message.size, message.size)

    def put(self, message: Message) -> Message | None:
        """Retain this message, and return the one that it replaces."""
        self.ordinal += 1
        self.changes += 1
        message.ordinal = self.ordinal
        before = self._put(message, _levels(message.topic))
        self.nbytes += message.size
        if before is None:
            self._count += 1
        else:
            self.nbytes -= before.size
        return before

    def _put(self, message: Message, levels: list[str]) -> Message | None:
        children = self._root
        at = 0
        while True:
            level = levels[at]
            child = children.get(level)
            at += 1
            if child is None:
                children[level] = message
                return None
            if isinstance(child, Message):
                if child.topic == message.topic:
                    children[level] = message
                    return child
                node = _node_above(child, levels, at)
            else:
                node = _node_on_path(child, levels, at)
            if node is not child:
                children[level] = node
            at += len(node.levels())
            if at == len(levels):
                before, node.message = node.message, message
                return before
            children = node.children

    def remove(self, topic: bytes) -> Message | None:
        """Remove and return the message of this topic, with branches that become empty."""
        levels = _levels(topic)
        above: _Children = {}
        children = self._root
        parent: _TopicNode | None = None
        parent_level = ""
        at = 0
        while True:
            level = levels[at]
            child = children.get(level)
            if child is None or isinstance(child, Message):
                if child is None or child.topic != topic:
                    return None
                del children[level]
                if parent is not None:
                    _simplify(above, parent_level, parent)
                return self._removed(child)
            path = child.levels()
            at += 1 + len(path)
            if levels[at - len(path) : at] != path:
                return None
            if at == len(levels):
                message, child.message = child.message, None
                if message is None:
                    return None
                _simplify(children, level, child)
                return self._removed(message)
            above, parent, parent_level = children, child, level
            children = child.children

    def _removed(self, message: Message) -> Message:
        self.changes += 1
        self._count -= 1
        self.nbytes -= message.size
        return message

    def match(self, topic_filter: str) -> Iterator[Message]:
        """Yield the messages whose topics match this filter (not a shared one)."""
        return (message for message in self.walk(topic_filter) if message is not None)

    def walk(self, topic_filter: str) -> Iterator[Message | None]:
        """Yield matching messages, and None for each step without one, so that callers can pause.

        The tree may change between two steps. A message that was removed meanwhile may still come.
        """
        levels = topic_filter.split(SEPARATOR)
        stack: list[tuple[_Children, int]] = [(self._root, 0)]
        while stack:
            children, at = stack.pop()
            for child in _matching_children(children, levels[at], first=not at):
                if isinstance(child, Message):
                    yield child if matches(topic_filter, child.topic.decode()) else None
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
                    yield from _messages_below(child)
                elif end < len(levels):
                    stack.append((child.children, end))
                elif child.message is not None:
                    yield child.message

    def __iter__(self) -> Iterator[Message]:
        for child in self._root.values():
            yield from _messages_below(child)


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


def _node_above(message: Message, levels: list[str], at: int) -> _TopicNode:
    """Return a node where the message's topic and `levels` branch, from level `at` on."""
    other = _levels(message.topic)
    end = at + _common(other[at:], levels[at:])
    node = _TopicNode(other[at:end])
    if end == len(other):
        node.message = message
    else:
        node.children[other[end]] = message
    return node


def _node_on_path(node: _TopicNode, levels: list[str], at: int) -> _TopicNode:
    """Return the node itself if `levels` pass through it, or a new one above it."""
    path = node.levels()
    shared = _common(path, levels[at:])
    if shared == len(path):
        return node
    above = _TopicNode(path[:shared])
    above.children[path[shared]] = _TopicNode(path[shared + 1 :], node.message, node.children)
    return above


def _simplify(children: _Children, level: str, node: _TopicNode) -> None:
    """Replace a node that lost a message, if it no longer branches."""
    if len(node.children) > 1 or (node.children and node.message is not None):
        return
    if node.message is not None:
        children[level] = node.message
        return
    ((next_level, child),) = node.children.items()
    if isinstance(child, _TopicNode):
        path = [*node.levels(), next_level, *child.levels()]
        child = _TopicNode(path, child.message, child.children)
    children[level] = child


def _matching_children(
    children: _Children, level: str, *, first: bool
) -> Iterator[_TopicNode | Message]:
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


def _messages_below(top: _TopicNode | Message) -> Iterator[Message]:
    """Yield all messages of a branch."""
    stack = [top]
    while stack:
        one = stack.pop()
        if isinstance(one, Message):
            yield one
            continue
        if one.message is not None:
            yield one.message
        stack += one.children.values()
