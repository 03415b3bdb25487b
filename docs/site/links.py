"""Whether every link of a built site leads somewhere, and nothing is loaded from another host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "source": "srcset", "iframe": "src"}


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := given.get(name))}
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        if tag in LOADED and given.get(LOADED[tag]) and given.get("rel") != "canonical":
            self.loaded.append(str(given[LOADED[tag]]))


def read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def problems(site: Path) -> list[str]:
    pages = {path: read(path) for path in sorted(site.rglob("*.html"))}
    found = [f"{path.relative_to(site)}: {text}" for path in pages for text in _of(path, pages)]
    for path in sorted(site.rglob("*.css")):
        for address in re.findall(r"(?:@import|url\()\s*[\"']?(\w+://[^\"')]+)", path.read_text()):
            found.append(f"{path.relative_to(site)}: loads {address}")
    return found


def _of(path: Path, pages: dict[Path, _Page]) -> Iterator[str]:
    page = pages[path]
    for address in page.loaded:
        if urlsplit(address).scheme not in ("", "data") or address.startswith("//"):
            yield f"loads {address}"
    for address in [*page.links, *(a for a in page.loaded if not urlsplit(a).scheme)]:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            if parts.scheme not in ("https", "mailto"):
                yield f"links to {address}"
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if not target.is_file():
            yield f"no file {address}"
        elif parts.fragment and target in pages and not _is_state(parts.fragment):
            known = unquote(parts.fragment) in pages[target].anchors
            yield from () if known else (f"no anchor {address}",)


def _is_state(fragment: str) -> bool:
    """The editor's address holds a rule, not a place of the page."""
    return fragment.startswith("rule=")
