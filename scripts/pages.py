"""Reads the repository's Markdown: its pages, their links, headings and pictures. For check_pages.py and book.py."""

import dataclasses
import pathlib
import posixpath
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
SUMMARY = "docs/SUMMARY.md"

_FENCE = re.compile(r"^(```|~~~).*?^\1[^\S\n]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)[^`\n].*?\1")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]*)\)")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Link:
    """A link of a page: its label, its target as written, whether it is a picture, and where in the text it stands."""

    label: str
    target: str
    is_picture: bool
    span: tuple

    @property
    def is_elsewhere(self):
        """Whether it leads out of the repository."""
        return re.match(r"[a-z][a-z0-9+.-]*:", self.target) is not None

    def place(self, page):
        """The path and the anchor that it leads to, seen from the page with this path; a page's own anchors too."""
        path, _, anchor = self.target.partition("#")
        return (posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page), anchor


def tracked(root=ROOT):
    """The paths of all files of the repository, those included that are new."""
    command = ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return sorted(path for path in set(listed.split("\0")) if path and (root / path).is_file())


def links(text):
    """All links of a Markdown text, those in code left out."""
    bare = _without_code(text)
    found = []
    for match in _LINK.finditer(bare):
        label = text[match.start(2) : match.end(2)]
        found.append(Link(label, match.group(3), bool(match.group(1)), match.span()))
        # A picture may be the label of a link.
        found += [dataclasses.replace(link, span=tuple(match.start(2) + at for at in link.span)) for link in links(label)]
    return found


def code(text):
    """The code of a Markdown text: the lines of its blocks, and what stands between backticks."""
    blocks = [match.group() for match in _FENCE.finditer(text)]
    words = [match.group() for match in _CODE.finditer(_FENCE.sub("", text))]
    return [line for piece in blocks + words for line in piece.strip("`").splitlines()]


def anchors(text):
    """The anchors that code hosts and mdBook give to the headings of a text."""
    found = set()
    without_fences = _FENCE.sub("", text)
    for heading in _HEADING.findall(without_fences):
        name = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        name = re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-")
        number, unique = 0, name
        while unique in found:
            number += 1
            unique = f"{name}-{number}"
        found.add(unique)
    return found


def chapters(summary):
    """The paths of a summary's chapters, in order; those without a page yet are left out."""
    return [link.place(SUMMARY)[0] for link in links(summary) if link.target]


def _without_code(text):
    """The text with blanks in place of code, so that places stay what they were."""
    text = _FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    return _CODE.sub(lambda match: " " * len(match.group()), text)
