"""Stateful things of Python itself: containers, numbers, random generators, iterators."""

from __future__ import annotations

from .things import Thing

_LIST_CLASS = """class RowList(list):
    pass
"""
_DICT_CLASS = """class DictClass(dict):
    pass
"""
_SET_CLASS = """class Names(set):
    pass
"""
_INT_CLASS = """class Amount(int):
    pass
"""
_TUPLE = "Pair = collections.namedtuple('Pair', 'first second')"
_TYPED = """class Typed(typing.NamedTuple):
    first: int
    rest: list
"""
_ENUM = """class Colour(enum.Enum):
    RED = 0
    GREEN = 1
    BLUE = 2
"""
_FLAG = """class Rights(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4
"""
_NUMBERS = """def numbers(start):
    value = start
    while True:
        yield value
        value += 3
"""
_SUMS = """def sums():
    total = 0
    while True:
        total += yield total
"""

THINGS = (
    # Containers
    Thing("list", "[]", "thing.append(n)", "thing"),
    Thing("list-of-lists", "[[], []]", "thing[n % 2].append(n)", "thing"),
    Thing("list-sorted", "[]", "thing.append(n * 7 % 5); thing.sort()", "thing"),
    Thing("list-joined", "[[], []]", "thing[0].append(n); thing[n % 2] = thing[0]", "[thing, thing[0] is thing[1]]"),
    Thing("list-apart", "(lambda one: [one, one])([])", "thing[0].append(n); thing[1] = thing[n % 2] if n % 3 else [n]", "[thing, thing[0] is thing[1]]"),
    Thing("list-of-itself", "(lambda held: [held.append(held), held][1])([0])", "thing[0] += n + 1", "[thing[0], thing[1] is thing]"),
    Thing("list-long", "[0.5] * 5000", "thing[n * 37 % 5000] += n + 1", "zlib.crc32(repr(thing).encode())", "import zlib"),
    Thing("list-class", "RowList()", "thing.append(n)", "list(thing)", _LIST_CLASS),
    Thing("list-class-attribute", "RowList()", "thing.count_of = getattr(thing, 'count_of', 0) + n + 1", "getattr(thing, 'count_of', 0)", _LIST_CLASS),
    Thing("heap", "[]", "heapq.heappush(thing, n * 7 % 11)", "thing", "import heapq"),
    Thing("dict", "{}", "thing[n] = thing.get(n, 0) + 1", "sorted(thing.items())"),
    Thing("dict-order", "{'a': 1, 'b': 2, 'c': 3}", "key = 'abc'[n % 3]; thing[key] = thing.pop(key) + n", "list(thing.items())"),
    Thing("dict-of-tuples", "{}", "thing[n, str(n)] = [n]; thing[n, str(n)].append(len(thing))", "sorted(thing.items())"),
    Thing("dict-of-objects", "{}", "thing[frozenset((n, 'x'))] = len(thing) + n", "sorted(map(repr, thing.values()))"),
    Thing("dict-by-class", "{int: [], str: []}", "thing[(int, str, float)[n % 3]] = [*thing.get((int, str, float)[n % 3], []), n]", "[(kind.__name__, rows) for kind, rows in thing.items()]"),
    Thing("dict-by-object", "{Key(): [], Key(): []}", "list(thing.values())[n % 2].append(n)", "list(thing.values())", "class Key:\n    pass\n"),
    Thing("dict-class", "DictClass()", "thing[n] = thing.get(n, 0) + 1", "sorted(thing.items())", _DICT_CLASS),
    Thing("set", "set()", "thing.symmetric_difference_update({n, n + 1})", "sorted(thing)"),
    Thing("set-class", "Names()", "thing.symmetric_difference_update({n, n + 1})", "sorted(thing)", _SET_CLASS),
    Thing("frozenset", "frozenset()", "thing = thing ^ {n, n + 1}", "sorted(thing)"),
    Thing("tuple", "()", "thing = (*thing[-3:], n)", "thing"),
    Thing("tuple-of-lists", "([], [])", "thing[n % 2].append(n)", "thing"),
    Thing("bytearray", "bytearray(b'ab')", "thing.append(n % 256)", "bytes(thing)"),
    Thing("bytes", "b''", "thing = thing + bytes([n % 256])", "thing"),
    Thing("str", "''", "thing = thing + str(n)", "thing"),
    Thing("int", "1", "thing = thing * 3 + n", "thing"),
    Thing("int-large", "1 << 80", "thing = thing * 3 + n", "thing"),
    Thing("int-class", "Amount(1)", "thing = Amount(thing * 3 + n)", "[int(thing), type(thing).__name__]", _INT_CLASS),
    Thing("float", "0.1", "thing = thing * 1.01 + n", "thing"),
    Thing("float-nan", "float('nan')", "thing = n if thing != thing else thing + n + 0.5", "thing"),
    Thing("complex", "1j", "thing = thing * (1 + 0.1j) + n", "thing"),
    Thing("bool", "False", "thing = not thing", "thing"),
    Thing("none", "None", "thing = n if thing is None else None", "thing"),
    Thing("range", "range(3)", "thing = range(thing.start, thing.stop + n + 1)", "[thing.start, thing.stop]"),
    Thing("slice", "slice(0, 3)", "thing = slice(thing.start + n, thing.stop + 2)", "[thing.start, thing.stop]"),
    Thing("collections.deque", "collections.deque()", "thing.appendleft(n)", "list(thing)", "import collections"),
    Thing("collections.deque-maxlen", "collections.deque(maxlen=3)", "thing.append(n); thing.rotate(1)", "list(thing)", "import collections"),
    Thing("collections.Counter", "collections.Counter()", "thing[n % 3] += n + 1", "sorted(thing.items())", "import collections"),
    Thing("collections.OrderedDict", "collections.OrderedDict(a=1, b=2, c=3)", "thing.move_to_end('abc'[n % 3]); thing['abc'[n % 2]] += n", "list(thing.items())", "import collections"),
    Thing("collections.defaultdict", "collections.defaultdict(list)", "thing[n % 3].append(n)", "sorted(thing.items())", "import collections"),
    Thing("collections.defaultdict-lambda", "collections.defaultdict(lambda: [0])", "thing[n % 3].append(n)", "sorted(thing.items())", "import collections"),
    Thing("collections.ChainMap", "collections.ChainMap({}, {'a': 1})", "thing[n % 3] = thing.get(n % 3, 0) + n + 1", "sorted(map(repr, thing.items()))", "import collections"),
    Thing("collections.UserDict", "collections.UserDict()", "thing[n] = thing.get(n, 0) + 1", "sorted(thing.items())", "import collections"),
    Thing("collections.UserList", "collections.UserList()", "thing.append(n)", "list(thing)", "import collections"),
    Thing("collections.UserString", "collections.UserString('')", "thing = thing + str(n)", "str(thing)", "import collections"),
    Thing("collections.namedtuple", "Pair(0, ())", "thing = thing._replace(first=thing.first + n + 1, second=(*thing.second[-2:], n))", "tuple(thing)", f"import collections\n{_TUPLE}"),
    Thing("typing.NamedTuple", "Typed(0, [])", "thing = thing._replace(first=thing.first + 1); thing.rest.append(n)", "tuple(thing)", f"import typing\n{_TYPED}"),
    Thing("types.MappingProxyType", "types.MappingProxyType({})", "thing = types.MappingProxyType({**thing, n: len(thing) + n})", "sorted(thing.items())", "import types"),
    Thing("enum.Enum", "Colour.RED", "thing = Colour((thing.value + n + 1) % 3)", "thing.name", f"import enum\n{_ENUM}"),
    Thing("enum.Flag", "Rights.READ", "thing = thing ^ Rights(1 << n % 3)", "thing.value", f"import enum\n{_FLAG}"),
    Thing("array.array", "array.array('d', [0.5, 1.5])", "thing.append(n); thing[0] += n + 1", "list(thing)", "import array"),
    Thing("array.array-bytes", "array.array('B', bytes(40))", "thing[n % 40] = (thing[n % 40] + n + 1) % 256", "list(thing)", "import array"),
    Thing("memoryview", "memoryview(bytearray(16))", "thing[n % 16] = (thing[n % 16] + n + 1) % 256", "bytes(thing)"),
    Thing("memoryview-cast", "memoryview(bytearray(64)).cast('d')", "thing[n % 8] += n + 1", "list(thing)"),
    Thing("memoryview-of-array", "memoryview(array.array('i', range(8)))", "thing[n % 8] += n + 1", "list(thing)", "import array"),
    # Numbers and dates
    Thing("decimal.Decimal", "decimal.Decimal('0.1')", "thing = thing * decimal.Decimal('1.01') + n", "str(thing)", "import decimal"),
    Thing("decimal.Context", "decimal.Context(prec=9)", "thing.prec = thing.prec % 20 + 1 + n % 3", "thing.prec", "import decimal"),
    Thing("fractions.Fraction", "fractions.Fraction(1, 3)", "thing = thing / 2 + n", "str(thing)", "import fractions"),
    Thing("datetime.datetime", "datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)", "thing = thing + datetime.timedelta(hours=n + 1)", "thing.isoformat()", "import datetime"),
    Thing("datetime.timedelta", "datetime.timedelta()", "thing = thing + datetime.timedelta(seconds=n + 1)", "thing.total_seconds()", "import datetime"),
    Thing("zoneinfo", "datetime.datetime(2026, 3, 28, tzinfo=zoneinfo.ZoneInfo('UTC'))", "thing = thing + datetime.timedelta(hours=n + 1)", "thing.isoformat()", "import datetime, zoneinfo"),
    Thing("uuid.uuid5", "uuid.NAMESPACE_DNS", "thing = uuid.uuid5(thing, str(n))", "str(thing)", "import uuid"),
    Thing("pathlib.Path", "pathlib.Path('a')", "thing = pathlib.Path(thing.name + str(n))", "str(thing)", "import pathlib"),
    Thing("ipaddress", "ipaddress.ip_address('10.0.0.1')", "thing = thing + n + 1", "str(thing)", "import ipaddress"),
    # Random numbers
    Thing("random.Random", "random.Random(7)", "thing.random()", "list(thing.getstate()[1][-3:])", "import random"),
    Thing("random.Random-gauss", "random.Random(7)", "thing.gauss(0, 1)", "repr(thing.getstate()[2])", "import random"),
    Thing("random.Random-drawn", "[random.Random(7), 0.0]", "thing[1] += thing[0].random() * (n + 1)", "thing[1]", "import random"),
    Thing("random-module", "[0.0]", "thing[0] += random.random() * (n + 1)", "thing", "import random"),
    Thing("random.shuffle", "list(range(8))", "random.shuffle(thing)", "thing", "import random"),
    Thing("random.SystemRandom", "[random.SystemRandom()]", "thing.append(thing[0].random())", "thing[1:]", "import random", is_random=True),
    Thing("secrets", "[]", "thing.append(secrets.token_hex(4))", "thing", "import secrets", is_random=True),
    Thing("os.urandom", "[]", "thing.append(os.urandom(4).hex())", "thing", "import os", is_random=True),
    Thing("uuid.uuid4", "[]", "thing.append(uuid.uuid4())", "[str(one) for one in thing]", "import uuid", is_random=True),
    Thing("time.time", "[]", "thing.append(time.time())", "thing", "import time", is_random=True),
    Thing("time.perf_counter", "[]", "thing.append(time.perf_counter())", "thing", "import time", is_random=True),
    Thing("id", "[]", "thing.append(id(object()))", "thing", is_random=True),
    # Iterators: what is left is taken from a copy, or noted beside them
    Thing("itertools.count", "[itertools.count(3), 0]", "thing[1] = thing[1] * 2 + next(thing[0])", "thing[1]", "import itertools"),
    Thing("itertools.count-alone", "itertools.count(3)", "next(thing)", "repr(thing)", "import itertools"),
    Thing("itertools.cycle", "[itertools.cycle([1, 5, 7]), 0]", "thing[1] = thing[1] * 2 + next(thing[0])", "thing[1]", "import itertools"),
    Thing("itertools.chain", "[itertools.chain(range(50), range(50)), 0]", "thing[1] = thing[1] * 2 + next(thing[0])", "thing[1]", "import itertools"),
    Thing("itertools.accumulate", "[itertools.accumulate(range(99)), 0]", "thing[1] = thing[1] * 2 + next(thing[0])", "thing[1]", "import itertools"),
    Thing("itertools.islice", "[itertools.islice(range(999), 3, None, 2), 0]", "thing[1] = thing[1] * 2 + next(thing[0])", "thing[1]", "import itertools"),
    Thing("itertools.product", "[itertools.product(range(9), range(9)), 0]", "thing[1] = thing[1] * 2 + sum(next(thing[0]))", "thing[1]", "import itertools"),
    Thing("itertools.permutations", "[itertools.permutations(range(5)), 0]", "thing[1] = thing[1] * 2 + next(thing[0])[-1]", "thing[1]", "import itertools"),
    Thing("itertools.combinations", "[itertools.combinations(range(12), 3), 0]", "thing[1] = thing[1] * 2 + next(thing[0])[-1]", "thing[1]", "import itertools"),
    Thing("itertools.tee", "[*itertools.tee(range(99)), 0]", "thing[2] = thing[2] * 2 + next(thing[n % 2])", "thing[2]", "import itertools"),
    Thing("itertools.groupby", "[itertools.groupby(range(99), lambda one: one // 2), 0]", "thing[1] = thing[1] * 2 + next(thing[0])[0]", "thing[1]", "import itertools"),
    Thing("itertools.repeat", "[itertools.repeat(3, 99), 0]", "thing[1] = thing[1] * 2 + next(thing[0]) + thing[0].__length_hint__()", "thing[1]", "import itertools"),
    Thing("zip", "[zip(range(99), range(7, 99)), 0]", "thing[1] = thing[1] * 2 + next(thing[0])[1]", "thing[1]"),
    Thing("enumerate", "[enumerate(range(99)), 0]", "thing[1] = thing[1] * 2 + next(thing[0])[0]", "thing[1]"),
    Thing("map", "[map(abs, range(-99, 0)), 0]", "thing[1] = thing[1] * 2 + next(thing[0])", "thing[1]"),
    Thing("filter", "[filter(None, range(99)), 0]", "thing[1] = thing[1] * 2 + next(thing[0])", "thing[1]"),
    Thing("reversed", "[reversed(range(99)), 0]", "thing[1] = thing[1] * 2 + next(thing[0])", "thing[1]"),
    Thing("list-iterator", "[iter(list(range(99))), 0]", "thing[1] = thing[1] * 2 + next(thing[0])", "thing[1]"),
    Thing("dict-iterator", "[iter({key: 1 for key in range(99)}), 0]", "thing[1] = thing[1] * 2 + next(thing[0])", "thing[1]"),
    Thing("range-iterator-alone", "iter(range(99))", "next(thing)", "thing.__length_hint__()"),
    Thing("call-iterator", "(lambda held: [iter(lambda: held.append(1) or len(held), -1), 0, held])([])", "thing[1] = thing[1] * 2 + next(thing[0])", "thing[1]"),
    Thing("generator", "[numbers(2), 0]", "thing[1] = thing[1] * 2 + next(thing[0])", "thing[1]", _NUMBERS),
    Thing("generator-alone", "numbers(2)", "next(thing)", "thing.gi_frame.f_locals.get('value', 0)", _NUMBERS),
    Thing("generator-send", "(lambda made: [made, next(made)])(sums())", "thing[1] = thing[0].send(n + 1)", "thing[1]", _SUMS),
    Thing("generator-expression", "[(one * one for one in range(99)), 0]", "thing[1] = thing[1] * 2 + next(thing[0])", "thing[1]"),
    Thing("re.finditer", "[re.finditer('b.', 'b' + 'abcb' * 40), 0]", "thing[1] = thing[1] * 2 + next(thing[0]).start()", "thing[1]", "import re"),
)  # fmt: skip
