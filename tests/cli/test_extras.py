"""An installation without extras: a broker, its clients and the administration work, and what needs more says what to install."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from command_line import Ended, run_process
from kafka_reference import Kafkalake
from packaging.requirements import Requirement

from kafkalake.extras import EXTRA_OF, missing_extra

PROJECT = Path(__file__).parents[2]
SETUP = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
EXTRAS = SETUP["optional-dependencies"]


def canonical(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


@cache
def distributions() -> dict[str, set[str]]:
    """Installed distributions of each top-level module."""
    return {module: {canonical(name) for name in names} for module, names in packages_distributions().items()}


def closure(requirements: list[str]) -> set[str]:
    """The distributions that `requirements` install, those they need included."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        applies = (
            any(requirement.marker.evaluate({"extra": e}) for e in ("", *requirement.extras))
            if requirement.marker
            else True
        )
        name = canonical(requirement.name)
        if applies and name not in found:
            found.add(name)
            try:
                waiting += map(Requirement, requires(name) or ())
            except PackageNotFoundError:
                assert name not in {canonical(Requirement(text).name) for text in SETUP["dependencies"]}
    return found


@cache
def refused() -> dict[str, str]:
    """The environment of a process that finds only what `pip install kafkalake` installs."""
    core = closure(SETUP["dependencies"]) | {"kafkalake", "pip", "setuptools"}
    modules = [module for module, names in distributions().items() if not names & core]
    assert set(EXTRA_OF) <= set(modules)
    path = [str(Path(__file__).parents[1] / "without_extras"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path), "REFUSED_IMPORTS": ",".join(sorted(modules))}


def run(*arguments: str, stdin: str = "") -> Ended:
    return run_process(*arguments, stdin=stdin, environment=refused())


def test_each_library_of_an_extra_is_known_with_it() -> None:
    named = {(canonical(Requirement(text).name), extra) for extra in ("sql", "spark", "jobs") for text in EXTRAS[extra]}
    known = {(name, extra) for module, extra in EXTRA_OF.items() for name in distributions()[module]}
    assert known == {(name, extra) for name, extra in named if name != "kafkalake"} | {("py4j", "spark")}


def test_what_is_for_development_has_all_extras() -> None:
    assert "kafkalake[all]" in EXTRAS["dev"]
    named = {extra for text in EXTRAS["all"] for extra in Requirement(text).extras}
    assert named | {extra for name in named for text in EXTRAS[name] for extra in Requirement(text).extras} == set(
        EXTRA_OF.values()
    )


@pytest.mark.parametrize("statement", ["import pyspark.sql", "from pyspark import TaskContext"])
def test_a_directory_with_the_jar_is_no_pyspark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    (tmp_path / "pyspark" / "jars").mkdir(parents=True)
    for module in [name for name in sys.modules if name.split(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ImportError) as error:
        exec(statement)
    monkeypatch.delitem(sys.modules, "pyspark")
    assert missing_extra(error.value) == "this needs pyspark, which is not installed: pip install 'kafkalake[spark]'"


def test_an_installed_library_without_a_module_is_not_missing() -> None:
    with pytest.raises(ModuleNotFoundError) as error:
        import_module("duckdb.nothing")
    assert missing_extra(error.value) is None


@pytest.mark.process
def test_a_broker_and_its_clients_need_no_extra(tmp_path: Path) -> None:
    broker = Kafkalake(tmp_path / "broker", environment=refused())
    try:
        at = ("-b", broker.start().bootstrap_servers)
        assert run("topics", "create", "clicks", *at).code == 0
        assert run("produce", "clicks", *at, stdin="one\ntwo\n").code == 0
        consumed = run("consume", "clicks", "--from-beginning", "--max-records", "2", "--group", "g", *at)
        assert (consumed.code, consumed.stdout) == (0, "one\ntwo\n")
        assert "clicks" in run("topics", "list", *at).stdout.split()
        broker.stop()
    finally:
        broker.close()
    assert run("jobs", "run", "lag", "--lake", str(broker.lake)).code == 0
    copy = ("jobs", "run", "consume", "--topic", "clicks", "--output", str(tmp_path / "copy"))
    for arguments, module, extra in [
        ((*copy, "--lake", str(broker.lake)), "py4j", "spark"),
        (("broker", "start", "--lake", str(tmp_path / "other"), "--jobs"), "croniter", "jobs"),
        (("sql", "SELECT 1", "--lake", str(broker.lake)), "duckdb", "sql"),
    ]:
        ended = run(*arguments)
        needed = f"this needs {module}, which is not installed: pip install 'kafkalake[{extra}]'\n"
        assert ended.code == 1
        assert ended.stderr.endswith(needed)
        assert len(ended.stderr.splitlines()) <= 2
    assert not (tmp_path / "other").exists()


@pytest.mark.process
def test_a_broker_imports_no_library_that_it_does_without(kafkalake_broker: Callable[..., Kafkalake]) -> None:
    """Not even where they are installed: pyarrow would import pandas for an array, which takes 0.7 s."""
    mapped = Path(f"/proc/{kafkalake_broker().pid}/maps").read_text()
    assert "site-packages/pyarrow/" in mapped
    assert [module for module in EXTRA_OF if f"site-packages/{module}/" in mapped] == []
