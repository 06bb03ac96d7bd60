"""Pauses grow and differ, and a refusal is logged once."""

from random import Random

from dovetail.cluster.dialer import RefusalLog, pause_seconds


def test_pauses_double_up_to_a_limit() -> None:
    random = Random(1)
    for failures, longest in [(0, 0.1), (1, 0.2), (3, 0.8), (10, 10), (10_000, 10)]:
        drawn = [pause_seconds(failures, 0.1, 10, random) for _ in range(200)]
        assert longest / 2 <= min(drawn)
        assert max(drawn) <= longest
        assert len({*drawn}) == 200


def test_a_grievance_is_news_once_a_while() -> None:
    grievances = RefusalLog(10, 60)
    assert grievances.is_news("a", "cold", 0)
    assert not grievances.is_news("a", "cold", 59)
    assert grievances.is_news("a", "dark", 59)
    assert grievances.is_news("b", "cold", 59)
    assert grievances.is_news("a", "cold", 60)
    assert not grievances.is_news("a", "cold", 119)


def test_not_all_grievances_are_remembered() -> None:
    grievances = RefusalLog(10, 60)
    for number in range(1_000):
        assert grievances.is_news(str(number), "cold", 0)
        assert len(grievances._logged_at) <= 10
    assert not grievances.is_news("999", "cold", 0)
