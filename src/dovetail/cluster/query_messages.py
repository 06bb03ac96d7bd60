"""The frames of queries, which a node sends to others for HTTP and commands. Pure.

    queried node                                    any other node
      | -- QUERY: number, topic, attributes ------> |
      | <- QUERY_REPLY: the same number, a report - |

Without a topic, a node replies with its NodeReport. DRAIN is a query without a topic, to a matcher:
it replies with its report, hands over and leaves. MOVE has a plan's places in the field for the
topic (matcher/relocation.py): the matcher begins to move, and replies with its report.
"""

import msgspec
from msgspec import Struct

QUERY, QUERY_REPLY, DRAIN, MOVE = range(64, 68)


class NodeQuery(Struct, frozen=True, array_like=True):
    """Asks for the route of a topic with attributes; without a topic, for the node's report."""

    number: int
    topic: bytes
    attributes: dict[str, str] = {}


class QueryReply(Struct, frozen=True, array_like=True):
    number: int
    report: bytes
    """A report of api/reports.py as MessagePack."""


query_decoder = msgspec.msgpack.Decoder(NodeQuery)
query_reply_decoder = msgspec.msgpack.Decoder(QueryReply)
