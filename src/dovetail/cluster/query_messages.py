"""Questions of people, which one node passes on to others, as frames. Pure.

    asked                                           any other node
      | -- QUESTION: number, about what ----------> |
      | <- ANSWER: the same number, a report ------ |

Without a topic a node tells how it is. DRAIN is a question without a topic too, to a matcher: it is
to hand over and leave, and tells how it is before it does. MOVE has in the topic's place where
matchers shall be (matcher/relocation.py); who is one of them goes there, and tells how it is then.
"""

import msgspec
from msgspec import Struct

QUESTION, ANSWER, DRAIN, MOVE = range(64, 68)


class Question(Struct, frozen=True, array_like=True):
    """Where does this topic lead, with these attributes; empty: how are you?"""

    number: int
    topic: bytes
    attributes: dict[str, str] = {}


class Answer(Struct, frozen=True, array_like=True):
    number: int
    report: bytes
    """As api/reports.py has it."""


question_decoder = msgspec.msgpack.Decoder(Question)
answer_decoder = msgspec.msgpack.Decoder(Answer)
