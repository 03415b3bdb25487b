"""What the rule editor says is what the package says."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from xml.etree import ElementTree

import pytest

import yuriiformer as yf
from docs.site import engine
from docs.site.editor import answer, read
from docs.site.gallery import catalogue_json
from tests.site.malformed import malformed
from yuriiformer.costs.flops import model_work
from yuriiformer.training.presets import preset

COSTS = {"attn": 7864320.0, "mlp": 9437184.0, "output": 77266944.0, "layers": 12}
CATALOGUE = json.loads(catalogue_json())


@pytest.mark.parametrize("name", yf.rules)
def test_the_editor_reads_the_rule(name):
    texts = CATALOGUE[name]
    assert read(texts["equations"], texts["declarations"]) == yf.rules[name]
    found = answer(**texts, costs=COSTS)
    assert found["ok"]
    assert found["borrowed"] == ""
    assert list(found["streams"]) == list(yf.rules[name].streams)
    assert list(found["coefficients"]) == list(yf.rules[name].coefficients)
    assert found["calls"] == yf.rules[name].oracle_calls
    assert len(found["points"]) > 1


def test_a_changed_rule_does_not_keep_the_name_of_the_catalogue():
    own = CATALOGUE["gd-euler"]
    changed = {**own, "equations": "X = X + attn(X) + 0.5 * mlp(X)"}
    assert answer(**changed, costs=COSTS)["borrowed"] == "gd-euler"
    assert answer(changed["equations"], "name = 'own'", costs=COSTS)["borrowed"] == ""


def test_errors_are_the_packages_own():
    seen = set()
    for equations, declarations in malformed(200):
        found = answer(equations, declarations, costs=COSTS)
        assert not found["ok"]
        if not declarations:
            with pytest.raises(yf.YuriiError) as caught:
                yf.Rule("mine", equations)
            assert found["message"] == str(caught.value)
            assert (found["line"], found["column"]) == (caught.value.line, caught.value.column)
        seen.add(found["reason"][:12])
    assert len(seen) > 15  # of many kinds


def test_the_place_of_an_error():
    found = answer("X = X + attn(X)\nX = X + mpl(X)", costs=COSTS)
    assert (found["box"], found["line"], found["column"]) == ("equations", 2, 9)
    found = answer("X = X + attn(X) + mlp(X)", "[coefficients]\nmu = 0.5\n", costs=COSTS)
    assert (found["box"], found["line"], found["column"]) == ("declarations", 2, 1)
    found = answer("X = X + attn(X) + mlp(X)", "a = 1\nb = \n", costs=COSTS)
    assert (found["box"], found["line"], found["column"]) == ("declarations", 2, 5)
    found = answer("X = X + attn(X) + mlp(X)", f"note = '{'a' * 2**17}'", costs=COSTS)
    assert found["message"] == "declarations: more than 131,072 bytes"
    assert "equations stand" in answer("X = 1", "equations = ''", costs=COSTS)["reason"]


@pytest.mark.parametrize(
    ("equations", "declarations", "box"),
    [
        ("", "", "equations"),
        ("# nothing", "label = 'x'", "equations"),
        ("X = X + attn(X) + mlp(X)", "label = 3", "declarations"),
        ("X = X + attn(X) + mlp(X)", "lable = 'x'", "declarations"),
        ("X = X + attn(X) + mlp(X)", "streams = 3", "declarations"),
        ("X" * 20_000, "", "equations"),
    ],
)
def test_the_box_of_an_error_without_a_place(equations, declarations, box):
    found = answer(equations, declarations, costs=COSTS)
    assert (found["ok"], found["box"], found["line"]) == (False, box, None)


HOSTILE = """<img src=x onerror=alert(1)>"'&]]></svg></math><script>1</script>"""
ACTIVE = {
    "script",
    "img",
    "image",
    "a",
    "use",
    "foreignObject",
    "iframe",
    "style",
    "set",
    "animate",
}


@pytest.mark.parametrize("key", ["name", "label", "note"])
def test_what_is_drawn_holds_nothing_that_runs(key):
    """These three become markup of the page; all else is set as text."""
    text = "X = X + half * attn(X) + mlp(X) # </svg><script>"
    declarations = f"{key} = {json.dumps(HOSTILE)}\n[coefficients]\nhalf = 0.5"
    found = answer(text, declarations, costs=COSTS)
    assert found["ok"]
    for part in ("mathml", "svg", "path"):
        tree = ElementTree.fromstring(found[part])
        assert not {each.tag.rpartition("}")[2] for each in tree.iter()} & ACTIVE
        names = {name for each in tree.iter() for name in each.attrib}
        assert not [name for name in names if name.startswith("on") or "href" in name]


def test_a_name_cannot_be_markup():
    for declarations in (
        f"[streams]\n{json.dumps(HOSTILE)} = 'zero'",
        f"[coefficients]\n{json.dumps(HOSTILE)} = 1",
    ):
        found = answer("X = X + attn(X) + mlp(X)", declarations, costs=COSTS)
        assert found["reason"].endswith(("is declared but never read", "never used as one"))
    assert "this is not an equation" in answer("<b>X</b> = X", costs=COSTS)["reason"]


def test_what_the_lab_cannot_do_is_said():
    schedule = "[coefficients]\nbeta = 't'"
    found = answer("X = X + beta * attn(X) + mlp(X)", schedule, costs=COSTS)
    assert found["ok"]
    assert "a unit coefficient lies between" in found["remark"]
    uphill = answer("X = X - 3 * attn(X) - 3 * mlp(X)", costs=COSTS)
    assert "diverges" in uphill["remark"]
    rooted = answer("X = X + attn(X) + mlp(sqrt(square(X)))", costs=COSTS)
    assert rooted["radius"] is None
    assert "not linear" in rooted["remark"]


@pytest.mark.parametrize("name", ["gd-euler", "verlet-ama", "hamiltonian", "imex2-attn-mlp"])
def test_the_work_is_the_costs_packages(name):
    config = preset(engine.SETTING, name).model
    plain = preset(engine.SETTING, "gd-lie-trotter").model
    wanted = model_work(config).total.forward / model_work(plain).total.forward
    assert engine.oracle_costs() == COSTS
    found = answer(**CATALOGUE[name], costs=COSTS)
    assert found["flops"] == pytest.approx(wanted, abs=1e-4)


def test_the_packed_sources_are_enough_and_need_no_library(tmp_path):
    """In a Python without site-packages, as the browser's has none."""
    with zipfile.ZipFile(io.BytesIO(engine._sources())) as packed:
        packed.extractall(tmp_path)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from docs.site.editor import answer;"
        "import yuriiformer; assert sys.argv[1] in yuriiformer.__file__;"
        f"print(answer('X = X + attn(X) + mlp(X)', costs={COSTS})['radius'])"
    )
    command = [sys.executable, "-S", "-I", "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(99 / 101, abs=1e-5)


def test_without_npm_one_line_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    said = engine.write_engine(tmp_path, tmp_path / "cache")
    assert said == "npm is not installed: the rule editor is built without its engine"


def test_another_archive_is_refused(tmp_path, monkeypatch):
    npm = tmp_path / "npm"
    npm.write_text(f"#!/bin/sh\necho other > pyodide-{engine.VERSION}.tgz\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="not the archive"):
        engine.write_engine(tmp_path, tmp_path / "cache")
