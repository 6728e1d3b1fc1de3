#!/usr/bin/env python3
"""Builds the book that docs/SUMMARY.md lists into target/book: scripts/book.py MDBOOK

mdBook takes pages from below one directory, and its links lead to pages of the book only. Ours stand where code hosts
show them, and link to sources too. So the chapters, and the files that they link to, are first copied to
target/book-source, each to its place. The pages of the experiments become chapters below that of experiments/README.md.
The result is checked: every link and anchor in it must lead somewhere.
"""

import html.parser
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys
import urllib.parse

import pages

SOURCE = pages.ROOT / "target" / "book-source"
BOOK = pages.ROOT / "target" / "book"
EXPERIMENTS = "experiments/README.md"


def summary(text, below):
    """The summary with paths from the root of the repository, and the pages `below` (path: title) under the experiments."""
    lines = []
    for line in text.splitlines():
        for link in pages.links(line):
            if link.target:
                path = link.place(pages.SUMMARY)[0]
                line = line.replace(f"]({link.target})", f"]({path})")
                if path == EXPERIMENTS:
                    margin = len(line) - len(line.lstrip())
                    for path, title in below.items():
                        line += f"\n{' ' * (margin + 2 * depth(path))}- [{title}]({path})"
        lines.append(line)
    return "\n".join(lines) + "\n"


def depth(path):
    """How far below the experiments' page one of their pages stands: a family 1, an experiment 2."""
    return 2 if path.count("/") > 2 else 1


def experiments(files):
    """The pages of the experiments by path with their titles, families first, each before its experiments."""
    found = {}
    for family in sorted({path.split("/")[1] for path in files if re.match(r"experiments/[A-Z]+/", path)}):
        own = [path for path in files if re.fullmatch(rf"experiments/{family}/[^/]+\.md", path)]
        # REASONS.md is what a family's figures say; it comes first.
        for path in sorted(own, key=lambda path: not path.endswith("REASONS.md")):
            title = f"{family}: what the figures say" if path.endswith("REASONS.md") else f"{family}: {pathlib.Path(path).stem}"
            found[path] = title
        for path in files:
            if re.fullmatch(rf"experiments/{family}/[^/]+/README\.md", path):
                found[path] = path.removeprefix("experiments/").removesuffix("/README.md")
    return found


def for_book(page, text, chapters):
    """The text of a page with its links as mdBook needs them, and the files to be copied since it links to them."""
    files = set()
    for link in sorted(pages.links(text), key=lambda link: link.span, reverse=True):
        if link.is_elsewhere or not link.target or link.target.startswith("#"):
            continue
        path, anchor = link.place(page)
        begin, end = link.span
        if f"{path}/README.md" in chapters:
            path = f"{path}/README.md"
        if path in chapters:
            target = posixpath.relpath(path, posixpath.dirname(page) or ".") + (f"#{anchor}" if anchor else "")
            # The page of a directory is its index.
            target = re.sub(r"README\.md(?=#|$)", "index.md", target)
            text = f"{text[:begin]}[{link.label}]({target}){text[end:]}"
        elif (pages.ROOT / path).is_file() and path != pages.SUMMARY:
            files.add(path)
        else:
            # A directory of sources is in the repository only; the summary stands beside each page anyhow.
            text = f"{text[:begin]}{link.label}{text[end:]}"
    return text, files


def lay_out():
    """Copies the chapters and what they link to below SOURCE."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    listed = (pages.ROOT / pages.SUMMARY).read_text()
    below = experiments(pages.tracked())
    chapters = [*pages.chapters(listed), *below]
    files = set()
    for page in chapters:
        text, linked = for_book(page, (pages.ROOT / page).read_text(), set(chapters))
        files |= linked
        (SOURCE / page).parent.mkdir(parents=True, exist_ok=True)
        (SOURCE / page).write_text(text)
    for path in files:
        (SOURCE / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(pages.ROOT / path, SOURCE / path)
    (SOURCE / "SUMMARY.md").write_text(summary(listed, below))


class _Page(html.parser.HTMLParser):
    """The links and the anchors of a page of the book."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.add(value)
            elif name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value)


def dead_links(book):
    """The links in a built book that lead nowhere, one line each."""
    found = {path: _Page(path.read_text()) for path in sorted(book.rglob("*.html"))}
    problems = []
    for path, page in found.items():
        # The table of contents is shown inside other pages, and its own base is set there.
        for link in sorted(page.links if path.name not in ("404.html", "toc.html") else ()):
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            anchor = urllib.parse.unquote(parts.fragment)
            if not target.is_file() and not (target / "index.html").is_file():
                problems.append(f"{path.relative_to(book)}: {link} leads nowhere")
            elif anchor and target in found and anchor not in found[target].anchors:
                problems.append(f"{path.relative_to(book)}: {link}: there is no such anchor")
    return problems


def main():
    if len(sys.argv) != 2:
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    lay_out()
    shutil.rmtree(BOOK, ignore_errors=True)
    built = subprocess.run([sys.argv[1], "build"], cwd=pages.ROOT, stderr=subprocess.PIPE, text=True)
    warnings = [line for line in built.stderr.splitlines() if "WARN" in line or "ERROR" in line]
    problems = warnings + dead_links(BOOK.resolve()) if built.returncode == 0 else [built.stderr.strip()]
    for problem in problems:
        print(f"book: {problem}")
    if not problems:
        print(f"book: target/book/index.html, {len(list(BOOK.rglob('*.html')))} pages")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
