"""Checks of HTML pages."""

from html.parser import HTMLParser

_VOID = {"meta"}


class _Balance(HTMLParser):
    """Checks that every opened element is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_balanced(page: str) -> None:
    parser = _Balance()
    parser.feed(page)
    assert parser.open == []
