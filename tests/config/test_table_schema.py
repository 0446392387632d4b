"""The schema of the settings file and the table of docs/configuration.md, made from the option table."""

from __future__ import annotations

import msgspec

from stallguard.config.table import KEYS, json_schema, markdown_table


def leaf(path: str) -> dict:
    node = json_schema()
    for name in path.split("."):
        node = node["properties"][name]
    return node


def test_every_setting_is_described_with_its_default():
    for key in KEYS.values():
        assert leaf(key.path)["description"] == key.help
        assert leaf(key.path)["default"] == msgspec.to_builtins(key.default)


def test_unknown_names_are_ruled_out_at_every_level():
    def objects(node):
        if node.get("type") == "object":
            yield node
            for inner in node["properties"].values():
                yield from objects(inner)

    assert all(node["additionalProperties"] is False for node in objects(json_schema()))


def test_the_schema_is_plain_json():
    assert msgspec.json.decode(msgspec.json.encode(json_schema()))["$schema"].startswith("https://json-schema.org/")


def test_the_table_has_one_row_a_setting_and_whole_cells():
    rows = markdown_table().splitlines()[2:]

    assert len(rows) == len(KEYS)
    assert all(row.replace("\\|", "").count("|") == 5 for row in rows)


def test_every_help_is_one_sentence():
    for key in KEYS.values():
        assert key.help[0].isupper() or key.help.startswith("stallguard"), key.path
        assert key.help.endswith("."), key.path
        assert len(key.help) <= 140, key.path
