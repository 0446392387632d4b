"""Stateful things that hold what Python cannot show at once: files, streams, checksums, compressors, databases."""

from __future__ import annotations

from .things import Thing

_READ = """def read(path):
    with open(path, "rb") as file:
        return file.read()
"""
_ROWS = """def rows_of(base):
    base.execute("create table if not exists rows (n integer, total integer)")
    base.commit()
    return base
def all_of(base):
    return list(base.execute("select * from rows order by rowid"))
"""
_ADD = "thing.execute('insert into rows values (?, (select count(*) from rows))', (n,)); thing.commit()"
_LOG = """def to_file(name, mode):
    logger = logging.getLogger(name)
    logger.propagate = False
    logger.setLevel("INFO")
    logger.addHandler(logging.FileHandler(name, mode))
    return logger
"""
_CSV = """class Table:
    def __init__(self, path, mode):
        self.path = path
        self.file = open(path, mode, newline="")
        self.writer = csv.writer(self.file)
    def add(self, n):
        self.writer.writerow([n, n * n])
        self.file.flush()
"""
_JSON = """class Results:
    def __init__(self, path):
        self.path, self.rows = path, []
    def add(self, n):
        self.rows.append(n)
        with open(self.path, "w") as file:
            json.dump(self.rows, file)
"""
_APPENDED = """class Appended:
    def __init__(self, path):
        self.path = path
        open(path, "a").close()
    def add(self, n):
        with open(self.path, "a") as file:
            file.write("%d\\n" % n)
"""
_DESCRIPTOR = """class Descriptor:
    def __init__(self, path, flags):
        self.path = path
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | flags)
    def add(self, n):
        os.write(self.file, b"%d " % n)
"""
_READER = """def some_lines():
    with open("lines.txt", "w") as file:
        file.write("".join("%d\\n" % (one * one) for one in range(400)))
    return open("lines.txt")
"""
_WAITING = """import fcntl, os, socket, termios
def waiting(file):
    return int.from_bytes(fcntl.ioctl(file, termios.FIONREAD, bytes(4)), "little")
"""

THINGS = (
    # Streams in memory
    Thing("io.StringIO", "io.StringIO()", "thing.write('%d ' % n)", "thing.getvalue()", "import io"),
    Thing("io.StringIO-read", "io.StringIO(' '.join(map(str, range(99))))", "thing.read(1 + n % 3)", "thing.tell()", "import io"),
    Thing("io.BytesIO", "io.BytesIO(b'abcdefgh')", "thing.seek(n % 8); thing.write(b'%d' % (n % 10))", "[thing.getvalue(), thing.tell()]", "import io"),
    Thing("io.TextIOWrapper", "io.TextIOWrapper(io.BytesIO())", "thing.write('%d ' % n); thing.flush()", "thing.buffer.getvalue()", "import io"),
    Thing("io.BufferedWriter", "io.BufferedWriter(io.BytesIO(), 512)", "thing.write(b'%d ' % n); thing.flush()", "thing.raw.getvalue()", "import io"),
    Thing("io.BufferedReader", "io.BufferedReader(io.BytesIO(bytes(range(200))), 16)", "thing.read(1 + n % 3)", "thing.tell()", "import io"),
    Thing("tempfile.SpooledTemporaryFile", "tempfile.SpooledTemporaryFile(mode='w+')", "thing.write('%d ' % n)", "(lambda at, text: [thing.seek(at), text][1])(thing.tell(), [thing.seek(0), thing.read()][1])", "import tempfile"),
    Thing("tempfile.TemporaryFile", "tempfile.TemporaryFile(mode='w+')", "thing.write('%d ' % n)", "(lambda at, text: [thing.seek(at), text][1])(thing.tell(), [thing.seek(0), thing.read()][1])", "import tempfile"),
    Thing("tempfile.NamedTemporaryFile", "tempfile.NamedTemporaryFile(mode='w+', dir='.')", "thing.write('%d ' % n); thing.flush()", "read(thing.name)", f"import tempfile\n{_READ}"),
    # Checksums, compressors, codecs
    Thing("hashlib.md5", "hashlib.md5()", "thing.update(b'%d' % n)", "thing.hexdigest()", "import hashlib"),
    Thing("hashlib.sha256", "hashlib.sha256()", "thing.update(b'%d' % n)", "thing.hexdigest()", "import hashlib"),
    Thing("hashlib.sha256-copied", "hashlib.sha256()", "thing = thing.copy(); thing.update(b'%d' % n)", "thing.hexdigest()", "import hashlib"),
    Thing("hashlib.blake2b", "hashlib.blake2b(digest_size=8)", "thing.update(b'%d' % n)", "thing.hexdigest()", "import hashlib"),
    Thing("hashlib.shake_128", "hashlib.shake_128()", "thing.update(b'%d' % n)", "thing.hexdigest(8)", "import hashlib"),
    Thing("hmac", "hmac.new(b'key', digestmod='sha1')", "thing.update(b'%d' % n)", "thing.hexdigest()", "import hmac"),
    Thing("zlib.crc32", "0", "thing = zlib.crc32(b'%d' % n, thing)", "thing", "import zlib"),
    Thing("zlib.compressobj", "[zlib.compressobj(), b'']", "thing[1] += thing[0].compress(b'%d ' % n) + thing[0].flush(zlib.Z_SYNC_FLUSH)", "thing[1]", "import zlib"),
    Thing("zlib.compressobj-alone", "zlib.compressobj()", "thing.compress(b'%d ' % n)", "thing.copy().flush()", "import zlib"),
    Thing("zlib.decompressobj", "[zlib.decompressobj(), zlib.compress(bytes(range(200))), b'']", "thing[2] += thing[0].decompress(thing[0].unconsumed_tail if thing[2] else thing[1], 2 + n % 2)", "thing[2]", "import zlib"),
    Thing("gzip.GzipFile", "gzip.GzipFile(fileobj=io.BytesIO(), mode='wb', mtime=0)", "thing.write(b'%d ' % n); thing.flush()", "gzip_text(thing)", "import gzip, io, zlib\ndef gzip_text(file):\n    return zlib.decompressobj(31).decompress(file.fileobj.getvalue())\n"),
    Thing("codecs.decoder", "codecs.getincrementaldecoder('utf-8')()", "thing.decode(b'\\xe2\\x82\\xac'[:1 + n % 2]) if not thing.getstate()[0] else thing.reset()", "list(thing.getstate())", "import codecs"),
    Thing("pickle.Pickler", "(lambda file: [pickle.Pickler(file), file, []])(io.BytesIO())", "thing[2].append([n]); thing[0].dump(thing[2])", "len(thing[1].getvalue())", "import io, pickle"),
    Thing("zipfile.ZipFile", "zipfile.ZipFile(io.BytesIO(), 'w')", "thing.writestr('%d-%d' % (n, len(thing.namelist())), str(n))", "thing.namelist()", "import io, zipfile"),
    # Files
    Thing("open-w", "open('opened-w.txt', 'w')", "thing.write('%d ' % n); thing.flush()", "read(thing.name)", _READ),
    Thing("open-w-buffered", "open('opened-b.txt', 'w')", "thing.write('%d ' % n)", "[thing.flush(), read(thing.name)][1]", _READ),
    Thing("open-a", "open('opened-a.txt', 'a')", "thing.write('%d ' % n); thing.flush()", "read(thing.name)", _READ),
    Thing("open-wb", "open('opened-wb.bin', 'wb')", "thing.write(b'%d ' % n); thing.flush()", "read(thing.name)", _READ),
    Thing("open-unbuffered", "open('opened-0.bin', 'wb', buffering=0)", "thing.write(b'%d ' % n)", "read(thing.name)", _READ),
    Thing("open-update", "open('opened-r.txt', 'w+')", "thing.seek(n % 5); thing.write(str(n % 10)); thing.flush()", "read(thing.name)", _READ),
    Thing("open-x", "[open('opened-x.txt', 'x') if not os.path.exists('opened-x.txt') else open('opened-x.txt', 'a')][0]", "thing.write('%d ' % n); thing.flush()", "read(thing.name)", f"import os\n{_READ}"),
    Thing("open-r", "some_lines()", "thing.readline()", "thing.tell()", _READER),
    Thing("open-r-iterator", "[some_lines(), 0]", "thing[1] = thing[1] * 2 + int(next(thing[0]))", "thing[1]", _READER),
    Thing("open-each-time", "Appended('each.txt')", "thing.add(n)", "read(thing.path)", _READ + _APPENDED),
    Thing("pathlib.write_text", "pathlib.Path('path.txt')", "thing.write_text((thing.read_text() if thing.exists() and n % 4 else '') + '%d ' % n)", "thing.read_text() if thing.exists() else ''", "import pathlib"),
    Thing("pathlib.open", "pathlib.Path('path-a.txt').open('a')", "thing.write('%d ' % n); thing.flush()", "read(thing.name)", f"import pathlib\n{_READ}"),
    Thing("os.open-append", "Descriptor('os-a.bin', os.O_APPEND)", "thing.add(n)", "read(thing.path)", f"import os\n{_READ}{_DESCRIPTOR}"),
    Thing("os.open-truncate", "Descriptor('os-t.bin', os.O_TRUNC)", "thing.add(n)", "read(thing.path)", f"import os\n{_READ}{_DESCRIPTOR}"),
    Thing("csv.writer", "Table('rows.csv', 'w')", "thing.add(n)", "read(thing.path)", f"import csv\n{_READ}{_CSV}"),
    Thing("csv.writer-append", "Table('rows-a.csv', 'a')", "thing.add(n)", "read(thing.path)", f"import csv\n{_READ}{_CSV}"),
    Thing("json.dump", "Results('results.json')", "thing.add(n)", "[thing.rows, json.load(open(thing.path)) if thing.rows else None]", f"import json\n{_JSON}"),
    Thing("logging.FileHandler-w", "to_file('log-w.txt', 'w')", "thing.info('batch %d', n)", "read(thing.name)", f"import logging\n{_READ}{_LOG}"),
    Thing("logging.FileHandler-a", "to_file('log-a.txt', 'a')", "thing.info('batch %d', n)", "read(thing.name)", f"import logging\n{_READ}{_LOG}"),
    Thing("codecs.open", "codecs.open('codec.txt', 'a', 'utf-8')", "thing.write('%d ' % n); thing.flush()", "read('codec.txt')", f"import codecs\n{_READ}"),
    Thing("gzip.open", "gzip.open('lines.gz', 'at')", "thing.write('%d ' % n); thing.flush()", "zlib_text('lines.gz')", f"import gzip, zlib\n{_READ}def zlib_text(path):\n    return zlib.decompressobj(31).decompress(read(path))\n"),
    Thing("mmap-file", "mapped('mapped.bin')", "thing[n % 32] = (thing[n % 32] + n + 1) % 256", "thing[:32]", "import mmap\ndef mapped(path):\n    with open(path, 'w+b') as file:\n        file.write(bytes(32))\n        file.flush()\n        return mmap.mmap(file.fileno(), 32)\n"),
    Thing("os.replace", "Swapped()", "thing.add(n)", "thing.look()", "import os\nclass Swapped:\n    def __init__(self):\n        self.rows = []\n    def add(self, n):\n        self.rows.append(n)\n        with open('swap.tmp', 'w') as file:\n            file.write(str(self.rows))\n        os.replace('swap.tmp', 'swapped.txt')\n    def look(self):\n        return [self.rows, open('swapped.txt').read() if self.rows else '']\n"),
    # Databases
    Thing("sqlite3-memory", "rows_of(sqlite3.connect(':memory:', check_same_thread=False))", _ADD, "all_of(thing)", f"import sqlite3\n{_ROWS}"),
    Thing("sqlite3-file", "rows_of(sqlite3.connect('rows.db', check_same_thread=False))", _ADD, "all_of(thing)", f"import sqlite3\n{_ROWS}"),
    Thing("sqlite3-wal", "wal(rows_of(sqlite3.connect('wal.db', check_same_thread=False)))", _ADD, "all_of(thing)", f"import sqlite3\n{_ROWS}def wal(base):\n    base.execute('pragma journal_mode=wal')\n    return base\n"),
    Thing("sqlite3.Cursor", "[rows_of(sqlite3.connect(':memory:', check_same_thread=False)).execute('with recursive c(x) as (values(1) union all select x + 2 from c limit 500) select x from c'), 0]", "thing[1] = thing[1] * 2 + thing[0].fetchone()[0]", "thing[1]", f"import sqlite3\n{_ROWS}"),
    Thing("shelve", "shelve.open('shelf')", "thing['n%d' % (n % 3)] = thing.get('n%d' % (n % 3), 0) + n + 1; thing.sync()", "sorted(thing.items())", "import shelve"),
    Thing("socketpair", "socket.socketpair()", "thing[0].send(bytes([n % 256]))", "waiting(thing[1])", _WAITING),
    Thing("os.pipe", "os.pipe()", "os.write(thing[1], bytes([n % 256]))", "waiting(thing[0])", _WAITING),
)  # fmt: skip
