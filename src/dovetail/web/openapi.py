"""The OpenAPI description of subscriptions by handle, made of the types that the code reads with.

Schemas, bounds, defaults and descriptions are those of api/handles.py. What a path answers
with is said here, and a test holds it against what the server does.
"""

from typing import Any

import msgspec

from dovetail import __version__
from dovetail.api.handles import (
    HANDLE_PATTERN,
    Acknowledged,
    Acknowledgements,
    Fault,
    Order,
    Polled,
    PollQuery,
    Subscription,
)

_TYPES = (Order, Subscription, Polled, Acknowledgements, Acknowledged, Fault)
_FAULTS = {
    400: "The request is not what is described here; the sentence says where.",
    401: "The name or password is wrong, or one is needed.",
    403: "The access rules do not let you subscribe to that, or a web page asks.",
    404: "There is no such handle: it is unknown, gone, or another user's.",
    409: "Another request has taken the handle over.",
    413: "The body is too long.",
    415: "The body is not called application/json.",
    429: "Too many wrong passwords came from this address. Try again later (`Retry-After`).",
    503: "Not now: a limit is met, the data folder fails, a broker stops or is away. Try again.",
}


def _json(kind: type) -> dict[str, Any]:
    return {
        "content": {
            "application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}
        }
    }


def _answers(success: dict[int, dict[str, Any]], *faults: int) -> dict[str, Any]:
    refused = {
        status: {"description": _FAULTS[status], **_json(Fault)}
        for status in sorted({401, 403, *faults, 429, 503})
    }
    return {str(status): answer for status, answer in {**success, **refused}.items()}


def _parameters() -> list[dict[str, Any]]:
    """Of a poll."""
    _, components = msgspec.json.schema_components([PollQuery])
    properties = components[PollQuery.__name__]["properties"]
    return [
        {
            "name": name,
            "in": "query",
            "description": schema.pop("description"),
            "required": False,
            "schema": schema,
        }
        for name, schema in properties.items()
    ]


def _document() -> dict[str, Any]:
    _, schemas = msgspec.json.schema_components(_TYPES, ref_template="#/components/schemas/{name}")
    body = {"required": True}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Dovetail: subscriptions by handle",
            "version": __version__,
            "description": "Subscribe, poll and acknowledge messages of an MQTT broker over HTTP. "
            "What was polled comes again until it is acknowledged.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"basic": []}, {}],
        "paths": {
            "/subscriptions": {
                "post": {
                    "operationId": "subscribe",
                    "summary": "Subscribe; messages wait from now on.",
                    "requestBody": body | _json(Order),
                    "responses": _answers(
                        {
                            201: {
                                "description": "The handle.",
                                "headers": {
                                    "Location": {
                                        "description": "Its path.",
                                        "schema": {"type": "string"},
                                    }
                                },
                                **_json(Subscription),
                            }
                        },
                        400,
                        413,
                        415,
                    ),
                }
            },
            "/subscriptions/{handle}": {
                "parameters": [{"$ref": "#/components/parameters/handle"}],
                "get": {
                    "operationId": "describe",
                    "summary": "What the handle stands for, and how much waits.",
                    "responses": _answers(
                        {200: {"description": "As it is now.", **_json(Subscription)}}, 404, 409
                    ),
                },
                "delete": {
                    "operationId": "unsubscribe",
                    "summary": "End it. What waits is dropped, and a poll under way ends.",
                    "responses": _answers({204: {"description": "It is gone."}}, 404, 409),
                },
            },
            "/subscriptions/{handle}/messages": {
                "parameters": [{"$ref": "#/components/parameters/handle"}],
                "get": {
                    "operationId": "poll",
                    "summary": "The oldest messages that are not acknowledged; waits for the first "
                    "if it is told to.",
                    "parameters": _parameters(),
                    "responses": _answers(
                        {200: {"description": "Some, or none.", **_json(Polled)}}, 400, 404, 409
                    ),
                },
            },
            "/subscriptions/{handle}/acknowledgements": {
                "parameters": [{"$ref": "#/components/parameters/handle"}],
                "post": {
                    "operationId": "acknowledge",
                    "summary": "Messages are done with, and do not come again.",
                    "requestBody": body | _json(Acknowledgements),
                    "responses": _answers(
                        {200: {"description": "Which of them.", **_json(Acknowledged)}},
                        400,
                        404,
                        409,
                        413,
                        415,
                    ),
                },
            },
        },
        "components": {
            "schemas": schemas,
            "parameters": {
                "handle": {
                    "name": "handle",
                    "in": "path",
                    "required": True,
                    "schema": {"type": "string", "pattern": HANDLE_PATTERN},
                }
            },
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
    }


DOCUMENT = msgspec.json.encode(_document())
