"""The pictures of the README and of the docs, under docs/images/.

    make pictures                                       all of them, in about two minutes
    python docs/make_pictures.py block report           some of them
    python docs/make_pictures.py --work FOLDER          keep the runs; a second call reuses them

Everything in them is real: the block diagram is drawn from the rule's text, the report and the
depth explorer show runs that this script trains, the lab's figures are the lab's own. The
screenshots need chromium. Losses differ in their last digits from machine to machine, so the tests
do not compare pictures; they check that every picture that a page shows is there.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.colors import same_color
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch
from matplotlib.text import Annotation, Text
from PIL import Image
from playwright.sync_api import Page, sync_playwright

import yuriiformer as yf
from yuriiformer.display.colours import INK
from yuriiformer.methods.drawing.diagram import draw
from yuriiformer.methods.drawing.layout import lay_out
from yuriiformer.methods.drawing.painter import STREAM_COLOURS

IMAGES = Path(__file__).parent / "images"
RULE = "nesterov-lie-trotter"
RULES = ("gd-lie-trotter", "polyak-lie-trotter", RULE)
SUITE = ("--preset", "tales-tiny", "--set", "n_layer=4", "--seeds", "0,1,2", "--jobs", "2")
PROMPT = "Once upon a time there was a fox. The fox wanted to find a red ball."
LARGEST = 150_000  # bytes of a picture

# GitHub's dark page, its text, and a blue that can be read there.
DARK_PAGE, DARK_INK, DARK_BLUE = "#0d1117", "#e6edf3", "#58a6ff"


def block(work: Path) -> None:
    """The block of Nesterov+Lie-Trotter, once for light pages and once for dark ones."""
    with mpl.rc_context({"mathtext.fontset": "cm", "svg.hashsalt": "yuriiformer"}):
        for name, repaint in (("block", _as_it_is), ("block-dark", _darken)):
            figure = draw(lay_out(yf.rules[RULE]))
            _enlarge(figure)
            repaint(figure)
            figure.savefig(
                IMAGES / f"{name}.svg",
                bbox_inches="tight",
                pad_inches=0.05,
                transparent=True,
                metadata={"Date": None},
            )


def _enlarge(figure: Figure) -> None:
    """Larger letters: the README shows the diagram at half its size."""
    for text in figure.findobj(Text):
        in_box = text.get_color() == "black" and text.get_text() not in ("Attn", "MLP")
        text.set_fontsize(text.get_fontsize() * (1.2 if in_box else 1.45))


def _as_it_is(figure: Figure) -> None:
    """Light pages are what diagrams are drawn for."""


def _darken(figure: Figure) -> None:
    """Light lines on a dark page. Boxes keep their fill and the black text on it."""
    colours = {"white": DARK_PAGE, INK: DARK_INK, STREAM_COLOURS["V"]: DARK_BLUE}

    def dark(colour: Any) -> Any:
        return next((new for old, new in colours.items() if same_color(old, colour)), colour)

    for artist in figure.findobj():
        if isinstance(artist, Line2D):
            artist.set_color(dark(artist.get_color()))
        elif isinstance(artist, Circle):
            artist.set_facecolor(dark(artist.get_facecolor()))
            artist.set_edgecolor(dark(artist.get_edgecolor()))
        elif isinstance(artist, Text):
            artist.set_color(dark(artist.get_color()))
            behind: Patch | None = artist.get_bbox_patch()
            if behind is not None:
                behind.set_facecolor(dark(behind.get_facecolor()))
            if isinstance(artist, Annotation) and artist.arrow_patch is not None:
                artist.arrow_patch.set_color(dark(artist.arrow_patch.get_edgecolor()))


def report(work: Path) -> None:
    """The report of a suite: its results for light and dark pages, and its curves."""
    suite = _suite(work)
    _yurii("report", str(suite))
    for scheme, name in (("light", "report"), ("dark", "report-dark")):
        with _opened(suite / "report" / "report.html", 1200, scheme) as page:
            results = page.locator("#results-0")
            _shoot(page, name, _top(results) + 8, _bottom(results))
            if scheme == "light":
                chart = page.locator("#curve-chart")
                _shoot(page, "curves", _top(page.locator("#curves")) + 8, _bottom(chart) - 16)


def depth(work: Path) -> None:
    """The depth explorer with two runs of the suite."""
    runs = [str(_suite(work) / "runs" / rule / "seed-0") for rule in (RULES[0], RULE)]
    _yurii("trace", *runs, "--prompt", PROMPT, "--out", str(work / "seen"))
    with _opened(work / "seen" / "depth.html", 1320, "light") as page:
        top, bottom = page.locator("#prediction"), page.locator("#trajectory")
        _shoot(page, "depth", _top(top) + 8, _bottom(bottom))


def lab(work: Path) -> None:
    """The figures of the lab, as its page has them."""
    for words, figures in (
        (("quadratic",), ("convergence", "rates")),
        (("quadratic", "--split", "shifted", "--condition", "10"), ("paths",)),
        (("particles",), ("energies", "trajectories")),
        (("order",), ("orders",)),
    ):
        out = work / f"lab-{'-'.join(words)}"
        _yurii("lab", *words, "--formats", "png", "--out", str(out))
        for figure in figures:
            with Image.open(out / f"{figure}.png") as drawn:
                _save(drawn, f"lab-{figure}")


def _suite(work: Path) -> Path:
    """Three rules with three seeds on the embedded corpus; what is finished is not run again."""
    tales, suite = work / "tales", work / "suite"
    if not tales.exists():
        _yurii(
            "prepare", "tales", "--stories", "4000", "--tokenizer", "bpe:1024", "--out", str(tales)
        )
    _yurii("suite", "--data", str(tales), "--rules", *RULES, *SUITE, "--out", str(suite))
    return suite


def _yurii(*words: str) -> None:
    command = [sys.executable, "-m", "yuriiformer", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"yurii {' '.join(words)}\n{done.stdout}{done.stderr}")


@contextmanager
def _opened(path: Path, width: int, scheme: Any) -> Iterator[Page]:
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("the screenshots need chromium on the path")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, color_scheme=scheme, offline=True)
        page = context.new_page()
        page.goto(path.resolve().as_uri())
        page.wait_for_selector("html[data-ready=true]", state="attached")
        yield page
        browser.close()


def _top(locator: Any) -> float:
    return float(locator.evaluate("each => each.getBoundingClientRect().top + scrollY"))


def _bottom(locator: Any) -> float:
    return float(locator.evaluate("each => each.getBoundingClientRect().bottom + scrollY"))


def _shoot(page: Page, name: str, top: float, bottom: float) -> None:
    """The page from ``top`` to ``bottom``, and a little more."""
    width = page.evaluate("innerWidth")
    clip = {"x": 0, "y": top, "width": width, "height": bottom - top + 16}
    with Image.open(io.BytesIO(page.screenshot(full_page=True, clip=clip))) as taken:
        _save(taken, name)


def _save(picture: Image.Image, name: str) -> None:
    """In 256 colours: a quarter of the size, and no difference that is seen."""
    path = IMAGES / f"{name}.png"
    picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    if path.stat().st_size > LARGEST:
        raise SystemExit(f"{path.name} has {path.stat().st_size} bytes, more than {LARGEST}")


PICTURES: dict[str, Callable[[Path], None]] = {
    "block": block,
    "report": report,
    "depth": depth,
    "lab": lab,
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PICTURES)}")
    options.add_argument("--work", type=Path, help="a folder for the runs, kept")
    chosen = options.parse_args()
    unknown = [name for name in chosen.names if name not in PICTURES]
    if unknown:
        options.error(f"no picture is called {unknown[0]!r}; there are {', '.join(PICTURES)}")
    with tempfile.TemporaryDirectory() as folder:
        work = chosen.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        for name in chosen.names or PICTURES:
            PICTURES[name](work)
            print(f"{name}: done", flush=True)


if __name__ == "__main__":
    main()
