"""What a report says first: what became of the run, what went wrong in one sentence, and what to do next.

Chooses facts; the words are narrative.py's.  An advice of the journal is shown as a sentence and the line of code that
belongs to it.  Pure; must not read files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from stallguard.core import messages
from stallguard.core.diagnosis import causes
from stallguard.core.diagnosis.causes import CAUSES
from stallguard.core.text import script_place, shell_words, times
from stallguard.report.incidents import CRASH, RESTARTED, STALL, Incident
from stallguard.report.narrative import prose, sentence
from stallguard.storage.run_files import RunRequest

# The longest first: a line can end like another one.
CODES = sorted({piece.code for cause in CAUSES.values() for piece in cause.advice if piece.code}, key=len, reverse=True)
_CODE = re.compile(
    ": (?P<code>" + "|".join(re.escape(code).replace(r"\{pid\}", r"(?:\d+|PID)") for code in CODES) + ")$"
)


def with_code(text: str) -> tuple[str, str]:
    """Return a piece of advice as its sentence and, if it has one, the line to use."""
    found = _CODE.search(text)
    return (prose(text[: found.start()]), found["code"]) if found else (prose(text), "")


FINISHED, RECOVERED, RUNNING, LOST, TRIAL = "finished", "recovered", "running", "lost", "trial"
AGAIN = ("stopped", "interrupted", "gave up", "failed", LOST)  # states after which a run can be resumed
_HOME = re.compile(r"/(?:home|Users)/")
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b.*")


class FirstScreen(msgspec.Struct, frozen=True):
    """The beginning of a report.

    `badge`: finished, recovered (finished after a stall or crash), stopped, gave up, failed, running, interrupted,
    lost or trial; `wrong`: what went wrong, as a sentence; `next`: what to do, as a sentence; `command`: to copy, empty
    if nothing is to be done.
    """

    badge: str
    wrong: str
    next: str
    command: str = ""


def first_screen(
    state: str,
    why: str,
    incidents: Sequence[Incident],
    asked: RunRequest | None,
    output: Sequence[str],
    *,
    resumable: bool,
    alive: bool = False,
    advice: Sequence[str] = (),
    home: str = "",
    job: str = "",
    broken_loss: str = "",
    library: str = "",
) -> FirstScreen:
    """Return what is said first.

    `state`, `why`: of the run's end; `output`: its last lines; `resumable`: it left a checkpoint; `alive`: a lost run's
    training is still there; `advice`: what helps against its incidents, the most useful first;
    `home`: the user's home directory; `job`: of the fleet, for a run of another machine; `broken_loss`: that the last
    loss is not finite, as a sentence; `library`: that trains, "" if it is not known.
    """
    badge = RECOVERED if state == FINISHED and incidents else state
    found = _wrong(state, why, incidents, output, broken_loss, library)
    pieces = [with_code(text) for text in advice]
    helps = next((piece for piece in pieces if piece[1]), pieces[0] if pieces else ("", ""))  # that with a line to use
    text, command = _next(
        state, asked, helps, resumable=resumable, alive=alive, home=home, job=job,
        raised=error(output) if state == "failed" else "",
        restarted=badge == RECOVERED and any(one.outcome == RESTARTED for one in incidents),
    )  # fmt: skip
    return FirstScreen(badge, " ".join(map(prose, dict.fromkeys(found))), text, command)


def _wrong(
    state: str, why: str, incidents: Sequence[Incident], output: Sequence[str], broken_loss: str, library: str
) -> Iterator[str]:
    if broken_loss:
        yield broken_loss
    for kind, key in ((STALL, "first stalled"), (CRASH, "first crashed")):
        some = [one for one in incidents if one.kind == kind]
        if some:
            yield sentence(key, _facts(some, library))
    raised = error(output) if state == "failed" or any(one.kind == CRASH for one in incidents[-1:]) else ""
    if raised:
        # An error that a restart has cured is no failure of the script.
        yield sentence("first failed" if state == "failed" else "first raised", {"error": raised})
    elif state in ("gave up", "failed") and why:
        yield sentence("first ended", {"why": why})
    elif not incidents and not broken_loss:
        yield sentence("first lost" if state == LOST else "first healthy", {})


def _facts(some: Sequence[Incident], library: str) -> dict[str, str]:
    places = Counter(one.where for one in some if one.where).most_common()
    known = [one.findings[0] for one in some if one.findings]
    named = Counter(finding.cause for finding in known).most_common(1)
    facts = some[-1].facts
    cause = facts.get("what", "") or facts.get("how", "")
    if named:
        best = max(finding.confidence for finding in known if finding.cause == named[0][0])
        cause = sentence(
            "first cause",
            {"cause": causes.title(named[0][0], library, facts.get("phase", "")), "word": messages.confidence(best)},
        )
    others = sentence("first others", {"count": str(len(places) - 1)}) if places[1:] else ""
    return {"times": times(len(some)), "where": f", at {places[0][0]}{others}" if places else "", "cause": cause}


def error(output: Sequence[str]) -> str:
    """Return the exception at the end of an output, with the script's own line: "ValueError: x, at train.py:3 in f"."""
    raised = next((line for line in reversed(output) if _RAISED.fullmatch(line.strip())), "")
    place = next(filter(None, map(script_place, reversed(output))), "")
    return f"{raised.strip()}, at {place}" if raised and place else ""


def _next(
    state: str,
    asked: RunRequest | None,
    advice: tuple[str, str],
    *,
    resumable: bool,
    alive: bool,
    home: str,
    job: str,
    raised: str,
    restarted: bool,
) -> tuple[str, str]:
    """Return what to do as a sentence, and what to copy for it.

    `raised`: the exception that ended the script; `restarted`: it finished after a restart.
    """
    text, code = advice
    if state == LOST and alive and asked is not None:
        return prose(sentence("next unguarded", {})), f"stallguard stop {asked.id}"
    if job and state in (RUNNING, *AGAIN):
        return prose(sentence("next in fleet", {})), f"stallguard status {job}"
    if state == RUNNING and asked is not None:
        return prose(sentence("next running", {})), f"stallguard status {asked.id}"
    if state not in AGAIN or asked is None or not asked.command:
        within = text[:1].lower() + text[1:]
        cured = sentence("next cured", {}) if restarted else ""
        return prose(sentence("next avoid" if text else "next nothing", {"advice": within, "cured": cured})), code
    resume = ["--resume", asked.id] if resumable else []
    command = shell_words(["stallguard", "run", *resume, *asked.command])
    if raised:  # the same command alone would end in the same way
        corrected = prose(sentence("next corrected", {"place": raised.rpartition(", at ")[2]}))
        text = ""
        if not resumable:
            return corrected, ""
    key = "next resume" if resumable else "next anew"
    first = f"{prose(sentence('next first', {'advice': text}))} " if text else ""
    first = f"{corrected} " if raised else first
    place = _directory(asked.cwd, home)
    return first + prose(sentence(key, {})), f"cd {place} && {command}" if place else command


def _directory(cwd: str, home: str) -> str:
    """Return a directory as a shell takes it; "" for one in a home whose user's name is removed from a report."""
    if home and f"{cwd}/".startswith(f"{home.rstrip('/')}/"):
        inside = cwd[len(home.rstrip("/")) + 1 :]
        return f"~/{shell_words([inside])}" if inside else "~"
    return "" if _HOME.match(cwd) or not cwd else shell_words([cwd])
