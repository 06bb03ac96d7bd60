"""Valid files, and faulty ones: errors name file, line, key and what is allowed."""

from pathlib import Path

import pytest

from dovetail.errors import ConfigError
from dovetail.settings import (
    AccessRule,
    HttpSettings,
    ListenerSettings,
    LogSettings,
    MqttSettings,
    Settings,
)
from dovetail.settings import load_settings as load
from dovetail.settings import parse_settings as parse
from dovetail.settings.faults import FAULTS_SHOWN_MAX


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, "dovetail.toml")
    return caught.value.message


def test_an_empty_file_is_the_defaults() -> None:
    assert parse("", "dovetail.toml") == Settings()
    assert load(None) == Settings()


def test_a_whole_file() -> None:
    text = """\
name = "north-1"
durability = "power"

[[listeners]]
kind = "tcp"
host = "0.0.0.0"

[[listeners]]
kind = "secure-websocket"
port = 443
certificate = "/etc/chain.pem"
client_ca = "/etc/clients.pem"
client_certificate = "optional"
allowed_origins = ["https://example.org"]

[http]
enabled = false

[access]
anonymous = "never"
password_file = "/etc/users"

[[access.rules]]
user = "meter-*"
publish = ["meters/%u/#"]
deny_subscribe = ["#"]

[mqtt]
maximum_qos = 1
queue_bytes_max = 1_048_576
sys_interval_seconds = 2.5

[log]
level = "debug"
"""
    settings = parse(text, "dovetail.toml")
    assert settings.name == "north-1"
    assert settings.listeners == (
        ListenerSettings(kind="tcp", host="0.0.0.0", port=1883),  # noqa: S104
        ListenerSettings(
            kind="secure-websocket",
            port=443,
            certificate="/etc/chain.pem",
            client_ca="/etc/clients.pem",
            client_certificate="optional",
            allowed_origins=("https://example.org",),
        ),
    )
    assert settings.http == HttpSettings(enabled=False)
    assert settings.access.rules == (
        AccessRule(user="meter-*", publish=("meters/%u/#",), deny_subscribe=("#",)),
    )
    assert settings.mqtt == MqttSettings(
        maximum_qos=1, queue_bytes_max=1 << 20, sys_interval_seconds=2.5
    )
    assert settings.log == LogSettings(level="debug")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a = ", 1, "not TOML: Invalid value"),
        ("\n\na b", 3, "not TOML: Expected '='"),
        ('name = "x"\n\n[mqtt', 3, "not TOML: Expected ']'"),
        ("x = '''\n\n\n", 1, "not TOML: "),
        ("a = 1\na = 2", 2, "not TOML: Cannot overwrite"),
    ],
)
def test_syntax(text: str, line: int, words: str) -> None:
    assert refusal(text).startswith(f"dovetail.toml:{line}: {words}")


def test_an_integer_with_too_many_digits() -> None:
    assert refusal(f"[mqtt]\nreceive_max = {'9' * 5000}").startswith("dovetail.toml: not TOML: ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nme = 'x'", "1: nme: there is no such setting; did you mean name?"),
        (
            "[mqtt]\n\nrecieve_max = 5",
            "3: mqtt.recieve_max: there is no such setting; did you mean receive_max?",
        ),
        (
            "receive_max = 5",
            "1: receive_max: there is no such setting here; it belongs to [mqtt].",
        ),
        ("[log]\nport = 5", "2: log.port: there is no such setting here; it belongs to "),
        ("[log]\nxyz = 5", "2: log.xyz: there is no such setting here; known ones are level."),
        (
            "[mqtt]\nreceive_max = 70000",
            "2: mqtt.receive_max: 70_000 will not do: it takes a whole number from 1 to 65_535.",
        ),
        (
            "[mqtt]\nreceive_max = 0",
            "2: mqtt.receive_max: 0 will not do: it takes a whole number from 1 to 65_535.",
        ),
        (
            "[mqtt]\nreceive_max = 5.0",
            "2: mqtt.receive_max: 5.0 will not do: it takes a whole number from 1 to 65_535.",
        ),
        ("[mqtt]\nreceive_max = true", "2: mqtt.receive_max: true will not do: it takes a whole "),
        (
            "[mqtt]\nmaximum_qos = true",
            "2: mqtt.maximum_qos: true will not do: it takes 0, 1 or 2.",
        ),
        ("[mqtt]\nmaximum_qos = 3", "2: mqtt.maximum_qos: 3 will not do: it takes 0, 1 or 2."),
        (
            "[mqtt]\nsys_interval_seconds = nan",
            "2: mqtt.sys_interval_seconds: nan will not do: it takes a number from 0 to 86_400.",
        ),
        ("[mqtt]\nsys_interval_seconds = inf", "2: mqtt.sys_interval_seconds: inf will not do"),
        ("mqtt = 3", "1: mqtt: 3 will not do: it takes a table."),
        ("[listeners]\nkind = 'tcp'", "1: listeners: a table will not do: it takes tables, each "),
        ("listeners = [1]", "1: listeners[0]: 1 will not do: it takes a table."),
        (
            "[http]\nenabled = 'yes'",
            '2: http.enabled: "yes" will not do: it takes true or false.',
        ),
        ("name = 1979-05-27", "1: name: 1979-05-27 will not do: it takes a text in quotes."),
        (
            "\n[log]\nlevel = 'loud'",
            '3: log.level: "loud" will not do: it takes "debug", "error", "info" or "warning".',
        ),
        (
            "[[listeners]]\nkind='tcp'\n[[listeners]]\nport = 1",
            '3: listeners[1].kind: is missing: it takes "secure-websocket", "tcp", "tls" or ',
        ),
        (
            "[[access.rules]]\npublish = [\n  'a',\n  3,\n]",
            "4: access.rules[0].publish[1]: 3 will not do: it takes a text in quotes.",
        ),
        (
            "access.rules = [{publish = 'a'}]",
            '1: access.rules[0].publish: "a" will not do: it takes a list of texts.',
        ),
    ],
)
def test_shape(text: str, expected: str) -> None:
    message = refusal(text)
    assert message.startswith(f"dovetail.toml:{expected}")
    assert "\n" not in message


def test_all_faults_are_listed_in_the_order_of_their_lines() -> None:
    message = refusal("[mqtt]\nreceive_max = 0\n[log]\nlevel = 1\n[http]\nprt = 1\n")
    assert [line.split(": ")[0] for line in message.splitlines()] == [
        "dovetail.toml:2",
        "dovetail.toml:4",
        "dovetail.toml:6",
    ]


def test_the_faults_of_a_file_of_another_kind_are_counted() -> None:
    text = "\n".join(f"unknown{number} = 1" for number in range(1000))
    lines = refusal(text).splitlines()
    assert len(lines) == FAULTS_SHOWN_MAX + 1
    assert lines[-1] == "and 980 more."


def test_a_long_value_is_shortened() -> None:
    assert len(refusal(f"[log]\nlevel = '{'x' * 9999}'")) < 250


def test_a_file_with_windows_line_ends() -> None:
    assert refusal('name = "a"\r\n[log]\r\n# x\r\nlevel = 1\r\n').startswith("dovetail.toml:4: ")


@pytest.mark.parametrize("depth", [300, 5_000])
def test_a_file_of_nothing_but_brackets(depth: int) -> None:
    assert refusal(f"name = {'[' * depth}{']' * depth}").startswith("dovetail.toml:")


def test_relative_paths_are_taken_from_the_folder_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "etc" / "dovetail.toml"
    file.parent.mkdir()
    file.write_text(
        "[access]\npassword_file = 'users'\n"
        "[[listeners]]\nkind = 'tls'\ncertificate = '../chain.pem'\nkey = '/keys/key.pem'\n"
    )
    settings = load(file)
    assert settings.data == str(file.parent / "dovetail-data")
    assert settings.access.password_file == str(file.parent / "users")
    (listener,) = settings.listeners
    assert listener.certificate == str(file.parent / "../chain.pem")
    assert listener.key == "/keys/key.pem"
    assert not listener.client_ca


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"cannot read the configuration file .*x\.toml: No such file or directory",
    ):
        load(tmp_path / "x.toml")


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_bytes(b"name = 'a'\n\n# \xff\n")
    with pytest.raises(ConfigError, match=r"x\.toml:3: not UTF-8 text"):
        load(file)
