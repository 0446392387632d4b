"""Stateful things of Python: objects of the script's classes, and of classes of the standard library."""

from __future__ import annotations

from .things import Thing

_PLAIN = """class Plain:
    def __init__(self):
        self.total = 0
        self.rows = []
    def add(self, n):
        self.total += n + 1
        self.rows.append(n)
"""
_SLOTS = """class Slots:
    __slots__ = ("total", "rows", "late")
    def __init__(self):
        self.total, self.rows = 0, []
    def add(self, n):
        self.total += n + 1
        self.rows.append(n)
        self.late = n
"""
_DATACLASS = """@dataclasses.dataclass{}
class Data{}:
    total: int = 0
    rows: list = dataclasses.field(default_factory=list)
"""
_GETSTATE = """class Kept:
    def __init__(self):
        self.total, self.lock = 0, threading.Lock()
    def __getstate__(self):
        return self.total
    def __setstate__(self, state):
        self.total, self.lock = state, threading.Lock()
"""
_REDUCE = """class Reduced:
    def __init__(self, total):
        self.total = total
    def __reduce__(self):
        return Reduced, (self.total,)
"""
_PROXY = """class Proxy:
    def __init__(self):
        object.__setattr__(self, "held", {})
    def __getattr__(self, name):
        return object.__getattribute__(self, "held").get(name, 0)
    def __setattr__(self, name, value):
        self.held[name] = value
"""
_PROPERTY = """class Checked:
    def __init__(self):
        self._level = 0
    @property
    def level(self):
        return self._level
    @level.setter
    def level(self, value):
        self._level = value % 1000
"""
_DESCRIPTOR = """class Field:
    def __init__(self):
        self.values = weakref.WeakKeyDictionary()
    def __get__(self, owner, kind=None):
        return self.values.get(owner, 0)
    def __set__(self, owner, value):
        self.values[owner] = value
class Described:
    level = Field()
"""
_SINGLETON = """class Single:
    made = None
    def __new__(cls):
        if cls.made is None:
            cls.made = super().__new__(cls)
            cls.made.rows = []
        return cls.made
"""
_CLASS_STATE = """class Registry:
    entries = {}
    total = 0
    @classmethod
    def add(cls, n):
        cls.total += n + 1
        cls.entries[n] = cls.entries.get(n, 0) + 1
    @staticmethod
    def look():
        return [Registry.total, sorted(Registry.entries.items())]
"""
_PRIVATE = """class Private:
    def __init__(self):
        self.__total = 0
    def add(self, n):
        self.__total += n + 1
    def look(self):
        return self.__total
"""
_ITERATOR = """class Steps:
    def __init__(self):
        self.at = 0
    def __iter__(self):
        return self
    def __next__(self):
        self.at += 3
        return self.at
"""
_CALLABLE = """class Running:
    def __init__(self):
        self.values = []
    def __call__(self, n):
        self.values.append(n)
        return sum(self.values)
"""
_TREE = """class Node:
    def __init__(self, parent=None):
        self.parent, self.children, self.value = parent, [], 0
    def add(self, n):
        self.value += n + 1
        if n % 3 == 0:
            self.children.append(Node(self))
        elif self.children:
            self.children[-1].add(n)
    def look(self):
        return [self.value, [one.look() for one in self.children], self.parent is not None]
"""
_GENERIC = """T = typing.TypeVar("T")
class Box(typing.Generic[T]):
    def __init__(self, item: T):
        self.item = item
"""
_ERROR = """class Trouble(Exception):
    pass
"""
_CACHED = """@functools.lru_cache(maxsize=4)
def squared(n):
    return n * n
"""
_CACHED_LIST = """@functools.cache
def bucket(key):
    return []
"""
_PROPERTY_CACHE = """class Lazy:
    start = 0
    @functools.cached_property
    def rows(self):
        return [self.start]
"""
_DISPATCH = """@functools.singledispatch
def shown(value):
    return "other"
"""
_ATTRIBUTE = """def counted():
    return counted.calls
counted.calls = 0
"""
_WRAPPED = """def counting(function):
    def inner(n):
        inner.calls += n + 1
        return function(n)
    inner.calls = 0
    return inner
@counting
def plain(n):
    return n
"""
_CONTEXT = "variable = contextvars.ContextVar('variable', default=())"
_HANDLER = """class LineHandler(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []
    def emit(self, record):
        self.lines.append(record.getMessage())
def logger_with(handler):
    logger = logging.getLogger("things%d" % len(logging.root.manager.loggerDict))
    logger.propagate = False
    logger.addHandler(handler)
    logger.setLevel("INFO")
    return logger
"""
_POINT = """class Point(ctypes.Structure):
    _fields_ = [("x", ctypes.c_double), ("n", ctypes.c_int * 3)]
"""
_META = """class Meta(type):
    made = []
    def __call__(cls, *args):
        cls.made.append(len(cls.made))
        return super().__call__(*args)
class Made(metaclass=Meta):
    pass
"""
_KEY = """class Key:
    pass
"""

THINGS = (
    # Objects of the script
    Thing("object", "Plain()", "thing.add(n)", "[thing.total, thing.rows]", _PLAIN),
    Thing("object-new-attribute", "Plain()", "setattr(thing, 'at_%d' % n, n + thing.total); thing.add(n)", "sorted(map(repr, vars(thing).items()))", _PLAIN),
    Thing("object-deleted-attribute", "Plain()", "thing.__dict__.pop('odd', 0) if n % 2 else setattr(thing, 'odd', n); thing.add(n)", "sorted(map(repr, vars(thing).items()))", _PLAIN),
    Thing("object-replaced", "Plain()", "before = thing.total; thing = Plain(); thing.total = before * 2 + n", "thing.total", _PLAIN),
    Thing("object-list-grows", "[]", "thing.append(Plain()); thing[n % len(thing)].add(n)", "[[one.total, one.rows] for one in thing]", _PLAIN),
    Thing("object-shared", "(lambda one: [one, one])(Plain())", "thing[n % 2].add(n)", "[thing[0].total, thing[0] is thing[1]]", _PLAIN),
    Thing("slots", "Slots()", "thing.add(n)", "[thing.total, thing.rows]", _SLOTS),
    Thing("dataclass", "Data()", "thing.total += n + 1; thing.rows.append(n)", "[thing.total, thing.rows]", "import dataclasses\n" + _DATACLASS.format("", "")),
    Thing("dataclass-slots", "Data1()", "thing.total += n + 1; thing.rows.append(n)", "[thing.total, thing.rows]", "import dataclasses\n" + _DATACLASS.format("(slots=True)", "1")),
    Thing("dataclass-frozen", "Data2()", "thing = dataclasses.replace(thing, total=thing.total + n + 1); thing.rows.append(n)", "[thing.total, thing.rows]", "import dataclasses\n" + _DATACLASS.format("(frozen=True)", "2")),
    Thing("dataclass-frozen-slots", "Data3()", "thing = dataclasses.replace(thing, total=thing.total + n + 1)", "[thing.total, thing.rows]", "import dataclasses\n" + _DATACLASS.format("(frozen=True, slots=True)", "3")),
    Thing("getstate", "Kept()", "thing.total += n + 1", "thing.total", f"import threading\n{_GETSTATE}"),
    Thing("reduce", "Reduced(0)", "thing = Reduced(thing.total + n + 1)", "thing.total", _REDUCE),
    Thing("getattr", "Proxy()", "thing.level = thing.level + n + 1", "thing.level", _PROXY),
    Thing("property", "Checked()", "thing.level = thing.level * 2 + n", "thing.level", _PROPERTY),
    Thing("descriptor", "Described()", "thing.level = thing.level + n + 1", "thing.level", f"import weakref\n{_DESCRIPTOR}"),
    Thing("singleton", "Single()", "Single().rows.append(n)", "thing.rows", _SINGLETON),
    Thing("class-state", "Registry", "thing.add(n)", "thing.look()", _CLASS_STATE),
    Thing("class-private", "Private()", "thing.add(n)", "thing.look()", _PRIVATE),
    Thing("class-made", "type('Made', (), {'level': 0})", "thing.level += n + 1", "thing.level"),
    Thing("class-meta", "Made", "thing()", "thing.made", _META),
    Thing("iterator-class", "[Steps(), 0]", "thing[1] = thing[1] * 2 + next(thing[0])", "thing[1]", _ITERATOR),
    Thing("callable", "Running()", "thing(n)", "thing.values", _CALLABLE),
    Thing("bound-method", "Running().__call__", "thing(n)", "thing.__self__.values", _CALLABLE),
    Thing("tree", "Node()", "thing.add(n)", "thing.look()", _TREE),
    Thing("generic", "Box([])", "thing.item.append(n)", "thing.item", f"import typing\n{_GENERIC}"),
    Thing("exception", "Trouble(0)", "thing.args = (*thing.args, n)", "thing.args", _ERROR),
    Thing("function-attribute", "counted", "thing.calls += n + 1", "thing()", _ATTRIBUTE),
    Thing("decorated", "plain", "thing(n)", "thing.calls", _WRAPPED),
    Thing("lambda-default", "(lambda n, rows=[]: rows.append(n) or rows)", "thing(n)", "thing.__defaults__[0]"),
    Thing("module", "types.ModuleType('settings')", "thing.level = getattr(thing, 'level', 0) + n + 1", "getattr(thing, 'level', 0)", "import types"),
    # Objects of the standard library
    Thing("types.SimpleNamespace", "types.SimpleNamespace(total=0)", "thing.total += n + 1", "thing.total", "import types"),
    Thing("argparse.Namespace", "argparse.Namespace(total=0)", "thing.total += n + 1", "thing.total", "import argparse"),
    Thing("functools.partial", "functools.partial(max, 0, 0)", "thing = functools.partial(max, *thing.args[-2:], n + thing())", "list(thing.args)", "import functools"),
    Thing("functools.partial-list", "functools.partial(list.append, [])", "thing(n)", "thing.args[0]", "import functools"),
    Thing("functools.lru_cache", "squared", "thing(n % 5)", "list(thing.cache_info())", f"import functools\n{_CACHED}"),
    Thing("functools.cache-list", "bucket", "thing(n % 2).append(n)", "[thing(0), thing(1)]", f"import functools\n{_CACHED_LIST}"),
    Thing("functools.cached_property", "Lazy()", "thing.rows.append(n)", "thing.rows", f"import functools\n{_PROPERTY_CACHE}"),
    Thing("functools.singledispatch", "shown", "thing.register((int, str, list, dict)[n % 4], lambda value: 'own')", "[thing(0), thing(''), thing([]), thing({})]", f"import functools\n{_DISPATCH}"),
    Thing("contextvars.ContextVar", "variable", "thing.set((*thing.get()[-4:], n))", "thing.get()", f"import contextvars\n{_CONTEXT}"),
    Thing("contextvars.Context", "contextvars.copy_context()", "thing.run(variable.set, (*thing.get(variable, ())[-4:], n))", "thing.get(variable, ())", f"import contextvars\n{_CONTEXT}"),
    Thing("threading.local", "threading.local()", "thing.rows = [*getattr(thing, 'rows', []), n]", "getattr(thing, 'rows', [])", "import threading"),
    Thing("threading.Lock", "threading.Lock()", "thing.release() if thing.locked() else thing.acquire()", "thing.locked()", "import threading"),
    Thing("threading.Event", "threading.Event()", "thing.clear() if thing.is_set() else thing.set()", "thing.is_set()", "import threading"),
    Thing("threading.Semaphore", "threading.Semaphore(1)", "thing.release()", "thing._value", "import threading"),
    Thing("threading.Condition-class", "threading.Condition()", "thing.level = getattr(thing, 'level', 0) + n + 1", "getattr(thing, 'level', 0)", "import threading"),
    Thing("queue.Queue", "queue.Queue()", "thing.put(n)", "list(thing.queue)", "import queue"),
    Thing("queue.LifoQueue", "queue.LifoQueue()", "thing.put(n)", "list(thing.queue)", "import queue"),
    Thing("queue.PriorityQueue", "queue.PriorityQueue()", "thing.put(n * 7 % 5)", "list(thing.queue)", "import queue"),
    Thing("queue.SimpleQueue", "queue.SimpleQueue()", "thing.put(n)", "thing.qsize()", "import queue"),
    Thing("weakref.WeakValueDictionary", "(weakref.WeakValueDictionary(), [])", "thing[1].append(Key()); thing[0][len(thing[1])] = thing[1][-1]", "sorted(thing[0])", f"import weakref\n{_KEY}"),
    Thing("weakref.WeakKeyDictionary", "(lambda keys: (keys, weakref.WeakKeyDictionary()))([Key(), Key()])", "thing[1][thing[0][n % 2]] = thing[1].get(thing[0][n % 2], 0) + n + 1", "[thing[1].get(one, 0) for one in thing[0]]", f"import weakref\n{_KEY}"),
    Thing("weakref.WeakSet", "([], weakref.WeakSet())", "thing[0].append(Key()); thing[1].add(thing[0][-1])", "len(thing[1])", f"import weakref\n{_KEY}"),
    Thing("weakref.ref", "(lambda keys: [keys, weakref.ref(keys[0])])([Key() for _ in range(5)])", "thing[1] = weakref.ref(thing[0][(thing[0].index(thing[1]()) + n + 1) % 5])", "thing[0].index(thing[1]())", f"import weakref\n{_KEY}"),
    Thing("logging.Logger-level", "logging.getLogger('levels')", "thing.setLevel((thing.level + n + 1) % 50)", "thing.level", "import logging"),
    Thing("logging.Handler", "logger_with(LineHandler())", "thing.info('batch %d', n)", "thing.handlers[0].lines", f"import logging\n{_HANDLER}"),
    Thing("logging.MemoryHandler", "logger_with(logging.handlers.MemoryHandler(10**6))", "thing.info('batch %d', n)", "[one.getMessage() for one in thing.handlers[0].buffer]", f"import logging, logging.handlers\n{_HANDLER}"),
    Thing("logging.StreamHandler", "logger_with(logging.StreamHandler(io.StringIO()))", "thing.info('batch %d', n)", "thing.handlers[0].stream.getvalue()", f"import io, logging\n{_HANDLER}"),
    Thing("logging.LoggerAdapter", "logging.LoggerAdapter(logging.getLogger('adapted'), {'n': 0})", "thing.extra['n'] += n + 1", "thing.extra", "import logging"),
    Thing("configparser", "configparser.ConfigParser()", "thing.read_dict({'batches': {str(n): str(len(thing.sections()) + n)}})", "sorted(thing['batches'].items()) if 'batches' in thing else []", "import configparser"),
    Thing("xml.etree", "xml.etree.ElementTree.Element('rows')", "xml.etree.ElementTree.SubElement(thing, 'row', n=str(n))", "xml.etree.ElementTree.tostring(thing)", "import xml.etree.ElementTree"),
    Thing("email.Message", "email.message.Message()", "thing['n'] = str(n)", "thing.as_string()", "import email.message"),
    Thing("http.cookies", "http.cookies.SimpleCookie()", "thing['n%d' % (n % 3)] = str(n) + thing.output()[:9].strip().replace(':', '').replace(' ', '')", "thing.output()", "import http.cookies"),
    Thing("sched.scheduler", "sched.scheduler()", "thing.enterabs(n, len(thing.queue), print)", "[[one.time, one.priority] for one in thing.queue]", "import sched"),
    Thing("graphlib", "graphlib.TopologicalSorter()", "thing.add(n, n + 1)", "sorted(thing._node2info)", "import graphlib"),
    Thing("string.Template", "string.Template('$a')", "thing.template += ' $b%d' % n", "thing.template", "import string"),
    Thing("concurrent.Future", "concurrent.futures.Future()", "thing.done() or thing.set_result(n)", "thing.result(0) if thing.done() else None", "import concurrent.futures"),
    Thing("difflib", "difflib.SequenceMatcher(a='abcd', b='')", "thing.set_seq2(thing.b[-5:] + 'abcd'[n % 4])", "thing.ratio()", "import difflib"),
    Thing("statistics.NormalDist", "statistics.NormalDist()", "thing = thing + n * 0.5", "[thing.mean, thing.stdev]", "import statistics"),
    Thing("asyncio.Queue", "asyncio.Queue()", "thing.put_nowait(n)", "thing.qsize()", "import asyncio"),
    Thing("copy-on-write", "[[0], None]", "thing[1] = copy.deepcopy(thing[0]); thing[0] = [*thing[1], n]", "thing[0]", "import copy"),
    Thing("types.GenericAlias", "[list[int], 0]", "thing[1] += n + 1", "thing[1]"),
    # ctypes and multiprocessing
    Thing("ctypes.c_int", "ctypes.c_int(1)", "thing.value = thing.value * 2 + n & 0xFFFF", "thing.value", "import ctypes"),
    Thing("ctypes.Array", "(ctypes.c_double * 4)()", "thing[n % 4] += n + 1", "list(thing)", "import ctypes"),
    Thing("ctypes.Structure", "Point()", "thing.x += n + 1; thing.n[n % 3] += 1", "[thing.x, list(thing.n)]", f"import ctypes\n{_POINT}"),
    Thing("ctypes.pointer", "ctypes.pointer(ctypes.c_int(1))", "thing.contents.value = thing.contents.value * 2 + n & 0xFFFF", "thing.contents.value", "import ctypes"),
    Thing("ctypes.buffer", "ctypes.create_string_buffer(16)", "thing[n % 16] = (thing.raw[n % 16] + n + 1) % 256", "thing.raw", "import ctypes"),
    Thing("multiprocessing.Value", "multiprocessing.Value('d', 0.5)", "thing.value += n + 1", "thing.value", "import multiprocessing"),
    Thing("multiprocessing.Array", "multiprocessing.Array('i', 4)", "thing[n % 4] += n + 1", "list(thing)", "import multiprocessing"),
    Thing("multiprocessing.RawArray", "multiprocessing.RawArray('i', 4)", "thing[n % 4] += n + 1", "list(thing)", "import multiprocessing, multiprocessing.sharedctypes"),
    Thing("multiprocessing.Queue", "multiprocessing.SimpleQueue()", "thing.put(n if thing.empty() else thing.get() * 2 + n)", "(lambda value: [value, thing.put(value)][0])(thing.get()) if not thing.empty() else None", "import multiprocessing"),
    Thing("multiprocessing.Semaphore", "multiprocessing.Semaphore(1)", "thing.release()", "thing.get_value()", "import multiprocessing"),
    Thing("multiprocessing.Event", "multiprocessing.Event()", "thing.clear() if thing.is_set() else thing.set()", "thing.is_set()", "import multiprocessing"),
    Thing("shared_memory", "shared_memory.SharedMemory(create=True, size=16)", "thing.buf[n % 16] = (thing.buf[n % 16] + n + 1) % 256", "bytes(thing.buf[:16])", "from multiprocessing import shared_memory"),
    Thing("mmap", "mmap.mmap(-1, 64)", "thing[n % 64] = (thing[n % 64] + n + 1) % 256", "thing[:64]", "import mmap"),
    Thing("os.environ", "os.environ", "thing['THINGS_LEVEL'] = str(int(thing.get('THINGS_LEVEL', 0)) + n + 1)", "thing.get('THINGS_LEVEL', 0)", "import os"),
)  # fmt: skip
