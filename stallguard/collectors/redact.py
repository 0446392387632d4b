"""Secrets are removed by rules, the same for arguments, environment and every text of a bundle.

    secret      the value after a name such as password, api_key, --token, Authorization, AWS_SECRET_ACCESS_KEY
    known       that value wherever else it occurs: a secret of the environment that the script printed, also the
                password of an address in it or in an argument
    url         user and password in an address: scheme://user:password@host
    login       user:password after -u or --user, a password after -p
    token       text of a known form: AWS, GitHub, GitLab, Hugging Face, OpenAI, Slack, Google, PyPI, npm, JWT, others
    key         a private key in PEM form, or PuTTY's
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

# Words of a name that make its value a secret; `key`, `pass` and `pw` only at the end of a longer name.
SECRET_WORDS = frozenset(
    {
        "apikey", "auth", "authorization", "bearer", "contrasena", "contraseña", "cookie", "cookies", "credential",
        "credentials", "dsn", "jwt", "passcode", "passphrase", "passwd", "password", "pwd", "secret", "secrets",
        "sessid", "sessionid", "sig", "token", "webhook",
    }
)  # fmt: skip
AT_THE_END = frozenset({"key", "pass", "pw"})
WRITTEN_TOGETHER = (
    "password", "passwd", "secret", "apikey", "authkey", "servicekey", "accountkey", "accesskey", "dbkey",
    "databasekey", "privkey", "privatekey", "clientkey", "dbpass", "databasepass", "keypass", "sessid", "sessionid",
    "x-amz-signature",
)  # fmt: skip
# What a training counts and measures: token_count, eos_token, forward_pass.
OF_TEXT = frozenset(
    "accuracy acc average avg bos budget class cls count decoded dim embedding embeddings end entropy eos first id ids"
    " image index input last len length level limit logits loss mask max mean min n next nb num number output pad per"
    " perplexity position ppl rate sep size special speed start stop text throughput time total type unk vocab".split()
)
OF_A_LOOP = frozenset("all backward each eval first forward full last next one per second single third train".split())
NOT_SECRET = frozenset({"PWD", "OLDPWD"})  # shells keep the working directory there
HARMLESS = re.compile(
    r"(PATH|PWD|OLDPWD|HOME|SHELL|TERM\w*|COLORTERM|COLUMNS|LINES|TZ|TMPDIR|LANG|LC_\w+|NO_COLOR|FORCE_COLOR|CI"
    r"|VIRTUAL_ENV|XPC_SERVICE_NAME|DISPLAY"
    r"|(PYTHON|CONDA|TF|TF2|KERAS|XLA|JAX|TORCH|PYTORCH|CUDA|CUDNN|NVIDIA|NCCL|METAL|MTL|MPS|AGX|ABSL|GLOG|EIGEN"
    r"|OMP|KMP|MKL|OPENBLAS|BLIS|NUMEXPR|VECLIB|MALLOC|DYLD|LD|HDF5|STALLGUARD|TURN|SLURM|OMPI|UV)_?\w*)"
)


PEM = re.compile(
    r"-----?[ ]?BEGIN [A-Z0-9 ]{0,20}PRIVATE KEY(?: BLOCK)?[ ]?-----?.*?"
    r"(?:-----?[ ]?END [A-Z0-9 ]{0,20}PRIVATE KEY(?: BLOCK)?[ ]?-----?|\Z)"
    r"|PuTTY-User-Key-File-\d.*?(?:Private-MAC:[^\n]*|\Z)",
    re.DOTALL,
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
            r"(?<![A-Za-z0-9])(?:(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])"  # AWS access key ids
            r"|gh[pousr]_[A-Za-z0-9]{20,}+|github_pat_\w{20,}+"  # GitHub
            r"|gl(?:pat|dt|ft|soat|rt|cbt|imt|ptt|agent|oas)-[\w-]{20,}+|GR1348941[\w-]{20,}+"  # GitLab
            r"|hf_[A-Za-z0-9]{20,}+|sk-[\w-]{20,}+|AIza[\w-]{35}|ya29\.[\w-]++"  # Hugging Face, OpenAI, Google
            r"|(?:gsk|r8)_[A-Za-z0-9]{30,}+|dckr_pat_[\w-]{20,}+|hvs\.[\w-]{20,}+"  # Groq, Replicate, Docker, Vault
            r"|xox[abeoprs]-[\w-]{10,}+|hooks\.slack\.com/services/[\w/]++"  # Slack
            r"|discord(?:app)?\.com/api/webhooks/[\w/-]++|[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,38}+"  # Discord
            r"|\d{8,10}:(?:AA[\w-]{30,}+|[\w-]{35}(?![\w-]))"  # Telegram
            r"|npm_[A-Za-z0-9]{30,}+|pypi-[\w-]{20,}+"
            r"|[prs]k_(?:live|test)_[A-Za-z0-9]{16,}+|whsec_[A-Za-z0-9]{16,}+"  # Stripe
            r"|(?:AC|SK)[a-f0-9]{32}(?![A-Za-z0-9])|SG\.[\w-]{16,}+\.[\w-]{16,}+"  # Twilio, SendGrid
            r"|sq0[a-z]{3}-[\w-]{22,}+|[0-9a-f]{32}-us\d{1,2}(?!\w)"  # Square, Mailchimp
            r"|AKC(?=[A-Za-z]*\d)[A-Za-z0-9]{10,}+|AP[\dA-F](?=[A-Za-z]*\d)[A-Za-z0-9]{8,}+"  # Artifactory
            r"|api\.softlayer\.com/soap/v3(?:\.1)?/[a-z0-9]{64}"
            r"|eyJ[\w=-]{8,}+\.[\w=-]{8,}+(?:\.[\w+/=-]*+)?)"  # JSON web tokens
        ),
    ),
    # AWS secrets have no form of their own, but 40 characters in quotes after "aws" and "key" are one.
    Shape(
        "token",
        re.compile(
            r"(?P<kept>aws[^\n]{0,20}?(?:key|pwd|pw|pass|token)[^\n]{0,20}?[\"'])[0-9A-Za-z/+]{40}(?=\\*[\"'])",
            re.IGNORECASE,
        ),
    ),
    # Clients whose -p can be written together with the password.
    Shape("login", re.compile(r"(?P<kept>\b(?:mysql\w*|mariadb\S*|sshpass)\b[^\n;|&]{0,200}?\s-p)[^\s\"'-][^\s\"']*+")),
    Shape("e-mail", re.compile(r"(?<![\w.+-])[\w.+-]++@[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]++)+")),
)

_PASSWORD = re.compile(r"://[^\s:@/]*+:([^\s@/]++)@")
_URL = re.compile(r"(?<=://)[^\s\"'<>]++")
# `--name value`, `--name=value`, "--name", "value"; then name=value, name: value, "name": value, x["name"] = value,
# name == value, and name "value"; with quotes and semicolon.  A name has 1,000 letters at most: it can begin after each
# hyphen, and without a limit each beginning would be read to the end of "a-a-a-...".
_NAME = re.compile(
    r"""(?<![\w-])--?(?P<option>[A-Za-z][\w.-]*+)"""
    r"""(?:\\*["'],\s*(?=\\*["'])|(?:\\*["'])?(?:[ \t]*[=,][ \t]*|[ \t]+))(?!-)"""
    r"""|(?<![\w.])(?P<name>[^\W\d][\w.-]{0,1000}+)"""
    r"""(?:(?:\\*["'])?(?:\[?\])?[ \t]*(?:=>|:=|!?=+|:(?!//))[ \t]*|[ \t]+(?=["'][^"'\n]*+["'];))"""
)
# Only single characters are repeated possessively: Python before 3.11.5 matches repeated groups wrongly (gh-106052).
_VALUE = re.compile(
    r"""\[removed:[^\]]*+\]|[@bBfFrRuU]{0,2}(?P<quote>\\*["'])(?:(?!(?P=quote))[^\n])+(?P=quote)"""
    r"""|[\\"']*+[^\s,;&"'<>)}\]]++"""
)
# The rest of a text in quotes that began with the name: "password=two words".
_REST = {quote: re.compile(rf"[^\n{quote}\\]++") for quote in "\"'"}
# A login after -u: not the numbers of a user and a group.  After -p: no number, no port, no path.
_LOGIN = re.compile(r"""(?P<quote>\\*["'])?(?!\d++:\d++\b)[^\s:/"'\[\]]++:[^\s"']++""")
_ALONE = re.compile(r"""(?!\\*["']?(?:[\d.,:+eE-]++|no:\w++)(?![^\s"'\\]))\\*["']?[^\s"'/\\\[]++(?![^\s"'\\])""")
_SHORT = {"u": _LOGIN, "U": _LOGIN, "user": _LOGIN, "proxy-user": _LOGIN, "p": _ALONE}
_WORDS = re.compile(r"[A-Z]+(?![a-zñ])|[A-Z]?[a-zñ]+|\d+")
_OTHERS_HOME = re.compile(r"(?:(?<=/Users/)|(?<=/home/))(?!Shared\b)[^/\s:;,\"'<>\[\]\\]++")


def mark(rule: str) -> str:
    """Return the replacement of removed text."""
    return f"[removed: {rule}]"


def is_secret_name(name: str) -> bool:
    """Return whether a value under this name is a secret: api_key, --auth-token, dbPassword, PGPASSWORD."""
    if name in NOT_SECRET:
        return False
    words = [word.lower() for word in _WORDS.findall(name)]
    while words and words[-1].isdecimal():
        words.pop()  # api_key_2
    telling = SECRET_WORDS.intersection(words)
    if telling == {"token"} and not OF_TEXT.isdisjoint(words):
        return False
    if telling or {"session", "id"}.issubset(words) or {"connection", "string"}.issubset(words):
        return True
    if len(words) > 1 and words[-1] in AT_THE_END:
        return words[-1] != "pass" or words[-2] not in OF_A_LOOP
    return name.lower().rstrip("0123456789").endswith(WRITTEN_TOGETHER)


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
        values += [found[1] for word in (*environment.values(), *arguments) for found in _PASSWORD.finditer(word)]
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
        clean: list[str] = []
        before = ""
        for word in words:
            name, equals, _ = word.partition("=")
            short = _SHORT.get(before.lstrip("-")) if before.startswith("-") else None
            if before.startswith("-") and is_secret_name(before) and not word.startswith("-"):
                clean.append(self._mark("secret"))
            elif equals and re.fullmatch(r"[\w.-]+", name) and is_secret_name(name):
                clean.append(f"{name}={self._mark('secret')}")  # the value can contain spaces
            elif short is not None and short.match(word):
                clean.append(self._mark("login"))
            else:
                clean.append(self.text(word))
            before = "" if equals else word
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
            return self.arguments(self._without_keys(value))
        if isinstance(value, Iterable):
            return [self.value(item) for item in value]
        return value

    def _without_keys(self, lines: Sequence[str]) -> Sequence[str]:
        """Return texts, which can be the lines of an output, without the private keys that span several of them."""
        whole = "\0".join(lines)
        if not PEM.search(whole):
            return lines
        return PEM.sub(lambda key: self._mark("key") + "\0" * key[0].count("\0"), whole).split("\0")

    def _named(self, text: str) -> str:
        """Remove the values after secret names."""
        kept: list[str] = []
        at = 0
        for match in _NAME.finditer(text):
            if match.start() < at:
                continue
            value, rule = None, "secret"
            if is_secret_name(match["option"] or match["name"]):
                value = _VALUE.match(text, match.end())
                opened = text[match.start() - 1 : match.start()]
                # `"password": value` has the closing quote in the match.
                if value and not value["quote"] and opened in _REST and opened not in match[0]:
                    value = _REST[opened].match(text, match.end()) or value
            elif match["option"] in _SHORT and not text.endswith("mkdir ", 0, match.start()):
                value, rule = _SHORT[match["option"]].match(text, match.end()), "login"
            if value and not value[0].startswith("[removed:"):
                kept += [text[at : match.end()], self._mark(rule)]
                at = value.end()
        return "".join([*kept, text[at:]])

    def _url(self, match: re.Match[str]) -> str:
        return "://".join(map(self._address, match[0].split("://")))

    def _address(self, address: str) -> str:
        """Remove `user:password@`; a password can contain a slash, although it should not."""
        place = address.partition("/")[0]
        until = place if "@" in place or ":" not in place else address
        user, at, _ = until.rpartition("@")
        return f"{self._mark('url')}@{address[len(user) + 1 :]}" if at and "[removed:" not in user else address

    def _replace(self, pattern: re.Pattern[str], rule: str, text: str, by: str = "") -> str:
        has_kept = "kept" in pattern.groupindex
        clean, count = pattern.subn(lambda found: (found["kept"] if has_kept else "") + (by or mark(rule)), text)
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
