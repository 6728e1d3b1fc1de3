#!/usr/bin/env python3
"""Writes docs/commands.md from what `anabranch --help` says: scripts/commands_page.py [--check] PROGRAM

The help comes from the definitions that read the command line (crates/cli/src/arguments), so the page cannot say
anything else. `make test` runs this with --check.
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "commands.md"
HEAD = """# Commands

What `--help` says of each command; written by `scripts/commands_page.py`.
"""


def help_of(program, words):
    """The help of a command. Neither a terminal's width nor the caller's own settings may show in it."""
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS" and not key.startswith("ANABRANCH_")}
    command = [program, *words, "--help"]
    told = subprocess.run(
        command, check=True, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ).stdout
    return "\n".join(line.rstrip() for line in told.strip().splitlines())


def subcommands(told):
    """The names below `Commands:` in a help text, `help` left out."""
    part = re.search(r"^Commands:\n((?: .*\n)*)", told, re.MULTILINE)
    names = re.findall(r"^  (\S+)", part.group(1), re.MULTILINE) if part else []
    return [name for name in names if name != "help"]


def sections(program, words=()):
    """The command and all below it, as sections of the page."""
    told = help_of(program, words)
    name = " ".join(("anabranch", *words))
    yield f"{'##' if len(words) < 2 else '###'} `{name}`\n\n```text\n{told}\n```\n"
    # `lab` passes its words on to a program of its own.
    for subcommand in subcommands(told) if f"Usage: {name} " in told else []:
        yield from sections(program, (*words, subcommand))


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--check"]
    if len(arguments) != 1:
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    written = "\n".join([HEAD, *sections(arguments[0])])
    if "--check" in sys.argv[1:]:
        if PAGE.read_text() != written:
            print(f"commands: {PAGE.name} is not what {arguments[0]} --help says; run: scripts/commands_page.py {arguments[0]}")
        return int(PAGE.read_text() != written)
    PAGE.write_text(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
