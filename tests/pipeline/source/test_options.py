"""Options of the reader: their meaning, and the errors."""

import pickle

import pytest

from dovetail.errors import ConfigError
from dovetail.pipeline.source.archives import ArchiveFolder, ClusterArchive
from dovetail.pipeline.source.options import reader_options


def test_options() -> None:
    options = reader_options(
        {
            "URL": "http://a:1/, b:2",
            "user": "u",
            "password": "p",
            "Topics": "a/#, b",
            "startingoffsets": '{"one": 3}',
            "maxrowsperbatch": "7",
            "failOnDataLoss": "FALSE",
        }
    )
    assert options.row_source == ClusterArchive(("http://a:1", "b:2"), ("u", "p"))
    assert (options.topics, options.start) == (("a/#", "b"), {"one": 3})
    assert (options.batch_rows_max, options.fails_on_loss) == (7, False)
    assert reader_options({"path": "file:///x"}).row_source == ArchiveFolder("/x")
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 (our own)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "it takes a url or a path"),
        ({"path": "x", "url": "y"}, "it takes a url or a path"),
        ({"path": "hdfs://x"}, "hdfs://x is no folder of this machine"),
        ({"path": "x", "topic": "a"}, "there is no option 'topic' here"),
        ({"path": "x", "startingOffsets": "now"}, "startingOffsets cannot be now"),
        ({"path": "x", "startingOffsets": '{"a": "b"}'}, "startingOffsets cannot be"),
        ({"path": "x", "maxRowsPerBatch": "0"}, "maxRowsPerBatch cannot be 0"),
        ({"path": "x", "topics": "a/#/b"}, "topics: a/#/b"),
        ({"path": "x", "failOnDataLoss": "no"}, "failOnDataLoss is true or false"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        reader_options(options)
    assert said in caught.value.message
