"""The documentation names existing commands, options, settings, limits, metrics and files.

Prose is not checked. Other tests check whether a command does what a page says.
"""

import ast
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from msgspec import Struct
from prometheus_client import generate_latest
from typer.core import TyperCommand, TyperGroup

from dovetail import limits
from dovetail.attributes import grammar as clause_grammar
from dovetail.attributes import limits as attribute_limits
from dovetail.attributes.declaration import declared_spaces
from dovetail.attributes.space import matches
from dovetail.broker.sys_topics import AVERAGED_SECONDS, LOADS, PREFIX, TOPICS
from dovetail.cli import app
from dovetail.settings import (
    DEFAULT_PORTS,
    AccessRule,
    ClusterSettings,
    DimensionSettings,
    ListenerSettings,
    MatcherSettings,
    MqttSettings,
    Settings,
    SpaceSettings,
    parse_settings,
)
from dovetail.settings.faults import as_toml
from dovetail.web import MatcherViews
from dovetail.web.matcher_pages import make_matcher_registry
from dovetail.web.metrics import make_registry
from support.brokers.web_views import MATCHER, told_cluster, views
from support.processes.checkout import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
SOURCE = ROOT / "src" / "dovetail"
PACKAGES = sorted(file.parent for file in SOURCE.rglob("__init__.py"))
FOR_USERS = [page for page in PAGES if page.name == "README.md" or page.parent.name == "docs"]
RUNNING = ROOT / "docs" / "running.md"
CLUSTER = ROOT / "docs" / "cluster.md"
ATTRIBUTES = ROOT / "docs" / "attributes.md"
PIPELINE = ROOT / "docs" / "pipeline.md"

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
_SETTING = re.compile(
    r"\b(mqtt|access|archive|http|log|cluster|listeners|matchers)\.([a-z_]+)\b(?!\()"
)
_LIMIT = re.compile(r"^\| `mqtt\.(\w+)` \| `([^`]+)` \| \S", re.MULTILINE)
_CODE_FILES = (".md", ".py", ".secret", ".toml")

Command = TyperCommand | TyperGroup

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
every_page_for_users = pytest.mark.parametrize("page", FOR_USERS, ids=lambda page: page.name)


def blocks(page: Path, *languages: str) -> list[str]:
    found = _BLOCK.findall(page.read_text())
    return [text for language, text in found if language in languages]


def spans(page: Path) -> list[str]:
    """Return code within sentences."""
    return _SPAN.findall(_BLOCK.sub("", page.read_text()))


# Commands ---------------------------------------------------------------------------------------


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words after `dovetail` of each of our commands on a page."""
    lines = [*spans(page)]
    for text in blocks(page, "", "sh", "ini"):
        lines += text.replace("\\\n", " ").splitlines()
    for line in lines:
        for command in re.split(r"&&|\|\s|;", line.removeprefix("ExecStart=")):
            if re.match(r"\s*(?:\./|/\S+/)?dovetail(?:\s|$)", command):
                yield shlex.split(command, comments=True)[1:]


def check_command(words: list[str]) -> None:
    """Raise a KeyError or AssertionError that names the unknown word."""
    at = whole_command()
    for word in words:
        if word == "--":
            return
        if word.startswith("-") and word != "-":
            assert word.partition("=")[0] in options(at), f"{at.name} has no option {word}"
        elif isinstance(at, TyperGroup) and word != "...":
            for alternative in word.split("|"):  # as in build|info|search
                found = as_command(at.commands[alternative])
            at = found


def whole_command() -> Command:
    return as_command(typer.main.get_command(app))


def as_command(found: object) -> Command:
    assert isinstance(found, TyperCommand | TyperGroup)
    return found


def options(command: Command) -> set[str]:
    known = {"--help"}
    for parameter in command.params:
        known |= {*parameter.opts, *parameter.secondary_opts}
    return known


def all_options(command: Command) -> set[str]:
    below = command.commands.values() if isinstance(command, TyperGroup) else ()
    return options(command).union(*(all_options(as_command(one)) for one in below))


@every_page
def test_commands_are_known(page: Path) -> None:
    for words in commands(page):
        check_command(words)


def test_commands_are_found() -> None:
    found = {words[0] for page in FOR_USERS for words in commands(page) if words}
    assert {
        "up",
        "pub",
        "sub",
        "config",
        "passwd",
        "backup",
        "status",
        "route",
        "spaces",
        "node",
        "sketch",
        "match",
        "reproduce",
    } <= found
    assert ["up", "--config", "/etc/dovetail/dovetail.toml", "--quiet"] in commands(RUNNING)


@pytest.mark.parametrize("wrong", ["fly", "up --colour", "sketch melt", "sketch build|melt"])
def test_unknown_words_are_noticed(wrong: str) -> None:
    with pytest.raises((KeyError, AssertionError)):
        check_command(wrong.split())


@every_page_for_users
def test_options_in_sentences_are_known(page: Path) -> None:
    named = {span.split()[0] for span in spans(page) if span.startswith("--")}
    assert named <= all_options(whole_command())


# Settings ---------------------------------------------------------------------------------------


@every_page_for_users
def test_settings_are_known(page: Path) -> None:
    tables: dict[str, type[Struct]] = {
        name: type(value)
        for name in ("mqtt", "access", "archive", "http", "log", "cluster", "matchers")
        if isinstance(value := getattr(Settings(), name), Struct)
    }
    tables["listeners"] = ListenerSettings
    for table, key in (found for span in spans(page) for found in _SETTING.findall(span)):
        if f".{key}" not in _CODE_FILES:
            assert key in tables[table].__struct_fields__, f"{table}.{key}"


@pytest.mark.parametrize(
    "text",
    [text for page in (RUNNING, CLUSTER, ATTRIBUTES, PIPELINE) for text in blocks(page, "toml")],
)
def test_configurations_can_be_read(text: str) -> None:
    assert parse_settings(text, "a page") != Settings()


def test_every_setting_of_the_cluster_is_named() -> None:
    named = {key for span in spans(CLUSTER) for table, key in _SETTING.findall(span)}
    assert {*ClusterSettings.__struct_fields__, *MatcherSettings.__struct_fields__} <= named


def test_every_limit_is_in_the_table_with_its_default() -> None:
    limits = MqttSettings()
    expected = [(name, as_toml(getattr(limits, name))) for name in limits.__struct_fields__]
    assert _LIMIT.findall(RUNNING.read_text()) == expected


def test_every_kind_of_listener_is_in_the_table_with_its_port() -> None:
    page = RUNNING.read_text()
    assert [kind for kind, port in DEFAULT_PORTS.items() if f"| `{kind}` | {port} |" in page] == [
        *DEFAULT_PORTS
    ]


@pytest.mark.parametrize("table", [ListenerSettings, AccessRule], ids=lambda table: table.__name__)
def test_every_key_of_listeners_and_rules_is_named(table: type[Struct]) -> None:
    named = set(re.findall(r"\w+", " ".join([*spans(RUNNING), *blocks(RUNNING, "toml")])))
    assert set(table.__struct_fields__) <= named


# Attributes --------------------------------------------------------------------------------------


def test_every_key_of_spaces_is_in_the_table() -> None:
    named = re.findall(r"^\| `(\w+)` \| ", ATTRIBUTES.read_text(), re.MULTILINE)
    keys = {*SpaceSettings.__struct_fields__, *DimensionSettings.__struct_fields__} - {"bounds"}
    assert {*named} == keys


def test_the_grammar_is_that_of_the_parser() -> None:
    (grammar,) = (text for text in blocks(ATTRIBUTES, "") if text.startswith("clause"))
    assert clause_grammar.__doc__ is not None
    assert textwrap.indent(grammar, "    ") in clause_grammar.__doc__


def test_clauses_match_as_documented() -> None:
    (text,) = blocks(ATTRIBUTES, "where")
    assert [clause_grammar.parse(line) for line in text.splitlines()]
    (declared,) = blocks(ATTRIBUTES, "toml")
    (space,) = declared_spaces(parse_settings(declared, "a page").spaces)
    row = re.compile(r"^\| `(.+)` \| `(\w+)=(.+)` \| (yes|no) \|$", re.MULTILINE)
    rows = row.findall(ATTRIBUTES.read_text())
    assert len(rows) > 10
    for clause, name, value, answer in rows:
        point = space.point({name: value})
        found = any(matches(box, point) for box in space.boxes(clause_grammar.parse(clause)))
        assert found == (answer == "yes"), (clause, name, value)


def test_limits_of_clauses_are_documented() -> None:
    page = ATTRIBUTES.read_text()
    for words, limit in (
        ("up to {} numbers", limits.SPACE_DIMENSIONS_MAX),
        ("up to {} texts", limits.SPACE_TEXTS_MAX),
        ("A broker has up to {} spaces", limits.SPACES_MAX),
        ("| characters of a clause | {} |", limits.WHERE_CHARACTERS_MAX),
        ("| parentheses within each other | {} |", attribute_limits.WHERE_DEPTH_MAX),
        ("are one each | {} |", attribute_limits.WHERE_CONJUNCTIONS_MAX),
        ("| {} texts, or as many", attribute_limits.WHERE_MEMBERS_MAX),
        ("| attributes that a clause names | {} |", attribute_limits.WHERE_NAMES_MAX),
        ("| characters of a name | {} |", limits.ATTRIBUTE_NAME_CHARACTERS_MAX),
    ):
        assert words.format(f"{limit:,}") in page


# What a broker shows ----------------------------------------------------------------------------


@every_page_for_users
def test_metrics_are_known(page: Path) -> None:
    matcher = MatcherViews(lambda: (True, ""), lambda: MATCHER, told_cluster)
    shown = "\n".join(
        generate_latest(registry).decode()
        for registry in (make_registry(views()), make_matcher_registry(matcher))
    )
    known = set(re.findall(r"^(\w+)", shown, re.MULTILINE))
    named = re.findall(r"\b(?:dovetail|process)_\w+", " ".join(spans(page)))
    assert set(named) <= known


@every_page_for_users
def test_topics_of_the_broker_are_known(page: Path) -> None:
    known = {PREFIX + name for name in TOPICS}
    known |= {f"{PREFIX}{name}/{span}" for name in LOADS for span in AVERAGED_SECONDS}
    folders = {PREFIX, f"{PREFIX}dovetail/"}
    named = re.findall(rf"{re.escape(PREFIX)}[\w/]*", " ".join(spans(page)))
    assert set(named) <= known | folders


# Files ------------------------------------------------------------------------------------------


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    targets = [target for target in _LINK.findall(page.read_text()) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda folder: folder.name)
def test_the_map_of_a_package_names_all_that_is_in_it(package: Path) -> None:
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    modules = {file.name for file in package.glob("*.py") if not file.name.startswith("_")}
    if package != SOURCE:
        modules -= {"limits.py"}  # the same in every package: the map of all names it
    packages = [f"{file.parent.name}/" for file in package.glob("*/__init__.py")]
    missing = [name for name in (*modules, *packages) if not re.search(rf"\b{name}", text)]
    assert missing == []


def test_python_of_the_readme_runs() -> None:
    for text in blocks(ROOT / "README.md", "python"):
        exec(text, {})  # noqa: S102
