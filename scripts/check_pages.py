#!/usr/bin/env python3
"""Checks the pages of documentation: scripts/check_pages.py

Every page of docs/ is a chapter of docs/SUMMARY.md. Every link and anchor in any Markdown file of the repository leads
somewhere. Commands that pages show exist, with their options. Pictures have a text beside them, and those of
docs/pictures one style. No page is too long to be read.
"""

import pathlib
import re
import sys

import pages

# Bytes of a page that a person is still expected to look through.
LONGEST = 70_000
PICTURES = "docs/pictures"
COMMANDS = "docs/commands.md"
# These pass their words on to another program.
PASSING_ON = {"anabranch lab", "anabranch demo"}


def problems(root=pages.ROOT, files=None):
    """What is wrong, one line for each fault."""
    files = files if files is not None else pages.tracked(root)
    texts = {path: (root / path).read_text() for path in files if path.endswith(".md")}
    folders = {str(parent) for path in files for parent in pathlib.PurePosixPath(path).parents}
    found = list(_missing_chapters(texts))
    commands = known_commands(texts.get(COMMANDS, ""))
    for path, text in texts.items():
        if len(text.encode()) > LONGEST:
            found.append(f"{path}: has {len(text.encode())} bytes, more than {LONGEST}: make it two")
        found += (f"{path}: {fault}" for fault in _faults_of_links(path, text, texts, {*files, *folders}))
        found += (f"{path}: {fault}" for fault in _faults_of_commands(text, commands))
    return found + _faults_of_pictures(root, [path for path in files if re.fullmatch(PICTURES + r"/.*\.svg", path)])


def _missing_chapters(texts):
    chapters = pages.chapters(texts.get(pages.SUMMARY, ""))
    for path in texts:
        if path.startswith("docs/") and path != pages.SUMMARY and path not in chapters:
            yield f"{pages.SUMMARY}: has no chapter for {path}"
    for path in sorted({path for path in chapters if chapters.count(path) > 1}):
        yield f"{pages.SUMMARY}: has {path} twice"


def _faults_of_links(page, text, texts, places):
    for link in pages.links(text):
        if link.is_picture and not link.label.strip():
            yield f"the picture {link.target} has no text beside it"
        if link.is_elsewhere or (page == pages.SUMMARY and not link.target):
            continue
        path, anchor = link.place(page)
        if path not in places:
            yield f"the link to {link.target} leads nowhere"
        elif anchor and path in texts and anchor not in pages.anchors(texts[path]):
            yield f"the link to {link.target}: there is no such heading"


def known_commands(text):
    """What `--help` says of each command, by its name, from the page of all commands."""
    return dict(re.findall(r"^##+ `(anabranch[^`]*)`\n\n```text\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL))


def _faults_of_commands(text, commands):
    for line in pages.code(text):
        for match in re.finditer(r"(?:^|[\s(`$])anabranch ([^|;#>&]*)", line):
            words = [word.strip(".,:)`'\"[]") for word in match.group(1).split()]
            # A protocol is called `anabranch NAME VERSION`.
            is_protocol = len(words) == 2 and (words[1].isdigit() or words[1] == "PORT")
            if words and not is_protocol and re.fullmatch(r"[a-z][a-z-]*", words[0]):
                yield from _faults_of_command(words, commands)


def _faults_of_command(words, commands):
    name = f"anabranch {words[0]}"
    if name not in commands:
        yield f"there is no command `{name}`"
        return
    if len(words) > 1 and f"{name} {words[1]}" in commands:
        name = f"{name} {words[1]}"
    for word in words[: words.index("--")] if "--" in words else words:
        option = re.match(r"--[a-z][a-z-]*", word)
        if option and name not in PASSING_ON and not re.search(rf"{option.group()}(?![a-z-])", commands[name]):
            yield f"`{name}` has no option {option.group()}"


def _faults_of_pictures(root, paths):
    """Pictures of one style: the same style sheet, a title and a description for those who cannot see them."""
    found, styles = [], {}
    for path in paths:
        picture = (root / path).read_text()
        style = re.search(r"<style>.*?</style>", picture, re.DOTALL)
        styles.setdefault(style.group() if style else None, []).append(path)
        for part in ("title", "desc"):
            if not re.search(rf"<{part}[^>]*>[^<]+</{part}>", picture):
                found.append(f"{path}: has no {part}")
    if len(styles) > 1:
        odd = min(styles.values(), key=len)
        found.append(f"{', '.join(odd)}: has another style than the other pictures of {PICTURES}")
    return found


def main():
    found = problems()
    for problem in found:
        print(f"pages: {problem}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
