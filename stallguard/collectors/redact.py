"""Secrets are removed by rules, the same for arguments, environment and every text of a bundle.

    secret      the value after a name such as password, api_key, --token, Authorization, AWS_SECRET_ACCESS_KEY
    known       that value wherever else it occurs: a secret of the environment that the script printed, also the
                password of an address in it or in an argument
    url         user and password in an address: scheme://user:password@host
    token       text of a known form: AWS, GitHub, GitLab, Hugging Face, OpenAI, Slack, Google, PyPI, npm, JWT
    key         a private key in PEM form
    e-mail      an address
    variable    the value of an environment variable that is not on the list of harmless ones
    home        the home directory becomes ~; other users' names in /Users and /home are removed

The rule replaces the removed text: [removed: token].  Removing twice changes nothing.  A secret of an unknown form
under a harmless name is not recognised, except in the environment, of which only variables on the list are kept.
Pure: text in, text out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

SHORTEST_KNOWN = 6  # characters; shorter values ("true", "none", "1") would damage every text

# Words of a name that make its value a secret; `key` only at the end of a longer name.
SECRET_WORDS = frozenset(
    {
        "apikey", "auth", "authorization", "bearer", "cookie", "credential", "credentials", "dsn", "passphrase",
        "passwd", "password", "pwd", "secret", "secrets", "sig", "token",
    }
)  # fmt: skip
NOT_SECRET = frozenset({"PWD", "OLDPWD"})  # shells keep the working directory there
HARMLESS = re.compile(
    r"(PATH|PWD|OLDPWD|HOME|SHELL|TERM\w*|COLORTERM|COLUMNS|LINES|TZ|TMPDIR|LANG|LC_\w+|NO_COLOR|FORCE_COLOR|CI"
    r"|VIRTUAL_ENV|XPC_SERVICE_NAME|DISPLAY"
    r"|(PYTHON|CONDA|TF|TF2|KERAS|XLA|JAX|TORCH|PYTORCH|CUDA|CUDNN|NVIDIA|NCCL|METAL|MTL|MPS|AGX|ABSL|GLOG|EIGEN"
    r"|OMP|KMP|MKL|OPENBLAS|BLIS|NUMEXPR|VECLIB|MALLOC|DYLD|LD|HDF5|STALLGUARD|TURN|SLURM|OMPI|UV)_?\w*)"
)


PEM = re.compile(
    r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,20}PRIVATE KEY-----|\Z)", re.DOTALL
)
PIECE = 1 << 16  # characters; a regular expression holds the interpreter's lock, so it gets no more per call


class Shape(NamedTuple):
    """A text that is removed everywhere."""

    rule: str
    pattern: re.Pattern[str]


SHAPES = (
    Shape("secret", re.compile(r"(?<=\bauthorization: )[^\r\n\"']++", re.IGNORECASE)),
    Shape("secret", re.compile(r"(?<=\bbearer )[\w.~+/=-]{8,}+", re.IGNORECASE)),
    # Weights & Biases and others: without a form of their own, but 32 letters after "key" are a secret.
    Shape("secret", re.compile(r"(?:(?<=\bkey: )|(?<=\bkey=)|(?<=\bkey is ))[\w-]{32,}+", re.IGNORECASE)),
    Shape(
        "token",
        re.compile(
            r"(?<![A-Za-z0-9])(?:(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])"  # AWS access key ids
            r"|gh[pousr]_[A-Za-z0-9]{20,}+|github_pat_\w{20,}+|glpat-[\w-]{20,}+"  # GitHub, GitLab
            r"|hf_[A-Za-z0-9]{20,}+|sk-[\w-]{20,}+|AIza[\w-]{35}|ya29\.[\w-]++"  # Hugging Face, OpenAI, Google
            r"|xox[abeprs]-[\w-]{10,}+|hooks\.slack\.com/services/[\w/]++"  # Slack
            r"|discord(?:app)?\.com/api/webhooks/[\w/-]++|\d{8,10}:AA[\w-]{30,}+"  # Discord, Telegram
            r"|npm_[A-Za-z0-9]{30,}+|pypi-[\w-]{20,}+"
            r"|eyJ[\w-]{8,}+\.[\w-]{8,}+\.[\w-]*+)"  # JSON web tokens
        ),
    ),
    Shape("e-mail", re.compile(r"(?<![\w.+-])[\w.+-]++@[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]++)++")),
)

_PASSWORD = re.compile(r"://[^\s:@/]*+:([^\s@/]++)@")
_URL = re.compile(r"(?<=://)[^\s\"'<>]++")
# `--name value`, `--name=value`, "--name", "value"; then name=value, name: value, "name": value.
_NAME = re.compile(
    r"""(?<![\w-])--?(?P<option>[A-Za-z][\w.-]*+)"""
    r"""(?:\\*["'],\s*(?=\\*["'])|(?:\\*["'])?(?:[ \t]*[=,][ \t]*|[ \t]+))(?!-)"""
    r"""|(?<![\w.])(?P<name>[A-Za-z_][\w.-]*+)(?:\\*["'])?[ \t]*(?:=>|:=|=|:(?!//))[ \t]*"""
)
_VALUE = re.compile(
    r"""\[removed:[^\]]*+\]|(?P<quote>\\*["'])(?:(?!(?P=quote))[^\n])++(?P=quote)|[\\"']*+[^\s,;&"'<>)}\]]++"""
)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_OTHERS_HOME = re.compile(r"(?:(?<=/Users/)|(?<=/home/))(?!Shared\b)[^/\s:;,\"'<>\[\]\\]++")


def mark(rule: str) -> str:
    """Return the replacement of removed text."""
    return f"[removed: {rule}]"


def is_secret_name(name: str) -> bool:
    """Return whether a value under this name is a secret: api_key, --auth-token, dbPassword, PGPASSWORD."""
    if name in NOT_SECRET:
        return False
    words = [word.lower() for word in _WORDS.findall(name)]
    if not SECRET_WORDS.isdisjoint(words) or (len(words) > 1 and words[-1] == "key"):
        return True
    return name.lower().endswith(("password", "passwd", "secret", "apikey", "x-amz-signature"))


class Redactor:
    """Applies the rules above, and counts the removals of each."""

    def __init__(self, environment: Mapping[str, str], arguments: Sequence[str] = (), home: str = "") -> None:
        """`environment` and `arguments`: of the training; their secrets are removed from every text."""
        self.removed: Counter[str] = Counter()
        values = [value for name, value in environment.items() if is_secret_name(name)]
        values += [
            word.partition("=")[2]
            for word in arguments
            if word.startswith("-") and is_secret_name(word.partition("=")[0])
        ]
        values += [
            value
            for word, value in pairwise(arguments)
            if word.startswith("-") and "=" not in word and is_secret_name(word) and not value.startswith("-")
        ]
        # A script that connects with the password of an address can print it alone.
        values += [
            found[1] for word in (*environment.values(), *arguments) for found in _PASSWORD.finditer(word)
        ]
        known = sorted({value for value in values if len(value) >= SHORTEST_KNOWN}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None
        home = home.rstrip("/")
        self._home = re.compile(rf"(?<![\w.]){re.escape(home)}(?![\w.-])") if home else None

    def text(self, text: str) -> str:
        """Return `text` without its secrets."""
        return "".join(map(self._piece, _pieces(self._replace(PEM, "key", text))))

    def _piece(self, text: str) -> str:
        if self._known:
            text = self._replace(self._known, "known", text)
        text = _URL.sub(self._url, text)
        for shape in SHAPES:
            text = self._replace(shape.pattern, shape.rule, text)
        text = self._named(text)
        if self._home:
            text = self._replace(self._home, "home", text, "~")
        return self._replace(_OTHERS_HOME, "home", text, "[user]")

    def data(self, data: bytes) -> bytes:
        """Return bytes without their secrets; bytes that are not UTF-8 are unchanged."""
        return self.text(data.decode(errors="surrogateescape")).encode(errors="surrogateescape")

    def arguments(self, words: Sequence[str]) -> list[str]:
        """Return a command line without its secrets."""
        clean = []
        after_secret = False
        for word in words:
            is_value = after_secret and not word.startswith("-")
            clean.append(self._mark("secret") if is_value else self.text(word))
            after_secret = word.startswith("-") and "=" not in word and is_secret_name(word)
        return clean

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return an environment with the values of harmless variables only."""
        clean = {}
        for name, value in sorted(environment.items()):
            if is_secret_name(name):
                clean[name] = self._mark("secret")
            elif HARMLESS.fullmatch(name):
                clean[name] = self.text(value)
            else:
                clean[name] = self._mark("variable")
        return clean

    def value(self, value: Any) -> Any:
        """Return a value of plain types (as JSON has them) without its secrets."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(str(key)): self._mark("secret")
                if isinstance(item, str) and is_secret_name(str(key))
                else self.value(item)
                for key, item in value.items()
            }
        if isinstance(value, Sequence) and all(isinstance(item, str) for item in value):
            return self.arguments(value)
        if isinstance(value, Iterable):
            return [self.value(item) for item in value]
        return value

    def _named(self, text: str) -> str:
        """Remove the values after secret names."""
        kept: list[str] = []
        at = 0
        for match in _NAME.finditer(text):
            if match.start() < at or not is_secret_name(match["option"] or match["name"]):
                continue
            value = _VALUE.match(text, match.end())
            if value and not value[0].startswith("[removed:"):
                kept += [text[at : match.end()], self._mark("secret")]
                at = value.end()
        return "".join([*kept, text[at:]])

    def _url(self, match: re.Match[str]) -> str:
        return "://".join(map(self._address, match[0].split("://")))

    def _address(self, address: str) -> str:
        """Remove `user:password@`; a password can contain a slash, although it should not."""
        place = address.partition("/")[0]
        until = place if "@" in place or ":" not in place else address
        user, at, _ = until.rpartition("@")
        return (
            f"{self._mark('url')}@{address[len(user) + 1 :]}" if at and "[removed:" not in user else address
        )

    def _replace(self, pattern: re.Pattern[str], rule: str, text: str, by: str = "") -> str:
        clean, count = pattern.subn(lambda _: by or mark(rule), text)
        self.removed[rule] += count
        return clean

    def _mark(self, rule: str) -> str:
        self.removed[rule] += 1
        return mark(rule)


def _pieces(text: str) -> Iterator[str]:
    """Yield the text in pieces that end with a line; only a private key spans lines, and it is already removed."""
    at = 0
    while at < len(text):
        end = text.find("\n", at + PIECE) + 1 or len(text)
        yield text[at:end]
        at = end
