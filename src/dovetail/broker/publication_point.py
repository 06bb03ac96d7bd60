"""A publication as a point of its space: user properties, and fields of a JSON payload. Pure."""

from dovetail.attributes.space import Point, Space
from dovetail.attributes.space_registry import point_with
from dovetail.codec.properties import user_properties
from dovetail.messages import Message


def point_of(space: Space, message: Message) -> Point | None:
    """Return a publication as a point of its space, or None if it has no attributes there.

    Raise ClientError if an attribute cannot be read.
    """
    attributes = dict(user_properties(message.properties)) if message.properties else {}
    if space.json_fields:
        attributes = {**space.json_attributes(message.payload), **attributes}
    return point_with(space, attributes) if attributes else None
