"""Columns: from texts, and from Arrow arrays of every layout, sliced ones too."""

import numpy as np
import pyarrow as pa
import pytest

from dovetail.errors import ConfigError
from dovetail.topics.topic_column import TopicColumn

TEXTS = ["a/b", "", "é/日本", "/" * 300]


@pytest.mark.parametrize("texts", [TEXTS, [], [""], ["", ""]])
def test_a_column_gives_back_its_texts(texts: list[str]) -> None:
    column = TopicColumn.of(texts)
    assert [row.decode() for row in column] == texts
    assert len(column) == len(texts)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
def test_an_arrow_array_is_a_column_whatever_its_layout(kind: pa.DataType) -> None:
    array = pa.array([text.encode() for text in TEXTS], pa.binary()).cast(kind)
    assert list(TopicColumn.of_arrow(array)) == [text.encode() for text in TEXTS]
    assert list(TopicColumn.of_arrow(array[1:3])) == [text.encode() for text in TEXTS[1:3]]
    assert list(TopicColumn.of_arrow(array[:0])) == []


def test_an_arrow_arrays_text_is_not_copied() -> None:
    array = pa.array(TEXTS)
    text = np.frombuffer(array.buffers()[2], np.uint8)
    assert TopicColumn.of_arrow(array).data.ctypes.data == text.ctypes.data


def test_arrow_arrays_that_are_no_topics_are_refused() -> None:
    with pytest.raises(ConfigError, match="not int64"):
        TopicColumn.of_arrow(pa.array([1, 2]))
    with pytest.raises(ConfigError, match="1 of 2 topics are null"):
        TopicColumn.of_arrow(pa.array(["a", None]))


def test_rows_outside_a_column_are_an_error() -> None:
    with pytest.raises(IndexError):
        TopicColumn.of(["a"])[1]
