"""A release: what is built holds what it should, installs and works; workflows and images fit."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import tarfile
import tomllib
import zipfile

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import yuriiformer as yf
from tests import release

ROOT = release.ROOT
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_all_extras_are_in_the_release_and_the_makefile():
    extras = ",".join(PROJECT["optional-dependencies"])
    assert extras == release.EXTRAS
    assert (ROOT / "Makefile").read_text(encoding="utf-8").count(f"'.[{extras}]'") == 2


def test_every_requirement_is_pinned():
    pins = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE)
    pinned = {canonicalize_name(name) for name in pins}
    for extra in ("", *PROJECT["optional-dependencies"]):
        assert closure("yuriiformer", extra) - {"yuriiformer", "pip", "setuptools"} <= pinned


def test_a_tag_of_another_version_is_refused():
    release.check_tag(f"v{yf.__version__}")
    with pytest.raises(SystemExit, match="but the version is"):
        release.check_tag("v99.0")


def workflow(name: str) -> dict:
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8"))


def test_the_workflows():
    assert {path.name for path in (ROOT / ".github/workflows").iterdir()} == {
        "ci.yml",
        "docs.yml",
        "release.yml",
    }
    assert workflow("ci.yml")["jobs"]["checks"]["steps"][-1]["run"] == "bash .ci/run"
    steps = workflow("docs.yml")["jobs"]["build"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == ["make docs"]
    jobs, trigger = workflow("release.yml")["jobs"], workflow("release.yml")[True]  # "on" is a bool
    assert trigger == {"push": {"tags": ["v*"]}}
    assert "make release-check" in jobs["build"]["steps"][2]["run"]
    publish = jobs["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert "password" not in str(publish)
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert {"docs", "docs-serve", "release-check"} <= set(targets)


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_the_images_copy_what_is_there_and_install_what_exists(name):
    text = (ROOT / "docker" / f"{name}.Dockerfile").read_text(encoding="utf-8")
    copied = [
        word
        for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE)
        for word in line.split()[:-1]
    ]
    seen = set((ROOT / ".dockerignore").read_text(encoding="utf-8").split())
    for path in copied:
        assert (ROOT / path).exists(), path
        assert f"!{path}" in seen, path
    [extras] = re.findall(r"'\.\[([\w,]+)\]'", text)
    assert set(extras.split(",")) == set(PROJECT["optional-dependencies"]) - {"dev", "docs"}
    assert "https:" not in text


def closure(name: str, extra: str = "") -> set[str]:
    """A distribution and all that it needs, of those that are installed."""
    found: dict[tuple[str, str], None] = {}
    todo = [(canonicalize_name(name), extra)]
    while todo:
        each, own = todo.pop()
        if (each, own) in found:
            continue
        try:
            needs = importlib.metadata.requires(each) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found[each, own] = None
        for text in needs:
            need = Requirement(text)
            if need.marker is None or need.marker.evaluate({"extra": own}):
                todo += [(canonicalize_name(need.name), more) for more in ("", *need.extras)]
    return {each for each, _ in found}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return release.build(tmp_path_factory.mktemp("dist"), isolated=False)


@pytest.mark.slow
def test_what_is_built_is_whole(built):
    sources = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(built.wheel) as wheel:
        assert sources <= set(wheel.namelist())
        assert not [name for name in wheel.namelist() if name.startswith(("tests", "docs"))]
    listed = release.run(["git", "ls-files"]).splitlines()
    with tarfile.open(built.sdist) as sdist:
        inside = {name.partition("/")[2] for name in sdist.getnames()}
    assert set(listed) <= inside


@pytest.mark.slow
def test_the_wheel_works_with_the_core_alone(built, tmp_path):
    """In an environment of the core's own requirements and the test runner, nothing else."""
    names = set().union(*(closure(name) for name in ("yuriiformer", *release.TOOLS)))
    python = release.environment_of(tmp_path / "env", names - {"yuriiformer"})
    release.run([str(python), "-m", "pip", "install", "-q", "--no-deps", str(built.wheel)])
    root = release.unpack(built.sdist, tmp_path / "unpacked")
    for extra in ("tyro", "matplotlib", "scipy", "transformers"):
        code = f"import importlib.util; print(importlib.util.find_spec({extra!r}))"
        assert release.run([str(python), "-c", code], root).strip() == "None"
    assert "passed" in release.quick_tests(python, root, release.CORE)
    command = [python.with_name("yurii"), "rules"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip().endswith("pip install 'yuriiformer[cli]'")


@pytest.mark.slow
def test_the_sdist_works_with_all_extras(built, tmp_path):
    extras = PROJECT["optional-dependencies"]
    names = set().union(*(closure("yuriiformer", extra) for extra in extras)) - {"yuriiformer"}
    python = release.environment_of(tmp_path / "env", names)
    install = ["-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", str(built.sdist)]
    release.run([str(python), *install])
    root = release.unpack(built.sdist, tmp_path / "unpacked")
    chosen = ("tests/cli/test_startup.py", "tests/test_pages.py", "tests/site/test_pages.py")
    assert "passed" in release.quick_tests(python, root, chosen)
    said = release.run([str(python.with_name("yurii")), "rules", "show", "gd-euler"], root)
    assert "GD+Euler" in said
