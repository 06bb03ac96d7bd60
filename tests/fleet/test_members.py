"""The names, folders and ports of several brokers."""

import shlex
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from dovetail.broker.store.journal import Batch
from dovetail.broker.store.sqlite import Store
from dovetail.cluster.node_settings import secret_file_of
from dovetail.errors import ConfigError
from dovetail.fleet.members import Fleet, check_folders, plan, settings_of_member
from dovetail.settings import Options, Settings, check_files, settings_of
from support.oracles.store import message
from support.processes.fleet_process import ANY_PORTS
from support.processes.ports import ReservedPort, ReservedPorts
from support.processes.unprivileged import error_as_nobody


@contextmanager
def planned(options: Options, count: int = 3, *, shares_ports: bool = False) -> Iterator[Fleet]:
    settings = settings_of(options)
    fleet = plan(options, settings, count, shares_ports=shares_ports)
    with fleet.held:
        yield fleet


def kept(folder: Path, *names: str) -> None:
    """Something that a client would miss."""
    for name in names:
        with closing(Store.open(folder / name, "process")) as store:
            store.commit(Batch(1, messages={1: message()._replace(retained=True)}))


def begun(folder: Path, *names: str) -> None:
    """As a broker leaves its folder that nobody came to."""
    for name in names:
        Store.open(folder / name, "process").close()


# Plans --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shares_ports", "counts"), [(False, (2, 2)), (True, (1, 2))])
def test_matchers_come_after_the_brokers(
    tmp_path: Path, shares_ports: bool, counts: tuple[int, int]
) -> None:
    """All that there may be, whether they are started at first or not."""
    file = tmp_path / "f"
    file.write_text(
        'name = "n"\n[[listeners]]\nkind = "tcp"\nport = 0\n[http]\nport = 0\n'
        '[cluster]\nport = 0\n[access]\npassword_file = "is not there"\n'
    )
    options = Options(config=str(file), data=str(tmp_path), matchers=counts)
    with planned(options, 2, shares_ports=shares_ports) as fleet:
        assert [member.role for member in fleet.members] == [*["broker"] * 2, *["matcher"] * 2]
        assert {member.tells_load for member in fleet.matchers} == {counts == (1, 2)}
        assert (fleet.brokers, fleet.matchers) == (fleet.members[:2], fleet.members[2:])
        settings = [settings_of_member(member) for member in fleet.members]
    assert [one.name for one in settings] == ["n-1", "n-2", "n-matcher-1", "n-matcher-2"]
    brokers = tuple(f"127.0.0.1:{one.cluster.port}" for one in settings[:2])
    for one in settings[2:]:
        assert (one.listeners, one.access) == ((), Settings().access)
        assert one.cluster.join == brokers
        assert one.cluster.secret_file == settings[0].cluster.secret_file
    ports = [port for one in settings for port in (one.http.port, one.cluster.port)]
    assert len(set(ports)) == 8
    assert not (tmp_path / "broker-3").exists()


def test_each_has_its_own(tmp_path: Path) -> None:
    with ReservedPorts(3) as reserved:
        first = reserved.first
        options = Options(port=first, data=str(tmp_path), is_node=True, name="n")
        with planned(options) as fleet:
            settings = [settings_of_member(member) for member in fleet.members]
    assert [one.name for one in settings] == ["n-1", "n-2", "n-3"]
    assert [one.data for one in settings] == [str(tmp_path / f"broker-{i}") for i in (1, 2, 3)]
    assert [one.listeners[0].port for one in settings] == [first + i for i in range(3)]
    ports = [
        port
        for one in settings
        for port in (one.http.port, one.cluster.port, *(each.port for each in one.listeners))
    ]
    assert len(set(ports)) == len(ports) == 12
    beside = tuple(f"127.0.0.1:{one.cluster.port}" for one in settings)
    for one in settings:
        assert one.cluster.enabled
        assert one.cluster.join == beside
        assert Path(one.cluster.secret_file) == tmp_path / "cluster.secret"
        assert Path(one.cluster.secret_file).exists()
        assert one.workers == 1


def test_ports_that_are_shared_are_held_against_others(tmp_path: Path) -> None:
    options = Options(port=0, data=str(tmp_path))
    with planned(options, shares_ports=True) as fleet:
        (port,) = {member.listener_ports[0] for member in fleet.members}
        assert len({member.http_port for member in fleet.members}) == 3
        assert all(member.shares_ports for member in fleet.members)
        for _ in range(2):  # also while no worker is there
            with pytest.raises(OSError, match="in use"):
                socket.create_server(("127.0.0.1", port))
            sharing(port).close()
        with sharing(port):
            taken = Options(port=port, data=str(tmp_path / "other"))
            with pytest.raises(ConfigError, match=f"port {port} \\(tcp\\): the port is taken"):
                plan(taken, settings_of(taken), 2, shares_ports=True)


def test_ports_of_each_are_held_for_its_broker(tmp_path: Path) -> None:
    """Also where they were any free ones, and while their broker is away."""
    file = tmp_path / "f"
    file.write_text(ANY_PORTS)
    options = Options(config=str(file), data=str(tmp_path))
    with planned(options, 2) as fleet:
        ports = [
            port
            for one in fleet.members
            for port in (*one.listener_ports, one.http_port, one.cluster_port)
        ]
        assert len({*ports}) == 6
        for port in ports:
            with pytest.raises(OSError, match="in use"):
                ReservedPort(port)
            for _ in range(2):  # its broker starts, and starts again
                with socket.create_server(("127.0.0.1", port), reuse_port=True):
                    pass
    for port in ports:
        ReservedPort(port).close()


def test_ports_that_nobody_chose_move(tmp_path: Path) -> None:
    """Whoever has the usual ones, this test or another program."""
    with held(8083), held(8080), held(7883), held(1884):
        for text in (None, 'name = "n"\n'):
            options = Options(port=0, data=str(tmp_path))
            if text is not None:
                (tmp_path / "f").write_text(text)
                options = replace(options, config=str(tmp_path / "f"))
            for shares_ports in (False, True):
                with planned(options, 2, shares_ports=shares_ports) as fleet:
                    first, second = fleet.members
                    ports = {first.listener_ports[1], first.http_port, first.cluster_port}
                    assert not ports & {8083, 8080, 7883}
                    assert (first.listener_ports == second.listener_ports) == shares_ports


def held(port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError:
        return socket.socket()  # another program has it: as good


def test_advice_names_the_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        for text, advice in (
            (f'[[listeners]]\nkind = "websocket"\nport = {port}\n', 'kind = "websocket"'),
            (f"[http]\nport = {port}\n", "table [http]"),
            (f"[cluster]\nenabled = true\nport = {port}\n", "table [cluster]"),
        ):
            (tmp_path / "f").write_text(text)
            options = Options(config=str(tmp_path / "f"), data=str(tmp_path))
            with pytest.raises(ConfigError, match=f"port {port} ") as caught:
                plan(options, settings_of(options), 2, shares_ports=False)
            assert advice in str(caught.value)
            assert "--port" not in str(caught.value)


def sharing(port: int) -> socket.socket:
    """As a worker does."""
    return socket.create_server(("127.0.0.1", port), reuse_port=True)


def test_ports_that_somebody_chose_are_not_moved(tmp_path: Path) -> None:
    with ReservedPorts(3) as reserved, socket.create_server(("127.0.0.1", reserved.first + 1)):
        options = Options(port=reserved.first, data=str(tmp_path))
        expected = f"port {reserved.first + 1} \\(tcp\\): the port is taken"
        with pytest.raises(ConfigError, match=expected):
            plan(options, settings_of(options), 3, shares_ports=False)


def test_those_of_http_behind_the_first_are_the_next_free_ones(tmp_path: Path) -> None:
    """So that a file with the default ports can have any number of workers."""
    file = tmp_path / "f"
    options = Options(config=str(file), data=str(tmp_path))
    with ReservedPorts(4) as reserved:
        first = reserved.first
        listener = f'[[listeners]]\nkind = "tcp"\nport = {first + 1}\n'
        file.write_text(f"{listener}[http]\nport = {first}\n")
        with planned(options, 3, shares_ports=True) as fleet:
            ports = [member.http_port for member in fleet.members]
    assert ports[0] == first
    assert first + 1 not in ports
    assert ports == sorted(set(ports))


def test_no_port_behind_the_last(tmp_path: Path) -> None:
    options = Options(port=65_535, data=str(tmp_path))
    with pytest.raises(ConfigError, match="there is no port 65536"):
        plan(options, settings_of(options), 2, shares_ports=False)


def test_what_others_are_told_goes_up_too(tmp_path: Path) -> None:
    secret = tmp_path / "s"
    secret.write_text("0123456789abcdef")
    with ReservedPorts(2) as reserved:
        options = Options(
            is_node=True,
            port=0,
            data=str(tmp_path),
            listen=f"0.0.0.0:{reserved.first}",
            advertise="a:5",
            join=("b:6",),
            secret_file=str(secret),
        )
        with planned(options, 2, shares_ports=True) as fleet:
            settings = [settings_of_member(member) for member in fleet.members]
    assert [one.cluster.advertise for one in settings] == ["a:5", "a:6"]
    assert all(one.cluster.join[-1] == "b:6" for one in settings)
    assert all(one.cluster.join[0].startswith("127.0.0.1:") for one in settings)


def test_who_joins_others_needs_their_secret(tmp_path: Path) -> None:
    options = Options(is_node=True, port=0, data=str(tmp_path), join=("b:6",))
    with pytest.raises(ConfigError, match="the secret of the cluster that is joined is not known"):
        plan(options, settings_of(options), 2, shares_ports=True)


# Folders ------------------------------------------------------------------------------------------


def test_nothing_is_left_out(tmp_path: Path) -> None:
    check_folders(tmp_path / "missing", None)
    check_folders(tmp_path, 2)
    kept(tmp_path, "broker-1", "broker-2", "another", "broker-x")
    check_folders(tmp_path, 2)
    check_folders(tmp_path, 3)


def test_fewer_than_there_were(tmp_path: Path) -> None:
    kept(tmp_path, "broker-1", "broker-2", "broker-3")
    with pytest.raises(ConfigError) as caught:
        check_folders(tmp_path, 1)
    assert str(caught.value) == (
        f"{tmp_path} has the data of 3 brokers, and 1 would leave out sessions or retained "
        "messages that are in "
        f"{tmp_path}/broker-2, {tmp_path}/broker-3.\n"
        "Start 3, or remove what is left out if nobody needs it any more."
    )
    with pytest.raises(ConfigError, match="--brokers 3, or --workers 3"):
        check_folders(tmp_path, None)


def test_several_where_there_was_one(tmp_path: Path) -> None:
    data = tmp_path / "a folder"
    kept(data, ".")
    check_folders(data, None)
    with pytest.raises(ConfigError, match="sessions or retained messages in it") as caught:
        check_folders(data, 2)
    _, _, line = str(caught.value).partition("the first one's: ")
    first = str(data / "broker-1")
    files = f"{data}/dovetail.*"
    assert shlex.split(line) == ["mkdir", "-p", first, "&&", "mv", files, f"{first}/"]
    assert f"'{data}'/dovetail.*" in line  # or a shell would not find them


def test_folders_without_anything_in_them_are_in_nobodys_way(tmp_path: Path) -> None:
    begun(tmp_path, ".", "broker-1", "broker-2", "broker-3")
    for count in (None, 1, 3):
        check_folders(tmp_path, count)


def test_a_folder_that_may_not_be_entered(tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    data = parent / "data"
    kept(data, ".", "broker-1")
    settings = Settings(data=str(data))
    for count in (None, 1):
        told = error_as_nobody(parent, lambda count=count: check_folders(data, count))  # type: ignore[misc]
        assert "cannot be used: Permission denied." in told or told == "nothing", told
    assert error_as_nobody(parent, lambda: check_files(settings)) == "nothing"
    for act in (lambda: secret_file_of(settings), lambda: Store.open(data, "process")):
        told = error_as_nobody(parent, act)
        assert "cannot be used: Permission denied.\nMend that, or choose another" in told


def test_ports_of_listeners_that_overlap(tmp_path: Path) -> None:
    file = tmp_path / "f"
    options = Options(config=str(file), data=str(tmp_path))
    with ReservedPorts(3) as reserved:
        first = reserved.first
        file.write_text(
            f'[[listeners]]\nkind = "tcp"\nport = {first}\n'
            f'[[listeners]]\nkind = "websocket"\nport = {first + 1}\n[http]\nport = 0\n'
        )
        with pytest.raises(ConfigError) as caught:
            plan(options, settings_of(options), 2, shares_ports=False)
    assert str(caught.value) == (
        f"the ports of these brokers overlap: 2 of them need ports {first + 1} to {first + 2} for "
        f"websocket, and {first + 1} is one for tcp.\n"
        "Leave 2 ports for each `port` in the configuration."
    )
