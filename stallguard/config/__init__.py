"""The configuration: flags, environment, project file, user file and defaults, in that order.

`load` merges them and records the origin of each value.  The settings are in config.table and config.table.
Must not act on any setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from stallguard.config.kinds import Explained
from stallguard.config.layers import (
    SHARED,
    NotText,
    Setting,
    from_environment,
    from_flags,
    project_file,
    rows_in,
    settings_of,
    text_of,
    user_file,
)
from stallguard.config.table import (
    KEYS,
    REMOVED,
    TUNING_FILE,
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
            ignored.append(
                f"{setting.path} ({setting.origin}) has no effect any more: {REMOVED[setting.path][1]}"
            )
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
            f"{setting.path} cannot be {_shown(setting.raw)}"
            + (f" ({setting.origin})" if setting.origin else ""),
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
    differ = [
        k for k in all_keys().values() if value_of(before.config, k.path) != value_of(after.config, k.path)
    ]
    return [key for key in differ if key.live], [key for key in differ if not key.live]


def accepted(before: Loaded, after: Loaded) -> Loaded:
    """Return `before` with the changes of `after` that a live run can apply."""
    taken, _ = changes(before, after)
    kept = {path: value_of(before.config, path) for path in all_keys()}
    origins = before.origins | {key.path: after.origins.get(key.path, DEFAULT) for key in taken}
    new = {key.path: value_of(after.config, key.path) for key in taken}
    return Loaded(_assembled(kept | new), origins, after.files)


__all__ = ["Config", "Key", "Loaded", "accepted", "changes", "load", "parse_set"]
