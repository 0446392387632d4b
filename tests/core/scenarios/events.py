"""Random events, judgements and exits, for claims that must hold whatever happens."""

from __future__ import annotations

from hypothesis import strategies as st

from stallguard.core.diagnosis.signatures import BY_ID
from stallguard.core.events import (
    ClockGap,
    Collected,
    Event,
    Exited,
    Heartbeat,
    Launched,
    Matched,
    OutputHeld,
    ProbeConnected,
    ProbeNote,
    Sampled,
    SensorBlocked,
    Ticked,
    Unkillable,
)
from stallguard.core.readings import Device, Files, Machine, Memory, Process
from stallguard.core.verdicts import Judgement
from stallguard.probe.wire import PHASES

TIMES = st.floats(0, 1e5)
COUNTS = st.one_of(st.none(), st.integers(0, 2**50))
SHARES = st.one_of(st.none(), st.floats(0, 1))
FLAGS = st.one_of(st.none(), st.booleans())
STATES = st.sampled_from([None, "running", "sleeping", "uninterruptible", "stopped", "zombie", "exiting", "gone"])
CODES = st.integers(-64, 255)

READINGS = st.one_of(
    st.builds(
        Process, state=STATES, cpu=st.one_of(st.none(), TIMES), io=COUNTS, major_faults=COUNTS, footprint=COUNTS,
        workers=st.one_of(st.none(), st.integers(0, 3)),
    ),
    st.builds(
        Device, name=st.sampled_from([None, "Apple M1", "NVIDIA H200"]), utilisation=SHARES, moved=FLAGS,
        used_by_run=FLAGS, recoveries=COUNTS, memory_utilisation=SHARES, sm_activity=SHARES, compute=SHARES,
        power=SHARES, power_limit=SHARES, clock=COUNTS, clock_limit=COUNTS, ecc_errors=COUNTS, xid=COUNTS,
        slowed_by=st.sampled_from([None, (), ("heat",), ("power", "setting")]), xid_count=COUNTS, others=COUNTS,
        lost=COUNTS,
    ),
    st.builds(
        Memory, total=COUNTS, pressure=st.sampled_from([None, "normal", "warn", "critical", "?"]), swap_outs=COUNTS,
        stall_some=SHARES, stall_full=SHARES, limit=COUNTS, limit_used=COUNTS, oom_kills=COUNTS,
    ),
    st.builds(
        Machine, idle=SHARES, busiest=st.tuples(st.text(max_size=5)), thermal=st.sampled_from([None, "serious"]),
        cpu_limit=SHARES, low_power=FLAGS, power=st.sampled_from([None, "ac", "battery"]),
    ),
    st.builds(Files, writing=FLAGS, age=SHARES),
)  # fmt: skip
HEARDS = st.builds(
    Heartbeat, at=TIMES, attempt=st.just(1), beats=st.integers(0, 2**40), beat_at=TIMES, phase=st.sampled_from(PHASES),
    progress_at=TIMES, sent_at=TIMES, longest=TIMES, longest_phase=st.sampled_from(PHASES), fits=st.integers(0, 5),
    epoch=st.integers(-1, 9), epochs=st.integers(-1, 10), batch=st.integers(-1, 1000), batches=st.integers(-1, 1000),
    traces=st.integers(0, 1000), iterations=st.integers(-1, 10**6), saves=st.integers(0, 9),
    loss=st.one_of(st.none(), st.floats()), input_s=TIMES, step_s=TIMES,
)  # fmt: skip
EXITS = st.builds(Exited, at=TIMES, attempt=st.just(1), code=CODES, memory_kill=FLAGS)
ANY: st.SearchStrategy[Event] = st.one_of(
    HEARDS,
    EXITS,
    st.builds(Sampled, at=TIMES, reading=READINGS),
    st.builds(Launched, at=TIMES, attempt=st.just(1), pid=st.just(1), device=st.sampled_from(["default", "cpu"])),
    st.builds(ProbeConnected, at=TIMES, attempt=st.just(1), pid=st.just(1),
              versions=st.dictionaries(st.text(), st.text())),
    st.builds(
        ProbeNote, at=TIMES, attempt=st.just(1), kind=st.text(), text=st.text(),
        facts=st.dictionaries(st.sampled_from(["batch", "rows", "x"]), st.text()),
    ),
    st.builds(SensorBlocked, at=TIMES, sensor=st.sampled_from(["device", "memory", "x"]), seconds=TIMES),
    st.builds(
        lambda at, key, line: Matched(at=at, signature=key, family=BY_ID[key].family, line=line),
        TIMES, st.sampled_from(sorted(BY_ID)), st.text(),
    ),
    st.builds(ClockGap, at=TIMES, seconds=TIMES, why=st.sampled_from(["asleep", "starved"])),
    st.builds(OutputHeld, at=TIMES, seconds=TIMES),
    st.builds(Ticked, at=TIMES),
    st.builds(
        Collected, at=TIMES, incident=st.just(1), seconds=TIMES,
        stacks=st.lists(st.sampled_from(["metal_wait", "tf_wait", "lock", "user", "iterator"])).map(tuple),
    ),
    st.builds(Unkillable, at=TIMES, attempt=st.just(1), state=st.text(max_size=9)),
)  # fmt: skip
JUDGEMENTS = st.builds(
    Judgement, step=st.sampled_from(["healthy", "suspect", "stalled", "stopped", "recovering", "exited", "off"]),
    row=st.sampled_from(["STEP", "UNCLASSIFIED", "DEVICE", "EXIT"]), phase=st.sampled_from(PHASES),
    evidence=st.sampled_from(["deadlock", "external wait", "spin", "working", "unknown"]), gap=TIMES, since=TIMES,
    slow=st.floats(1, 100), slow_cause=st.sampled_from(["", "input", "contention", "heavier", "memory"]), pulse=FLAGS,
)  # fmt: skip
