"""`/metrics`, read by the parser of Prometheus."""

from dataclasses import fields

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dovetail import __version__
from dovetail.stats import Counters, Gauges
from dovetail.web.metrics import HELP, PEER_GAUGES, SKETCH_GAUGES, make_registry
from support.brokers.web_views import views

COUNTED = [item.name for item in fields(Counters)]
STANDING = [item.name for item in fields(Gauges)]


def test_every_field_is_explained_and_nothing_else() -> None:
    assert list(HELP) == COUNTED + STANDING
    assert all(text.endswith(".") for text in HELP.values())


def test_the_parser_reads_what_was_counted() -> None:
    counters = Counters(**{name: 2**53 + 2 * i for i, name in enumerate(COUNTED)})
    gauges = Gauges(**{name: i for i, name in enumerate(STANDING)})
    text = generate_latest(make_registry(views(stats=lambda: (counters, gauges)))).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for name, value in counters.as_dict().items():
        family = families[f"dovetail_{name}"]
        assert (family.type, family.documentation) == ("counter", HELP[name])
        assert [(one.name, one.value) for one in family.samples] == [
            (f"dovetail_{name}_total", value)
        ]
    for name, value in gauges.as_dict().items():
        family = families[f"dovetail_{name}"]
        assert (family.type, family.documentation) == ("gauge", HELP[name])
        assert [(one.name, one.value) for one in family.samples] == [(f"dovetail_{name}", value)]
    assert families["dovetail_build_info"].samples[0].labels == {"version": __version__}
    assert "python_gc_collections" in families


def test_each_scrape_reads_current_values() -> None:
    counters = Counters()
    registry = make_registry(views(stats=lambda: (counters, Gauges())))
    assert registry.get_sample_value("dovetail_commits_total") == 0
    counters.commits = 3
    assert registry.get_sample_value("dovetail_commits_total") == 3


def test_a_broker_in_a_cluster_has_metrics_of_peers() -> None:
    text = generate_latest(make_registry(views())).decode()
    assert "dovetail_sketch_bits 80000.0\n" in text
    assert "dovetail_sketch_fill 0.25\n" in text
    assert "dovetail_sketch_false_positive_rate 0.001\n" in text
    for name, value in (
        ("alive", 1),
        ("connected", 1),
        ("sketch_known", 1),
        ("sketch_bits", 40_960),
        ("sketch_fill", 0.125),
        ("owed_messages", 3),
        ("owed_bytes", 2_500),
    ):
        assert f'dovetail_peer_{name}{{peer="other"}} {float(value)}\n' in text
    assert 'dovetail_peer_publishes_forwarded_total{peer="other"} 70.0\n' in text
    assert all(f"# HELP dovetail_{name} " in text for name in (*SKETCH_GAUGES, *PEER_GAUGES))


def test_a_standalone_broker_has_no_metrics_of_peers() -> None:
    text = generate_latest(make_registry(views(sketch=lambda: None))).decode()
    assert "peer" not in text.replace("peer_messages_dropped", "").replace("from_peers", "")
    assert "sketch" not in text
