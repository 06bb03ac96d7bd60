"""A stream that serves spaces, in a process of its own that a test can kill.

usage: serving_process.py URL CHECKPOINT BATCH_ROWS
"""

import logging
import sys

from dovetail.pipeline.serve.query import serve
from dovetail.pipeline.spark.spark_session import open_session


def main(url: str, checkpoint: str, batch_rows: str) -> None:
    logging.basicConfig(level=logging.WARNING)
    with open_session("local[2]") as spark:
        query = serve(spark, url, checkpoint, batch_rows_max=int(batch_rows))
        print("serving", flush=True)
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
