"""How a field of the tree is described: what it is for, and within which bounds it may lie."""

from msgspec import Meta


def about(description: str, example: object = None) -> Meta:
    """`example`: shows what the field could hold, where its default does not."""
    return Meta(description=description, examples=None if example is None else [example])


def number(low: float, high: float, description: str) -> Meta:
    return Meta(ge=low, le=high, description=description)
