"""Options of the command line override the file."""

import socket
from pathlib import Path

import pytest

from dovetail.errors import ConfigError
from dovetail.settings import (
    ClusterSettings,
    MatcherSettings,
    Options,
    Settings,
    check_spaces,
    movable_kinds,
    parse_counts,
    settings_of,
)
from dovetail.settings.limits import PIPELINE_MATCHERS


def refusal(options: Options) -> str:
    with pytest.raises(ConfigError) as caught:
        settings_of(options)
    return str(caught.value)


def test_no_options_change_nothing() -> None:
    assert settings_of(Options()) == Settings()
    assert movable_kinds(Options()) == {"tcp", "websocket", "http", "cluster"}


def test_a_chosen_port_does_not_move(tmp_path: Path) -> None:
    assert movable_kinds(Options(port=1)) == {"websocket", "http", "cluster"}
    assert movable_kinds(Options(listen="a:1")) == {"websocket", "http", "tcp"}
    file = tmp_path / "f"
    for text, moving in (
        ('name = "a"\n[http]\npolls_max = 1\n', {"tcp", "websocket", "http", "cluster"}),
        ('[[listeners]]\nkind = "tcp"\n', {"http", "cluster"}),
        ("[http]\nport = 8080\n", {"tcp", "websocket", "cluster"}),
        ("[cluster]\nenabled = true\n", {"tcp", "websocket", "http"}),
    ):
        file.write_text(text)
        assert movable_kinds(Options(config=str(file))) == moving
        assert movable_kinds(Options(config=str(file), port=1)) == moving - {"tcp"}


def test_host_and_port_are_those_of_the_tcp_listener(tmp_path: Path) -> None:
    tcp, websocket = settings_of(Options(host="::", port=5, data="d", workers=3)).listeners
    assert (tcp.host, tcp.port, websocket.host, websocket.port) == ("::", 5, "::", 8083)
    file = tmp_path / "f"
    file.write_text('[[listeners]]\nkind = "websocket"\n')
    assert "the configuration has none" in refusal(Options(config=str(file), port=1))


def test_a_node_has_a_folder_by_its_name() -> None:
    settings = settings_of(Options(is_node=True, name="a"))
    assert settings.cluster == ClusterSettings(enabled=True)
    assert (settings.name, settings.data) == ("a", "dovetail-data/a")
    assert settings_of(Options(is_node=True)).data == f"dovetail-data/{socket.gethostname()}"
    assert settings_of(Options(is_node=True, data="d")).data == "d"


def test_a_pipeline_adds_what_the_file_does_not_set(tmp_path: Path) -> None:
    plain = settings_of(Options(pipeline=True))
    assert (plain.archive.topics, plain.matchers) == (
        ("#",),
        MatcherSettings(),
    )  # there is no space
    file = tmp_path / "f"
    space = '[spaces.s]\ntopics = "s/#"\n{}[spaces.s.dimensions]\nx = [0, 1]\n'
    file.write_text(space.format(""))
    options = Options(config=str(file), pipeline=True)
    assert settings_of(options).matchers == MatcherSettings(count_min=PIPELINE_MATCHERS)
    none = settings_of(Options(config=str(file), pipeline=True, matchers=(0, 0)))
    assert none.matchers == MatcherSettings()
    file.write_text(space.format('engine = "spark"\n') + '[archive]\ntopics = ["s/+"]\n')
    streamed = settings_of(options)
    assert (streamed.archive.topics, streamed.matchers) == (("s/+",), MatcherSettings())


def test_where_a_node_shares_its_secret() -> None:
    assert Options(is_node=True).secret_folder == Path("dovetail-data")
    assert Options(is_node=True, data="d").secret_folder is None
    assert Options(is_node=True, config="f").secret_folder is None
    assert Options().secret_folder is None


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost:1", "localhost", 1),
        ("localhost", "localhost", 7883),
        ("7900", "127.0.0.1", 7900),
        ("[::1]:5", "::1", 5),
        ("[::1]", "::1", 7883),
    ],
)
def test_the_address_to_listen_on(text: str, host: str, port: int) -> None:
    cluster = settings_of(Options(is_node=True, listen=text)).cluster
    assert (cluster.host, cluster.port) == (host, port)


def test_options_of_a_node_are_checked() -> None:
    assert "--listen a:b" in refusal(Options(is_node=True, listen="a:b"))
    assert "--listen a:70000" in refusal(Options(is_node=True, listen="a:70000"))
    assert refusal(Options(is_node=True, join=("a:",))).startswith('cluster.join[0]: "a:" is no ')
    message = refusal(Options(is_node=True, listen="[::]"))
    assert "cluster.secret_file: is missing: other machines can reach ::" in message
    assert "cluster.advertise: is missing" in message
    assert refusal(Options(is_node=True, name="../../evil")).startswith('name: "../../evil" will ')
    told = Options(is_node=True, listen="[::]:1", advertise="a", secret_file="s", join=("b",))
    assert settings_of(told).cluster == ClusterSettings(
        enabled=True, host="::", port=1, advertise="a", secret_file="s", join=("b",)
    )


def test_options_keep_the_other_settings_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text(
        'name = "n"\ndata = "d"\n[cluster]\nenabled = true\njoin = ["a", "b"]\nport = 1\n'
    )
    settings = settings_of(Options(is_node=True, config=str(file), name="other"))
    assert (settings.name, settings.data) == ("other", str(tmp_path / "d"))
    assert settings.cluster == ClusterSettings(enabled=True, join=("a", "b"), port=1)
    assert settings_of(Options(is_node=True, config=str(file), join=("c",))).cluster.join == ("c",)


def test_a_matcher_reads_the_file_of_a_broker(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text(
        'name = "east"\nworkers = 3\n[access]\npassword_file = "p"\n'
        '[cluster]\nenabled = true\njoin = ["a:1"]\n'
        '[spaces.s]\ntopics = "s/#"\ndimensions = {x = [0, 1]}\n'
    )
    options = Options(config=str(file), is_node=True, role="matcher")
    settings = settings_of(options)
    assert (settings.name, settings.workers, settings.listeners) == ("east-matcher", 1, ())
    assert settings.access == Settings().access
    assert settings.cluster.enabled
    assert [*settings.spaces] == ["s"]
    named = Options(config=str(file), is_node=True, role="matcher", name="m", join=("b:2",))
    assert (settings_of(named).name, settings_of(named).cluster.join) == ("m", ("b:2",))


def test_options_that_a_matcher_refuses() -> None:
    join = ("a:1",)
    assert "it takes the address of one" in refusal(Options(is_node=True, role="matcher"))
    given = Options(is_node=True, role="matcher", join=join, port=1, data="d")
    assert refusal(given) == (
        "--port and --data: a matcher has no clients, and keeps nothing on disk."
    )
    with pytest.raises(ConfigError, match="matchers need a space"):
        check_spaces(settings_of(Options(is_node=True, role="matcher", join=join)))


@pytest.mark.parametrize(
    ("text", "counts"), [("0", (0, 0)), ("4", (4, 4)), ("1:4", (1, 4)), ("2:2", (2, 2))]
)
def test_how_many_matchers(text: str, counts: tuple[int, int]) -> None:
    assert parse_counts(text) == counts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it takes a number, or two: 1:4 is one to four"),
        ("1:", "it takes a number"),
        (":4", "it takes a number"),
        ("-1", "it takes a number"),
        ("1:2:3", "it takes a number"),
        ("\u0661", "it takes a number"),
        ("4:1", "the first number is the least, and is more"),
        ("0:4", "there has to be one at least, which reports its load"),
        ("65", "there can be 64 at most"),
        ("1:999999999", "it takes a number"),
    ],
)
def test_invalid_counts_of_matchers(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_counts(text)


def test_matchers_of_the_file_and_of_the_command(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("[matchers]\ncount_min = 2\nadd_above = 0.5\n")
    told = settings_of(Options(config=str(file))).matchers
    assert told == MatcherSettings(count_min=2, add_above=0.5)
    assert (told.count_most, told.is_elastic) == (2, False)
    told = settings_of(Options(config=str(file), matchers=(1, 4))).matchers
    assert told == MatcherSettings(count_min=1, count_max=4, add_above=0.5)
    assert (told.count_most, told.is_elastic) == (4, True)
    told = settings_of(Options(config=str(file), matchers=(0, 0))).matchers
    assert (told.count_min, told.count_most, told.is_elastic) == (0, 0, False)
