"""Publications as points of their space: user properties, and fields of a JSON payload. Pure.

A run of publications is read by a kernel, which leaves what is unusual to `point_of`.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.attributes.space import Point, Space
from dovetail.attributes.space_registry import point_with
from dovetail.broker.kernels.points import read_points
from dovetail.codec.limits import USER_PROPERTIES_MAX
from dovetail.codec.properties import user_properties
from dovetail.codec.run import Flags, Numbers, Run
from dovetail.errors import ClientError
from dovetail.messages import Message


def point_of(space: Space, message: Message) -> Point | None:
    """Return a publication as a point of its space, or None if it has no attributes there.

    Raise ClientError if an attribute cannot be read.
    """
    attributes = dict(user_properties(message.properties)) if message.properties else {}
    if space.json_fields:
        attributes = {**space.json_attributes(message.payload), **attributes}
    return point_with(space, attributes) if attributes else None


class Attributes(NamedTuple):
    """The attributes of a publication, as far as they can be read."""

    point: Point | None = None
    """None: no clause can hold."""
    fault: ClientError | None = None
    """Why they cannot be read."""


NO_ATTRIBUTES = Attributes()


class RunPoints(NamedTuple):
    """The points of a run: a row of values for each publication."""

    starts: Numbers
    """Where each packet begins in the run; behind them the end of the last."""
    values: npt.NDArray[np.float64]
    known: Flags
    """Which publications have attributes."""


def points_of(space: Space, run: Run) -> RunPoints | None:
    """Return a run as points of its space, or None if `point_of` has to read one of them."""
    names, name_ends = space.names_column
    dimensions = len(space.dimensions)
    points = RunPoints(
        np.empty(run.packets + 1, np.int64),
        np.empty((run.packets, dimensions)),
        np.empty(run.packets, np.uint8),
    )
    is_read = read_points(
        np.frombuffer(run.data, np.uint8),
        run.version,
        run.qos,
        names,
        name_ends,
        dimensions,
        space.json_fields,
        USER_PROPERTIES_MAX,
        points.starts,
        points.values.reshape(-1),
        points.known,
    )
    return points if is_read else None
