"""What a node shows over HTTP: its metrics, its health, its cluster, and where topics lead.

Reads what it is handed (`Views`, `MatcherViews`) and knows no broker. Everything that is slow to
import (Starlette, uvicorn, prometheus_client) is imported when a server is made ready, so that
commands which serve nothing do not wait for it.
"""

from dovetail.web.http import HttpServer
from dovetail.web.views import Claim, MatcherViews, Views

__all__ = ["Claim", "HttpServer", "MatcherViews", "Views"]
