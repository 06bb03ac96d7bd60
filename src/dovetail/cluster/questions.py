"""Questions of people, which one node passes on to others, as frames. Pure.

    asked                                           any other node
      | -- QUESTION: number, about what ----------> |
      | <- ANSWER: the same number, a report ------ |

Without a topic a node tells how it is. DRAIN is a question without a topic too, to a matcher: it is
to hand over and leave, and tells how it is before it does.
"""

import msgspec
from msgspec import Struct

QUESTION, ANSWER, DRAIN = range(64, 67)


class Question(Struct, frozen=True, array_like=True):
    """Where does this topic lead, with these attributes; empty: how are you?"""

    number: int
    topic: bytes
    attributes: dict[str, str] = {}


class Answer(Struct, frozen=True, array_like=True):
    number: int
    report: bytes
    """As reports.py has it."""


question_decoder = msgspec.msgpack.Decoder(Question)
answer_decoder = msgspec.msgpack.Decoder(Answer)
