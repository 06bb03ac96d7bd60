"""Trouble for brokers that are real processes, under load from clients that always come back.

Senders at QoS 1 and 2 and receivers at each broker keep their part of MQTT (cluster_promises.py),
each in a thread of its own. Meanwhile brokers are killed, stopped and restarted, connections of
clients are lost, and the network is cut. Then all is made well again, and what was promised must
hold.

What is struck, and how, follows from the seed. What it meets does not, for processes run as they
like: a seed that failed once may have to be run several times.
"""

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random

from broker_process import wait_until
from cluster_brokers import ClusterBrokers
from cluster_network import ClusterNetwork, Cut
from cluster_promises import Keeping, Receiving, Sending, check
from dovetail.broker.packets import Disconnect
from wire_client import WireClient

NAMES = ("one", "two", "three")

SETTLE_SECONDS = 180.0
"""For everything to arrive once all is well again, on a machine that does other things, too."""

_RETRY_SECONDS = 0.05
_TURN_SECONDS = 0.05
"""When nothing has come for so long, a sender fills its window again."""

_FLOW_MESSAGES = 5


class Living(Keeping):
    """A thread that has a client's connection, and makes another whenever that one is lost."""

    roams: Random | None = None
    """If it does: it draws the broker that it comes back to."""

    def __init__(self, home: str, ports: Mapping[str, int]) -> None:
        self.home = home
        self.fault: BaseException | None = None
        self._ports = ports
        self._client: WireClient | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def give_up(self) -> None:
        self._is_over.set()

    def stop(self) -> None:
        """Its session is ended, too."""
        self.give_up()
        self._thread.join()
        with WireClient(self._ports[self.home], self.client_id) as client:
            client.disconnect()

    def lose(self) -> None:
        if self._client is not None:
            with contextlib.suppress(OSError):
                self._client.socket.shutdown(socket.SHUT_RDWR)

    def send(self, *packets: object) -> None:
        assert self._client is not None
        self._client.send(*packets)  # type: ignore[arg-type]

    def _live(self) -> None:
        try:
            while not self._is_over.is_set():
                with contextlib.suppress(OSError):
                    self._connect()
                self._is_over.wait(_RETRY_SECONDS)
                if self.roams is not None:
                    self.home = self.roams.choice(list(self._ports))
        except BaseException as error:  # noqa: BLE001 (for the thread that waits for us)
            self.fault = error

    def _connect(self) -> None:
        with WireClient(self._ports[self.home], self.client_id, kept=True) as client:
            if client.connack.reason:
                return  # it stops just now, or the session is still on its way
            self._client = client
            self.connected(session_present=client.connack.session_present)
            while not self._is_over.is_set():
                packet = client.receive_within(_TURN_SECONDS)
                if packet is None:
                    self.work()
                elif isinstance(packet, Disconnect):
                    return
                else:
                    self.take(packet)


class Receiver(Receiving, Living):
    """At a real broker."""

    def __init__(
        self, home: str, ports: Mapping[str, int], client_id: str, topic_filter: str, qos: int
    ) -> None:
        Living.__init__(self, home, ports)
        Receiving.__init__(self, client_id, topic_filter, qos)


class Sender(Sending, Living):
    """At a real broker."""

    def __init__(
        self, home: str, ports: Mapping[str, int], client_id: str, topic: bytes, qos: int
    ) -> None:
        Living.__init__(self, home, ports)
        Sending.__init__(self, client_id, topic, qos)


class Trouble:
    """Clients at all brokers, and things that happen to these. Leaves the cluster as it was."""

    def __init__(self, brokers: ClusterBrokers, network: ClusterNetwork, seed: int) -> None:
        self.brokers = brokers
        self.network = network
        self.random = Random(seed)
        self.story: list[str] = []
        self._began_at = time.monotonic()
        self._down: set[str] = set()
        self._stopped: set[str] = set()
        self._root = root = f"trouble-{seed}"
        ports = brokers.ports
        self.newcomers: list[Receiver] = []
        self.receivers = [
            Receiver(home, ports, f"{root}-receiver-{home}-{qos}", f"{root}/{rest}", qos)
            for home in NAMES
            for qos, rest in ((1, "#"), (2, "+/x"))
        ]
        self.senders = [
            Sender(
                home,
                ports,
                f"{root}-sender-{home}-{qos}",
                f"{root}/{home}{qos}/x".encode(),
                qos,
            )
            for home in NAMES
            for qos in (1, 2)
        ]

    @property
    def clients(self) -> list[Receiver | Sender]:
        return [*self.receivers, *self.newcomers, *self.senders]

    def let_roam(self) -> None:
        """From now on clients come back anywhere."""
        for client in self.clients:
            client.roams = Random(self.random.random())

    # The course of it -----------------------------------------------------------------------------

    def begin(self) -> None:
        for receiver in self.receivers:
            receiver.start()
        self.wait(lambda: all(one.ready for one in self.receivers), "everybody has subscribed")
        for sender in self.senders:
            sender.start()
        self.flow()

    def flow(self, *homes: str) -> None:
        """What is published from now on at these brokers, or all, is acknowledged."""
        senders = [one for one in self.senders if not homes or one.home in homes]
        # Those in its window were begun before.
        goals = {one: one.sent + _FLOW_MESSAGES for one in senders}
        self.wait(
            lambda: all(max(one.acknowledged, default=0) >= goals[one] for one in senders),
            f"messages flow at {', '.join(homes) or 'all brokers'}",
        )

    def end(self) -> None:
        """All is made well, everything arrives, and nothing is missing."""
        self.make_well()
        self._welcome()
        for sender in self.senders:
            sender.is_sending = False
        self.wait(lambda: all(one.is_done for one in self.senders), "all is acknowledged")
        self._wait_for_arrival("all has arrived")
        # What would come a second time would come before one more message.
        for sender in self.senders:
            sender.messages_max = sender.sent + 1
            sender.is_sending = True
        self.wait(
            lambda: all(
                len(one.acknowledged) and one.acknowledged[-1] == one.messages_max
                for one in self.senders
            ),
            "one more is acknowledged",
        )
        self._wait_for_arrival("one more has arrived")
        for client in self.clients:
            client.stop()
        check(self.receivers, self.senders)

    def _welcome(self) -> None:
        """Who subscribes now hears of all: brokers know of each other's subscriptions again."""
        self.newcomers = [
            Receiver(
                home, self.brokers.ports, f"{self._root}-newcomer-{home}", f"{self._root}/+/x", 1
            )
            for home in NAMES
        ]
        for newcomer in self.newcomers:
            newcomer.start()
        self.wait(
            lambda: all(
                newcomer.numbers(sender.topic)
                for newcomer in self.newcomers
                for sender in self.senders
            ),
            "newcomers hear of all",
        )

    def _wait_for_arrival(self, what: str) -> None:
        try:
            self.wait(self._has_arrived, what)
        except AssertionError:
            check(self.receivers, self.senders)  # which says what is missing
            raise

    def _has_arrived(self) -> bool:
        return all(
            set(receiver.numbers(sender.topic)).issuperset(sender.acknowledged)
            for receiver in self.receivers
            for sender in self.senders
        )

    def wait(self, condition: Callable[[], object], what: str) -> None:
        def is_so() -> object:
            for client in self.clients:
                if client.fault is not None:
                    raise AssertionError(f"{client.client_id}: {client.fault!r}") from client.fault
            return condition()

        wait_until(is_so, what, seconds=SETTLE_SECONDS)

    # What happens ---------------------------------------------------------------------------------

    def note(self, what: str) -> None:
        self.story.append(f"{time.monotonic() - self._began_at:6.2f} s: {what}")

    def kill(self, name: str) -> None:
        self.note(f"kill {name}")
        self._down.add(name)
        self._stopped.discard(name)
        self.brokers.kill(name)

    def start(self, name: str) -> None:
        self.note(f"start {name}")
        self.brokers.start(name)
        self._down.discard(name)
        self.note(f"{name} is up")

    def terminate(self, name: str) -> None:
        """As an operator does."""
        self.note(f"terminate {name}")
        self._down.add(name)
        assert self.brokers.stop(name) == 0, self.brokers.log(name)

    def suspend(self, name: str) -> None:
        self.note(f"stop {name}")
        self._stopped.add(name)
        self.brokers.signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self.note(f"go on {name}")
        self._stopped.discard(name)
        self.brokers.signal(name, signal.SIGCONT)

    def cut_off(self, name: str, how: Cut) -> None:
        self.note(f"cut off {name}: {how.name.lower()}")
        self.network.cut_off(name, how=how)

    def heal(self) -> None:
        self.note("heal")
        self.network.heal()

    def lose(self) -> None:
        client = self.random.choice(self.clients)
        self.note(f"lose {client.client_id}")
        client.lose()

    def make_well(self) -> None:
        self.heal()
        for name in sorted(self._stopped):
            self.resume(name)
        for name in sorted(self._down):
            self.start(name)

    def strike(self) -> None:
        """Anything, on top of whatever is so already."""
        name = self.random.choice(NAMES)
        deed = self.random.choice(("kill", "kill", "terminate", "suspend", "cut", "heal", "lose"))
        if name in self._stopped:
            if self.random.random() < 0.2:
                self.kill(name)
            else:
                self.resume(name)
        elif name in self._down:
            self.start(name)
        elif deed == "kill":
            self.kill(name)
        elif deed == "terminate":
            self.terminate(name)
        elif deed == "suspend":
            self.suspend(name)
        elif deed == "cut":
            self.cut_off(name, self.random.choice(list(Cut)))
        elif deed == "heal":
            self.heal()
        else:
            self.lose()


@contextlib.contextmanager
def open_cluster(folder: Path) -> Iterator[tuple[ClusterBrokers, ClusterNetwork]]:
    with (
        ClusterNetwork(*NAMES) as network,
        ClusterBrokers(folder, *NAMES, network=network) as brokers,
    ):
        yield brokers, network


@contextlib.contextmanager
def trouble(brokers: ClusterBrokers, network: ClusterNetwork, seed: int) -> Iterator[Trouble]:
    """The block strikes; then everything has to come right. A failure tells seed and story."""
    made = Trouble(brokers, network, seed)
    print(f"seed {seed}")
    try:
        made.begin()
        yield made
        made.end()
    except Exception as error:
        story = "\n".join(made.story)
        raise AssertionError(f"seed {seed}: {error}\n{story}") from error
    finally:
        for client in made.clients:
            client.give_up()
