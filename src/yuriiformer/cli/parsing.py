"""What commands share: flags by tyro, a configuration from flags, errors in one line, prompts,
folders to write into."""

from __future__ import annotations

import datetime
import io
import os
import re
import shlex
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field, fields, make_dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import tyro

from yuriiformer import __version__
from yuriiformer.config import PARTS, TrainConfig, is_whole
from yuriiformer.errors import (
    ConfigError,
    InputError,
    RuleError,
    YuriiError,
    did_you_mean,
    one_line,
)
from yuriiformer.files import claim_folder, read_json
from yuriiformer.methods.references import get_rule
from yuriiformer.methods.rule import Rule
from yuriiformer.model.config import ModelConfig
from yuriiformer.reading import (
    MOST_BYTES,
    MOST_TOML,
    gunzipped,
    parse_json,
    parse_toml,
    read_file,
)
from yuriiformer.training.presets import preset

Flags = TypeVar("Flags")


def parse_command(
    prog: str, functions: dict[str, Callable[..., Any]], arguments: list[str]
) -> None:
    """Run the function that the first word names, with the rest as its arguments."""
    word = arguments[0] if arguments else "-"
    if not word.startswith("-") and word not in functions:
        hint = did_you_mean(word, functions) or f"; known are {', '.join(functions)}"
        raise YuriiError(f"unknown '{prog} {word}'{hint}; for help, run {prog} --help")
    later = {name: _deferred(function) for name, function in functions.items()}
    with _in_one_line():
        command = tyro.extras.subcommand_cli_from_dict(later, prog=prog, args=arguments)
    command()


def parse_flags(
    prog: str, default: Flags, arguments: list[str], description: str | None = None
) -> Flags:
    """A dataclass filled from flags; a flag that is not given keeps its value in ``default``. The
    dataclass's docstring describes the command, unless a description is given."""
    with _in_one_line():
        return tyro.cli(
            type(default), prog=prog, default=default, args=arguments, description=description
        )


def parse_known(prog: str, default: Flags, arguments: list[str]) -> Flags:
    """Only the flags of this dataclass, whatever else is given: for those that decide the others'
    defaults."""
    asked = [word for word in arguments if word not in ("-h", "--help")]
    with _in_one_line():
        known, _ = tyro.cli(
            type(default), prog=prog, default=default, args=asked, return_unknown_args=True
        )
    return known


def read_prompt(given: str | None) -> str | None:
    """A prompt as it was given; - stands for standard input."""
    try:
        given = sys.stdin.read() if given == "-" else given
        (given or "").encode()
    except UnicodeError:
        raise InputError("the prompt is not text in UTF-8") from None
    if given == "":
        raise InputError("the prompt is empty: give some text, or leave --prompt out")
    return given


def print_remarks(remarks: Sequence[str]) -> None:
    """What the user should know about the model that was chosen."""
    for remark in remarks:
        print(f"note: {remark}", file=sys.stderr)


def check_folder(out: Path, name: str, kind: str) -> None:
    """A folder to write into: new, empty, or an earlier one of the same kind, as ``kind`` in its
    file ``name`` says. Nothing else is overwritten."""
    claim_folder(out, lambda folder: read_json(folder / name).get("kind") == kind, kind)


def made_now() -> str:
    """When and with what something was made."""
    now = datetime.datetime.now(datetime.UTC)
    return f"{now:%Y-%m-%d %H:%M} UTC, yuriiformer {__version__}"


def command_here(words: Sequence[str]) -> str:
    """A command that does the same again, from anywhere."""
    return f"cd {shlex.quote(os.getcwd())} && {shlex.join(words)}"


EMPTY = "the path is empty"
PLAINER = {  # than Python's words in tyro's errors
    "invalid literal for int() with base 10:": "not a whole number:",
    "could not convert string to float:": "not a number:",
}


def _path(words: list[str]) -> Path:
    """An empty path would be the current folder."""
    if not words[0]:
        raise ValueError(EMPTY)
    return Path(words[0])


_PATHS = tyro.constructors.ConstructorRegistry()


@_PATHS.primitive_rule
def _paths(info: tyro.constructors.PrimitiveTypeInfo) -> Any:
    if info.type is not Path:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="PATH",
        instance_from_str=_path,
        is_instance=lambda value: isinstance(value, Path),
        str_from_instance=lambda path: [str(path)],
    )


@contextmanager
def _in_one_line() -> Iterator[None]:
    """tyro's errors as ours, and paths as we read them."""
    said = io.StringIO()
    try:
        with redirect_stderr(said), _PATHS:
            yield
    except SystemExit as stop:
        if stop.code in (0, None):  # it was asked for help
            raise
        raise YuriiError(_unframed(said.getvalue())) from None


def _deferred(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same arguments; returns the call instead of making it."""

    @wraps(function)
    def bind(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return partial(function, *args, **kwargs)

    return bind


def _unframed(message: str) -> str:
    """tyro prints errors in boxes of several lines; this keeps the words."""
    # In ASCII there are no frames: a title is underlined with dashes.
    titles = re.compile(r"^[╭╰].*$|^\s*\S.*\n\s*-{3,}\s*$", re.MULTILINE)
    message = titles.sub("", message, count=0 if "╭" in message else 1)
    words = re.sub(r"[│─]|(?<!\S)-{3,}(?!\S)", " ", message).split()
    text, *prog = re.split(r" For full helptext, (?:run:?|see) ", " ".join(words))
    text = text.partition(" Argument helptext:")[0].rstrip(".")
    if EMPTY in text:  # tyro also lists what else it tried
        return f"{text.removeprefix('Error parsing ').split(': ')[0]}: {EMPTY}"
    for theirs, ours in PLAINER.items():
        text = text.replace(theirs, ours)
    unknown = re.match(r"Unrecognized (?:or misplaced )?options: (.*?)(?= [A-Z]|$)", text)
    if unknown:  # what follows lists similar flags with all of their help
        given = re.sub(r" \(applied to [^)]*\)", "", unknown[1]).replace(", ", " ")
        near = sorted(set(re.findall(r" (--[\w.-]+)(?=,| \{?[A-Z])", text[unknown.end() :])))
        text = f"not understood: {given}" + (f" (similar: {', '.join(near)})" if near else "")
    return "; for help, run ".join([text, *prog])


RULE = ModelConfig().rule.name

# The rule has a flag of its own, the vocabulary is the data's. tyro reads the help of each field
# from the docstring.
_HINTS = get_type_hints(ModelConfig)
if TYPE_CHECKING:
    Model = ModelConfig
else:
    Model = make_dataclass(
        "Model",
        [
            (each.name, _HINTS[each.name], field(default=each.default))
            for each in fields(ModelConfig)
            if each.name not in ("rule", "vocab_size", "valid_vocab")
        ],
        frozen=True,
        namespace={"__doc__": ModelConfig.__doc__},
    )


def model_config(flags: Model, base: ModelConfig, rule: str | None) -> ModelConfig:
    """The configuration with the flags applied; its own rule is kept without reading a file."""
    own = rule is None or rule == base.rule.name
    return replace(base, **vars(flags), rule=base.rule if own else get_rule(rule or ""))


@dataclass(frozen=True)
class First:
    """The flags that decide what the others' defaults are."""

    preset: str | None = None
    config: Path | None = None
    rule: str | None = None
    out: Path | None = None
    resume: bool = False
    init_from: str | None = None


def read_settings(path: Path) -> dict[str, Any]:
    """What a configuration file says: JSON, TOML or YAML; also a run's ``config.json`` or an
    archived run, which have a whole configuration in them."""
    raw = read_file(path, ConfigError, MOST_TOML if path.suffix in KINDS else MOST_BYTES)
    try:
        data = _parsed(gunzipped(raw) if path.suffix == ".gz" else raw, path.suffix)
    except (EOFError, zlib.error) as error:
        raise ConfigError(f"{path} cannot be read: {one_line(error)}") from None
    except (ValueError, RecursionError) as error:
        kind = KINDS.get(path.suffix, "JSON")
        raise ConfigError(f"{path} is not {kind}: {one_line(error)}") from None
    found = data.get("config", data) if isinstance(data, dict) else data
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is no configuration: it holds no object")
    return found


def _parsed(raw: bytes, suffix: str) -> Any:
    if suffix == ".toml":
        return parse_toml(raw)
    if suffix not in KINDS:
        return parse_json(raw)
    try:
        import yaml
    except ModuleNotFoundError:
        raise ConfigError("a YAML file needs the package 'pyyaml': write TOML or JSON") from None
    try:
        return yaml.safe_load(raw)
    except yaml.YAMLError as error:
        raise ValueError(one_line(error)) from None


KINDS = {".toml": "TOML", ".yaml": "YAML", ".yml": "YAML"}


def some_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """Fields by their own names, whether they stand alone or within their part."""
    found: dict[str, Any] = {}
    for name, value in data.items():
        if name in ("model", *PARTS) and isinstance(value, Mapping):
            found |= value
        else:
            found[name] = value
    if isinstance(found.get("rule"), Mapping):
        found["rule"] = Rule.from_dict(found["rule"])
    return found


def base_config(first: First, usual: str, like: ModelConfig | None = None) -> TrainConfig:
    """The whole configuration that flags change fields of: a file's, a preset's, or a preset's with
    some fields of a file. ``like`` stands for the preset's model."""

    def ready(name: str, rule: str) -> TrainConfig:
        found = preset(name, rule)
        return found if like is None else replace(found, model=like)

    if first.config is None:
        return ready(first.preset or usual, first.rule or RULE)
    data = read_settings(first.config)
    try:
        if is_whole(data):
            if first.preset is not None:
                raise ConfigError("--preset beside it: it is a whole configuration; choose one")
            return TrainConfig.from_dict(data)
        named = data.pop("preset", usual)
        return ready(first.preset or str(named), RULE).with_(**some_fields(data))
    except (ConfigError, RuleError, TypeError) as error:
        raise ConfigError(f"{first.config}: {error}") from None


def default_flags(base: TrainConfig, first: First, usual: str) -> dict[str, Any]:
    """What the flags of a configuration are if they are not given."""
    return {
        "preset": first.preset or usual,
        "config": first.config,
        "rule": first.rule or base.model.rule.name,
        "recipe": base.recipe,
        "validation": base.validation,
        "model": Model(**{each.name: getattr(base.model, each.name) for each in fields(Model)}),
    }
