"""Tables packed for HTTP and for workers."""

import pyarrow as pa

from dovetail.archive.arrow_stream import pack, unpack


def test_a_table_comes_back_as_it_was() -> None:
    table = pa.table({"id": range(10_000), "filter": ["a/#"] * 10_000})
    packed = pack(table)
    assert unpack(packed) == table
    assert len(packed) < table.nbytes
    assert unpack(pack(table.slice(0, 0))) == table.slice(0, 0)
