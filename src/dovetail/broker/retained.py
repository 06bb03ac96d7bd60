"""Retained messages: the last word on each topic, and which of them a filter asks for. Pure.

A tree of levels as nested dicts: a filter walks it as a topic walks the trie of filters, the other
way round. The message of a node lies under the key None, which no level can be.
"""

from collections.abc import Iterator
from typing import Any

from dovetail.messages import Message

_Node = dict[str | None, Any]  # level -> _Node; None -> Message


class RetainedMessages:
    """One message a topic. Topics and filters are valid ones."""

    def __init__(self) -> None:
        self._root: _Node = {}
        self._count = 0
        self.nbytes = 0

    def __len__(self) -> int:
        return self._count

    def get(self, topic: bytes) -> Message | None:
        node = self._root
        for level in topic.decode().split("/"):
            found = node.get(level)
            if found is None:
                return None
            node = found
        return node.get(None)

    def put(self, message: Message) -> Message | None:
        """Keep this one; returns the one it replaces."""
        node = self._root
        for level in message.topic.decode().split("/"):
            node = node.setdefault(level, {})
        before: Message | None = node.get(None)
        node[None] = message
        self.nbytes += message.size
        if before is None:
            self._count += 1
        else:
            self.nbytes -= before.size
        return before

    def remove(self, topic: bytes) -> Message | None:
        """Returns what was there; branches without messages go too."""
        path: list[tuple[_Node, str]] = []
        node = self._root
        for level in topic.decode().split("/"):
            if level not in node:
                return None
            path.append((node, level))
            node = node[level]
        message: Message | None = node.pop(None, None)
        if message is None:
            return None
        self._count -= 1
        self.nbytes -= message.size
        while path and not node:
            parent, level = path.pop()
            del parent[level]
            node = parent
        return message

    def match(self, topic_filter: str) -> Iterator[Message]:
        """Messages on topics that this (not shared) filter matches, without recursion."""
        levels = topic_filter.split("/")
        last = len(levels)
        stack: list[tuple[_Node, int]] = [(self._root, 0)]
        while stack:
            node, at = stack.pop()
            if at == last:
                if None in node:
                    yield node[None]
                continue
            level = levels[at]
            if level == "#":  # the last level; it stands for its parent too
                yield from _below(node, reserved=at > 0)
            elif level == "+":
                for name, child in node.items():
                    # [MQTT-4.7.2-1]
                    if name is not None and (at > 0 or not name.startswith("$")):
                        stack.append((child, at + 1))
            elif level in node:
                stack.append((node[level], at + 1))

    def __iter__(self) -> Iterator[Message]:
        return _below(self._root, reserved=True)


def _below(top: _Node, *, reserved: bool) -> Iterator[Message]:
    """All messages in a branch; `reserved`: also those whose first level begins with `$`."""
    if None in top:
        yield top[None]
    stack = [
        child
        for name, child in top.items()
        if name is not None and (reserved or not name.startswith("$"))
    ]
    while stack:
        node = stack.pop()
        for name, child in node.items():
            if name is None:
                yield child
            else:
                stack.append(child)
