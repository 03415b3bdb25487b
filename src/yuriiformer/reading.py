"""Files that others may have written, read with care: limited in size, depth and digits, and of the
form that the reader needs. What is wrong is said in one line that names the file and the key.

A form is a small description of plain data:

    int, float, str, bool, dict, list   a value of that type (a whole number is a float too)
    None, or (form, form)               nothing; one of several forms
    {"key": form, "key?": form}         an object with these keys; those with ? may be missing
    [form]                              a list of such values
    Each(form)                          an object with any keys, and such values
    function                            returns the value; its ValueError says the problem
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import tomllib
import unicodedata
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yuriiformer.errors import LARGEST, YuriiError, brief, one_line

MOST_BYTES = 2**28  # of a JSON file: the largest have the curves of a long run
MOST_TOML = 2**17
MOST_DEPTH = 100  # lists and objects inside each other
MOST_DOTS = 30  # names in a dotted key of TOML: the parser's memory grows with their square
TYPES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    dict: "an object",
    list: "a list",
    None: "null",
}


@dataclass(frozen=True)
class Each:
    """An object whose values all have one form, and whose keys have another."""

    form: Any
    key: Any = str


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """A file's bytes; an OSError if it is no ordinary file (a pipe never ends) or too large."""
    with open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(22, "it is no ordinary file", str(path))
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(27, f"it has more than {most:,} bytes", str(path))
    return data


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe would wait for a writer


def gunzipped(data: bytes, most: int = MOST_BYTES) -> bytes:
    """What gzip packed, but no more than ``most`` bytes of it."""
    unpacker = zlib.decompressobj(wbits=31)
    found = unpacker.decompress(data, most + 1)
    if len(found) > most:
        raise ValueError(f"unpacked it has more than {most:,} bytes")
    if not unpacker.eof:
        raise EOFError("the packed data end too early")
    return found


def parse_json(data: bytes | str) -> Any:
    """Plain data from JSON; a ValueError says what is wrong with it."""
    if _depth(data) > MOST_DEPTH:
        raise ValueError(f"more than {MOST_DEPTH} lists and objects inside each other")
    return json.loads(data, parse_int=_whole, parse_constant=_constant)


def parse_toml(data: bytes) -> dict[str, Any]:
    """A table from TOML; a ValueError says what is wrong with it."""
    text = data.decode("utf-8-sig")
    if _MANY_DOTS.search(text):
        raise ValueError(f"a key has more than {MOST_DOTS} names")
    if _depth(text) > MOST_DEPTH:
        raise ValueError(f"more than {MOST_DEPTH} lists and tables inside each other")
    return tomllib.loads(text)


def _whole(text: str) -> int:
    if len(text) > 20 or abs(int(text)) > LARGEST:
        raise ValueError(f"the whole number {text[:12]}… has more than 64 bits")
    return int(text)


def _constant(text: str) -> float:
    return float(text)  # NaN and infinities: Python writes them, so they are read


# Begins where a name begins and never tries again with less of it: long texts take no longer.
_MANY_DOTS = re.compile(rf"(?<![\w\"'-])(?:[\w\"'-]++[ \t]*+\.[ \t]*+){{{MOST_DOTS}}}")
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)


def _depth(data: bytes | str) -> int:
    """How deep lists and objects lie inside each other, brackets in text aside."""
    raw = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
    if raw.count(b"[") + raw.count(b"{") <= MOST_DEPTH:
        return 0
    depth = deepest = 0
    for mark in re.findall(rb"[\[\]{}]", _STRINGS.sub(b"", raw)):
        depth += 1 if mark in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def read_file(
    path: Path, error: type[YuriiError], most: int = MOST_BYTES, *, missing: str = ""
) -> bytes:
    """A file's bytes; an error of this kind says why they cannot be read, ``missing`` that there is
    no such file."""
    try:
        return read_bytes(path, most)
    except (OSError, ValueError) as problem:  # a path may hold a zero byte
        gone = missing and isinstance(problem, FileNotFoundError)
        raise error(missing if gone else f"{path} cannot be read: {reason(problem)}") from None


def read_object(
    path: Path, form: Any, error: type[YuriiError], version: int | None = None
) -> dict[str, Any]:
    """The object in a JSON file, if it has the form, and the ``version`` as its ``format``."""
    return object_in(read_file(path, error), path, form, error, version)


def object_in(
    raw: bytes, path: Path, form: Any, error: type[YuriiError], version: int | None = None
) -> dict[str, Any]:
    """The same from the bytes of such a file."""
    try:
        data = parse_json(raw)
    except (ValueError, RecursionError) as problem:
        raise error(f"{path} is damaged: {one_line(problem):.120}") from None
    wrong = problem_of(data, form) if isinstance(data, dict) else "it holds no object"
    if wrong:
        raise error(f"{path} is damaged: {wrong}")
    if version not in (None, data.get("format")):
        told = data["format"]
        raise error(f"{path} has format {told!r}; this version reads {version}: update yuriiformer")
    found: dict[str, Any] = data
    return found


def problem_of(data: Any, form: Any, key: str = "") -> str:
    """What keeps data from having a form, with the key; empty if nothing does."""
    name = key or "it"
    if isinstance(form, tuple):
        return _of_several(data, form, key)
    if isinstance(form, dict | Each):
        return _of_object(data, form, key)
    if isinstance(form, list):
        if not isinstance(data, list):
            return f"{name} must be a list, not {brief(data)}"
        return _first(problem_of(each, form[0], f"{key}[{i}]") for i, each in enumerate(data))
    if form not in TYPES:
        try:
            form(data)
        except (ValueError, TypeError) as problem:
            return f"{name} {problem}"
        return ""
    return "" if _is(data, form) else f"{name} must be {TYPES[form]}, not {brief(data)}"


def _of_several(data: Any, forms: tuple[Any, ...], key: str) -> str:
    told = [problem_of(data, each, key) for each in forms]
    if not all(told):
        return ""
    for problem, each in zip(told, forms, strict=True):
        if isinstance(each, type(data)):  # an object where one of the forms is of objects
            return problem
    return f"{key or 'it'} must be {' or '.join(map(_title, forms))}, not {brief(data)}"


def _of_object(data: Any, form: dict[str, Any] | Each, key: str) -> str:
    if not isinstance(data, dict):
        return f"{key or 'it'} must be an object, not {brief(data)}"
    if isinstance(form, Each):
        return _first(
            problem_of(name, form.key, "a key") or problem_of(one, form.form, _join(key, name))
            for name, one in data.items()
        )
    for each, inner in form.items():
        bare = each.removesuffix("?")
        if bare in data:
            wrong = problem_of(data[bare], inner, _join(key, bare))
            if wrong:
                return wrong
        elif bare == each:
            return f"{_join(key, bare)} is missing"
    return ""


def _is(data: Any, form: Any) -> bool:
    if form is None:
        return data is None
    if isinstance(data, bool):
        return form is bool
    if form is float:
        return isinstance(data, int | float)
    return isinstance(data, form)


def _first(problems: Any) -> str:
    return next((each for each in problems if each), "")


def _join(key: str, inner: str) -> str:
    return f"{key}.{inner:.60}" if key else f"{inner:.60}"


def _title(form: Any) -> str:
    if isinstance(form, dict | Each):
        return TYPES[dict]
    return TYPES[list] if isinstance(form, list) else TYPES.get(form, "what is asked for")


def one_of(*words: str) -> Any:
    """A form: one of a few words."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"must be one of {', '.join(words)}, not {brief(value)}")
        return value

    return check


def count(value: Any) -> int:
    """A form: a whole number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
        raise ValueError(f"must be a whole number of at least 0, not {brief(value)}")
    return value


def number_or_text(value: Any) -> float:
    """A form: a number, or the text of one that JSON cannot write (nan, inf)."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"must be a number, not {brief(value)}") from None


def file_name(value: Any) -> str:
    """A form: a name of one file or folder, so that nothing is read or written elsewhere."""
    text = plain_text(value)
    if (
        text in ("", ".", "..")
        or not text.isprintable()
        or "/" in text
        or "\\" in text
        or len(text.encode()) > 255
    ):
        raise ValueError(f"must be the name of a file, not {brief(value)}")
    return text


def path_text(value: Any) -> str:
    """A form: a path."""
    if not isinstance(value, str) or "\0" in value or not value:
        raise ValueError(f"must be a path, not {brief(value)}")
    return value


def plain_text(value: Any) -> str:
    """A form: text that a terminal can show, without control characters."""
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {brief(value)}")
    if has_control(value):
        raise ValueError(f"holds a control character: {brief(value)}")
    return value


def has_control(text: str) -> bool:
    """Whether a text could move the cursor or colour a terminal."""
    return not text.isprintable() and any(
        unicodedata.category(c) == "Cc" and c not in "\n\t" for c in text
    )


def reason(error: Exception) -> str:
    """Why a file could not be read or written, in the system's words."""
    said = getattr(error, "strerror", None)
    return one_line(OSError(said)) if said else one_line(error)
