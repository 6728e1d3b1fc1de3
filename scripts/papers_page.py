#!/usr/bin/env python3
"""Writes the tables of docs/papers.md from the kept results in experiments/: scripts/papers_page.py

The prose of the page is written by hand; nothing in the tables is. A test runs this with --check.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
EXPERIMENTS = ROOT / "experiments"
PAGE = ROOT / "docs" / "papers.md"
BEGIN = re.compile(r"<!-- table of ([A-Z]+): written by scripts/papers_page.py -->")
END = "<!-- end of the table -->"

# How a verdict is told.
VERDICTS = {"met": "met", "missed": "**missed**", "not_reproduced": "**not reproduced**"}

# Goals that a row tells of; the experiment's own page has all.
GOALS_TOLD = 3


def table(family, results):
    """The Markdown table of a family's results by experiment name."""
    lines = ["| experiment | the paper | what came out | verdict |", "|---|---|---|---|"]
    return "\n".join(lines + [row(family, name, results[name]) for name in sorted(results)])


def row(family, name, result):
    """One experiment as a row; missed goals come first."""
    goals = sorted(result["goal"], key=lambda goal: is_met(goal, result["metrics"]))
    told = [figure(goal, result["metrics"]) for goal in goals[:GOALS_TOLD]]
    if len(goals) > GOALS_TOLD:
        told.append(f"and {len(goals) - GOALS_TOLD} more")
    paper = (result["paper"] or "no figure: our own question").replace("|", "\\|")
    verdict = f"{VERDICTS[result['verdict']]} ({result['bed']})"
    return f"| [{name}](../experiments/{family}/{name}) | {paper} | {'; '.join(told)} | {verdict} |"


def is_met(goal, metrics):
    value = metrics.get(goal["metric"])
    if value is None:
        return False
    return goal.get("at_least", value) <= value <= goal.get("at_most", value)


def figure(goal, metrics):
    """A goal and what came out, such as `gain` 1.2 (at least 1.1)."""
    value = metrics.get(goal["metric"])
    bounds = [f"{words} {number(goal[key])}" for key, words in (("at_least", "at least"), ("at_most", "at most")) if key in goal]
    return f"`{goal['metric']}` {'none' if value is None else number(value)} (goal: {' and '.join(bounds)})"


def number(value):
    """A figure to four digits."""
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"


def kept(family):
    """The kept results of a family, each of its usual bed, by name."""
    paths = sorted((EXPERIMENTS / family).glob("*/result.json"))
    return {path.parent.name: json.loads(path.read_text()) for path in paths}


def page(text, results):
    """The page with its tables written anew; `results` gives those of a family."""
    written, rest = "", text
    while match := BEGIN.search(rest):
        before, after = rest[: match.end()], rest[match.end() :]
        _, rest = after.split(END, 1)
        written += f"{before}\n\n{table(match.group(1), results(match.group(1)))}\n\n{END}"
    return written + rest


def main():
    text = PAGE.read_text()
    written = page(text, kept)
    if "--check" in sys.argv[1:]:
        if text != written:
            print(f"papers: {PAGE.name} is not what the experiments say; run: scripts/papers_page.py")
        return int(text != written)
    PAGE.write_text(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
