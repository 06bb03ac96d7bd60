"""The OpenAPI description of subscriptions by handle, generated from the types of api/handles.py.

Schemas, bounds, defaults and descriptions come from those types. The answers of each path are
listed here; a test compares them with those of the server.
"""

from typing import Any

import msgspec

from dovetail import __version__
from dovetail.api.handles import (
    HANDLE_PATTERN,
    AcknowledgeRequest,
    AcknowledgeResult,
    ErrorBody,
    HandleDefinition,
    HandleReport,
    PollQuery,
    PollResult,
)

_TYPES = (
    HandleDefinition,
    HandleReport,
    PollResult,
    AcknowledgeRequest,
    AcknowledgeResult,
    ErrorBody,
)
_FAULTS = {
    400: "The request does not follow this description; the sentence says where.",
    401: "The name or password is wrong, or one is needed.",
    403: "The access rules do not let you subscribe to that, or a web page sent the request.",
    404: "There is no such handle: it never existed, has expired, or belongs to another user.",
    409: "Another request has taken the handle over.",
    413: "The body is too long.",
    415: "The content type of the body is not application/json.",
    429: "Too many wrong passwords came from this address. Try again later (`Retry-After`).",
    503: "A limit is reached, the data folder fails, or a broker stops or is down. Try again.",
}


def _json(kind: type) -> dict[str, Any]:
    return {
        "content": {
            "application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}
        }
    }


def _answers(success: dict[int, dict[str, Any]], *faults: int) -> dict[str, Any]:
    refused = {
        status: {"description": _FAULTS[status], **_json(ErrorBody)}
        for status in sorted({401, 403, *faults, 429, 503})
    }
    return {str(status): answer for status, answer in {**success, **refused}.items()}


def _parameters() -> list[dict[str, Any]]:
    """Return the query parameters of a poll."""
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
                    "summary": "Subscribe. From now on, messages wait for polls.",
                    "requestBody": body | _json(HandleDefinition),
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
                                **_json(HandleReport),
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
                    "summary": "The subscriptions of the handle, and how many messages wait.",
                    "responses": _answers(
                        {200: {"description": "As it is now.", **_json(HandleReport)}}, 404, 409
                    ),
                },
                "delete": {
                    "operationId": "unsubscribe",
                    "summary": "End the handle. Drops waiting messages, and ends a poll under way.",
                    "responses": _answers({204: {"description": "It is gone."}}, 404, 409),
                },
            },
            "/subscriptions/{handle}/messages": {
                "parameters": [{"$ref": "#/components/parameters/handle"}],
                "get": {
                    "operationId": "poll",
                    "summary": "The oldest messages that are not acknowledged; waits for the first "
                    "on request.",
                    "parameters": _parameters(),
                    "responses": _answers(
                        {200: {"description": "Some, or none.", **_json(PollResult)}}, 400, 404, 409
                    ),
                },
            },
            "/subscriptions/{handle}/acknowledgements": {
                "parameters": [{"$ref": "#/components/parameters/handle"}],
                "post": {
                    "operationId": "acknowledge",
                    "summary": "Acknowledge messages, so that they do not come again.",
                    "requestBody": body | _json(AcknowledgeRequest),
                    "responses": _answers(
                        {200: {"description": "Which of them.", **_json(AcknowledgeResult)}},
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
