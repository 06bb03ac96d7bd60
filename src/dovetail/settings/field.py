"""Annotations of a field of the settings: its description, bounds and example."""

from msgspec import Meta


def describe(description: str, example: object = None) -> Meta:
    """Describe a field. `example`: a possible value, if the default does not show one."""
    return Meta(description=description, examples=None if example is None else [example])


def bounded(low: float, high: float, description: str) -> Meta:
    """Describe a number and its bounds, both inclusive."""
    return Meta(ge=low, le=high, description=description)
