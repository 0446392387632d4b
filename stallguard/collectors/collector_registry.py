"""All collectors, the evidence that is lost soonest first: built in, those of the system, and those of plug-ins.

Must not run them; evidence_bundle does.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from stallguard import host, plugins
from stallguard.collectors import (
    COUNTERS,
    MOVING,
    NEXT_DUMP,
    PLUGINS,
    STACKS,
    STACKS_AGAIN,
    Collector,
    EvidenceContext,
    Facts,
    Nothing,
    Sheet,
    stacks,
    surroundings,
    training_process,
)
from stallguard.collectors.stacks import LOCK, USER
from stallguard.host import tool as host_tool
from stallguard.host.types import Table, Tool
from stallguard.probe import wire

EVIDENCE_TOOLS = host.evidence_tools()
KB, MB = 1 << 10, 1 << 20
ANSWER = 2.0  # seconds for the process to write its stacks, which takes 10 ms
# Further dumps of a script that runs: of a loop that calls functions, only what all dumps have in common is its place.
# If a call takes 85 % of such a loop, it is in all of 37 dumps once in 400 times.
# At most; seconds without growth that end a dump; seconds for all, usually 2.2.
DUMPS, QUIET, IN_ALL = 36, 0.02, 3.0
LOOKED, RUNS = 0.4, 0.02  # seconds; if a process uses so many seconds of a processor in that time, it runs

OWN = (
    Collector("environment", surroundings.environment, 0.5, 64 * KB),
    Collector("output", surroundings.output, 1.0, 256 * KB),
    Collector("records", surroundings.records, 1.0, MB),
    Collector("device", surroundings.device, 1.0, 16 * KB),
    Collector("versions", surroundings.versions, 3.0, 64 * KB),
    Collector("processes", surroundings.processes, 3.0, 512 * KB),
    Collector("reports", surroundings.reports, 3.0, 2 * MB),
    Collector("source", surroundings.source, 1.0, 512 * KB),
)


def collectors(context: EvidenceContext, trouble: Callable[[str, Exception], None]) -> list[Collector]:
    """Return the collectors for `context`; `trouble` is called for plug-ins that cannot be loaded."""
    found = [Collector(STACKS, python_stacks, ANSWER + LOOKED + IN_ALL + 0.5, MB, first=True)]
    found += [_table(table) for table in EVIDENCE_TOOLS.tables(context.pid)]
    found += OWN
    if context.again > 0:
        found.append(Collector(STACKS_AGAIN, stacks_again, context.again + ANSWER + 0.5, MB))
    found += [_tool(tool) for tool in EVIDENCE_TOOLS.tools(context.pid, context.since, time.time())]
    found += [item for item in plugins.load(PLUGINS, trouble).values() if isinstance(item, Collector)]
    return [collector for collector in found if context.deep or not collector.deep]


def python_stacks(context: EvidenceContext, sheet: Sheet) -> Facts:
    """Write the Python stacks of all threads, and read them; if the script runs, several times."""
    first, facts = _taken("stacks.txt", context, sheet)
    dumps: list[str] = []
    if stacks.runs_the_script(stacks.parse(first)):
        before = training_process.cpu_seconds(context.pid)
        time.sleep(LOOKED)
        runs = training_process.cpu_seconds(context.pid) - before >= RUNS
        until = time.monotonic() + IN_ALL
        while runs and len(dumps) < DUMPS and time.monotonic() < until:
            try:
                dumps.append(training_process.request_stacks(context, until - time.monotonic(), QUIET))
            except (Nothing, OSError):  # it ended, or it does not answer any more
                break
    if any(text != first for text in dumps):
        sheet.text(MOVING, NEXT_DUMP.join(dumps))
    return facts


def stacks_again(context: EvidenceContext, sheet: Sheet) -> Facts:
    """Write the Python stacks once more, some time later."""
    time.sleep(context.again)
    return _taken("stacks-again.txt", context, sheet)[1]


def _taken(name: str, context: EvidenceContext, sheet: Sheet) -> tuple[str, Facts]:
    """Write a stack dump as file `name`; return it, and its facts with the probe's counts of batches and progress."""
    try:
        record = wire.unpack(context.stacks.with_suffix(".page").read_bytes())
    except OSError:
        record = None
    text = training_process.request_stacks(context, ANSWER)
    sheet.text(name, text)
    main_wait = EVIDENCE_TOOLS.main_wait(context.pid)
    reading = stacks.read(text, context.cwd, main_wait)
    classes = list(reading.classes)
    if classes[:1] == [USER] and main_wait == "futex":
        classes[0] = LOCK  # a lock for which the script waits has no frame: lock.acquire() is C
    where = sheet.redactor.text(reading.where)
    facts = {"where": where, "classes": classes, "fingerprint": reading.fingerprint}
    return text, facts if record is None else facts | {counter: record[counter] for counter in COUNTERS}


def _table(table: Table) -> Collector:
    def gather(_context: EvidenceContext, sheet: Sheet) -> None:
        text = table.read()
        if not text:
            raise Nothing("the system does not show it")
        sheet.text(f"{table.name}.txt", text)

    return Collector(table.name, gather, table.seconds, 512 * KB, first=table.first)


_READ: dict[str, Callable[[str], tuple[str, ...]]] = {
    "sample": lambda text: stacks.native_classes(stacks.parse_sample(text)),
    "gdb": lambda text: stacks.native_classes(stacks.parse_gdb(text), sampled=False),
}


def _tool(tool: Tool) -> Collector:
    def gather(_context: EvidenceContext, sheet: Sheet) -> Facts | None:
        result = host_tool.run(tool.argv, tool.seconds, limit=min(tool.size, sheet.left), merge=True)
        sheet.data(f"{tool.name}.txt", result.output)
        failed = f"it ended with exit code {result.code}" if result.code else ""
        sheet.trouble = sheet.trouble or result.incomplete or failed
        read = _READ.get(tool.name)
        return {"classes": list(read(result.text))} if read else None

    return Collector(tool.name, gather, tool.seconds, tool.size, deep=tool.deep, outlasts=tool.outlasts)
