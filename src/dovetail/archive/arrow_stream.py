"""Arrow tables as bytes: compressed streams for HTTP and for Spark's workers."""

import pyarrow as pa


def pack(table: pa.Table) -> bytes:
    """Return a table as a compressed Arrow stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpack(packed: bytes) -> pa.Table:
    """Return the table of an Arrow stream."""
    return pa.ipc.open_stream(packed).read_all()
