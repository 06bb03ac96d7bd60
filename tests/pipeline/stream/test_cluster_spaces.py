"""The spaces of a running broker are those of its configuration."""

from pathlib import Path

import pytest

from dovetail.errors import DovetailError
from dovetail.pipeline.match.bulk import spaces_of
from dovetail.pipeline.source.archives import ClusterArchive
from dovetail.pipeline.stream.cluster_spaces import ClusterSpaces
from support.processes.broker_process import BrokerProcess

SETTINGS = """
[[listeners]]
kind = "tcp"
port = 0
[http]
port = 0
[spaces.traffic]
topics = "traffic/#"
texts = ["road"]
[spaces.traffic.dimensions]
lat = [-90, 90]
speed = { bounds = [0, 200], searchable = false }
[spaces.river]
topics = "river/+"
json_fields = true
scheme = "p2p"
along = "level"
[spaces.river.dimensions]
level = [0, 1]
"""


def test_as_declared(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, SETTINGS)
    broker.start()
    spaces = ClusterSpaces(ClusterArchive((f"http://127.0.0.1:{broker.port_of('http')}",)))
    declared = spaces_of(broker.file)
    assert spaces() == declared
    broker.stop()
    assert spaces() == declared  # as they were
    with pytest.raises(DovetailError, match="no node answers"):
        ClusterSpaces(ClusterArchive(("http://127.0.0.1:9",)))()
