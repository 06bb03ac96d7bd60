"""Questions of people, which one node passes on to others, as frames. Pure.

    asked                                           any other node
      | -- QUESTION: number, about what ----------> |
      | <- ANSWER: the same number, a report ------ |

Without a topic a node tells how it is.
"""

import msgspec
from msgspec import Struct

from dovetail.errors import PeerError

QUESTION, ANSWER = range(64, 66)


class Question(Struct, frozen=True, array_like=True):
    """Where does this topic lead; empty: how are you?"""

    number: int
    topic: bytes


class Answer(Struct, frozen=True, array_like=True):
    number: int
    report: bytes
    """As reports.py has it."""


encode = msgspec.msgpack.Encoder().encode

_question_decoder = msgspec.msgpack.Decoder(Question)
_answer_decoder = msgspec.msgpack.Decoder(Answer)


def decode_question(body: bytes) -> Question:
    try:
        return _question_decoder.decode(body)
    except msgspec.DecodeError as error:
        raise PeerError(f"a question that cannot be read: {error}") from error


def decode_answer(body: bytes) -> Answer:
    try:
        return _answer_decoder.decode(body)
    except msgspec.DecodeError as error:
        raise PeerError(f"an answer that cannot be read: {error}") from error
