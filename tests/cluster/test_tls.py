"""TLS between nodes: certificates of one authority, none, another, or a man in the middle."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from dovetail.cluster.addresses import Address
from dovetail.cluster.link_settings import LinkSettings
from dovetail.errors import ConfigError
from support.certificates import Authority
from support.clusters.transport_nodes import ANSWER, ASK, dialed, links, nodes, run, until


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder)


@pytest.fixture(scope="module")
def stranger(folder: Path) -> Authority:
    return Authority(folder, "stranger")


def secured(
    name: str, signed_by: Authority, ca: Authority | None, **changes: object
) -> LinkSettings:
    certificate, key = signed_by.issue(name)
    return links(
        name,
        certificate=str(certificate),
        key=str(key),
        ca="" if ca is None else str(ca.file),
        **changes,
    )


@pytest.mark.parametrize("has_ca", [True, False])
def test_two_nodes_talk(authority: Authority, has_ca: bool) -> None:
    ca = authority if has_ca else None

    async def work() -> None:
        async with nodes(secured("a", authority, ca), secured("b", authority, ca)) as (a, b):
            a.transport.connect_to("b", b.address)
            await a.told("connected", "b")
            a.transport.send("b", ASK, bytes(1_000_000))
            await a.got("b", ANSWER, b"to " + bytes(1_000_000))
            (link,) = b.transport._links
            assert link._transport is not None
            secure = link._transport.get_extra_info("ssl_object")
            assert (secure.getpeercert(binary_form=True) is not None) == has_ca
            link.abort("cut by the test")
            await a.told("connected", "b", times=2)

    run(work())


def test_certificates_that_nobody_signed_will_do_with_a_secret(
    authority: Authority, stranger: Authority
) -> None:
    async def work() -> None:
        async with nodes(secured("a", authority, None), secured("b", stranger, None)) as (a, b):
            a.transport.connect_to("b", b.address)
            await a.told("connected", "b")

    run(work())


@pytest.mark.parametrize("is_dialer_strange", [True, False])
def test_another_authority(
    authority: Authority,
    stranger: Authority,
    caplog: pytest.LogCaptureFixture,
    is_dialer_strange: bool,
) -> None:
    """Whoever of the two is strange, both keep away from it."""

    async def work() -> None:
        known = secured("known", authority, authority)
        strange = secured("strange", stranger, stranger if is_dialer_strange else authority)
        async with nodes(known, strange) as both:
            dials, accepts = reversed(both) if is_dialer_strange else both
            dials.transport.connect_to(None, accepts.address)
            await until(lambda: "TLS: certificate verify failed" in caplog.text)
            assert dials.events == accepts.events == []

    run(work())


def test_with_an_authority_a_dialer_shows_its_certificate(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        context = ssl.create_default_context(cafile=str(authority.file))
        async with nodes(secured("a", authority, authority)) as (a,):
            with suppress(OSError):  # TLS 1.3 tells the client with its first read
                async with dialed(a.address, tls=context) as peer:
                    await peer.closed()
            await until(lambda: "rejected the connection from 127.0.0.1: TLS:" in caplog.text)
            assert not a.transport._links

    run(work())


def test_one_side_without_tls(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with nodes(secured("a", authority, None), links("b")) as (a, b):
            a.transport.connect_to("b", b.address)
            b.transport.connect_to("a", a.address)
            await until(
                lambda: "connect to b at" in caplog.text and "connect to a at" in caplog.text
            )
            assert a.events == b.events == []

    run(work())


@asynccontextmanager
async def in_between(
    target: Address, certificate: Path, key: Path
) -> AsyncIterator[tuple[Address, list[bytes]]]:
    """Ends TLS with a certificate of its own, and passes on what it then can read."""
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(certificate, key)
    client_side = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_side.check_hostname = False
    client_side.verify_mode = ssl.CERT_NONE
    read: list[bytes] = []

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                read.append(data)
                writer.write(data)
        writer.close()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*target, ssl=client_side)
        await asyncio.gather(pass_on(reader, back), pass_on(there, writer))

    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=server_side)
    host, port = server.sockets[0].getsockname()
    try:
        yield Address(host, port), read
    finally:
        server.close()


def test_who_stands_between_two_nodes_is_found_out(
    authority: Authority, stranger: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = stranger.issue("between")

    async def work() -> None:
        async with (
            nodes(secured("a", authority, None), secured("b", authority, None)) as (a, b),
            in_between(b.address, certificate, key) as (address, read),
        ):
            a.transport.connect_to("b", address)
            await until(lambda: caplog.text.count("or somebody stands between them") >= 2)
            assert read  # it was really there
            assert a.events == b.events == []
            await a.transport.stop()

    run(work())


def test_a_stranger_who_does_not_go_on_with_tls_is_closed(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        options = secured(
            "a", authority, None, handshake_seconds_max=0.1, stranger_handshakes_max=1
        )
        async with nodes(options) as (a,):
            async with dialed(a.address) as silent, dialed(a.address) as another:
                await silent.closed()  # TLS counts too
                await another.closed()
            assert a.transport._acceptor is not None
            assert not a.transport._acceptor._handshakes

    run(work())
    assert "newer connections needed its slot" in caplog.text
    assert "its handshake took more than 0.1 s" in caplog.text


@pytest.mark.parametrize(
    ("certificate", "key", "ca", "why"),
    [
        ("nothing.pem", "", "", "cannot use the certificate .*nothing.pem: no such file"),
        ("a.crt", "nothing.pem", "", "with the key .*nothing.pem: no such file"),
        ("a.crt", "b.key", "", "key values mismatch"),
        ("a.crt", "a.key", "nothing.pem", "cannot use the cluster's authorities"),
        ("a.crt", "a.key", "a.key", "cannot use the cluster's authorities"),
    ],
)
def test_files_that_cannot_be_used(
    folder: Path, authority: Authority, certificate: str, key: str, ca: str, why: str
) -> None:
    authority.issue("a")
    authority.issue("b")

    def path(name: str) -> str:
        return str(folder / name) if name else ""

    options = links("a", certificate=path(certificate), key=path(key), ca=path(ca))

    async def work() -> None:
        with pytest.raises(ConfigError, match=why):
            async with nodes(options):
                pass

    run(work())
