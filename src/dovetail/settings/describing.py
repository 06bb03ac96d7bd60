"""How a field of the tree is described: what it is for, and within which bounds it may lie."""

from msgspec import Meta


def about(description: str) -> Meta:
    return Meta(description=description)


def number(low: float, high: float, description: str) -> Meta:
    return Meta(ge=low, le=high, description=description)
