"""Rules of the code that linters cannot express: imports by file name, unique names, ports."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "dovetail"


def imported_packages(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(), file)):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def is_kernel(file: Path) -> bool:
    # compilation.py has the decorators of kernels.
    return file == SOURCE / "compilation.py" or "kernels" in file.relative_to(SOURCE).parts


def test_only_kernels_import_numba() -> None:
    offenders = [
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*.py")
        if "numba" in imported_packages(file) and not is_kernel(file)
    ]
    assert offenders == []


def test_every_package_has_an_init() -> None:
    # import-linter does not see modules in folders without one.
    folders = {file.parent for file in SOURCE.rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_every_limit_has_a_name_of_its_own() -> None:
    """Python silently lets a second constant of the same name replace the first."""
    lines = [line for file in SOURCE.rglob("limits.py") for line in file.read_text().splitlines()]
    names = [line.partition(" = ")[0] for line in lines if re.match(r"[A-Z0-9_]+ = ", line)]
    assert len(names) > 30
    assert sorted(names) == sorted(set(names))


# Names --------------------------------------------------------------------------------------------

SAME_CONCEPT = {
    "__init__": "the map of a package",
    "limits": "the bounds of a package",
    "job": "a Spark command, from options to files",
    "report": "the HTML page of a command",
    "spaces": "their settings, and their inspection",
    "route": "a broker's route, and its inspection",
    "access": "its settings, and its decisions",
    "listeners": "their settings, and their sockets",
}
"""File names that several packages may have, as they mean the same there at another level."""


def test_a_file_name_leads_to_one_module() -> None:
    modules = [file.stem for file in SOURCE.rglob("*.py") if "kernels" not in file.parts]
    assert {name for name, times in Counter(modules).items() if times > 1} == SAME_CONCEPT.keys()


def test_no_class_name_occurs_more_than_twice() -> None:
    classes = Counter(
        node.name.lstrip("_")
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(), file))
        if isinstance(node, ast.ClassDef)
    )
    assert len(classes) > 300
    assert {name: times for name, times in classes.items() if times > 2} == {}


# Ports of tests and benchmarks --------------------------------------------------------------------


def released_ports(text: str) -> Iterator[int]:
    """Yield lines that choose a port, release it, and hope that it is still free when used."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if re.match("_?(free|unused|pick)(_tcp)?_(port|block)", node.name):
                yield node.lineno
        elif isinstance(node, ast.With | ast.AsyncWith):
            if any(is_socket(item.context_expr) for item in node.items):
                yield from (
                    inner.lineno
                    for inner in ast.walk(node)
                    if isinstance(inner, ast.Return) and "getsockname" in ast.unparse(inner)
                )
        elif isinstance(node, ast.Attribute) and node.attr == "close" and is_socket(node.value):
            yield node.lineno


def is_socket(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in {
        "create_server",
        "socket.create_server",
        "socket.socket",
    }


@pytest.mark.parametrize(
    "text",
    [
        "with socket.create_server((HOST, 0)) as one:\n    return one.getsockname()[1]",
        "with socket.socket() as one:\n    one.bind(A)\n    return int(one.getsockname()[1])",
        "port = random.choice(PORTS)\nsocket.create_server((HOST, port)).close()",
        "def free_port(): ...",
        "def unused_tcp_port(): ...",
    ],
)
def test_a_port_that_is_released_is_found(text: str) -> None:
    indented = "".join(f"    {line}\n" for line in text.splitlines())
    assert [*released_ports(f"def choose():\n{indented}")] != []


def test_ports_are_reserved_and_not_hoped_for() -> None:
    """support/processes/ports.py reserves ports; a server may also take any port (0)."""
    offenders = [
        f"{file.relative_to(ROOT)}:{line}"
        for folder in ("tests", "benchmarks", "examples")
        for file in sorted((ROOT / folder).rglob("*.py"))
        for line in released_ports(file.read_text())
    ]
    assert offenders == []


def test_only_one_module_prints() -> None:
    """It escapes control characters: text from others must not reach a terminal raw."""
    found = {
        (str(file.relative_to(SOURCE)), way)
        for file in SOURCE.rglob("*.py")
        for way in ways_to_print(ast.parse(file.read_text(), file))
        if file != SOURCE / "process" / "terminal.py"
    }
    assert found == {("client/subscriber.py", "sys.stdout.buffer")}, "see process/terminal.py"


def ways_to_print(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if re.search(r"(^|\.)(print|pprint|secho|echo|print_exc|Console)$", name):
                # A console that process/terminal.py has made is safe.
                yield from () if name.endswith(".print") else (name,)
        elif isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            if re.search(r"\bstd(out|err)(__)?\.(write|writelines|buffer)$", name):
                yield name
