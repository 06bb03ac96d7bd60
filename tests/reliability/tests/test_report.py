"""The report is one page that says what was found."""

import re

import pytest

from reliability.builder import build
from reliability.checker import check_record
from reliability.history import Run
from reliability.promises import PROMISES
from reliability.report import VIOLATIONS_SHOWN_MAX, report
from reliability.summary import summary
from reliability.tests.story import NODES, Story
from support.html_pages import check_balanced


def _story() -> Story:
    story = Story()
    story.put(Run(0.0, 42, NODES, "TCP relays", "2026-11-18 02:51 UTC", "0.1.0"))
    story.subscriber("reader", "t/#", 1, "two")
    kill = story.fault("kill", "one")
    story.publish("writer:1", "t/<b>", 1, to=("reader",), node="three")
    story.heal(kill)
    return story


def _page(story: Story) -> str:
    record = build(story.events)
    return report(record, check_record(record), "scripts/soak --seed 42")


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    page = _page(_story())
    check_balanced(re.sub(r"<(line|rect|path|br)\b([^>]*?)/?>", "", page).replace("</rect>", "")
                   .replace("</path>", ""))  # fmt: skip
    assert not re.search(r"(src|href)=|url\(|@import|<script", page)
    assert "prefers-color-scheme: dark" in page
    assert "scripts/soak --seed 42" in page


def test_every_promise_has_a_verdict() -> None:
    page = _page(_story())
    for promise in PROMISES:
        assert f'<th scope="row">{promise.name}<br>' in page
    assert "✗" not in page


def test_faults_and_clients_are_drawn() -> None:
    page = _page(_story())
    assert page.count('<svg class="drawing"') == 3
    assert "kill" in page
    assert re.search(r"<title>kill  \(one\), [\d.]+ s to [\d.]+ s</title>", page)
    assert "reader at two" in page


def test_a_violation_is_shown_with_its_context() -> None:
    story = _story()
    story.publish("writer:2", "t/<b>", 1, node="three")
    page = _page(story)
    assert "1 of" in page
    assert "was broken: delivered" in page
    assert "reader never got writer:2 (t/&lt;b&gt;, QoS 1), which three acknowledged" in page
    assert "writer:2: sent to three" in page
    assert "--&gt; here" in page
    assert 'class="broken"' in page


def test_many_violations_are_counted_and_some_are_shown() -> None:
    story = _story()
    for number in range(2, 302):
        story.publish(f"writer:{number}", "t/1", 1, node="three")
    page = _page(story)
    assert page.count('<div class="violation">') == VIOLATIONS_SHOWN_MAX
    assert f"… and {300 - VIOLATIONS_SHOWN_MAX} more" in page


@pytest.mark.parametrize("is_broken", [False, True])
def test_the_summary_says_it_on_a_terminal(is_broken: bool) -> None:
    story = _story()
    if is_broken:
        story.publish("writer:2", "t/1", 1)
    record = build(story.events)
    text = summary(record, check_record(record))
    assert ("broken" in text) == is_broken
    assert ("reader never got writer:2" in text) == is_broken
    assert "1 faults: 1 kill" in text


def test_an_empty_history_has_a_report() -> None:
    record = build([])
    assert "not tested" in report(record, check_record(record), "")
