"""Errors of the HTTP client, with real servers."""

from contextlib import AbstractContextManager

import pytest

from dovetail.api.http_client import NoAnswerError, RefusalError, fetch
from dovetail.api.reports import ClusterReport, RouteReport
from dovetail.errors import DovetailError
from support import http_answers
from support.http_answers import Answers
from support.processes.ports import ReservedPort


def answering(status: int, body: bytes) -> AbstractContextManager[str]:
    class Same(Answers):
        def get(self) -> None:
            self.say(status, body)

    return http_answers.answering(Same)


def refusal(url: str, **query: str) -> str:
    with pytest.raises(DovetailError) as caught:
        fetch(url, "/cluster", ClusterReport, **query)
    return str(caught.value)


def test_no_server() -> None:
    with ReservedPort() as nobody:
        place = f"http://127.0.0.1:{nobody.port}/"
        assert refusal(place) == (
            f"no node answers at {place}: Connection refused.\n"
            "`dovetail up` says at its start where its HTTP is; --url takes that."
        )


@pytest.mark.parametrize("url", ["http://", "ftp://127.0.0.1", "http://[", "http://a b"])
def test_invalid_addresses(url: str) -> None:
    assert refusal(url).startswith(f"no node answers at {url}: ")


def test_an_older_node_or_another_program() -> None:
    with answering(404, b"Not Found") as place:
        assert refusal(place).startswith(
            f"what answers at http://{place} has no /cluster.\nIt is a matcher, an older Dovetail"
        )
    with answering(200, b"<html>") as place:
        assert "is no Dovetail of this version." in refusal(place)
    with answering(200, b'{"nodes": 5}') as place:
        assert "is no Dovetail of this version." in refusal(place)
    with answering(500, b"") as place:
        assert "answers with HTTP 500." in refusal(place)


def test_a_busy_node() -> None:
    with answering(503, b'{"error": "try again"}') as place, pytest.raises(NoAnswerError) as later:
        fetch(place, "/cluster", ClusterReport)
    assert str(later.value) == "try again."
    with answering(409, b'{"error": "no"}') as place, pytest.raises(RefusalError) as refused:
        fetch(place, "/cluster", ClusterReport)
    assert refused.value.status == 409


def test_an_error_of_the_node_is_shown() -> None:
    with answering(400, b'{"error": "it is empty"}') as place:
        assert refusal(place, topic="") == "it is empty."
    with answering(400, b"Invalid HTTP request received.") as place:
        assert "it is too long" in refusal(place, topic="a" * 20_000)


def test_unknown_fields_of_a_newer_node_are_ignored() -> None:
    body = b'{"topic":"a","asked":"n","new":1,"here":{"filters":[],"count":0,"has_retained":false}}'
    with answering(200, body) as place:
        assert fetch(place, "/route", RouteReport, topic="a").asked == "n"
