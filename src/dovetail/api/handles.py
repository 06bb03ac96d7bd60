"""What is asked of handles over HTTP, and answered: data as JSON has it, and who does it.

A handle names a queue in a broker: messages that its filters match wait there until they are
polled and acknowledged. docs/handles.md has the rules, broker/handle_requests.py does it, and
web/handle_routes.py speaks HTTP. The descriptions here are those of the OpenAPI document.
"""

from typing import Annotated, Literal, Protocol

from msgspec import Meta, Struct

from dovetail.api.limits import (
    HANDLE_EXPIRY_SECONDS,
    HANDLE_EXPIRY_SECONDS_MAX,
    HANDLE_FILTERS_MAX,
    HANDLE_IDS_MAX,
    HANDLE_MESSAGES,
    HANDLE_MESSAGES_MAX,
    HANDLE_WAIT_SECONDS_MAX,
)
from dovetail.limits import TOPIC_BYTES_MAX, WHERE_CHARACTERS_MAX

HANDLE_PATTERN = "^[A-Za-z0-9_-]{40}$"
"""Of a handle, as it stands in a URL."""

_Filter = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=TOPIC_BYTES_MAX,
        description="A topic filter of MQTT, with + and #; or a shared one, $share/group/filter; "
        "with ?query behind it in topics that a space governs.",
    ),
]
_MessageId = Annotated[
    int,
    Meta(
        ge=1,
        le=65_535,
        description="Names the message until it is acknowledged; later another one may have it.",
    ),
]


class Order(Struct, frozen=True, forbid_unknown_fields=True):
    """A subscription that is wanted."""

    filters: Annotated[
        tuple[_Filter, ...],
        Meta(
            min_length=1,
            max_length=HANDLE_FILTERS_MAX,
            description="What to subscribe to. A message that several match comes once.",
        ),
    ]
    where: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=WHERE_CHARACTERS_MAX,
                description="A where-clause over the attributes of messages, for all the filters.",
            ),
        ]
        | None
    ) = None
    expiry_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=HANDLE_EXPIRY_SECONDS_MAX,
            description="The handle and its queue are gone when nobody has asked for it so long.",
        ),
    ] = HANDLE_EXPIRY_SECONDS


class Wanted(Struct, frozen=True, omit_defaults=True):
    """A filter of a handle."""

    filter: str
    where: Annotated[str, Meta(description="The clause that messages have to satisfy.")] = ""


class Subscription(Struct, frozen=True):
    """A handle, and what it stands for."""

    handle: Annotated[
        str,
        Meta(
            pattern=HANDLE_PATTERN,
            description="Who knows it, and is the user that subscribed, may poll. Keep it secret.",
        ),
    ]
    subscriptions: tuple[Wanted, ...]
    expiry_seconds: Annotated[
        int, Meta(ge=1, description="As ordered, or less if the broker allows less.")
    ]
    queued_messages: Annotated[
        int, Meta(ge=0, description="Messages that are not acknowledged, polled or not.")
    ]


class PollQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """What stands behind the `?` of a poll."""

    wait: Annotated[
        int,
        Meta(
            ge=0,
            le=HANDLE_WAIT_SECONDS_MAX,
            description="Seconds to wait for the first message if there is none. 0: not at all.",
        ),
    ] = 0
    max: Annotated[
        int,
        Meta(ge=1, le=HANDLE_MESSAGES_MAX, description="Messages in the answer, at most."),
    ] = HANDLE_MESSAGES


class PolledMessage(Struct, frozen=True, omit_defaults=True):
    """A message, as it is polled."""

    id: _MessageId
    topic: str
    payload: Annotated[str, Meta(description="The bytes of the message, in the named encoding.")]
    encoding: Annotated[
        Literal["utf-8", "base64"],
        Meta(description="utf-8: the payload is text, as it is. base64: it is other bytes."),
    ]
    qos: Annotated[int, Meta(ge=0, le=2, description="At which it was published.")]
    retain: Annotated[
        bool,
        Meta(description="It was there before the subscription: the last word on its topic."),
    ]
    duplicate: Annotated[
        bool, Meta(description="It may have been in an earlier answer, under the same id.")
    ]
    user_properties: Annotated[
        tuple[tuple[str, str], ...],
        Meta(description="Names and values in the publisher's order. A name may be there twice."),
    ] = ()
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: Annotated[str | None, Meta(description="In base64.")] = None
    expires_in_seconds: Annotated[
        int | None, Meta(description="What is left of the time that the publisher gave it.")
    ] = None


class Polled(Struct, frozen=True):
    """The oldest messages that are not acknowledged."""

    messages: tuple[PolledMessage, ...]


class Acknowledgements(Struct, frozen=True, forbid_unknown_fields=True):
    """Messages that are done with."""

    ids: Annotated[tuple[_MessageId, ...], Meta(min_length=1, max_length=HANDLE_IDS_MAX)]


class Acknowledged(Struct, frozen=True):
    """What became of it."""

    acknowledged: Annotated[
        tuple[int, ...], Meta(description="These will not come again, whatever happens.")
    ]
    unknown: Annotated[
        tuple[int, ...],
        Meta(description="These name no message that was polled; acknowledged before, mostly."),
    ]


class Fault(Struct, frozen=True):
    """Why a request was refused."""

    error: Annotated[str, Meta(description="A sentence.")]


class Handles(Protocol):
    """Who does it. Users come with the name that they have proven; None: without one.

    A ClientError says what a user did wrong, or what stands in the way.
    """

    async def subscribe(self, user: str | None, order: Order) -> Subscription: ...

    async def describe(self, user: str | None, handle: str) -> Subscription: ...

    async def poll(self, user: str | None, handle: str, query: PollQuery) -> Polled: ...

    async def acknowledge(
        self, user: str | None, handle: str, ids: tuple[int, ...]
    ) -> Acknowledged: ...

    async def unsubscribe(self, user: str | None, handle: str) -> None: ...
