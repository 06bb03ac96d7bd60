"""Takes the bytes of a client apart: into packets, and into runs of similar publications. Pure.

A kernel scans a whole read buffer at once, and finds runs of publications, of retained ones, and of
PUBACKs (codec/kernels/scan.py). Other packets are taken one by one. Publications go to intake.py,
except that runs at QoS 0 go straight to run_dispatch.py. CONNECT and DISCONNECT change the state of
the link (client_link.py), SUBSCRIBE goes to the broker, and acknowledgements go to the session.

One read may bring work that would keep other clients waiting: many packets, or one with many
filters. The reader then takes the rest in slices (slices.py), in order. Meanwhile the link is busy,
and the shell does not read from it. The same holds while a publication waits for its receivers
(back_pressure.py).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail import codec
from dovetail.broker.acknowledgements import Acknowledgements
from dovetail.broker.client_link import ClientLink, LinkState
from dovetail.broker.intake import Intake
from dovetail.broker.limits import (
    ACKNOWLEDGEMENTS_PER_EFFORT,
    CHECKED_RUNS_PER_PIECE,
    EARLY_BYTES_MAX,
    LONG_PACKET_BYTES,
    PACKET_EFFORT,
    RECEIVERS_PER_PIECE,
)
from dovetail.broker.piece import Piece
from dovetail.broker.route import Route
from dovetail.broker.run_dispatch import RunOutcome
from dovetail.codec.kernels import scan as kernels
from dovetail.codec.limits import RUN_PACKETS_MAX
from dovetail.codec.packets import (
    MQTT_3_1_1,
    MQTT_5,
    Ack,
    Auth,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Ping,
    Subscribe,
    Unsubscribe,
)
from dovetail.codec.run import Run, borders_of, packet_ids_of, rest_of
from dovetail.errors import ClientError, ReasonCode
from dovetail.slices import Work, run_slice

if TYPE_CHECKING:
    from dovetail.broker.core import Broker

SCAN_BYTES_MIN = 1_024
"""Python walks smaller reads. A kernel call costs as much as one plain publication, or a few
acknowledgements."""
SCANNED_FIRST = {0x30: 0, 0x32: 6, 0x40: 8}
"""By the first byte: the kernel takes reads that have room for so many packets like the first one.
They are plain publications and PUBACKs, of which it makes runs."""

_RUN_BYTES_MAX = 4_096
"""`receive_plain` compares plain packets in Python up to this size; beyond, the kernel does."""
_PUBLISH_PLAIN = 0x30
_ACKS = {
    0x40: PacketType.PUBACK,
    0x50: PacketType.PUBREC,
    0x62: PacketType.PUBREL,
    0x70: PacketType.PUBCOMP,
}
_LONG = frozenset({0x82, 0xA2})
"""First bytes of SUBSCRIBE and UNSUBSCRIBE, which may have many filters."""
_LONG_LENGTH = 0x80
_PINGRESP = b"\xd0\x00"
_NORMAL_END = Disconnect()
_DOLLAR = 0x24
_TOPIC_LENGTH_BYTES = 2


class PacketReader:
    """The incoming half of a connection. The shell hands it what it reads."""

    __slots__ = (
        "_acks",
        "_broker",
        "_intake",
        "_is_prepared",
        "_partial",
        "_partial_needs",
        "_piece",
        "_pressure",
        "_router",
        "_runs",
        "_shared",
        "_waiting_data",
        "link",
    )

    def __init__(self, broker: "Broker", link: ClientLink) -> None:
        self._broker = broker
        self._shared = broker.shared
        self._router = broker.router
        self._runs = broker.runs
        self._pressure = broker.back_pressure
        self.link = link
        self._is_prepared = False
        """Are there the parts that `_prepare` makes?"""
        self._partial: bytes | bytearray = b""  # an empty bytearray for each would take memory
        self._partial_needs = 0
        self._waiting_data = b""  # bytes that came while the link was busy

    def _prepare(self) -> None:
        """Make the parts that a client needs only if it publishes or subscribes."""
        self._is_prepared = True
        self._piece = Piece()
        self._acks = Acknowledgements(self._shared, self.link)
        self._intake = Intake(self._broker, self.link, self._acks, self._piece)

    def receive(self, data: bytes, now: float) -> None:
        """Take the bytes of one read from the client."""
        link = self.link
        self._shared.now = link.seen_at = now
        if link.is_busy:
            self._waiting_data += data
            return
        if self._partial:
            if link.is_closed:
                return
            self._partial += data
            if len(self._partial) < self._partial_needs:
                return
            data = bytes(self._partial)
            self._partial = b""
        try:
            if link.state is LinkState.CONNECTED:
                self._take(data)
            else:
                self._take_connect(data)
        except ClientError as error:
            link.fail(error.reason, error.message)

    def receive_plain(self, data: bytes) -> bool:
        """Take the most common read: plain publications of one size on one cached topic.

        Mostly it is a single packet. Return False, with nothing done, for any other read. The
        clock is not read: the time of the last event is good enough for keep alive.
        """
        link = self.link
        size = len(data)
        if (
            data[0] != _PUBLISH_PLAIN
            or not 6 <= size <= _RUN_BYTES_MAX
            or (length := data[1]) >= _LONG_LENGTH
            or data[4] == _DOLLAR
            or self._partial
            or link.is_busy
            or not link.access.everything
        ):
            return False
        end = length + 2
        topic_end = 4 + (data[2] << 8) + data[3]
        version = link.version
        route = self._router.cache.young.get(data[4:topic_end])
        if route is None or not (
            topic_end <= end
            if version == MQTT_3_1_1
            else topic_end < end <= size and not data[topic_end]
        ):
            return False
        count = 1
        if end != size:
            count = _count_alike(data, end, topic_end if version == MQTT_3_1_1 else topic_end + 1)
            if not count:
                return False
        session = link.session
        if session is None or count * route.singles > RECEIVERS_PER_PIECE:
            return False  # without a session, the client is being admitted
        if self._pressure.behind and self._pressure.awaited(link, route, 0):
            return False
        link.seen_at = self._shared.now
        run = Run(data, version, kernels.QOS_0, count, 0)
        published = self._runs.publish(route, run, session.client_id)
        assert published is not None  # as it is at QoS 0
        if published.run is not run:
            self.receive(data[len(published.run.data) :], self._shared.now)
        return True

    @property
    def joinable_version(self) -> int:
        """The client's version if its next read may be joined with others (joined_reads.py), or 0.

        It has been admitted, nothing of it waits, and it may publish to every topic.
        """
        link = self.link
        if self._partial or link.is_busy or link.session is None or not link.access.everything:
            return 0
        return link.version

    def has_room_for(self, packets: int) -> bool:
        """Is there room in the client's window for so many publications at QoS 1?"""
        if not self._is_prepared:
            self._prepare()
        return self._intake.has_room_for(packets)

    def acknowledge_run(self, published: RunOutcome, pubacks: bytes) -> None:
        """Acknowledge a run that was published together with those of other clients."""
        self._acks.acknowledge_run(published, pubacks)

    def _take(self, data: bytes) -> None:
        """Take a piece of the data now, and the rest in slices."""
        if len(data) == _BODILESS_BYTES and (take := _BODILESS.get(data)) is not None:
            self._shared.counters.packets_received += 1
            take(self.link)
            return
        if not self._is_prepared:
            self._prepare()
        rest = self._take_piece(data)
        if self._piece.awaited:
            self.link.is_busy = True
            self._wait_for_receivers(rest)
        elif rest or self._piece.work is not None:
            self.link.is_busy = True
            self._broker.slices.begin(self._take_rest(rest))

    def _wait_for_receivers(self, rest: bytes) -> None:
        self._waiting_data = rest + self._waiting_data
        self._pressure.wait(self.link, self._piece.awaited, self._go_on)

    def _go_on(self) -> None:
        """Called when the wait is over."""
        self._piece.awaited = ()
        self._broker.slices.begin(self._take_rest(b""))

    def _take_rest(self, data: bytes) -> Work:
        """Take the rest of a read, and the reads behind it, as far as nothing has to wait.

        When the link closes, the untaken data is discarded. A publication has then reached either
        all of its receivers or none.
        """
        link, piece = self.link, self._piece
        try:
            yield
            while link.state is LinkState.CONNECTED and not piece.awaited:
                link.seen_at = self._shared.now  # the client is not silent: we do not read
                if piece.work is not None:
                    yield from self._finish_work()
                elif data:
                    data = self._take_piece(data)
                    if not piece.awaited:
                        yield
                elif self._waiting_data:
                    data = bytes(self._partial) + self._waiting_data
                    self._partial = self._waiting_data = b""
                else:
                    break
        except ClientError as error:
            link.fail(error.reason, error.message)
        finally:
            if piece.awaited and link.state is LinkState.CONNECTED:
                self._wait_for_receivers(data)
            else:
                piece.work, piece.awaited = None, ()
                self._waiting_data = b""
                link.finish_read()

    def _finish_work(self) -> Work:
        """Do the work that has to end before the next packet is taken, or until it has to wait."""
        link, piece = self.link, self._piece
        work, piece.work = piece.work, None
        assert work is not None
        while link.state is LinkState.CONNECTED and not run_slice(work):
            if piece.awaited:
                piece.work = work
                return
            yield
            link.seen_at = self._shared.now

    def _take_piece(self, data: bytes) -> bytes:
        """Take as much as fits into one piece, and return the rest."""
        size = len(data)
        if size < SCAN_BYTES_MIN:
            packets = SCANNED_FIRST.get(data[0])
            # A length of two bytes is taken for a shorter one: at worst the kernel finds fewer.
            if packets is None or size < 2 or size < packets * (data[1] + 2):
                return self._take_few(data)
        return self._take_many(data)

    def _take_few(self, data: bytes) -> bytes:
        """Take packets one by one, without the kernel. Return the rest."""
        link, piece = self.link, self._piece
        size = len(data)
        at = 0
        piece.spent = 0
        while at < size:
            if link.state is not LinkState.CONNECTED:
                self._take_connect(data[at:])
                return b""
            if piece.is_full:
                return data[at:]
            if at + 2 <= size and data[at + 1] < _LONG_LENGTH:
                body = at + 2
                end = body + data[at + 1]
            else:
                length = codec.decode_length(data, at + 1)
                if length is None:
                    self._keep(data, at, 0)
                    return b""
                body = length[1]
                end = body + length[0]
                if end - at > self._shared.limits.packet_bytes_max:
                    self._refuse_size(end - at)
            if end > size:
                self._keep(data, at, end - at)
                return b""
            self._take_packet(data, at, body, end)
            at = end
        return b""

    def _keep(self, data: bytes, at: int, needs: int) -> None:
        self._partial = bytearray(self._partial + data[at:])
        self._partial_needs = needs

    def _refuse_size(self, size: int) -> None:
        limit = self._shared.limits.packet_bytes_max
        raise ClientError(
            ReasonCode.PACKET_TOO_LARGE,
            f"a packet of {size:,} bytes; at most {limit:,} are allowed (mqtt.packet_bytes_max)",
        )  # [MQTT-3.2.2-15]

    def _take_many(self, data: bytes) -> bytes:
        """Scan with the kernel: take plain packets in runs by route, others one by one.

        Return the rest, if there are more runs than one scan finds or if a packet takes long.
        """
        link, scan = self.link, self._broker.scan
        runs, at, status, needs = scan(data, link.version, self._shared.limits.packet_bytes_max)
        if link.access.everything:
            self._prepare_routes(data, runs)
            taken = self._take_runs(data, runs)
        else:
            taken = self._take_checked_runs(data, runs)
        if link.state is not LinkState.CONNECTED:
            return b""
        if taken < at or self._piece.work is not None:
            return data[taken:]
        if status == kernels.TOO_LONG:
            self._refuse_size(needs)
        elif status == kernels.MALFORMED:
            raise ClientError(
                ReasonCode.MALFORMED_PACKET, "a packet length of more than four bytes"
            )
        elif at < len(data):
            if len(runs) == scan.runs_max and not needs:
                return data[at:]
            self._keep(data, at, needs)
        return b""

    def _prepare_routes(self, data: bytes, runs: list[list[int]]) -> None:
        """Find the routes of all new topics at once."""
        topics = []
        for start, body, end, _, topic_end, kind, _ in runs:
            if not topic_end:
                if (
                    kind != kernels.SINGLE
                    or data[start] & 0xF0 != _PUBLISH_PLAIN
                    or end - body < _TOPIC_LENGTH_BYTES
                ):
                    continue
                topic_end = body + 2 + (data[body] << 8) + data[body + 1]  # noqa: PLW2901
            topics.append(data[body + 2 : topic_end])
        self._router.prepare(topics)

    def _take_runs(self, data: bytes, runs: list[list[int]]) -> int:
        """Join neighbouring runs that share a route, and pass each on as one block of bytes.

        Return the position behind the last packet taken.
        """
        router = self._router
        cache = router.cache
        version = self.link.version
        route = None
        first = last = packets = joined_kind = has_properties = 0
        self._piece.spent = 0
        for start, body, end, count, topic_end, kind, properties in runs:
            found = cache.young.get(data[body + 2 : topic_end]) if topic_end else None
            if (
                found is not None
                and found is route
                and kind == joined_kind
                and packets < RUN_PACKETS_MAX
            ):
                last = end
                packets += count
                has_properties |= properties
                continue
            if route is not None:
                run = Run(data[first:last], version, joined_kind, packets, has_properties)
                taken = first + self._take_run(route, run)
                route = None
                if taken < last or self._has_to_stop:
                    return taken
            if not topic_end:
                taken = self._take_others(data, start, body, end, count, kind)
                if taken < end or self._has_to_stop:
                    return taken
                continue
            route = found or router.look_up(data[body + 2 : topic_end])
            if route is None:
                run = Run(data[start:end], version, kind, count, properties)
                taken = start + self._search_for(data[body + 2 : topic_end], run)
                if taken < end or self._has_to_stop:
                    return taken
                continue
            first, last, packets = start, end, count
            joined_kind, has_properties = kind, properties
        if route is not None:
            run = Run(data[first:last], version, joined_kind, packets, has_properties)
            return first + self._take_run(route, run)
        return runs[-1][2] if runs else 0

    @property
    def _has_to_stop(self) -> bool:
        """Does the rest of the read have to wait for its turn?"""
        return self._piece.is_full or self.link.state is not LinkState.CONNECTED

    def _take_run(self, route: Route, run: Run) -> int:
        """Publish a run. Return how many bytes of it are taken."""
        if self._pressure.behind and self._intake.has_to_wait(route, run.qos):
            return 0
        return self._intake.publish_run(route, run) or self._take_each(run)

    def _take_each(self, run: Run) -> int:
        """Take the packets of a run one by one. Return how many bytes of it are taken."""
        for start, body, end in borders_of(run.data):
            self._take_packet(run.data, start, body, end)
            if self._has_to_stop:
                return end
        return len(run.data)

    def _search_for(self, topic: bytes, run: Run) -> int:
        """Find in pieces the route that takes long to find, then pass on the run."""
        if run.qos or run.has_properties:
            return self._take_each(run)
        self._piece.begin(self._search(topic, run))
        return len(run.data)

    def _search(self, topic: bytes, run: Run) -> Work:
        route = yield from self._router.search(topic)
        assert self.link.session is not None
        while run.packets:
            if self._pressure.behind and self._intake.has_to_wait(route, 0):
                yield
                continue
            published = self._runs.publish(route, run, self.link.session.client_id)
            assert published is not None  # as it is at QoS 0
            run = rest_of(run, published.run)
            yield

    def _take_checked_runs(self, data: bytes, runs: list[list[int]]) -> int:
        """Take runs like `_take_runs`, for a client that may not publish to every topic."""
        self._piece.spent = end = 0
        for start, body, end, count, topic_end, kind, properties in runs[:CHECKED_RUNS_PER_PIECE]:
            if topic_end:
                run = Run(data[start:end], self.link.version, kind, count, properties)
                taken = start + self._take_checked_run(data[body + 2 : topic_end], run)
                if taken < end:
                    return taken
            else:
                taken = self._take_others(data, start, body, end, count, kind)
                if taken < end:
                    return taken
            if self._has_to_stop:
                return end
        return end

    def _take_checked_run(self, topic: bytes, run: Run) -> int:
        """Pass on a run if the client may publish to its topic, else drop it."""
        if run.qos:
            return self._take_each(run)
        route = self._router.look_up(topic)  # checks the topic name
        if not self._intake.may_publish(topic):
            counters = self._shared.counters
            counters.packets_received += run.packets
            counters.publishes_received += run.packets
            counters.publishes_dropped += run.packets
            return len(run.data)
        return self._search_for(topic, run) if route is None else self._take_run(route, run)

    def _take_others(
        self, data: bytes, start: int, body: int, end: int, count: int, kind: int
    ) -> int:
        """Take a run without a common topic: one packet, PUBACKs, or retained publications.

        Return the position behind what is taken.
        """
        if kind == kernels.SINGLE:
            self._take_packet(data, start, body, end)
            return end
        if kind != kernels.PUBACKS:
            qos = kind - kernels.RETAINED_QOS_0
            run = Run(data[start:end], self.link.version, kernels.QOS_0 + qos, count, 0)
            return start + self._take_retained(run)
        ids = packet_ids_of(data[start:end])
        self._shared.counters.packets_received += len(ids)
        self._piece.spent += len(ids) // ACKNOWLEDGEMENTS_PER_EFFORT
        session = self.link.session
        assert session is not None
        session.handle_pubacks(ids, self._shared.now)
        return end

    def _take_retained(self, run: Run) -> int:
        """Take a run of retained publications. Return how many bytes of it are taken."""
        taken = self._intake.retain_run(run)
        if taken == len(run.data) or (taken and self._has_to_stop):
            return taken
        return taken + self._take_each(run._replace(data=run.data[taken:]))

    def _take_packet(self, data: bytes, at: int, body: int, end: int) -> None:
        first = data[at]
        self._shared.counters.packets_received += 1
        self._piece.spent += PACKET_EFFORT
        if first & 0xF0 == _PUBLISH_PLAIN:
            self._intake.take_publish(first, data, at, body, end)
            return
        if end - body == 2 and first in _ACKS:
            # The short form, which nearly all acknowledgements have.
            packet_id = (data[body] << 8) + data[body + 1]
            if packet_id:
                self._take_ack(_ACKS[first], packet_id, 0)
                return
        if end - body > LONG_PACKET_BYTES and first in _LONG:
            self._piece.begin(self._take_long(first, data[body:end]))
            return
        packet = codec.decode(self.link.version, first, data[body:end])
        _HANDLERS.get(type(packet), _refuse_packet)(self, packet)

    # Everything else ----------------------------------------------------------------------------

    def _take_connect(self, data: bytes) -> None:
        link = self.link
        if link.state is LinkState.ADMITTING:
            # Nothing counts before authentication. Meanwhile the shell stops reading.
            self._keep(data, 0, EARLY_BYTES_MAX)
            if len(self._partial) > EARLY_BYTES_MAX:
                link.refuse(
                    ReasonCode.QUOTA_EXCEEDED, "too much came before CONNECT could be answered"
                )
        elif link.state is LinkState.AWAITING_CONNECT:
            if data[0] != PacketType.CONNECT << 4:  # [MQTT-3.1.0-1]
                self._shared.counters.protocol_errors += 1
                link.close()
                return
            length = codec.decode_length(data, 1) if len(data) > 1 else None
            if length is None:
                self._keep(data, 0, 0)
                return
            body, end = length[1], length[0] + length[1]
            head_end = min(body + codec.CONNECT_HEAD_BYTES, end)
            if end <= len(data) and end <= self._broker.connect_bytes_max:
                self._take_whole_connect(data, body, end)
            elif len(data) < head_end:
                self._keep(data, 0, head_end)
            elif codec.is_unknown_version(data[body:head_end]):
                self._take_whole_connect(data, body, end)
            elif end > self._broker.connect_bytes_max:
                link.version = codec.connect_version(data[body:head_end])
                link.refuse(ReasonCode.PACKET_TOO_LARGE, None)
            else:
                self._keep(data, 0, end)

    def _take_whole_connect(self, data: bytes, body: int, end: int) -> None:
        """Take a CONNECT and the bytes behind it.

        The CONNECT is complete, unless it has a version that we do not support.
        """
        self._shared.counters.packets_received += 1
        try:
            packet = codec.decode(MQTT_5, data[0], data[body:end])
        except ClientError as error:
            self.link.version = codec.connect_version(data[body:end])
            self.link.refuse(error.reason, error.message)
            return
        assert isinstance(packet, Connect)
        self.link.connect(packet)
        if end < len(data):
            if self.link.is_connected:
                self._take(data[end:])
            else:
                self._take_connect(data[end:])

    def take_early_bytes(self) -> None:
        """Take the bytes that came during authentication."""
        if self._partial and self.link.is_connected:
            data = bytes(self._partial)
            self._partial = b""
            try:
                self._take(data)
            except ClientError as error:
                self.link.fail(error.reason, error.message)

    def _take_ack_packet(self, packet: Packet) -> None:
        assert isinstance(packet, Ack)
        self._take_ack(packet.type, packet.packet_id, packet.reason)

    def _take_ack(self, kind: PacketType, packet_id: int, reason: int) -> None:
        session = self.link.session
        assert session is not None
        if kind == PacketType.PUBACK:
            session.handle_puback(packet_id, self._shared.now)
        elif kind == PacketType.PUBREC:
            session.handle_pubrec(packet_id, reason, self._shared.now)
        elif kind == PacketType.PUBCOMP:
            session.handle_pubcomp(packet_id, self._shared.now)
        else:
            self._acks.release(packet_id)

    def _take_subscribe(self, packet: Packet) -> None:
        assert isinstance(packet, Subscribe)
        self._piece.begin(self._broker.subscribe(self.link, packet))

    def _take_unsubscribe(self, packet: Packet) -> None:
        assert isinstance(packet, Unsubscribe)
        self._piece.begin(self._broker.unsubscribe(self.link, packet))

    def _take_long(self, first: int, body: bytes) -> Work:
        """Decode and handle a long SUBSCRIBE or UNSUBSCRIBE in pieces."""
        packet = yield from codec.decode_in_pieces(self.link.version, first, body)
        if isinstance(packet, Subscribe):
            yield from self._broker.subscribe(self.link, packet)
        else:
            yield from self._broker.unsubscribe(self.link, packet)

    def _take_ping(self, packet: Packet) -> None:
        assert isinstance(packet, Ping)
        if packet.type != PacketType.PINGREQ:
            _refuse_packet(self, packet)
        self.link.send(_PINGRESP)  # [MQTT-3.12.4-1]

    def _take_disconnect(self, packet: Packet) -> None:
        assert isinstance(packet, Disconnect)
        self.link.end(packet)

    def _take_auth(self, packet: Packet) -> None:
        assert isinstance(packet, Auth)
        # CONNECT agreed on no method, so there is no exchange to continue [MQTT-4.12.0-7].
        raise ClientError(ReasonCode.PROTOCOL_ERROR, "AUTH without an authentication method")


def _count_alike(data: bytes, each: int, head_bytes: int) -> int:
    """Return the number of packets if all have `each` bytes and the same head, else 0."""
    count, rest = divmod(len(data), each)
    if rest:
        return 0
    head = data[:head_bytes]
    starts_with = data.startswith
    for at in range(each, len(data), each):
        if not starts_with(head, at):
            return 0
    return count


def _refuse_packet(reader: PacketReader, packet: Packet) -> None:
    """Refuse a second CONNECT [MQTT-3.1.0-2], or a packet that only servers send."""
    del reader
    name = type(packet).__name__.upper()
    raise ClientError(ReasonCode.PROTOCOL_ERROR, f"{name} has no place here")


_BODILESS_BYTES = 2
_BODILESS: dict[bytes, Callable[[ClientLink], None]] = {
    b"\xc0\x00": lambda link: link.send(_PINGRESP),  # PINGREQ [MQTT-3.12.4-1]
    b"\xe0\x00": lambda link: link.end(_NORMAL_END),  # DISCONNECT
}
"""The packets without a body, which are often a whole read of a client that does nothing else."""

_HANDLERS: dict[type, Callable[[PacketReader, Packet], None]] = {
    Ack: PacketReader._take_ack_packet,
    Subscribe: PacketReader._take_subscribe,
    Unsubscribe: PacketReader._take_unsubscribe,
    Ping: PacketReader._take_ping,
    Disconnect: PacketReader._take_disconnect,
    Auth: PacketReader._take_auth,
}
