"""Filters in settings follow the rules of `topics`; test_access.py tests how they overlap."""

from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import ClientError
from dovetail.settings.filters import filter_fault
from dovetail.topics.names import check_filter


@given(
    st.one_of(
        st.text(alphabet=["a", "/", "+", "#", "$", "%", "u", "\0", "é"], max_size=6),
        st.sampled_from(["a" * 65_535, "a" * 65_536, "é" * 32_768]),
    )
)
def test_valid_filters_are_those_of_topics(topic_filter: str) -> None:
    try:
        check_filter(topic_filter)
    except ClientError:
        assert filter_fault(topic_filter) is not None
    else:
        assert filter_fault(topic_filter) is None


def test_a_rule_takes_no_shared_subscription() -> None:
    assert filter_fault("$share/group/a") is not None
