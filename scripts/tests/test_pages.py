"""Tests of what reads, checks, writes and builds the pages of documentation."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import book
import check_pages
import commands_page
import pages
import papers_page

PICTURE = "<svg><title>t</title><desc>d</desc><style>a</style></svg>"


def tree(files):
    """A directory with these files, and its check's findings."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        return check_pages.problems(root, sorted(files))


class Reading(unittest.TestCase):
    def test_links_in_code_are_none(self):
        text = "[a](b.md) `[c](d.md)`\n```\n[e](f.md)\n```\n![p](q.svg) [![r](s.svg)](t.md)"
        self.assertEqual([link.target for link in pages.links(text)], ["b.md", "q.svg", "t.md", "s.svg"])
        self.assertEqual([link.is_picture for link in pages.links(text)], [False, True, False, True])

    def test_a_link_is_seen_from_its_page(self):
        link = pages.links("[a](../x/b.md#c)")[0]
        self.assertEqual(link.place("docs/page.md"), ("x/b.md", "c"))
        self.assertEqual(pages.links("[a](#c)")[0].place("docs/page.md"), ("docs/page.md", "c"))

    def test_headings_become_anchors(self):
        text = "# What, `now` & then?\n## One\n## One\n```\n# no heading\n```\n"
        self.assertEqual(pages.anchors(text), {"what-now--then", "one", "one-1"})


class Checks(unittest.TestCase):
    whole = {
        "docs/SUMMARY.md": "# Summary\n- [Page](page.md)\n- [Later]()\n- [Commands](commands.md)\n",
        "docs/page.md": "# Page\n[up](../README.md#top) [folder](pictures) ![what it shows](pictures/a.svg) `anabranch up --fast`\n",
        "docs/pictures/a.svg": PICTURE,
        "docs/commands.md": "# Commands\n\n## `anabranch up`\n\n```text\n--fast  Quicker\n```\n",
        "README.md": "# Top\n",
    }

    def test_what_is_whole_passes(self):
        self.assertEqual(tree(self.whole), [])

    def test_each_fault_is_found(self):
        for path, text, words in [
            ("docs/other.md", "# Other\n", "has no chapter for docs/other.md"),
            ("docs/SUMMARY.md", self.whole["docs/SUMMARY.md"] + "- [Again](page.md)\n", "twice"),
            ("docs/page.md", "[x](nowhere.md)", "leads nowhere"),
            ("docs/page.md", "[x](../README.md#bottom)", "no such heading"),
            ("docs/page.md", "[x](#bottom)", "no such heading"),
            ("docs/page.md", "![](pictures/a.svg)", "no text beside it"),
            ("docs/page.md", "x" * (check_pages.LONGEST + 1), "make it two"),
            ("docs/page.md", "`sudo anabranch upp`", "no command `anabranch upp`"),
            ("docs/page.md", "```\nanabranch up --slow -- cmd --other\n```\n", "no option --slow"),
            ("docs/pictures/a.svg", PICTURE.replace("<desc>d</desc>", ""), "has no desc"),
            ("docs/pictures/b.svg", PICTURE.replace("<style>a", "<style>b"), "another style"),
        ]:
            found = tree({**self.whole, path: text})
            self.assertEqual(len(found), 1, f"{path}: {found}")
            self.assertIn(words, found[0])


class Book(unittest.TestCase):
    def test_the_summary_has_paths_from_the_root_and_the_experiments(self):
        text = "- [Page](page.md)\n- [Later]()\n- [Experiments](../experiments/README.md)\n"
        below = {"experiments/BOND/REASONS.md": "BOND", "experiments/BOND/equal/README.md": "BOND/equal"}
        self.assertEqual(
            book.summary(text, below),
            "- [Page](docs/page.md)\n- [Later]()\n- [Experiments](experiments/README.md)\n"
            "  - [BOND](experiments/BOND/REASONS.md)\n    - [BOND/equal](experiments/BOND/equal/README.md)\n",
        )

    def test_links_lead_to_chapters_files_or_nowhere(self):
        chapters = {"README.md", "experiments/BOND/README.md", "docs/a.md"}
        text = "[x](../README.md#y) [b](../experiments/BOND) [m](../Makefile) [s](../scripts) [e](https://example.org)"
        written, files = book.for_book("docs/a.md", text, chapters)
        self.assertEqual(
            written, "[x](../index.md#y) [b](../experiments/BOND/index.md) [m](../Makefile) s [e](https://example.org)"
        )
        self.assertEqual(files, {"Makefile"})

    def test_dead_links_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            (root / "a.html").write_text('<a href="b.html#there">x</a><a href="b.html#gone">x</a><a href="c.html">x</a>')
            (root / "b.html").write_text('<h1 id="there">x</h1><a href="https://example.org/c.html">x</a>')
            self.assertEqual(
                book.dead_links(root),
                ["a.html: b.html#gone: there is no such anchor", "a.html: c.html leads nowhere"],
            )


class PapersPage(unittest.TestCase):
    def test_the_page_says_what_the_experiments_say(self):
        text = papers_page.PAGE.read_text()
        self.assertEqual(text, papers_page.page(text, papers_page.kept), "run: scripts/papers_page.py")

    def test_missed_goals_come_first(self):
        result = {
            "goal": [{"metric": "gain", "at_least": 1}, {"metric": "gap", "at_most": 2}, {"metric": "gone", "at_least": 1}],
            "metrics": {"gain": 1.23456, "gap": 3},
            "paper": None,
            "verdict": "missed",
            "bed": "sim",
        }
        self.assertEqual(
            papers_page.row("KEY", "name", result),
            "| [name](../experiments/KEY/name) | no figure: our own question | `gap` 3 (goal: at most 2); "
            "`gone` none (goal: at least 1); `gain` 1.235 (goal: at least 1) | **missed** (sim) |",
        )


class CommandsPage(unittest.TestCase):
    def test_subcommands_are_read_from_the_help(self):
        told = "Does it\n\nCommands:\n  add     Adds\n            and more\n  help    Print this\n\nOptions:\n  -h, --help  Print\n"
        self.assertEqual(commands_page.subcommands(told), ["add"])
        self.assertEqual(commands_page.subcommands("Options:\n  -h  Help\n"), [])


if __name__ == "__main__":
    unittest.main()
