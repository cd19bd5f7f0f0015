#!/usr/bin/env python3
"""Pack the text sample that ships with ridgefill.

Reads Jane Austen's novels from the Debian package ``r-cran-janeaustenr``, the Debian
Administrator's Handbook from ``debian-handbook`` and modules of the Python standard library
from ``libpython3.11-stdlib``, and writes ``fit.json.xz`` and ``held_out.json.xz``. The same
package versions give the same bytes. Standard library only; R is not needed.
"""

import argparse
import gzip
import json
import lzma
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

Entry = dict[str, str]

SIZE_LIMIT = 1_000_000  # bytes, both packed files together


@dataclass(frozen=True)
class Source:
    """One document to pack: where to find it, and how much of it to keep (all when None)."""

    key: str
    limit: int | None = None


NOVELS = {
    "fit": [
        Source("emma", 250_000),
        Source("mansfieldpark", 250_000),
        Source("sensesensibility", 250_000),
    ],
    "held_out": [Source("persuasion"), Source("northangerabbey")],
}
CHAPTERS = {
    "fit": [
        Source("basic-configuration"),
        Source("network-infrastructure"),
        Source("network-services"),
        Source("short-remedial-course"),
    ],
    "held_out": [Source("unix-services"), Source("security")],
}
MODULES = {
    "fit": [
        Source("bisect.py"),
        Source("configparser.py"),
        Source("csv.py"),
        Source("fractions.py"),
        Source("graphlib.py"),
        Source("heapq.py"),
        Source("statistics.py"),
        Source("textwrap.py"),
    ],
    "held_out": [
        Source("json/decoder.py"),
        Source("queue.py"),
        Source("random.py"),
        Source("shlex.py"),
        Source("string.py"),
    ],
}


# Novels: R's lazy-load database


class RReader:
    """Reads the few R types that a lazy-load database of character vectors uses.

    The format is R's XDR serialisation, versions 2 and 3. Pairlists and generic vectors
    become dicts when they have names; anything not needed here is refused.
    """

    NIL, GLOBAL_ENV, REFERENCE = 254, 253, 255
    SYMBOL, PAIRLIST, STRING = 1, 2, 9
    LOGICALS, INTEGERS, STRINGS, LIST = 10, 13, 16, 19
    HAS_ATTRIBUTES, HAS_TAG = 0x200, 0x400
    LATIN1 = 0x4  # among the level bits, which start at bit 12

    def __init__(self, data: bytes) -> None:
        """Start at the first value behind the header of ``data``."""
        if data[:2] != b"X\n":
            raise ValueError("not R's XDR serialisation: it must start with 'X' and a newline")
        self._data = data
        self._at = 2
        self._symbols: list[str] = []
        version, _, _ = (self._int() for _ in range(3))
        if version == 3:
            self._bytes(self._int())  # the writer's encoding; strings carry their own

    def value(self) -> Any:
        """Read the next value."""
        flags = self._int()
        kind = flags & 0xFF
        if kind in (self.NIL, self.GLOBAL_ENV):
            return None
        if kind == self.REFERENCE:
            return self._symbols[(flags >> 8) - 1]
        if kind == self.SYMBOL:
            self._symbols.append(self.value())
            return self._symbols[-1]
        if kind == self.STRING:
            return self._string(flags)
        if kind == self.PAIRLIST:
            return self._pairlist(flags)
        return self._vector(kind, flags)

    def _vector(self, kind: int, flags: int) -> Any:
        length = self._int()
        items: list[Any]
        if kind in (self.LOGICALS, self.INTEGERS):
            items = [self._int() for _ in range(length)]
        elif kind in (self.STRINGS, self.LIST):
            items = [self.value() for _ in range(length)]
        else:
            raise ValueError(f"R type {kind} is not one that a text database needs")
        attributes = self.value() if flags & self.HAS_ATTRIBUTES else None
        names = (attributes or {}).get("names")
        return dict(zip(names, items, strict=True)) if names else items

    def _pairlist(self, flags: int) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while flags & 0xFF == self.PAIRLIST:
            if flags & self.HAS_ATTRIBUTES:
                self.value()
            tag = self.value() if flags & self.HAS_TAG else str(len(entries))
            entries[tag] = self.value()
            flags = self._int()
        return entries

    def _string(self, flags: int) -> str:
        length = self._int()
        if length < 0:
            return ""
        latin1 = (flags >> 12) & self.LATIN1
        return self._bytes(length).decode("latin-1" if latin1 else "utf-8")

    def _int(self) -> int:
        (number,) = struct.unpack(">i", self._bytes(4))
        return int(number)

    def _bytes(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]


def decompress_record(record: bytes) -> bytes:
    """Unpack one record of a database: 4 bytes of length, then zlib data."""
    if record[4:5] in (b"2", b"Z", b"0"):
        raise ValueError("only zlib records are supported; the Debian package uses no others")
    return zlib.decompress(record[4:])


def read_r_database(stem: Path) -> dict[str, list[str]]:
    """Read every variable of the lazy-load database ``stem``.rdx and ``stem``.rdb."""
    raw = stem.with_suffix(".rdx").read_bytes()
    index = RReader(
        gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else zlib.decompress(raw)
    ).value()
    records = stem.with_suffix(".rdb").read_bytes()
    return {
        name: RReader(decompress_record(records[start : start + length])).value()
        for name, (start, length) in index["variables"].items()
    }


def unwrap(lines: list[str]) -> str:
    """Join wrapped lines into paragraphs, one blank line between them."""
    paragraphs: list[str] = []
    for block in re.split(r"\n\s*\n", "\n".join(line.rstrip() for line in lines)):
        joined = re.sub(r"(?<=--)\n", "", block)
        text = re.sub(r"\s+", " ", joined).strip()
        if text:
            paragraphs.append(text)
    return "\n\n".join(paragraphs) + "\n"


def drop_editor_note(text: str) -> str:
    """Cut what an editor added behind a novel's end: that is neither Austen's nor needed."""
    return re.split(r"\n\nA NOTE ON THE TEXT\b", text)[0].rstrip() + "\n"


def novels(stem: Path, part: str) -> Iterator[Entry]:
    """Yield the novels of one part."""
    database = read_r_database(stem)
    for source in NOVELS[part]:
        text = drop_editor_note(unwrap(database[source.key]))
        yield entry(f"austen/{source.key}", "novel", text, source.limit)


# Manual: the handbook's pages


class PageText(HTMLParser):
    """Turns one page of the handbook into plain text, paragraphs apart by a blank line."""

    BLOCKS = frozenset({"div", "p", "pre", "blockquote", "hr", "table", "tr"}) | frozenset(
        {"h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "dl", "dt", "dd"}
    )
    SKIPPED_CLASSES = frozenset({"toc", "docnav", "footnotes", "legalnotice"})
    SKIPPED_IDS = frozenset({"banner", "title"})
    VOID = frozenset({"br", "hr", "img", "link", "meta", "input"})

    def __init__(self) -> None:
        """Start outside the page's body."""
        super().__init__(convert_charrefs=True)
        self._open: list[bool] = []  # for each open element, whether it begins a skipped part
        self._skipped = 0
        self._preformatted = 0
        self._blocks: list[str] = []
        self._current = ""
        self.next_page: str | None = None
        self.starts_chapter = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element; blocks end the paragraph before them."""
        given = {name: value or "" for name, value in attrs}
        classes = set(given.get("class", "").split())
        if tag == "link" and given.get("rel") == "next":
            self.next_page = given.get("href")
        self.starts_chapter |= tag == "div" and bool(classes & {"chapter", "appendix", "preface"})
        if tag in self.BLOCKS:
            self._flush()
        if tag == "br":
            self._current += "\n" if self._preformatted else " "
        if tag in self.VOID:
            return
        skip = (
            tag == "head"
            or bool(classes & self.SKIPPED_CLASSES)
            or given.get("id") in self.SKIPPED_IDS
            or (tag == "sup" and "footnote" in str(attrs))
        )
        self._open.append(skip)
        self._skipped += skip
        self._preformatted += tag == "pre"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Treat ``<a/>`` as an element that opens and closes."""
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close an element; blocks end their paragraph."""
        if tag in self.VOID or not self._open:
            return
        if tag in self.BLOCKS:
            self._flush()
        self._skipped -= self._open.pop()
        self._preformatted -= tag == "pre"

    def handle_data(self, data: str) -> None:
        """Collect text that is shown."""
        if not self._skipped:
            self._current += data

    def text(self) -> str:
        """Return the page's text so far."""
        self._flush()
        return "\n\n".join(self._blocks) + "\n"

    def _flush(self) -> None:
        current, self._current = self._current, ""
        if self._preformatted:
            block = "\n".join(line.rstrip() for line in current.split("\n")).strip("\n")
        else:
            block = re.sub(r"\s+", " ", current).strip()
        if block:
            self._blocks.append(block)


def read_page(path: Path) -> PageText:
    """Parse one page."""
    page = PageText()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    return page


def chapter_text(pages: Path, first: str) -> str:
    """Join the page that opens a chapter with those that follow, up to the next chapter."""
    name: str | None = f"{first}.html"
    texts: list[str] = []
    while name:
        page = read_page(pages / name)
        if texts and page.starts_chapter:
            break
        texts.append(page.text())
        name = page.next_page
    return "\n".join(texts)


def chapters(pages: Path, part: str) -> Iterator[Entry]:
    """Yield the handbook's chapters of one part."""
    for source in CHAPTERS[part]:
        text = chapter_text(pages, source.key)
        yield entry(f"debian-handbook/{source.key}", "manual", text, source.limit)


# Code: modules as they are


def modules(library: Path, part: str) -> Iterator[Entry]:
    """Yield the standard library's modules of one part."""
    for source in MODULES[part]:
        text = (library / source.key).read_text(encoding="utf-8")
        yield entry(f"python/{source.key}", "code", text, source.limit)


# Packing


def entry(name: str, kind: str, text: str, limit: int | None) -> Entry:
    """Make one packed document, cut at the last paragraph that ends within ``limit``."""
    if limit is not None and len(text) > limit:
        text = text[: text.rindex("\n\n", 0, limit)] + "\n"
    return {"name": name, "kind": kind, "text": text}


def pack(entries: list[Entry]) -> bytes:
    """Compress documents; the output depends on nothing but them."""
    data = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "pb": 0}]
    return lzma.compress(data, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC32, filters=filters)


@dataclass(frozen=True)
class Options:
    """The command line: where the sources lie and where the packed files go."""

    novels: Path
    handbook: Path
    library: Path
    output: Path


def parse_options() -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    package = Path(__file__).resolve().parent.parent / "src" / "ridgefill" / "data"
    defaults = Options(
        novels=Path("/usr/lib/R/site-library/janeaustenr/data/Rdata"),
        handbook=Path("/usr/share/doc/debian-handbook/html/en-US"),
        library=Path("/usr/lib/python3.11"),
        output=package,
    )
    helps = {
        "novels": "the novels' R database, without its suffix",
        "handbook": "the folder with the handbook's pages",
        "library": "the folder with the standard library's modules",
        "output": "the folder to write to",
    }
    for name, default in asdict(defaults).items():
        parser.add_argument(f"--{name}", type=Path, default=default, help=helps[name])
    return Options(**vars(parser.parse_args()))


def main() -> None:
    """Pack both parts and report their sizes."""
    options = parse_options()
    packed: dict[str, bytes] = {}
    for part in ("fit", "held_out"):
        entries = [
            *novels(options.novels, part),
            *chapters(options.handbook, part),
            *modules(options.library, part),
        ]
        packed[part] = pack(entries)
        for item in entries:
            print(f"{part:9} {item['kind']:7} {item['name']:42} {len(item['text']):8,} characters")
    total = sum(map(len, packed.values()))
    if total > SIZE_LIMIT:
        raise SystemExit(f"{total:,} bytes packed, {SIZE_LIMIT:,} allowed: trim the fit part first")
    for part, data in packed.items():
        (options.output / f"{part}.json.xz").write_bytes(data)
        print(f"{part}.json.xz: {len(data):,} bytes")


if __name__ == "__main__":
    main()
