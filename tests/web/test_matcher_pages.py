"""The HTTP pages of a matcher."""

import asyncio
import json
import math
import urllib.error
import urllib.request

import msgspec
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dovetail.api.reports import ClusterReport
from dovetail.web import HttpServer, MatcherViews
from dovetail.web.matcher_pages import COUNTERS, GAUGES, PART_GAUGES, make_matcher_registry
from support.brokers.web_views import MATCHER, cluster, told_cluster
from support.processes.broker_process import WAIT_SECONDS


def test_the_parser_reads_what_was_counted() -> None:
    views = MatcherViews(lambda: (True, ""), lambda: MATCHER, told_cluster)
    text = generate_latest(make_matcher_registry(views)).decode()
    read = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("dovetail_matcher_") and not sample.labels
    }
    assert read == {
        "dovetail_matcher_points_total": 33,
        "dovetail_matcher_points_unsure_total": 4,
        "dovetail_matcher_serving": 1,
        "dovetail_matcher_boxes": 11,
        "dovetail_matcher_points_waiting": 22,
        "dovetail_matcher_busy_share": 0.5,
    }
    told = [*COUNTERS.values(), *GAUGES.values(), *PART_GAUGES.values()]
    assert all(words.endswith(".") for words, _ in told)


def test_parts_have_labels() -> None:
    views = MatcherViews(lambda: (True, ""), lambda: MATCHER, told_cluster)
    text = generate_latest(make_matcher_registry(views)).decode()
    read = {
        (
            sample.name.removeprefix("dovetail_matcher_part_"),
            sample.labels["space"],
            sample.labels["dimension"],
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("dovetail_matcher_part_")
    }
    nowhere = read.pop(("low", "traffic", "lon")), read.pop(("high", "traffic", "lon"))
    assert all(map(math.isnan, nowhere))
    assert read == {
        ("boxes", "traffic", "lat"): 7,
        ("boxes", "traffic", "lon"): 4,
        ("points_waiting", "traffic", "lat"): 20,
        ("points_waiting", "traffic", "lon"): 2,
        ("arrival_rate", "traffic", "lat"): 150.5,
        ("arrival_rate", "traffic", "lon"): 0,
        ("matching_rate", "traffic", "lat"): 2_500,
        ("matching_rate", "traffic", "lon"): 0,
        ("low", "traffic", "lat"): -math.inf,
        ("high", "traffic", "lat"): 12.5,
    }


def test_pages() -> None:
    def get(port: int, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port}{path}", timeout=WAIT_SECONDS
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    async def work() -> None:
        health = (True, "")
        views = MatcherViews(lambda: health, lambda: MATCHER, told_cluster)
        server = HttpServer("127.0.0.1", 0, views)
        _, port = await server.start()
        try:
            status, text = await asyncio.to_thread(get, port, "/healthz")
            assert (status, json.loads(text)) == (200, {"status": "ok"})
            health = (False, "no broker is there")
            status, text = await asyncio.to_thread(get, port, "/healthz")
            assert (status, json.loads(text)["reason"]) == (503, "no broker is there")
            status, text = await asyncio.to_thread(get, port, "/metrics")
            assert "dovetail_matcher_boxes 11.0" in text
            assert (await asyncio.to_thread(get, port, "/"))[1].startswith("Dovetail")
            status, text = await asyncio.to_thread(get, port, "/cluster")
            assert (status, msgspec.json.decode(text, type=ClusterReport)) == (200, cluster())
            assert (await asyncio.to_thread(get, port, "/route"))[0] == 404
        finally:
            await server.stop()

    asyncio.run(work())
