"""Settings that are valid alone, and invalid together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.cluster.addresses import parse_address
from dovetail.errors import ConfigError
from dovetail.settings import parse_settings
from dovetail.settings.cross_checks import address_fault


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_settings(text, "f")
    return caught.value.message


def listener(kind: str, more: str = "") -> str:
    return f"[[listeners]]\nkind = '{kind}'\n{more}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name = 'a b'", 'f:1: name: "a b" will not do: it takes up to 255 letters'),
        (f"name = '{'a' * 256}'", "f:1: name: "),
        (
            "[matchers]\ncount_max = 2",
            "f:1: matchers.count_min: is 0: there has to be one at least",
        ),
        (
            "[matchers]\ncount_min = 3\ncount_max = 2",
            "f:3: matchers.count_max: is less than count_min, 3.",
        ),
        (
            "[matchers]\nremove_below = 0.6",
            "f:2: matchers.remove_below: has to be less than add_above, 0.6.",
        ),
        (
            f"name = '{'a' * 120}'\n[matchers]\ncount_min = 1",
            "f:3: matchers.count_min: the last one would be NAME-matcher-1, of more than 128",
        ),
        ("data = ''", "f:1: data: is empty: it takes the path of a folder."),
        (
            "[archive]\ntopics = ['a/#', 'a#']",
            'f:2: archive.topics[1]: "a#" is no topic filter: # must be the last level',
        ),
        (
            "[spaces.s]\ntopics = 's/#'\nengine = 'spark'\n[spaces.s.dimensions]\nx = [0, 1]",
            "f:3: spaces.s.engine: is spark, which reads messages from the archive: say in which",
        ),
        ("[archive]\nfolder = ''", "f:2: archive.folder: is empty: it takes the path of a folder."),
        (
            "name = '_a'\n[archive]\ntopics = ['#']",
            "f:1: name: a node with an archive has its name in those of files: it begins with",
        ),
        (
            listener("tls"),
            "f:1: listeners[0].certificate: is missing: kind tls needs the server's certificate.",
        ),
        (listener("secure-websocket"), "f:1: listeners[0].certificate: is missing"),
        (
            listener("tls", "certificate = 'c'\nclient_certificate = 'required'"),
            "f:1: listeners[0].client_ca: is missing: client_certificate is required",
        ),
        (
            listener("tls", "certificate = 'c'\nclient_ca = 'a'"),
            "f:4: listeners[0].client_ca: has no effect while client_certificate is none",
        ),
        (
            listener("tls", "certificate = 'c'\nuser_from_certificate = false"),
            "f:4: listeners[0].user_from_certificate: has no effect while client_certificate",
        ),
        (
            listener("tcp", "key = 'k'"),
            "f:3: listeners[0].key: has no effect for kind tcp; it is for tls and secure-",
        ),
        (
            listener("tcp", "path = '/x'"),
            "f:3: listeners[0].path: has no effect for kind tcp; it is for websocket and secure",
        ),
        (
            listener("websocket", "path = 'mqtt'"),
            'f:3: listeners[0].path: "mqtt" will not do: it takes a path that begins with /',
        ),
        (
            listener("websocket", "allowed_origins = [\n'https://a.b',\n'a.b']"),
            'f:5: listeners[0].allowed_origins[1]: "a.b" is no origin',
        ),
        (
            listener("tcp") + listener("tcp"),
            "f:4: listeners[1].port: 1883 is taken already, by listeners[0].",
        ),
        (
            "[cluster]\nenabled = true\njoin = ['a:1', 'b:']",
            'f:3: cluster.join[1]: "b:" is no address of a node: it takes host:port',
        ),
        (
            "[cluster]\nenabled = true\nadvertise = 'a:70000'",
            'f:3: cluster.advertise: "a:70000" is no address',
        ),
        ("[cluster]\nname = 'a b'", 'f:2: cluster.name: "a b" will not do: it takes up to 128'),
        ("[cluster]\nname = ''", 'f:2: cluster.name: "" will not do'),
        (
            "[cluster]\nsecret_file = 's'",
            "f:2: cluster.secret_file: has no effect while cluster.enabled is false.",
        ),
        (
            "[cluster]\nenabled = true\nhost = '192.0.2.1'",
            "f:1: cluster.secret_file: is missing: other machines can reach 192.0.2.1, and who ",
        ),
        (
            "[cluster]\nenabled = true\nhost = 'a.example'",
            "f:1: cluster.secret_file: is missing: other machines can reach a.example",
        ),
        (
            "[cluster]\nenabled = true\nhost = ''\nsecret_file = 's'",
            "f:1: cluster.advertise: is missing: a node that listens on every address",
        ),
        (
            "[cluster]\nenabled = true\nhost = '::'\nsecret_file = 's'",
            "f:1: cluster.advertise: is missing",
        ),
        (
            "[cluster]\nenabled = true\nca = 'c'",
            "f:3: cluster.ca: has no effect without a certificate.",
        ),
        (
            f"name = '{'a' * 129}'\n[cluster]\nenabled = true",
            "f:3: cluster.enabled: in a cluster a node's name has up to 128 characters.",
        ),
        (
            "[cluster]\nenabled = true\nport = 1883",
            "f:3: cluster.port: 1883 is taken already, by listeners[0].",
        ),
        ("[http]\nport = 1883", "f:2: http.port: 1883 is taken already, by listeners[0]."),
        (
            "[access]\nanonymous = 'never'",
            "f:2: access.anonymous: nobody could connect: without a password_file",
        ),
        (
            "[[access.rules]]\npublish = ['a/#', 'a/#/b']",
            'f:2: access.rules[0].publish[1]: "a/#/b" is no topic filter: # must be the last level',
        ),
        ("[[access.rules]]\nsubscribe = ['a+']", "f:2: access.rules[0].subscribe[0]: "),
        ("[[access.rules]]\ndeny_publish = ['']", "f:2: access.rules[0].deny_publish[0]: "),
        ("[[access.rules]]\ndeny = ['a/#/b']", "f:2: access.rules[0].deny[0]: "),
        (
            "[[access.rules]]\npublish = ['#']\n[[access.rules]]\nuser = 'a'\ndeny = ['s/#']",
            'f:5: access.rules[1].deny[0]: "s/#" has no effect: access.rules[0].publish allows "#"',
        ),
        (
            "access.rules = [{user='a*', subscribe=['+']}, {user='ab', deny_subscribe=['x']}]",
            'f:1: access.rules[1].deny_subscribe[0]: "x" has no effect: ',
        ),
        (
            "[[access.rules]]\ndeny_subscribe = ['$share/g/a']",
            'f:2: access.rules[0].deny_subscribe[0]: "$share/g/a" is no topic filter: it takes',
        ),
    ],
)
def test_faults(text: str, expected: str) -> None:
    message = refusal(text)
    assert message.startswith(expected)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("host", "other", "clash"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "localhost", True),
        ("127.0.0.1", "0.0.0.0", True),  # noqa: S104
        ("::1", "::", True),
        ("", "10.0.0.1", True),
        ("10.0.0.1", "127.0.0.1", False),
        ("0.0.0.0", "::", False),  # noqa: S104
        ("0:0::1", "::1", True),
        ("some-name", "other-name", False),
        ("some-name", "some-name", True),
    ],
)
def test_one_port_at_two_hosts(host: str, other: str, clash: bool) -> None:
    for first, second in ((host, other), (other, host)):
        text = listener("tcp", f"host='{first}'") + listener("tcp", f"host='{second}'")
        if clash:
            assert "listeners[1].port: 1883 is taken" in refusal(text)
        else:
            assert len(parse_settings(text, "f").listeners) == 2


@pytest.mark.parametrize(
    "rules",
    [
        "{deny=['s/#']}, {publish=['#'], subscribe=['#']}",
        "{publish=['#'], deny=['s/#']}",
        "{user='a', publish=['#'], subscribe=['#']}, {deny=['s/#']}",
        "{user='a*', publish=['#']}, {user='*b', deny=['s/#']}",
        "{publish=['s/+']}, {deny_publish=['s/#']}",
        "{publish=['#']}, {deny_publish=['%u/#', '$x/#'], deny_subscribe=['s']}",
    ],
)
def test_a_denial_that_has_an_effect_is_no_fault(rules: str) -> None:
    assert parse_settings(f"access.rules = [{rules}]", "f").access.rules


def test_any_free_port_is_free_for_many() -> None:
    text = listener("tcp", "port = 0") * 3 + "[http]\nport = 0\n"
    assert len(parse_settings(text, "f").listeners) == 3


def test_disabled_http_uses_no_port() -> None:
    assert parse_settings("[http]\nenabled = false\nport = 1883", "f").http.port == 1883


@pytest.mark.parametrize(
    "text",
    [
        "[access]\nanonymous = 'never'\npassword_file = 'users'",
        "[access]\nanonymous = 'never'\n"
        + listener("tls", "certificate = 'c'\nclient_ca = 'a'\nclient_certificate = 'optional'"),
    ],
)
def test_anonymous_never_needs_a_way_to_log_in(text: str) -> None:
    assert parse_settings(text, "f").access.anonymous == "never"


@given(
    st.text("a.:[]%-_1", max_size=8)
    | st.from_regex(r"\A[a-z0-9.\[\]:%]{0,12}(:[0-9]{0,6})?\Z", fullmatch=True)
)
def test_the_cluster_accepts_the_same_addresses(text: str) -> None:
    try:
        parse_address(text)
    except ConfigError:
        assert address_fault(text) is not None
    else:
        assert address_fault(text) is None


def test_a_cluster_on_this_machine_needs_nothing_else() -> None:
    for host in ("127.0.0.1", "localhost", "::1"):
        text = f"[cluster]\nenabled = true\nhost = '{host}'\njoin = ['a']"
        assert parse_settings(text, "f").cluster.enabled


def test_workers_have_different_names() -> None:
    parse_settings(f"workers = 2\nname = '{'n' * 126}'", "f")
    with pytest.raises(ConfigError, match="f:2: name: is too long for workers: the last one would"):
        parse_settings(f"workers = 2\nname = '{'n' * 127}'", "f")
    parse_settings(f"name = '{'n' * 127}'", "f")
