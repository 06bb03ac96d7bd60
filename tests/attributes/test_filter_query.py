"""Clauses behind topic filters, as EMQX 6.2 has them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.attributes.filter_query import parse_query, split_query
from dovetail.attributes.grammar import parse
from dovetail.attributes.where_clause import WhereClause
from dovetail.errors import WhereError
from support.strategies.where_clauses import PIECES


@pytest.mark.parametrize(
    ("topic_filter", "plain", "query"),
    [
        (
            "sensor/+/temperature?location=roomA&value>25",
            "sensor/+/temperature",
            "location=roomA&value>25",
        ),
        ("sensor/#", "sensor/#", None),
        ("sensor/#?", "sensor/#", ""),
        ("a?b=c?d", "a", "b=c?d"),
        ("$share/g/a?b=c", "$share/g/a", "b=c"),
    ],
)
def test_a_filter_ends_at_the_first_question_mark(
    topic_filter: str, plain: str, query: str | None
) -> None:
    assert split_query(topic_filter) == (plain, query)


@pytest.mark.parametrize(
    ("query", "clause"),
    [
        ("location=roomA&value>25", "location == 'roomA' and value > 25"),
        ("value>=25&value<=30", "value in [25, 30]"),
        ("value<-2.5e1", "value < -25"),
        ("value=25", "value == 25"),
        ("value=%32%35", "value == 25"),
        ("odd%20name=a%26b%3Dc", "`odd name` == 'a&b=c'"),
        ("name=%E6%97%A5本", "name == '日本'"),
        ("name=a=b<c", "name == 'a=b<c'"),
        ("name=a+b%2Bc", "name == 'a+b+c'"),
        ("name=", "name == ''"),
        ("name=nan", "name == 'nan'"),
        ("name=0x10", "name == '0x10'"),
        ("name= 1", "name == ' 1'"),
        ("in=not", "`in` == 'not'"),
    ],
)
def test_a_query_means_what_a_clause_does(query: str, clause: str) -> None:
    where = parse_query(query)
    assert where == parse(clause)
    assert where.text == query


def test_a_number_is_a_text_where_the_space_says_so() -> None:
    assert parse_query("floor=3&value=3", {"floor"}) == parse("floor == '3' and value == 3")
    assert parse_query("serial=1e999", {"serial"}) == parse("serial == '1e999'")


def test_a_where_knows_where_names_stand() -> None:
    assert parse_query("a=1&b%20c>2&a<5").places == {"a": 0, "b c": 4}


@pytest.mark.parametrize(
    ("query", "why", "position"),
    [
        ("", "here should stand a comparison", 0),
        ("location", "here should stand a comparison", 0),
        ("a=1&", "here should stand a comparison", 4),
        ("a=1&&b=2", "here should stand a comparison", 4),
        ("a!=1", "there is no '!='", 1),
        ("x=2&a!=1", "there is no '!='", 5),
        ("=1", "here should stand an attribute's name", 0),
        ("a==1", "a value that begins with '=' has it as %3D", 2),
        ("a=>1", "a value that begins with '>' has it as %3E", 2),
        ("a>b", "'>' compares numbers; texts have '=='", 0),
        ("a>", "'>' compares numbers; texts have '=='", 0),
        ("a>nan", "'>' compares numbers", 0),
        ("floor>3", "'>' compares numbers", 0),
        ("a=1e999", "'1e999' is too large", 2),
        ("x=2&a=5%", "two hexadecimal digits", 7),
        ("a%4=5", "two hexadecimal digits", 1),
        ("a=%FF", "not UTF-8", 2),
        ("a=\ud800", "not UTF-8", 2),
        ("a=1&a=2", "no publication can satisfy it", 4),
        ("a=1&a=x", "'a' is compared with a text, and elsewhere with a number", 4),
        ("a=1" + "&a=1" * 2_000, "8,003 characters of at most 4,096", 4_096),
        ("&".join(f"a{index}=1" for index in range(40)), "more than 32 attributes", 182),
    ],
)
def test_a_bad_query_is_refused_with_the_reason_and_the_place(
    query: str, why: str, position: int
) -> None:
    with pytest.raises(WhereError) as refused:
        parse_query(query, {"floor"})
    assert why in refused.value.message
    assert (refused.value.text, refused.value.position) == (query, position)


pieces = st.sampled_from((*PIECES, "&", "&", "=", "=", "%20", "%2"))


def attempt(query: str) -> WhereClause | WhereError:
    try:
        return parse_query(query, {"t"})
    except WhereError as error:
        return error


@given(st.text(max_size=30) | st.lists(pieces, max_size=20).map("".join))
def test_any_text_is_taken_or_refused_and_nothing_else(query: str) -> None:
    tried = attempt(query)
    if isinstance(tried, WhereClause):
        assert parse(str(tried)) == tried
    else:
        assert 0 <= tried.position <= len(query)
