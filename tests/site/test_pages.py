"""The pages that are made: reference, gallery, tutorials, contents, and the check of links."""

from __future__ import annotations

import re
from collections import Counter

import pytest

import yuriiformer as yf
from docs.site import build, gallery, links, reference, tutorials
from tests.comparison.studies import STUDY, begin, run_all
from yuriiformer.cli.main import COMMANDS
from yuriiformer.comparison.archive import is_archive, read_archive, read_suite, write_archive
from yuriiformer.comparison.paper import paper_figure
from yuriiformer.lab.results import quadratic_results


def test_every_command_is_on_its_page():
    page = reference.commands_page()
    heads = re.findall(r"^#{2,3} yurii (.+)$", page, flags=re.MULTILINE)
    assert [head for head in heads if " " not in head] == list(COMMANDS)
    assert {"rules show", "lab order", "data show", "prepare tales"} <= set(heads)
    assert page.count("usage: yurii") >= len(heads)
    blocks = re.findall(r"```text\n(.*?)```", page, flags=re.DOTALL)
    assert max(len(line) for block in blocks for line in block.splitlines()) <= reference.WIDTH
    assert "--allow-changed" in page.partition("## yurii train")[2].partition("## yurii suite")[0]


def test_every_name_is_in_the_api():
    groups = reference.groups()
    names = [entry["name"] for entries in groups.values() for entry in entries]
    assert sorted(names) == yf.__all__
    for title, entries in groups.items():
        page = reference.api_page(title, entries)
        for entry in entries:
            assert f":: yuriiformer.{entry['name']}\n" in page


SOME = ("nesterov-lie-trotter", "imex2-ln-attn-mlp", "gd-tied", "adam-like")


@pytest.mark.parametrize("name", SOME)
def test_a_page_of_the_gallery(name):
    rule = yf.rules[name]
    lab = {
        split: quadratic_results([rule], options)["rules"][0]
        for split, options in gallery.QUADRATICS.items()
    }
    page = gallery.page(rule, lab, gallery.archived())
    for part in ("<math", 'class="diagram"', 'class="path"', "```toml", "rate per block by theory"):
        assert part in page
    for name_ in (*rule.streams, *rule.coefficients):
        assert f"`{name_}`" in page
    figure = paper_figure("tinystories-small", name)
    if figure is not None:
        assert figure.text("best") in page
    rate = lab["even"]["theory"]["block"]
    assert rate is None or f"| {rate:.4g} |" in page


def catalogued(folder):
    """The finished runs of an archive whose rule is one of the catalogue."""
    runs = [entry.run for entry in read_archive(folder).entries if entry.run]
    return [r for r in runs if r.exact is not None and yf.rules.get(r.rule.name) == r.rule]


def told(rows):
    """How many runs the rows of a rule stand for."""
    several = [re.search(r"lowest of (\d+) arms", row[1]) for row in rows]
    return sum(
        int(said[1]) if said else int(row[2].split()[0])
        for said, row in zip(several, rows, strict=True)
    )


def test_the_gallery_has_every_finished_run_of_the_archives():
    """Trials of one seed are one row, which says how many they are and which was lowest."""
    folders = [path for path in (build.ROOT / "results").glob("*/*") if is_archive(path)]
    counted = Counter(run.rule.name for folder in folders for run in catalogued(folder))
    found = gallery.archived()
    assert {name: told(rows) for name, rows in found.items()} == counted
    assert any("lowest of" in row[1] for rows in found.values() for row in rows)


def test_an_archive_of_a_study_that_is_still_computed(tmp_path):
    """Some of its seeds, and one arm whose own equations have a name of the catalogue."""
    suite = begin(tmp_path, STUDY.replace('"own"', '"gd-euler"').replace('"gd"', '"gd | a_b"'))
    finals = {"gd | a_b": {0: 1.5, 1: 1.6, 2: 1.7}, "momentum": {2: 1.25}, "gd-euler": {0: 1.0}}
    run_all(suite, finals, exact=True)
    archive = tmp_path / "results" / "mine" / "half"
    write_archive(read_suite(suite), archive)
    (archive.parent / "half-inside").mkdir()
    assert len(catalogued(archive)) == 4
    found = gallery.archived(tmp_path / "results")
    assert found.keys() == {"gd-lie-trotter", "nesterov-lie-trotter"}
    [whole], [part] = found.values()
    assert whole[:3] == ("mine/half", "gd | a_b", "3")
    low, high = (float(loss) for loss in whole[4].split(" – "))
    assert low < float(whole[3]) < high
    assert part[:3] == ("mine/half", "momentum", "1 of 3")
    page = gallery.results(yf.rules["gd-lie-trotter"], found)
    assert "| mine/half | gd \\| a\\_b | 3 |" in page


def test_the_overview_shows_every_rule():
    page = gallery.overview()
    assert re.findall(r'class="card" href="([\w-]+)\.html"', page) == list(yf.rules)


def test_every_page_is_in_the_contents():
    pages = [path.stem for path in (build.ROOT / "docs").glob("*.md")]
    text = build.contents([*pages, "brand_new"])
    assert "docs/brand_new" in text.partition(":caption: How-to")[2].partition("```")[0]
    for page in pages:
        assert len(re.findall(rf"\bdocs/{page}>?\n", text)) == 1


@pytest.mark.parametrize("name", tutorials.ORDER)
def test_a_tutorial_as_page_and_notebook(name):
    cells = tutorials.read(name)
    assert cells[0].text.startswith("# ")
    notebook = tutorials.notebook(name)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert code == [cell.text for cell in cells if cell.kind == "code"]
    script = (tutorials.FOLDER / f"{name}.py").read_text(encoding="utf-8")
    compile(script, name, "exec")
    assert len(code) >= 5
    page = tutorials.markdown(name)
    assert page.count("```python") == len(code)
    assert "](../" not in "".join(cell.source for cell in notebook.cells)


def test_every_tutorial_is_listed():
    assert {path.stem for path in tutorials.FOLDER.glob("*.py")} == set(tutorials.ORDER)


def test_the_check_of_links(tmp_path):
    (tmp_path / "b.html").write_text('<h1 id="there">b</h1>')
    (tmp_path / "a.html").write_text(
        '<a href="b.html#there">ok</a><a href="b.html#gone">no</a><a href="c.html">no</a>'
        '<a href="https://example.org">ok</a><a href="http://example.org">no</a>'
        '<script src="https://example.org/x.js"></script><img src="x.png">'
        '<a href="b.html#rule=gd-euler">a state of the editor</a>'
    )
    (tmp_path / "s.css").write_text("@import 'https://example.org/x.css';")
    found = [problem.partition(": ")[2] for problem in links.problems(tmp_path)]
    assert found == [
        "loads https://example.org/x.js",
        "no anchor b.html#gone",
        "no file c.html",
        "links to http://example.org",
        "no file x.png",
        "loads https://example.org/x.css",
    ]
