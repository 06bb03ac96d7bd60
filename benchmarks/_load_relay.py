"""The generator's own ceiling: a process that passes bytes on and knows nearly no MQTT.

It answers CONNECT, SUBSCRIBE and PINGREQ. From then on it passes a publisher's bytes to all
subscribers unchanged, and a subscriber's (its acknowledgements) to the first publisher. A client
that subscribes is a subscriber. It leaves out all other work of a broker, so no broker can be much
faster in this benchmark.

usage: _load_relay.py PORT
"""

import select
import socket
import sys

import _load_wire as wire

READ_BYTES = 1 << 20


class Peer:
    """A connection: unknown until it publishes or subscribes."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connection
        self.version = 0
        self.kind = 0
        self.asked = b""
        self.unsent = b""

    def send(self, data: bytes | memoryview) -> None:
        """Send; data that does not fit waits, and the relay reads no more until it is sent."""
        if self.unsent:
            self.unsent += data
            return
        try:
            count = self.socket.send(data)
        except BlockingIOError:
            count = 0
        except OSError:
            return  # it has gone; reading will notice
        self.unsent = bytes(data[count:])

    def answer(self, data: bytes) -> bytes:
        """Answer requests; return the bytes to pass on."""
        self.asked += data
        while (packet := wire.take_packet(self.asked)) is not None:
            kind, body, rest = packet
            if kind == wire.CONNECT:
                self.version = body[6]
                answer = (
                    b"\x20\x03\x00\x00\x00" if self.version == wire.MQTT_5 else b"\x20\x02\x00\x00"
                )
                self.send(answer)
            elif kind == wire.SUBSCRIBE:
                self.kind = wire.SUBSCRIBE
                self.send(suback(body, self.version))
            elif self.asked == wire.PINGREQ_PACKET:
                self.send(bytes([wire.PINGRESP << 4, 0]))
            elif kind == wire.DISCONNECT and self.kind == 0:
                self.socket.shutdown(socket.SHUT_RDWR)
            else:
                break
            self.asked = rest
        if self.kind == 0 and self.asked:
            self.kind = wire.PUBLISH
        if self.kind == 0 or (self.asked and self.asked[0] >> 4 == wire.SUBSCRIBE):
            return b""
        own, self.asked = self.asked, b""
        return own


def suback(body: bytes, version: int) -> bytes:
    at = 3 if version == wire.MQTT_5 else 2
    codes = bytearray(b"\x00" if version == wire.MQTT_5 else b"")
    while at < len(body):
        at += 3 + int.from_bytes(body[at : at + 2], "big")
        codes.append(body[at - 1])
    answer = body[:2] + codes
    return bytes([wire.SUBACK << 4]) + wire.variable_length(len(answer)) + answer


class Relay:
    def __init__(self, port: int) -> None:
        self.listener = socket.create_server(("127.0.0.1", port), backlog=200)
        self.epoll = select.epoll()
        self.epoll.register(self.listener, select.EPOLLIN)
        self.peers: dict[int, Peer] = {}
        self.buffer = memoryview(bytearray(READ_BYTES))

    def serve(self) -> None:
        while True:
            ready = self.epoll.poll()
            held_up = [peer for peer in self.peers.values() if peer.unsent]
            for peer in held_up:
                data, peer.unsent = peer.unsent, b""
                peer.send(data)
            if any(peer.unsent for peer in held_up):
                # Level-triggered: a readable socket is reported again next time.
                self.wait_for_room()
                continue
            published = 0
            for file, _ in ready:
                if file == self.listener.fileno():
                    peer = Peer(self.listener.accept()[0])
                    self.peers[peer.socket.fileno()] = peer
                    self.epoll.register(peer.socket, select.EPOLLIN)
                elif file in self.peers and published < READ_BYTES:
                    published += self.read(self.peers[file], published)
            if published:
                for peer in self.peers.values():
                    if peer.kind == wire.SUBSCRIBE:
                        peer.send(self.buffer[:published])

    def wait_for_room(self) -> None:
        waiting = [peer.socket for peer in self.peers.values() if peer.unsent]
        select.select([], waiting, [])

    def read(self, peer: Peer, at: int) -> int:
        """Read into the buffer from `at`; return the number of a publisher's bytes there."""
        try:
            count = peer.socket.recv_into(self.buffer[at:])
        except ConnectionResetError:
            count = 0
        if count == 0:
            del self.peers[peer.socket.fileno()]
            peer.socket.close()
            return 0
        if peer.kind == wire.PUBLISH:
            return count
        own = peer.answer(bytes(self.buffer[at : at + count]))
        if own and peer.kind == wire.SUBSCRIBE:
            publisher = next((p for p in self.peers.values() if p.kind == wire.PUBLISH), None)
            if publisher is not None:
                publisher.send(own)
        elif own:
            self.buffer[at : at + len(own)] = own
            return len(own)
        return 0


if __name__ == "__main__":
    Relay(int(sys.argv[1])).serve()
