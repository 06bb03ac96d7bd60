"""The hashes of topics in plain Python, written from the descriptions of the kernels."""

from dovetail.topics.kernels import hashing

_MASK = (1 << 64) - 1


def fold_multiply(left: int, right: int) -> int:
    product = left * right
    return (product >> 64) ^ (product & _MASK)


def level_hash(level: bytes, seed: int) -> int:
    first = seed ^ int(hashing._START)
    second = (seed * int(hashing._STEP) & _MASK) ^ int(hashing._LENGTH) ^ len(level)
    if len(level) < 8:
        return fold_multiply(_number(level) ^ first, second)
    state = first
    for i in range(0, len(level) - 16, 16):
        left, right = _number(level[i : i + 8]), _number(level[i + 8 : i + 16])
        state = fold_multiply(left ^ state, right ^ int(hashing._BLOCK))
    first_word = level[:8] if len(level) <= 16 else level[-16:-8]
    return fold_multiply(_number(first_word) ^ state, _number(level[-8:]) ^ second)


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")


def child(node: int, level: int) -> int:
    return fold_multiply(node ^ level ^ int(hashing._TURN), int(hashing._STEP))


def node_of(levels: list[bytes], seed: int) -> int:
    """The hash of a filter's prefix."""
    wildcards = {b"+": int(hashing.SINGLE_LEVEL), b"#": int(hashing.MULTI_LEVEL)}
    node = int(hashing.ROOT)
    for level in levels:
        node = child(node, wildcards.get(level, level_hash(level, seed)))
    return node
