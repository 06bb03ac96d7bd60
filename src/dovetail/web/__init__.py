"""What a node shows over HTTP: its metrics and its health.

Reads what it is handed (`stats`, `health`) and knows no broker. Everything that is slow to import
(Starlette, uvicorn, prometheus_client: a third of a second) is imported when the server starts,
beside the event loop, so that MQTT clients do not wait for it.
"""

from dovetail.web.http import HttpServer

__all__ = ["HttpServer"]
