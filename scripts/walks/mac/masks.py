"""Names of people, machines, networks, displays and other programs become masks: `user-1`, `machine-2`, `program-3`.

The same name has the same mask in all files of one zip.  Two ways lead to a mask:

    where a name stands    a column, a key, a part of a path at which the tools print names (mask_rules): any name,
                           however short, and any word
    which name it is       the names that the Mac itself gave for its user, itself and its network (owner), and those
                           of programs that were found at such places: as whole words, everywhere

A name of less than SHORTEST letters, or one that is also a word of stallguard or of the tools' own outputs ("python",
"gpu", "user", "batch"), is masked only where a name stands: else it would destroy what the file is for.

JSON and property lists are masked value by value and stay what they are.  Pure: text in, text out.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import quote
from xml.sax.saxutils import escape, unescape

from mac import mask_rules
from stallguard.collectors.redact import is_secret_name, mark

SHORTEST = 3  # letters of a name that is looked for everywhere; of a program: one more
WORD = re.compile(r"[^\W\d_]{2,}")
TOKEN = re.compile(r"[^\W_]+")
MASK = re.compile(r"(?:user|machine|network|serial|program|display|volume|folder|address|device|label)-\d+")
XML_NODE = re.compile(
    r"(?P<key><key>(?P<name>[^<]*)</key>\s*)?<(?P<tag>string|integer|data|date)>(?P<value>[^<]*)</(?P=tag)>"
)
XML_TEXT = re.compile(r"(?<=>)[^<>]+(?=<)|(?P<name>[\w:-]+)=(?P<quote>[\"'])(?P<value>[^<]*?)(?P=quote)")


class Secrets(Protocol):
    """What removes secrets: stallguard's redactor."""

    def text(self, text: str) -> str:
        """Return a text without its secrets."""

    def arguments(self, words: Sequence[str]) -> list[str]:
        """Return the words of a command line without its secrets."""


class Masks:
    """The masks of one zip."""

    def __init__(
        self, secrets: Secrets, known: Iterable[tuple[str, str]] = (), words: Iterable[str] = (),
        own: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """`known`: (kind, name) of this Mac; `words`: that a name must not destroy; `own`: paths and their masks."""
        self._secrets, self._own = secrets, dict(own or {})
        self._words = frozenset(word.casefold() for word in words)
        self._given: dict[tuple[str, str], str] = {}
        self._counts: Counter[str] = Counter()
        # The names that are masked wherever they are, and their masks, by their first letters and digits.
        self._everywhere: dict[str, dict[str, str]] = {}
        self._text = lru_cache(maxsize=1 << 16)(self._masked)
        for kind, name in known:
            self._know(name.strip(), self.of(kind, name.strip()), SHORTEST)
            for part in name.split() if kind == "user" else ():
                self._know(part, self.of(kind, name.strip()), SHORTEST)

    def of(self, kind: str, name: str) -> str:
        """Return the mask of a name; a mask is its own."""
        if MASK.fullmatch(name):
            return name
        key = (kind, unicodedata.normalize("NFC", name).casefold())
        if key not in self._given:
            self._counts[kind] += 1
            self._given[key] = f"{kind}-{self._counts[kind]}"
            if kind in ("program", "display", "label", "network"):
                self._know(name, self._given[key], SHORTEST + 1)
        return self._given[key]

    def _know(self, name: str, masked: str, shortest: int) -> None:
        """Mask a name everywhere, if that destroys no other word."""
        if len(name) < shortest or not re.search(r"[^\W\d_]", name) or self._is_of_words(name):
            return
        for spelling in spellings(name):
            if len(spelling) >= shortest:  # one can be much shorter: the host "\u0156>>." is called "R"
                self._everywhere.setdefault(first_token(spelling), {}).setdefault(spelling, masked)

    def _is_of_words(self, name: str) -> bool:
        """Return whether a name consists of words that are needed: python3, the user, gpu-batch."""
        return all(
            part in self._words
            or (len(part) == 1 and part.isascii())
            or (part.isalpha() and (inner := WORD.findall(part)) and all(word in self._words for word in inner))
            for part in TOKEN.findall(name.casefold())
        )

    def files(self, files: Mapping[str, str]) -> dict[str, str]:
        """Return the files of a zip, masked: a name that one file shows where names stand is masked in all."""
        for text in files.values():
            self.clean(text)
        self._text.cache_clear()
        return {name: self.clean(text) for name, text in files.items()}

    def clean(self, text: str) -> str:
        """Return a text, of any form, without secrets and names."""
        at = text.find("<?xml", 0, 500)
        if at >= 0:
            return self.text(text[:at]) + self._xml(text[at:])
        return "".join(self.text(part) if value is None else self._json(value, part) for part, value in parts(text))

    def text(self, text: str) -> str:
        """Return a plain text without secrets and names."""
        return self._text(text) if text else text

    def _masked(self, text: str) -> str:
        text = self._secrets.text(text)
        for path, masked in self._own.items():
            text = text.replace(path, masked)
        return self.names(mask_rules.text(text, self.of))

    def names(self, text: str) -> str:
        """Return a text without the names that are masked wherever they are."""
        there = set(TOKEN.findall(text.casefold()))
        there |= {token.removesuffix("s") for token in there}
        found = [name for token in there & self._everywhere.keys() for name in self._everywhere[token]]
        if not found:
            return text
        longest = "|".join(map(re.escape, sorted(found, key=len, reverse=True)))
        pattern = re.compile(rf"(?<![^\W_])(?P<name>{longest})(?:['\u2019]?s)?(?![^\W_])", re.IGNORECASE)
        masked = {name.casefold(): self._everywhere[first_token(name)][name] for name in reversed(found)}
        return pattern.sub(lambda one: masked.get(one["name"].casefold(), mark("name")), text)

    def _json(self, value: Any, text: str) -> str:
        clean = self._value(value, "", ())
        if clean == value:
            return text
        end = "\n" if text.endswith("\n") else ""
        style: dict[str, Any] = {"indent": 1} if "\n" in text.strip() else {"separators": (",", ":")}
        return json.dumps(clean, ensure_ascii=False, **style) + end

    def _value(self, value: Any, key: str, above: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            return {self._key(name): self._value(item, name, (*above, key)) for name, item in value.items()}
        if isinstance(value, list):
            if all(isinstance(item, str) for item in value) and any(item.startswith("-") for item in value):
                value = self._secrets.arguments(value)
            return [self._value(item, key, above) for item in value]
        named = mask_rules.by_key(key, value, self.of, above)
        if named is not None or not isinstance(value, str):
            return value if named is None else named
        return mark("secret") if is_secret_name(key) else self.text(value)

    def _key(self, name: str) -> str:
        return name if name.casefold() in self._words else self.text(name)

    def _xml(self, text: str) -> str:
        def node(found: re.Match[str]) -> str:
            value = unescape(found["value"], {"&quot;": '"', "&apos;": "'"})
            key = found["name"] or ""
            named = mask_rules.by_key(key, value, self.of)
            if named is None and is_secret_name(key) and found["tag"] == "string":
                named = mark("secret")
            if found["tag"] != "string":  # a number or bytes that name something: none of it is left
                named = None if named is None else "0" if found["tag"] == "integer" else ""
            clean = str(named) if named is not None else self.text(value)
            kept = found["value"] if clean == value else escape(clean)
            return f"{found['key'] or ''}<{found['tag']}>{kept}</{found['tag']}>"

        def other(found: re.Match[str]) -> str:
            inner = found[0] if found["value"] is None else found["value"]
            value = unescape(inner, {"&quot;": '"', "&apos;": "'"})
            named = mask_rules.by_key(found["name"] or "", value, self.of)
            clean = str(named) if named is not None else self.text(value)
            kept = inner if clean == value else escape(clean, {'"': "&quot;", "'": "&apos;"})
            quoted = found["quote"] or ""
            return f"{found['name']}={quoted}{kept}{quoted}" if quoted else kept

        return XML_TEXT.sub(other, XML_NODE.sub(node, text)) if "<plist" not in text else XML_NODE.sub(node, text)


def spellings(name: str) -> Iterator[str]:
    """Yield the forms in which a name is printed: as it is, in JSON, XML, addresses, shells, lsof, names of hosts."""
    for form in dict.fromkeys((unicodedata.normalize("NFC", name), unicodedata.normalize("NFD", name), name)):
        yield form
        yield json.dumps(form)[1:-1]
        yield escape(form, {'"': "&quot;", "'": "&apos;"})
        yield escape(form)
        yield quote(form, safe="")
        yield form.replace(" ", "\\ ")
        yield form.replace(" ", "\\x20")
        yield form.replace("'", "\\'")
        yield "".join(chr(byte) if byte < 0x7F else f"\\x{byte:02x}" for byte in form.encode())  # noqa: PLR2004 - ASCII
        yield re.sub(r"[^\w-]+", "-", re.sub("['\u2019]", "", form)).strip("-") or form


def first_token(name: str) -> str:
    """Return the first letters and digits of a name, in lower case."""
    found = TOKEN.search(name.casefold())
    return found[0] if found else ""


def parts(text: str) -> Iterator[tuple[str, Any]]:
    """Yield (text, value) of each JSON object or array that begins and ends with a line, (text, None) of the rest."""
    decoder, at, plain = json.JSONDecoder(), 0, 0
    while at < len(text):
        end = text.find("\n", at) + 1 or len(text)
        if text[at] in "{[":
            try:
                value, stop = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                value, stop = None, at
            close = text.find("\n", stop) + 1 or len(text)
            if value is not None and not text[stop:close].strip():
                if plain < at:
                    yield text[plain:at], None
                yield text[at:close], value
                plain = end = close
        at = end
    if plain < len(text):
        yield text[plain:], None


def vocabulary(texts: Iterable[str]) -> frozenset[str]:
    """Return the words of these texts, each part of a name in camel case too."""
    found: set[str] = set()
    for text in texts:
        for word in TOKEN.findall(text):
            found.add(word.casefold())
            found.update(part.casefold() for part in re.findall(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+(?![a-z])", word))
    return frozenset(found)
