"""The JSON requests and answers for handles over HTTP, and the protocol that serves them.

A handle names a queue in a broker: messages that match its filters wait there until they are polled
and acknowledged. docs/handles.md has the rules, broker/handle_requests.py implements them, and
web/handle_routes.py speaks HTTP. The OpenAPI document takes its descriptions from here.
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
"""The pattern of a handle in a URL."""

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


class HandleDefinition(Struct, frozen=True, forbid_unknown_fields=True):
    """Asks for a new handle with these subscriptions."""

    filters: Annotated[
        tuple[_Filter, ...],
        Meta(
            min_length=1,
            max_length=HANDLE_FILTERS_MAX,
            description="What to subscribe to. A message that matches several comes once.",
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
            description="The handle and its queue end when no request uses it for this long.",
        ),
    ] = HANDLE_EXPIRY_SECONDS


class HandleSubscription(Struct, frozen=True, omit_defaults=True):
    """A subscription of a handle."""

    filter: str
    where: Annotated[str, Meta(description="The clause that messages have to satisfy.")] = ""


class HandleReport(Struct, frozen=True):
    """A handle, with its subscriptions and its queue."""

    handle: Annotated[
        str,
        Meta(
            pattern=HANDLE_PATTERN,
            description="The user that subscribed may poll with it. Keep it secret.",
        ),
    ]
    subscriptions: tuple[HandleSubscription, ...]
    expiry_seconds: Annotated[
        int, Meta(ge=1, description="As requested, or less if the broker allows less.")
    ]
    queued_messages: Annotated[
        int, Meta(ge=0, description="Messages that are not acknowledged, polled or not.")
    ]


class PollQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query parameters of a poll."""

    wait: Annotated[
        int,
        Meta(
            ge=0,
            le=HANDLE_WAIT_SECONDS_MAX,
            description="Seconds to wait for the first message if there is none. 0: do not wait.",
        ),
    ] = 0
    max: Annotated[
        int,
        Meta(ge=1, le=HANDLE_MESSAGES_MAX, description="Messages in the answer, at most."),
    ] = HANDLE_MESSAGES


class PolledMessage(Struct, frozen=True, omit_defaults=True):
    """One message in the answer to a poll."""

    id: _MessageId
    topic: str
    payload: Annotated[str, Meta(description="The bytes of the message, in the named encoding.")]
    encoding: Annotated[
        Literal["utf-8", "base64"],
        Meta(description="utf-8: the payload is this text. base64: it is other bytes."),
    ]
    qos: Annotated[int, Meta(ge=0, le=2, description="The QoS of the publication.")]
    retain: Annotated[
        bool,
        Meta(description="It is the retained message of its topic, older than the subscription."),
    ]
    duplicate: Annotated[
        bool, Meta(description="It may have been in an earlier answer, under the same id.")
    ]
    user_properties: Annotated[
        tuple[tuple[str, str], ...],
        Meta(description="Names and values in the publisher's order. A name may occur twice."),
    ] = ()
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: Annotated[str | None, Meta(description="In base64.")] = None
    expires_in_seconds: Annotated[
        int | None, Meta(description="The rest of its message expiry interval.")
    ] = None


class PollResult(Struct, frozen=True):
    """The oldest messages that are not acknowledged."""

    messages: tuple[PolledMessage, ...]


class AcknowledgeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Acknowledges messages by their ids."""

    ids: Annotated[tuple[_MessageId, ...], Meta(min_length=1, max_length=HANDLE_IDS_MAX)]


class AcknowledgeResult(Struct, frozen=True):
    """Which messages are acknowledged now."""

    acknowledged: Annotated[
        tuple[int, ...], Meta(description="These will not come again, whatever happens.")
    ]
    unknown: Annotated[
        tuple[int, ...],
        Meta(description="No polled message has these ids; most were acknowledged before."),
    ]


class ErrorBody(Struct, frozen=True):
    """Says why a request was refused."""

    error: Annotated[str, Meta(description="A sentence.")]


class HandleService(Protocol):
    """The requests that a broker serves for handles.

    `user` is the authenticated name; None for an anonymous user. A ClientError says what the user
    did wrong, or why the broker cannot do it now.
    """

    async def subscribe(self, user: str | None, definition: HandleDefinition) -> HandleReport: ...

    async def describe(self, user: str | None, handle: str) -> HandleReport: ...

    async def poll(self, user: str | None, handle: str, query: PollQuery) -> PollResult: ...

    async def acknowledge(
        self, user: str | None, handle: str, ids: tuple[int, ...]
    ) -> AcknowledgeResult: ...

    async def unsubscribe(self, user: str | None, handle: str) -> None: ...
