"""The spaces of a running cluster, as its brokers report them, so that no file has to."""

from dovetail.api.http_client import fetch_as
from dovetail.api.reports import SpaceReport, SpacesReport
from dovetail.attributes.scheme import Scheme, SpaceSharing
from dovetail.attributes.space import Dimension, Space
from dovetail.errors import DovetailError
from dovetail.pipeline.source.archives import ClusterArchive


class ClusterSpaces:
    """Fetches the spaces at each call, as a SIGHUP may change them.

    While no node answers, it returns the last known spaces.
    """

    def __init__(self, cluster: ClusterArchive) -> None:
        self._cluster = cluster
        self._known: tuple[Space, ...] | None = None

    def __call__(self) -> tuple[Space, ...]:
        failed: DovetailError | None = None
        for url in self._cluster.urls:
            try:
                report = fetch_as(self._cluster.login, url, "/spaces", SpacesReport)
            except DovetailError as error:
                failed = failed or error
            else:
                self._known = spaces_reported(report)
                return self._known
        if self._known is None and failed is not None:
            raise failed
        return self._known or ()


def spaces_reported(report: SpacesReport) -> tuple[Space, ...]:
    return tuple(map(space_of, report.spaces))


def space_of(report: SpaceReport) -> Space:
    return Space(
        report.name,
        report.topics,
        tuple(
            Dimension(one.name, one.low, one.high, is_searchable=one.is_searchable)
            for one in report.dimensions
        ),
        frozenset(report.texts),
        report.json_fields,
        SpaceSharing(Scheme(report.scheme), report.along, report.policy),
        is_streamed=report.engine == "spark",
    )
