"""Rules of the code that linters cannot say: imports by file name, names that are there once."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "dovetail"


def imported_packages(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(), file)):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def is_kernel(file: Path) -> bool:
    # compiling.py has the decorators that kernels wear.
    return file == SOURCE / "compiling.py" or "kernels" in file.relative_to(SOURCE).parts


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
    """Python lets a second one of the same name take the first one's place without a word."""
    lines = (SOURCE / "config.py").read_text().splitlines()
    names = [line.partition(" = ")[0] for line in lines if re.match(r"[A-Z0-9_]+ = ", line)]
    assert len(names) > 30
    assert sorted(names) == sorted(set(names))
