"""What a node shows over HTTP: its metrics, its health, its cluster, and where topics lead.

Reads what it is handed (`Views`, `MatcherViews`) and knows no broker. Everything that is slow to
import (Starlette, uvicorn, prometheus_client: a third of a second) is imported when the server
starts, beside the event loop, so that MQTT clients do not wait for it.
"""

from dovetail.web.http import HttpServer, bound_server
from dovetail.web.views import Claim, MatcherViews, Views

__all__ = ["Claim", "HttpServer", "MatcherViews", "Views", "bound_server"]
