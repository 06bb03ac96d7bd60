"""An HTTP server on a free port that gives the answers of a test."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Answers(http.server.BaseHTTPRequestHandler):
    """A handler whose answers to GET and POST a test defines."""

    def get(self) -> None:
        self.say(501, b"")

    def post(self) -> None:
        self.say(501, b"")

    def do_GET(self) -> None:
        self.get()

    def do_POST(self) -> None:
        self.post()

    def say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def answering(answers: type[Answers]) -> Iterator[str]:
    """Run a server, and yield its HOST:PORT."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
