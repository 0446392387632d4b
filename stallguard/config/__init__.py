"""The configuration: flags, environment, project file, user file and defaults, in that order.

Each of them is a layer: a list of raw settings with their origin.  `load` merges the layers, converts the values, and
records the origin of each.  The settings are in config.table.  This module only reads files, and must not act on any
setting.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from stallguard.config.kinds import SWITCH, Explained
from stallguard.config.table import (
    KEYS,
    REMOVED,
    TUNING_FILE,
    TUNING_SECTION,
    Config,
    Key,
    all_keys,
    file_of,
    key_of,
    section_names,
    tuning_rows,
    value_of,
)
from stallguard.errors import USAGE, StallguardError, nearest
from stallguard.user_folder import user_folder

OWN, SHARED = "stallguard.toml", "pyproject.toml"
TABLE = "tool.stallguard"
PREFIX = "STALLGUARD_"


class Setting(NamedTuple):
    """One raw value.  `path`: section.name as written; `origin`: for the user; `base`: the folder of its file."""

    path: str
    raw: Any
    origin: str
    base: Path | None = None


def user_file(env: Mapping[str, str]) -> Path:
    """Return the user's settings file: ~/.config/stallguard/config.toml, on macOS too, or under XDG_CONFIG_HOME."""
    return user_folder(env) / "config.toml"


def project_file(cwd: Path) -> Path | None:
    """Return the nearest stallguard.toml, or pyproject.toml with [tool.stallguard], from `cwd` upwards, or None."""
    for directory in (cwd, *cwd.parents):
        with contextlib.suppress(OSError):  # a directory that cannot be entered
            if (directory / OWN).is_file():
                return directory / OWN
            if (directory / SHARED).is_file() and TABLE.encode() in (directory / SHARED).read_bytes():
                return directory / SHARED
    return None


def text_of(path: Path) -> str:
    """Return the text of a settings file; "" if there is none.

    Raises NotText if it is not UTF-8, StallguardError (exit code 2) if it cannot be read.
    """
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise _unreadable(path, f"{error.strerror}", "make it readable, or remove it") from error
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"TOML is UTF-8, and the file is not: {error}", "save it as UTF-8", NotText) from error


def settings_of(text: str, path: Path) -> list[Setting]:
    """Return the settings in the text of the file `path`.  Raises StallguardError (exit code 2) if it is not TOML."""
    if not text:
        return []
    import tomllib  # imported only if there is a file: the start of the training waits for it

    try:
        table = tomllib.loads(text)
        own = table.get("tool", {}).get("stallguard", {}) if path.name == SHARED else table
        return [Setting(key, raw, f"{path}{_at(text, key)}", path.parent) for key, raw in _flat(own, "")]
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, or a number with thousands of digits
        raise _unreadable(path, f"it is not TOML: {error}", "https://toml.io describes TOML") from error


def rows_in(path: Path, text: str | None = None) -> list[Setting]:
    """Return the rows in the file `path`, which `detector.table` names.  `text`: its text, if known.

    Raises StallguardError (exit code 2) if it is not there or is not TOML.
    """
    if text is None and not path.is_file():
        why = "it is a folder" if path.is_dir() else "there is no such file"
        raise _unreadable(path, why, "correct or remove the setting detector.table")
    found = settings_of(text_of(path) if text is None else text, path)
    return [one._replace(path=f"{TUNING_SECTION}.{one.path}") for one in found]


class NotText(StallguardError):
    """A settings file that is not UTF-8."""


def _unreadable(path: Path, why: str, cure: str, kind: type[StallguardError] = StallguardError) -> StallguardError:
    return kind(f"cannot read the settings in {path}", why=why, cure=cure, code=USAGE)


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and (value or path in ("", *section_names())):
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else name)
    else:
        yield path, value


def _at(text: str, path: str) -> str:
    """Return `:line` of the setting in the file, or nothing if it is not found."""
    header = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if match := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line):
            header = match[1].removeprefix(TABLE).strip(".")
        elif match := re.match(r"\s*([\w.\-]+)\s*=", line):
            written = f"{header}.{match[1]}".strip(".")
            if path == written or path.startswith(f"{written}."):
                return f":{number}"
    return ""


def from_environment(env: Mapping[str, str]) -> list[Setting]:
    """Return the settings in STALLGUARD_SECTION__NAME variables; those without a double underscore are not settings."""
    names = sorted(name for name in env if name.startswith(PREFIX) and "__" in name)
    return [
        Setting(name.removeprefix(PREFIX).lower().replace("__", "."), env[name], f"environment {name}")
        for name in names
    ]


def from_words(words: Sequence[str]) -> tuple[dict[str, Any], tuple[str, ...]] | None:
    """Return the flags that the options before COMMAND give, by path, and COMMAND, without click, which takes 20 ms.

    None if there is anything but whole names of options for settings, each with its value in the next word, or if there
    is no COMMAND: click reads these words, or reports what is wrong (cli/run.py).
    """
    options = {key.flag: key for key in KEYS.values() if key.flag}
    flags: dict[str, Any] = {}
    index = 0
    while index < len(words) and words[index].startswith("-") and words[index] not in ("--", "-m"):
        word, value = words[index], words[index + 1 : index + 2]
        key = options.get(word) or options.get(f"--{word.removeprefix('--no-')}")
        if key is None or (key.kind is not SWITCH and (word != key.flag or not value or value[0].startswith("-"))):
            return None
        flags[key.path] = word == key.flag if key.kind is SWITCH else value[0]
        index += 1 if key.kind is SWITCH else 2
    command = tuple(words[index + 1 :] if words[index : index + 1] == ["--"] else words[index:])
    return (flags, command) if command else None


def from_flags(flags: Mapping[str, Any], typed: Mapping[str, str]) -> list[Setting]:
    """Return the settings given on the command line, by path; None: not given.

    `typed`: the options of a verb that has others for some of them, by path.
    """
    given = []
    for path, raw in flags.items():
        key = KEYS.get(path)
        flag = key.flag if key and key.flag else f"--set {path}"
        if raw is not None:
            given.append(Setting(path, raw, f"option {typed.get(path, flag)}"))
    return given


DEFAULT = "default"
NOTHING: Mapping[str, str] = MappingProxyType({})
NO_TEXTS: Mapping[Path, str] = MappingProxyType({})


class Loaded(msgspec.Struct, frozen=True):
    """A configuration, the origin of each value (by path), and the files that were considered.

    `origins`: of each setting, and of each row of the tuning table that is set.
    `ignored`: a message for each settings file that is ignored because it is damaged, and for each setting that was
    removed since.
    """

    config: Config
    origins: dict[str, str]
    files: tuple[Path, ...]
    ignored: tuple[str, ...] = ()


def load(
    flags: Mapping[str, Any],
    env: Mapping[str, str],
    cwd: Path,
    typed: Mapping[str, str] = NOTHING,
    texts: Mapping[Path, str] = NO_TEXTS,
) -> Loaded:
    """Return the configuration for a command started in `cwd`.

    `flags`: raw values by path; None if not given; `typed`: layers.from_flags; `texts`: files that are read as
    this text.  Raises StallguardError (exit code 2) for an unknown setting, a value of the wrong form, or a file that
    cannot be read.
    """
    project = project_file(cwd)
    files = tuple(dict.fromkeys((user_file(env), *([project] if project else []), *texts)))
    layers, ignored = [from_environment(env), from_flags(flags, typed)], list[str]()
    for file in reversed(files):
        try:
            text = texts[file] if file in texts else text_of(file)
            layers.insert(0, settings_of(text, file))
        except NotText as error:
            if file.name != SHARED:
                raise
            ignored.append(f"{error.what}; they are ignored: {error.why}; {error.cure}")
    given = [setting for layer in layers for setting in layer]
    if table := _table(given, cwd):
        given[:0] = _rows(table, texts)
        files = (*files, table)
    values: dict[str, Any] = {}
    origins = dict.fromkeys(KEYS, DEFAULT)
    for setting in given:
        if setting.path in REMOVED:
            ignored.append(f"{setting.path} ({setting.origin}) has no effect any more: {REMOVED[setting.path][1]}")
            continue
        values[setting.path] = typed_value(setting)
        origins[setting.path] = setting.origin
    loaded = Loaded(_assembled(values), origins, files, tuple(ignored))
    _refuse_contradictions(loaded)
    return loaded


def _table(given: list[Setting], cwd: Path) -> Path | None:
    """Return the file that the last of the given settings names as the tuning table, or None."""
    named = next((setting for setting in reversed(given) if setting.path == TUNING_FILE), None)
    text = typed_value(named) if named else ""
    return file_of(text, named.base or cwd) if named and text else None


def _rows(table: Path, texts: Mapping[Path, str]) -> list[Setting]:
    """Return the rows in the file.  Raises StallguardError (exit code 2) if one is no row of the tuning table."""
    found = rows_in(table, texts.get(table))
    for setting in found:
        if setting.path not in tuning_rows():
            near = nearest(setting.path, tuning_rows(), cutoff=0.75)
            raise StallguardError(
                f"the tuning table has no row {setting.path.partition('.')[2]} ({setting.origin})",
                why=f"did you mean {near.partition('.')[2]}?" if near else "",
                cure="stallguard config init --tuning writes a file with all rows",
                code=USAGE,
            )
    return found


def _refuse_contradictions(loaded: Loaded) -> None:
    """Raise StallguardError if slices are requested together with a setting that excludes them."""
    policy = loaded.config.policy
    against = {
        "policy.batch": policy.batch > 0,
        "policy.batch_flag": bool(policy.batch_flag),
        "policy.batch_env": bool(policy.batch_env),
        "policy.really_smaller_batch": policy.really_smaller_batch,
        "run.probe": not loaded.config.run.probe,
    }
    other = next((path for path, is_set in against.items() if is_set), None)
    if policy.microbatches == 1 or other is None:
        return
    reason = (
        "the probe makes slices, and it is off"
        if other == "run.probe"
        else "a batch is either trained in slices or made smaller, not both"
    )
    origins = {path: loaded.origins[path] for path in ("policy.microbatches", other)}
    raise StallguardError(
        f"policy.microbatches ({origins['policy.microbatches']}) and {other} ({origins[other]}) contradict each other",
        why=reason,
        cure="leave one of them out; --microbatches 1 means no slices",
        code=USAGE,
    )


def parse_set(texts: Iterable[str]) -> dict[str, str]:
    """Return flags from `section.name=value` texts.  Raises StallguardError (exit code 2) for another form."""
    pairs = [text.partition("=") for text in texts]
    for path, equals, _ in pairs:
        if not equals:
            raise StallguardError(f"{path!r} is not a setting", cure="write section.name=value", code=USAGE)
    return {path.strip(): value.strip() for path, _, value in pairs}


def typed_value(setting: Setting) -> Any:
    """Return the value of a raw setting.  Raises StallguardError (exit code 2) if it cannot be one of this setting."""
    key = key_of(setting.path)
    if key is None:
        raise _unknown(setting)
    try:
        return key.kind.read(setting.raw)
    except (ValueError, OverflowError) as error:
        raise StallguardError(
            f"{setting.path} cannot be {_shown(setting.raw)}" + (f" ({setting.origin})" if setting.origin else ""),
            why=str(error) if isinstance(error, Explained) else f"expected {key.kind.expected}",
            cure=f"{setting.path}: {key.help}",
            code=USAGE,
        ) from error


def _shown(raw: Any) -> str:
    text = repr(raw)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - what fits a line


def _unknown(setting: Setting) -> StallguardError:
    if setting.path in section_names():
        why = f"{setting.path} is a section of settings, not a setting"
        return StallguardError(
            f"{setting.path} cannot be {_shown(setting.raw)} ({setting.origin})", why=why, code=USAGE
        )
    if setting.path in REMOVED:
        what = f"there is no setting {setting.path} any more ({setting.origin})"
        return StallguardError(what, why=REMOVED[setting.path][1], cure="leave it out", code=USAGE)
    near = nearest(setting.path, all_keys(), cutoff=0.75)
    if near is None:  # perhaps its last name, in another section
        names = {name.rpartition(".")[2]: name for name in reversed(list(all_keys()))}
        last = nearest(setting.path.rpartition(".")[2], names, cutoff=0.75)
        near = names[last] if last else None
    return StallguardError(
        f"there is no setting {setting.path} ({setting.origin})",
        why=f"did you mean {near}?" if near else "",
        cure="stallguard config show lists all settings",
        code=USAGE,
    )


def _assembled(values: Mapping[str, Any]) -> Config:
    # Only sections with a given value are converted: msgspec compiles each annotation of a type that it converts to.
    config, trees = Config(), dict[str, Any]()
    for path, value in values.items():
        section, *parents, name = path.split(".")
        branch = trees.setdefault(section, msgspec.to_builtins(getattr(config, section)))
        for parent in parents:
            branch = branch[parent]
        branch[name] = value
    made = {name: msgspec.convert(tree, type(getattr(config, name))) for name, tree in trees.items()}
    return msgspec.structs.replace(config, **made)


def changes(before: Loaded, after: Loaded) -> tuple[list[Key], list[Key]]:
    """Return the settings that differ: those that a live run can apply, and those that it cannot."""
    differ = [k for k in all_keys().values() if value_of(before.config, k.path) != value_of(after.config, k.path)]
    return [key for key in differ if key.live], [key for key in differ if not key.live]


def accepted(before: Loaded, after: Loaded) -> Loaded:
    """Return `before` with the changes of `after` that a live run can apply."""
    taken, _ = changes(before, after)
    kept = {path: value_of(before.config, path) for path in all_keys()}
    origins = before.origins | {key.path: after.origins.get(key.path, DEFAULT) for key in taken}
    new = {key.path: value_of(after.config, key.path) for key in taken}
    return Loaded(_assembled(kept | new), origins, after.files)


class CurrentSettings:
    """The settings that hold now in a run."""

    def __init__(self, loaded: Loaded, load: Callable[[], Loaded] | None = None) -> None:
        """Hold `loaded` until `renew`.  `load`: reads the settings again; None: they are fixed."""
        self.loaded, self.limits, self.load = loaded, loaded.config.limits(), load
        self._followers: list[Callable[[Config], None]] = []
        self._refused: Mapping[str, Any] = {}

    @property
    def config(self) -> Config:
        """The values of the settings."""
        return self.loaded.config

    def follow(self, follower: Callable[[Config], None]) -> None:
        """Call `follower` with each later change."""
        self._followers.append(follower)

    def renew(self) -> list[str]:
        """Read the settings again, apply what can change, and return messages; none if nothing changed."""
        if self.load is None:
            return []
        try:
            newest = self.load()
        except StallguardError as error:
            return [f"the settings did not change: {'; '.join(error.lines())}"]
        except Exception as error:  # noqa: BLE001 - a file with any content must not end the watching
            return [f"the settings did not change: {type(error).__name__}: {error}"]
        taken, refused = changes(self.loaded, newest)
        messages = [f"{_change(key, newest)}, from now on" for key in taken]
        # Each refusal is reported once, not at every later change of the file.
        messages += [
            f"{_change(key, newest)}: that holds from the next run on"
            for key in refused
            if self._refused.get(key.path, self) != value_of(newest.config, key.path)
        ]
        self._refused = {key.path: value_of(newest.config, key.path) for key in refused}
        before, self.loaded = self.loaded, accepted(self.loaded, newest)
        if self.loaded != before:
            self.limits = self.config.limits()
            for follower in self._followers:
                follower(self.config)
        return messages


def read(load: Callable[[], Loaded]) -> CurrentSettings:
    """Return settings that `load` reads, now and when their files change.  Raises as `load`."""
    return CurrentSettings(load(), load)


def _change(key: Key, loaded: Loaded) -> str:
    return f"{key.path} is now {key.kind.show(value_of(loaded.config, key.path))}"


__all__ = ["Config", "CurrentSettings", "Key", "Loaded", "accepted", "changes", "load", "parse_set"]
