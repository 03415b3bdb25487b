"""How fast the rule editor of the site answers: the first answer after opening the page, then each
keystroke's. Needs chromium and a built site.

    make docs && python benchmarks/editor.py
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from pathlib import Path

SITE = Path(__file__).parents[1] / "site"
TYPED = "\nX = X + 0.1 * attn(X + mu * V) * square(V) / sqrt(1 + square(X)) - 0.5 * mlp(tanh(X))"
# The page itself measures: from the event of a key to the shown answer.
WATCH = """() => {
  const verdict = document.getElementById("verdict");
  self.waits = [];
  let pressed = 0;
  const box = document.getElementById("equations");
  box.addEventListener("input", () => (pressed = performance.now()), true);
  new MutationObserver(() => waits.push(performance.now() - pressed))
    .observe(verdict, { attributes: true, attributeFilter: ["data-answer"] });
}"""


def main() -> None:
    from playwright.sync_api import sync_playwright

    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--site", type=Path, default=SITE)
    page_file = options.parse_args().site / "editor.html"
    if not page_file.exists():
        raise SystemExit(f"{page_file} is missing: make docs")
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_context(offline=True).new_page()
        begin = time.perf_counter()
        page.goto(page_file.resolve().as_uri())
        page.wait_for_selector("#verdict[data-answer]", timeout=60_000)
        print(f"first answer: {time.perf_counter() - begin:.2f} s after opening")
        page.evaluate(WATCH)
        page.locator("#equations").press("Control+End")
        for letter in TYPED:
            seen = page.evaluate("waits.length")
            page.keyboard.type(letter)
            while page.evaluate("waits.length") == seen:
                page.wait_for_timeout(5)
        waits = sorted(page.evaluate("waits"))
        print(
            f"{len(waits)} keystrokes: median {statistics.median(waits):.0f} ms, "
            f"slowest {waits[-1]:.0f} ms"
        )
        browser.close()


if __name__ == "__main__":
    main()
