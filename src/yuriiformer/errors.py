"""Errors for the user: one clear line that names the value and the remedy.

The command line prints these as they are and exits with code 2; anything else is a bug and keeps
its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from numbers import Integral

LARGEST = 2**64 - 1  # whole numbers beyond 64 bits do not fit torch, NumPy or a file


class YuriiError(ValueError):
    """Something the user can fix."""

    exit_code = 2  # of the command line
    everywhere = False  # all processes of a run raise it; only one prints it

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # KeyError, mixed in below, would add quotes


class RuleError(YuriiError):
    """A malformed rule, with the line and column in the user's text."""

    def __init__(
        self,
        reason: str,
        *,
        line: int | None = None,
        column: int | None = None,
        source: str | None = None,
        declared: str | None = None,
    ) -> None:
        place = [source] if source else []
        if line is not None:
            place.append(f"line {line}, column {column}")
        super().__init__(f"{', '.join(place)}: {reason}" if place else reason)
        self.reason, self.line, self.column, self.source = reason, line, column, source
        self.declared = declared  # the declaration it is about, unless it is about the equations

    def within(
        self, source: str | None, line: int | None = None, column: int | None = None
    ) -> RuleError:
        """The same error with this source, and with another line and column if given."""
        if line is None:
            line, column = self.line, self.column
        return RuleError(
            self.reason, line=line, column=column, source=source, declared=self.declared
        )


class UnknownRuleError(RuleError, KeyError):
    """A rule name that is not in the catalogue."""


class ConfigError(YuriiError):
    """A model configuration that cannot be built."""


class InputError(YuriiError):
    """Tensors that do not fit the model or rule they are given to."""


class DataError(YuriiError):
    """Text, tokens or a prepared corpus that cannot be used."""


class ModelFileError(YuriiError):
    """A saved model that is missing, damaged or of another program."""


class RunError(YuriiError):
    """A run's folder that cannot be used as asked."""


class CheckpointError(RunError):
    """A checkpoint that is missing, damaged, or cannot be written."""


class NonFiniteError(YuriiError):
    """Training met a loss or gradient that is not a finite number."""

    exit_code = 3
    everywhere = True


def whole_number(
    name: str, value: object, least: int | None = None, error: type[YuriiError] = ConfigError
) -> int:
    """The value, of whatever integer type, as an int; an error if it is none or too small."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise error(f"{name} must be a whole number, not {brief(value)}")
    number = int(value)
    if not -LARGEST <= number <= LARGEST:
        raise error(f"{name} must have at most 64 bits, not {number.bit_length():,}")
    if least is not None and number < least:
        raise error(f"{name} must be at least {least}, not {number}")
    return number


def brief(value: object, length: int = 60) -> str:
    """A value as Python writes it, cut to a length; whatever it is, this does not fail."""
    if isinstance(value, int) and not -LARGEST <= value <= LARGEST:
        return f"a number of {value.bit_length():,} bits"
    if isinstance(value, str | bytes):  # a long one is not copied
        value = value[: length + 1]
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits inside, or deep lists
        text = f"a {type(value).__name__}"
    return text if len(text) <= length else f"{text[: length - 1]}…"


def one_line(error: BaseException) -> str:
    """The message of another library's error, on one line."""
    return " ".join(str(error).split()) or type(error).__name__


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)``, or nothing when no known word is near."""
    near = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    if not near:
        return ""
    return f" (did you mean {' or '.join(repr(name) for name in near)}?)"
