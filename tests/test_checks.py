"""scripts/checks: plain language and links of the documents; what they find, and what they leave alone."""

from __future__ import annotations

import ast
import importlib
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CHECKS = ROOT / "scripts" / "checks"


def checker(name: str):
    """Return the fixture of one program of `scripts/checks`, imported as `scripts/check` does: beside its siblings."""

    @pytest.fixture(scope="module", name=name)
    def imported():
        sys.path.insert(0, str(CHECKS))
        try:
            return importlib.import_module(name)
        finally:
            sys.path.remove(str(CHECKS))

    return imported


language, links, messages = checker("language"), checker("links"), checker("messages")
claims, mirror = checker("claims"), checker("mirror")


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('Announce("machine.slept", {"duration": duration(3)})', ""),
        ('announce("run.resumable" if kept else "run.not_resumable", {"run": f"{name} runs"})', ""),
        ('Announce("machine.snored", {})', "no message 'machine.snored'"),
        ('Announce("run.finished" if good else "run.over")', "no message 'run.over'"),
        ('announce("stallguard.trouble", {"text": f"the disk of {name} is full"})', "a sentence outside"),
        ('print("done")', "prints"),
        ('sys.stderr.write("done")', "prints"),
    ],
)
def test_a_message_that_is_made_outside_of_the_narrative_is_found(messages, code, found):
    wrong = list(messages.breaches("core/a.py", ast.parse(code)))
    assert [found in one for one in wrong] == ([True] if found else [])
    assert found != "prints" or list(messages.breaches("cli/a.py", ast.parse(code))) == []


@pytest.mark.parametrize(
    ("code", "agrees"),
    [
        ('f"{number} batches"', False),
        ('f"after {len(runs)} runs"', False),
        ('"gave up: {batches} batches"', False),
        ('counted(number, "run")', True),
        ('f"{ROOM} bytes"', True),
        ('f"{number} runs" if number != 1 else "1 run"', True),
        ('f"{name} runs" if name else f"{number} rows"', False),
        ('"gave up: {batches:batch|batches}"', True),
    ],
)
def test_a_number_beside_a_plural_is_found(messages, code, agrees):
    assert (list(messages.uncounted(ast.parse(code))) == []) == agrees


def words(language, file, text):
    return [(use.line, use.word) for use in language.uses(file, text)]


def test_comments_docstrings_and_strings_of_python_are_read(language):
    text = '"""It may\nnot."""\nx = 1  # nobody\nprint(f"{x} was told")\n# this may\n# not be\n'
    assert sorted(words(language, "a.py", text)) == [(1, "may not"), (3, "nobody"), (4, "tell"), (5, "may not")]


@pytest.mark.parametrize(
    "text",
    [
        "from x import Tell\ntell = Tell()\ntell.told(heard)\n",
        'kind = {"told": "nobody"}\n',
        '"""Return `told`, and judge.heard, and told_at, and no Heard.aside."""\n',
        "# Maybe notes, a hearth, a shoulder\n",
    ],
)
def test_identifiers_and_other_words_are_left_alone(language, text):
    assert words(language, "a.py", text) == []


def test_code_and_generated_parts_of_markdown_are_left_alone(language):
    text = "# Told\n\n    stallguard tell\n\n```\ntold\n```\n<!-- x:begin -->\ntold\n<!-- x:end -->\n`told` nobody\n"
    assert words(language, "a.md", text) == [(1, "tell"), (11, "nobody")]


def test_more_uses_than_listed_fail_and_so_do_fewer(language):
    use = language.Found("a.py", 7, "nobody")
    assert language.complaints([use], Counter({("a.py", "nobody"): 1})) == []
    (more,) = language.complaints([use], Counter())
    assert more.startswith("a.py:7: 'nobody'; write: ")
    (less,) = language.complaints([], Counter({("a.py", "nobody"): 1}))
    assert "--write lowers the list" in less


def test_the_list_can_only_shrink_though_files_move(language):
    listed = Counter({("a.py", "nobody"): 2})
    assert language.raised(Counter({("b.py", "nobody"): 2}), listed) == []
    assert language.raised(Counter({("a.py", "nobody"): 2, ("b.py", "nobody"): 1}), listed) == ["nobody"]
    assert language.raised(Counter({("a.py", "tell"): 1}), listed) == ["tell"]
    assert language.read_allowed(language.write_allowed(listed)) == listed


def test_no_markdown_file_is_on_the_list(language):
    assert not [file for file, _ in language.read_allowed(language.LIST.read_text()) if file.endswith(".md")]


def test_links_to_files_and_headings_are_followed(links, tmp_path):
    (tmp_path / "b.md").write_text("# The `run` verb\n\n## [Linked](c.md) twice\n\n## Again\n\n## Again\n")
    good = "[a](b.md) ![i](b.md) [h](b.md#the-run-verb) [l](b.md#linked-twice) [2](b.md#again-1) [o](#own) [w](https://x.y)"
    (tmp_path / "a.md").write_text(f"# Own\n\n{good}\n\n    [code](nothing.md)\n")
    assert list(links.broken(tmp_path / "a.md", tmp_path)) == []

    (tmp_path / "a.md").write_text("# Own\n\n    code\n\n[x](c.md) [y](b.md#again-2) [z](#mine)\n")
    assert list(links.broken(tmp_path / "a.md", tmp_path)) == [
        "a.md: c.md: there is no such file",
        "a.md: b.md#again-2: there is no such heading",
        "a.md: #mine: there is no such heading",
    ]


def test_a_module_whose_test_has_another_name_is_found(mirror, tmp_path):
    for name in ("a/__init__", "a/b", "a/_c", "a/d", "a/e", "a/e_f", "a/g"):
        path = tmp_path / "product" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("def f(): ...")
    (tmp_path / "product/a/constants.py").write_text("MOST = 1")
    for name in ("a/test_a", "a/test_c", "a/d/test_anything", "a/test_e_f", "a/test_g_again"):
        path = tmp_path / "tests" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = mirror.untested(tmp_path / "product", tmp_path / "tests")
    assert [path.as_posix() for path in found] == ["a/b.py", "a/e.py"]


def test_the_pictures_of_the_readme_load_nothing():
    for name in ("report", "top"):
        text = (ROOT / "docs" / "images" / f"{name}.svg").read_text()
        assert "url(http" not in text
        assert f"docs/images/{name}.svg" in (ROOT / "README.md").read_text()


def test_each_sentence_about_macos_has_a_proof_that_exists_or_a_mark(claims):
    assert list(claims.faults(claims.said(ROOT), claims.claims(ROOT), ROOT)) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It runs. On a Mac it\nsleeps. It wakes. Linux differs.", ["On a Mac it sleeps.", "It wakes."]),
        ("| a | b |\n|---|---|\n| x | Metal |\n| y | z |", ["| x | Metal |"]),
        ("| a | on a Mac |\n|---|---|\n| x | y |", ["| a | on a Mac | |---|---| | x | y |"]),
        ("- One.\n- Two with `pmset`.\n- Three.", ["- Two with `pmset`."]),
        ("## Metal\n\nOne.\n\n    code\n\n## Else\n\nTwo.", ["One.", "code"]),
        ("<!-- x:begin -->\nA Mac.\n<!-- x:end -->\nMachines.", []),
    ],
)
def test_what_is_said_about_macos_is_found_sentence_by_sentence(claims, text, found):
    assert list(claims.sentences(text)) == found


def test_a_claim_without_a_sentence_a_proof_or_a_mark_is_a_fault(claims, tmp_path):
    for folder in ("docs", "tests", "scripts/walks/mac", "scripts/benches"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "README.md").write_text("A Mac sleeps. It wakes. †\n\nA Mac talks. †\n")
    (tmp_path / "tests/test_a.py").write_text("def test_b() -> None: ...\n")
    (tmp_path / "scripts/walks/mac/gpu.py").write_text('ROWS = ["gpu"]\n')

    def faults(*rows: tuple[str, str]) -> list[str]:
        table = [claims.Claim(text, "README.md", (proof,)) for text, proof in rows]
        return [one.split(": ", 1)[1] for one in claims.faults(claims.said(tmp_path), table, tmp_path)]

    good = [("sleeps", "test:tests/test_a.py::test_b"), ("wakes", "nothing"), ("talks", "nothing")]
    legend = f"it does not say what † means: {claims.LEGEND}"
    assert faults(*good) == [legend]
    assert faults(*good[1:])[0].endswith("has this sentence: A Mac sleeps.")
    assert faults(("sleeps", "nothing"), *good[1:])[0] == "nothing proves it, and it lacks the mark †: A Mac sleeps."
    assert faults(*good[:1], ("wakes", "walk:gpu"), good[2])[0] == "a row has a proof of it: It wakes. †"
    assert "it does not say: flies" in faults(*good, ("flies", "walk:gpu"))
    for proof in ("test:tests/test_a.py::test_c", "recording:x", "walk:cpu", "bench:x", "source:x", "hearsay"):
        assert any(one.startswith(f"{proof}: ") for one in faults(("sleeps", proof), *good[1:])), proof
