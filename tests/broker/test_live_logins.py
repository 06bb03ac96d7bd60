"""Users log in at a real broker while another client guesses passwords as fast as it can."""

import http.client
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dovetail import codec
from dovetail.broker.auth.passwords import set_password
from dovetail.broker.limits import LOGINS_WAITING_MAX
from dovetail.codec.packets import MQTT_3_1_1, MQTT_5, Connect
from dovetail.errors import ReasonCode
from dovetail.node.limits import KNOWN_LOGINS_FILE
from support.brokers.flooding import Flood
from support.brokers.wire_client import WireClient
from support.processes.broker_process import WAIT_SECONDS, BrokerProcess, wait_until

USERS = {"ann": b"correct horse", "bob": b"battery staple"}
GUESS = Connect(MQTT_5, "guess", user="ann", password=b"a guess")
HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
CONFIGURATION = """
[[listeners]]
kind = "tcp"
port = 0
[http]
port = 0
[access]
anonymous = "never"
password_file = "users"
failed_logins_per_minute_max = {}
"""


def started(folder: Path, failures_per_minute_max: int) -> BrokerProcess:
    for user, password in USERS.items():
        set_password(folder / "users", user, password)
    return BrokerProcess(folder, CONFIGURATION.format(failures_per_minute_max))


def guesses(broker: BrokerProcess, source: str, guess: Connect = GUESS) -> Flood:
    """More at any time than may wait."""
    words = codec.encode(guess.version, guess)
    return Flood([broker.port], 2 * LOGINS_WAITING_MAX, words, source)


def reason_of(
    broker: BrokerProcess, user: str, password: bytes | None = None, version: int = MQTT_5
) -> int:
    """Log in, and return the answer. Without a `password` the right one is used."""
    password = password or USERS[user]
    with WireClient(broker.port, version=version, user=user, password=password) as client:
        return client.connack.reason


@pytest.fixture(scope="module")
def unlimited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Only turns are between guesses and users."""
    with started(tmp_path_factory.mktemp("unlimited"), 0) as broker:
        yield broker


def test_a_flood_of_wrong_passwords_does_not_keep_users_of_other_addresses_out(
    unlimited: BrokerProcess,
) -> None:
    with guesses(unlimited, ELSEWHERE) as flood:
        wait_until(lambda: flood.closed > LOGINS_WAITING_MAX, "as many wait as may")
        assert reason_of(unlimited, "ann") == ReasonCode.SUCCESS
        assert reason_of(unlimited, "bob") == ReasonCode.SUCCESS


def test_who_logged_in_before_a_restart_gets_in_though_its_address_floods(
    unlimited: BrokerProcess,
) -> None:
    assert reason_of(unlimited, "bob") == ReasonCode.SUCCESS
    logins = unlimited.data / KNOWN_LOGINS_FILE
    wait_until(lambda: logins.exists() and logins.stat().st_size, "its login is recorded")
    unlimited.kill()
    unlimited.start()
    with guesses(unlimited, HERE) as flood:
        wait_until(lambda: flood.closed > LOGINS_WAITING_MAX, "as many wait as may")
        assert reason_of(unlimited, "bob") == ReasonCode.SUCCESS


def test_an_address_with_too_many_wrong_passwords_is_refused_for_a_while(tmp_path: Path) -> None:
    wrong, throttled = ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.CONNECTION_RATE_EXCEEDED
    with started(tmp_path, 1) as broker:
        assert reason_of(broker, "bob") == ReasonCode.SUCCESS  # and is known here from now on
        assert reason_of(broker, "ann", b"a guess") == wrong
        assert reason_of(broker, "ann") == throttled
        # 3.1.1 has return code 3 for it.
        assert reason_of(broker, "ann", version=MQTT_3_1_1) == ReasonCode.SERVER_UNAVAILABLE
        status, headers = http_login(broker, "ann", HERE)
        assert (status, headers["retry-after"]) == (429, "60")
        # Other addresses are not meant, nor is who is known at this one.
        assert http_login(broker, "ann", ELSEWHERE)[0] == 404
        assert reason_of(broker, "bob", b"a guess") == wrong
        assert reason_of(broker, "bob", b"a guess") == throttled
        assert reason_of(broker, "bob") == ReasonCode.SUCCESS  # its password is remembered
        assert broker.log().count("logins from 127.0.0.1 are refused for a while") == 1
        broker.reload()
        assert reason_of(broker, "ann", b"a guess") == wrong  # it is checked again


def http_login(broker: BrokerProcess, user: str, source: str) -> tuple[int, dict[str, str]]:
    """Asks for a handle that there is not."""
    proof = b64encode(user.encode() + b":" + USERS[user]).decode()
    connection = http.client.HTTPConnection(
        HERE, broker.port_of("http"), timeout=WAIT_SECONDS, source_address=(source, 0)
    )
    with closing(connection):
        headers = {"authorization": f"Basic {proof}"}
        connection.request("GET", "/subscriptions/x", headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.headers)
