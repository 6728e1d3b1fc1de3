#!/usr/bin/env python3
"""Writes the tables of docs/configuration.md from packaging/config.example.toml: scripts/configuration_page.py

The example comes from the definitions that read the file (crates/daemon/src/config), so all three agree. A test runs
this with --check.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "packaging" / "config.example.toml"
PAGE = ROOT / "docs" / "configuration.md"
BEGIN = "<!-- tables: written by scripts/configuration_page.py -->"
END = "<!-- end of the tables -->"


def tables(example):
    """The Markdown tables for the text of an example configuration."""
    lines, comment = [], []
    header = "| key | default | expected | meaning |\n|---|---|---|---|"
    for line in example.split("\n\n", 1)[1].splitlines():
        if not line.strip():
            comment = []
        elif line.lstrip("#").startswith("["):
            name = line.lstrip("#")
            lines += ["", f"### `{name}`", "", " ".join(comment), "", header]
            comment = []
        elif line.startswith("# "):
            comment.append(line[2:])
        else:
            key, value = line.lstrip("#").split(" = ", 1)
            if not lines:
                lines += ["### At the top", "", header]
            lines.append(row(key, value, comment))
            comment = []
    return "\n".join(lines)


def row(key, value, comment):
    """One key as a row, from its example value and the comment lines above it."""
    at = next(number for number, line in enumerate(comment) if line.startswith("Expected: "))
    meaning = " ".join(comment[:at])
    expected, _, otherwise = " ".join(comment[at:])[len("Expected: ") :].partition(" Not set: ")
    default = f"`{value}`"
    if otherwise:
        default = f"{otherwise.rstrip('.')}; for example {default}"
    return f"| `{key}` | {default} | {expected.rstrip('.')} | {meaning} |"


def page(text, example):
    """The page with its tables written anew."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{tables(example)}\n\n{END}{after}"


def main():
    text = PAGE.read_text()
    written = page(text, EXAMPLE.read_text())
    if "--check" in sys.argv[1:]:
        if text != written:
            print(f"configuration: {PAGE.name} is not what {EXAMPLE.name} says; run: scripts/configuration_page.py")
        return int(text != written)
    PAGE.write_text(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
