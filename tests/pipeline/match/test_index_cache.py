"""Which indexes a worker builds, and which it keeps."""

from dovetail.pipeline.match.index_cache import IndexCache


class Builder:
    """Builds an index from its digest, and remembers what it has built."""

    def __init__(self) -> None:
        self.built: list[str] = []

    def get(self, cache: IndexCache[str], digest: str) -> str:
        def build() -> str:
            self.built.append(digest)
            return f"index of {digest}"

        return cache.get(digest, build)


def test_an_index_is_built_once() -> None:
    cache: IndexCache[str] = IndexCache(2)
    builder = Builder()
    assert [builder.get(cache, digest) for digest in "abab"] == [
        "index of a",
        "index of b",
        "index of a",
        "index of b",
    ]
    assert builder.built == ["a", "b"]


def test_the_least_recently_used_index_goes_first() -> None:
    cache: IndexCache[str] = IndexCache(2)
    builder = Builder()
    for digest in "abac":  # b has not been used for longer than a
        builder.get(cache, digest)
    builder.get(cache, "a")
    assert builder.built == ["a", "b", "c"]
    builder.get(cache, "b")
    assert builder.built == ["a", "b", "c", "b"]


def test_two_caches_share_nothing() -> None:
    builder = Builder()
    builder.get(IndexCache(1), "a")
    builder.get(IndexCache(1), "a")
    assert builder.built == ["a", "a"]
