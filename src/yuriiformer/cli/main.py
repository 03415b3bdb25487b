"""``yurii``: finds the command, and turns errors that users can fix into one line.

Each command's module is imported only when it is called, so ``yurii --help`` answers at once.
"""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module

from yuriiformer import __version__
from yuriiformer.errors import YuriiError, did_you_mean

COMMANDS = {
    "prepare": "turn text into token files: TinyStories, OpenWebText, your own, generated tales",
    "data": "look at a prepared corpus",
    "train": "train a model: presets of the paper and of CPU scale, resumable, on many processes",
    "suite": "compare rules: several seeds, the same data, in parallel, resumable",
    "report": "tables, figures and a page from runs, suites and archives",
    "archive": "keep the results of a suite in a small folder, without its runs",
    "sample": "text from a trained model",
    "evaluate": "validation loss, perplexity, and tasks of the evaluation harness",
    "export": "a run as a Hugging Face model",
    "import": "a GPT-2 of Hugging Face or nanoGPT as a model of this package",
    "trace": "look inside a model: its streams, oracles and predictions through depth, as a page",
    "lab": "the rules on plain optimisation: quadratics and particles, rates against theory",
    "plan": "what a run costs before it starts: memory, work, hours, disk, on any device",
    "presets": "list the ready-made configurations with their values",
    "rules": "list the update rules, show one's equations, draw its block",
}


MODULES = {"import": "importing"}  # import is a keyword


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
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without β shows ? for it
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        return _run(arguments)
    except YuriiError as error:
        if debug:
            raise
        if not error.everywhere or os.environ.get("RANK", "0") == "0":
            print(f"yurii: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("yurii: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe has gone (yurii rules | head)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


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
        raise YuriiError(
            f"'yurii {command}' needs the package {error.name!r}: "
            "pip install 'yuriiformer[cli,data,report,hf,eval]'"
        ) from None
    return int(code or 0)
