"""Stateful things of numpy: arrays of every kind, and its random generators."""

from __future__ import annotations

from .things import Thing

_BITS = """def bits(generator):
    return repr(generator.bit_generator.state)
"""
_SUBCLASS = """class Tagged(np.ndarray):
    def __array_finalize__(self, other):
        self.tag = getattr(other, "tag", 0)
def tagged():
    return np.zeros(4).view(Tagged)
"""
_ROWS = "thing.ravel().tolist()"
_BIT = "repr(thing.state)"

THINGS = (
    Thing("np.ndarray", "np.zeros(6)", "thing[n % 6] += n + 1", "thing.tolist()"),
    Thing("np.ndarray-rebound", "np.zeros(2)", "thing = np.append(thing[-5:], n)", "thing.tolist()"),
    Thing("np.ndarray-2d-column", "np.zeros((300, 4), 'float32')", "thing[n % 300, 2] += n + 1", "zlib.crc32(thing.tobytes())", "import zlib"),
    Thing("np.ndarray-large", "np.zeros((40_000, 16), 'float32')", "thing[n * 997 % 40_000, 5] += n + 1", "zlib.crc32(thing.tobytes())", "import zlib"),
    Thing("np.ndarray-int8", "np.zeros(6, 'int8')", "thing[n % 6] += 1 + n % 3", "thing.tolist()"),
    Thing("np.ndarray-uint64", "np.full(3, 1 << 63, 'uint64')", "thing[n % 3] += np.uint64(n + 1)", "thing.tolist()"),
    Thing("np.ndarray-bool", "np.zeros(7, bool)", "thing[n % 7] ^= True", "thing.tolist()"),
    Thing("np.ndarray-complex", "np.zeros(3, complex)", "thing[n % 3] += n + 1j", "repr(thing.tolist())"),
    Thing("np.ndarray-float16", "np.zeros(3, 'float16')", "thing[n % 3] += n + 0.5", "thing.tolist()"),
    Thing("np.ndarray-longdouble", "np.zeros(3, np.longdouble)", "thing[n % 3] += n + np.longdouble(1) / 3", "repr(thing.tolist())"),
    Thing("np.ndarray-big-endian", "np.zeros(3, '>f8')", "thing[n % 3] += n + 1", "thing.tolist()"),
    Thing("np.ndarray-0d", "np.zeros(())", "thing[...] = thing * 2 + n", "thing.item()"),
    Thing("np.ndarray-empty", "np.zeros((0, 3))", "thing = np.vstack([thing[-4:], [[n, n, 1.0]]])", "thing.tolist()"),
    Thing("np.ndarray-fortran", "np.zeros((3, 4), order='F')", "thing[n % 3, n % 4] += n + 1", "[thing.tolist(), thing.flags.f_contiguous]"),
    Thing("np.ndarray-view", "(lambda base: [base, base[::2]])(np.zeros(8))", "thing[1][n % 4] += n + 1", "[one.tolist() for one in thing]"),
    Thing("np.ndarray-overlap", "(lambda base: [base[:5], base[3:]])(np.zeros(8))", "thing[n % 2][n % 5] += n + 1", "[one.tolist() for one in thing]"),
    Thing("np.ndarray-strided", "np.zeros(20)[::3]", "thing[n % 7] += n + 1", "thing.tolist()"),
    Thing("np.ndarray-readonly", "np.zeros(3)", "thing = thing + n; thing.flags.writeable = False", "[thing.tolist(), bool(thing.flags.writeable)]"),
    Thing("np.ndarray-of-buffer", "np.frombuffer(bytearray(32), 'uint8')", "thing[n % 32] += n + 1", "thing.tolist()"),
    Thing("np.ndarray-text", "np.array(['a'] * 4, 'U6')", "thing[n % 4] = thing[n % 4][-4:] + str(n)", "thing.tolist()"),
    Thing("np.ndarray-bytes", "np.array([b'a'] * 4, 'S6')", "thing[n % 4] = thing[n % 4][-4:] + b'%d' % n", "thing.tolist()"),
    Thing("np.ndarray-datetime", "np.array(['2026-01-01'] * 3, 'M8[s]')", "thing[n % 3] += np.timedelta64(n + 1, 's')", "thing.astype('int64').tolist()"),
    Thing("np.ndarray-object", "np.array([None, [], 'a'], object)", "thing[0] = n; thing[1].append(n); thing[2] += str(n)", "thing.tolist()"),
    Thing("np.ndarray-object-shared", "(lambda held: [np.array([held, None], object), held])([])", "thing[1].append(n)", "[thing[0][0], thing[0][0] is thing[1]]"),
    Thing("np.ndarray-structured", "np.zeros(3, [('n', 'i4'), ('x', 'f8')])", "thing['x'][n % 3] += n + 1; thing[n % 3]['n'] += 1", "thing.tolist()"),
    Thing("np.ndarray-structured-object", "np.array([(0, []), (0, [])], [('n', 'i4'), ('rows', object)])", "thing['rows'][n % 2].append(n); thing['n'] += 1", "thing.tolist()"),
    Thing("np.recarray", "np.rec.array([(1, 2.0), (3, 4.0)], names='n,x')", "thing.x[n % 2] += n + 1", "thing.tolist()"),
    Thing("np.ma.MaskedArray", "np.ma.masked_array(np.zeros(6), np.zeros(6, bool))", "thing[n % 6] = np.ma.masked if n % 2 else n", "[np.ma.getdata(thing).tolist(), np.ma.getmaskarray(thing).tolist()]"),
    Thing("np.ma-nomask", "np.ma.masked_array(np.zeros(6))", "thing[n % 6] += n + 1", "thing.tolist()"),
    Thing("np.ma-hard", "np.ma.masked_array(np.zeros(6), [True] + [False] * 5, hard_mask=True)", "thing[n % 6] += n + 1", "[thing.tolist(), thing.hardmask]"),
    Thing("np.ma-records", "np.ma.masked_array(np.zeros(2, [('n', 'i4'), ('x', 'f8')]))", "thing['x'][n % 2] += n + 1; thing['n'][n % 2] = np.ma.masked", "repr(thing.tolist())"),
    Thing("np.memmap", "np.memmap('mapped.dat', 'float32', 'w+', shape=(6,))", "thing[n % 6] += n + 1; thing.flush()", "thing.tolist()"),
    Thing("np.memmap-update", "kept_file()", "thing[n % 6] += n + 1; thing.flush()", "thing.tolist()", "import os\ndef kept_file():\n    if not os.path.exists('kept.dat'):\n        np.zeros(6, 'float32').tofile('kept.dat')\n    return np.memmap('kept.dat', 'float32', 'r+')\n"),
    Thing("np.lib.open_memmap", "np.lib.format.open_memmap('mapped.npy', 'w+', 'float32', (6,))", "thing[n % 6] += n + 1; thing.flush()", "thing.tolist()"),
    Thing("np.matrix", "np.matrix(np.zeros((2, 2)))", "thing[n % 2, 0] += n + 1", "thing.tolist()"),
    Thing("np.ndarray-class", "tagged()", "thing[n % 4] += 1; thing.tag += n + 1", "[thing.tolist(), thing.tag]", _SUBCLASS),
    Thing("np.char.chararray", "np.char.array(['a', 'b'], itemsize=6)", "thing[n % 2] = thing[n % 2][-3:] + str(n)", "thing.tolist()"),
    Thing("np.float64", "np.float64(0.5)", "thing = thing * 1.5 + n", "float(thing)"),
    Thing("np.int16", "np.int16(5)", "thing = np.int16((int(thing) * 3 + n) % 30000)", "[int(thing), type(thing).__name__]"),
    Thing("np.datetime64", "np.datetime64('2026-01-01T00', 's')", "thing = thing + np.timedelta64(n + 1, 's')", "str(thing)"),
    Thing("np.void", "np.zeros(1, [('n', 'i4'), ('x', 'f8')])[0]", "thing['x'] += n + 1", "thing.item()"),
    Thing("np.poly1d", "np.poly1d([1.0, 2.0])", "thing[0] = thing[0] + n + 1", "thing.coeffs.tolist()"),
    Thing("np.Polynomial", "np.polynomial.Polynomial([1.0, 2.0])", "thing.coef[n % 2] += n + 1", "thing.coef.tolist()"),
    Thing("np.flatiter", "(lambda one: [one, one.flat, 0.0])(np.arange(99.0))", "thing[2] = thing[2] * 2 + next(thing[1])", "thing[2]"),
    Thing("np.nditer", "[np.nditer(np.arange(99)), 0]", "thing[1] = thing[1] * 2 + int(thing[0][0]); thing[0].iternext()", "thing[1]"),
    Thing("np.ndenumerate", "[np.ndenumerate(np.arange(99)), 0]", "thing[1] = thing[1] * 2 + int(next(thing[0])[1])", "thing[1]"),
    Thing("np.broadcast", "[np.broadcast(np.arange(50), np.zeros(50)), 0]", "thing[1] = thing[1] * 2 + int(next(thing[0])[0])", "thing[1]"),
    Thing("np.dtype", "np.dtype('f4')", "thing = np.dtype([('a%d' % n, thing.base if thing.names is None else 'i4')])", "str(thing)"),
    Thing("np.ndarray-list", "[np.zeros(3), np.zeros(2)]", "thing[n % 2][n % 2] += n + 1; thing.append(thing[0].copy()) if n == 3 else None", "[one.tolist() for one in thing]"),
    Thing("np.ndarray-dict", "{'a': np.zeros(3), 'b': None}", "thing['a'][n % 3] += n + 1; thing['b'] = thing['a'] * 2", "[thing['a'].tolist(), None if thing['b'] is None else thing['b'].tolist()]"),
    # Random generators
    Thing("np.Generator", "np.random.default_rng(3)", "thing.random()", "bits(thing)", _BITS),
    Thing("np.Generator-normal", "[np.random.default_rng(3), 0.0]", "thing[1] += float(thing[0].normal()) * (n + 1)", "thing[1]"),
    Thing("np.Generator-integers", "np.random.default_rng(3)", "thing.integers(0, 9, dtype='uint8')", "bits(thing)", _BITS),
    Thing("np.Generator-shuffle", "[np.random.default_rng(3), list(range(7))]", "thing[0].shuffle(thing[1])", "thing[1]"),
    Thing("np.Generator-MT19937", "np.random.Generator(np.random.MT19937(3))", "thing.random(700 if n % 3 == 0 else 1)", "zlib.crc32(bits(thing).encode())", f"import zlib\n{_BITS}"),
    Thing("np.Generator-Philox", "np.random.Generator(np.random.Philox(3))", "thing.random()", "bits(thing)", _BITS),
    Thing("np.Generator-SFC64", "np.random.Generator(np.random.SFC64(3))", "thing.random()", "bits(thing)", _BITS),
    Thing("np.Generator-spawned", "np.random.default_rng(3).spawn(2)", "thing[n % 2].random()", "[bits(one) for one in thing]", _BITS),
    Thing("np.Generator-spawns", "[np.random.default_rng(3), 0.0]", "thing[1] += float(thing[0].spawn(1)[0].random()) * (n + 1)", "thing[1]"),
    Thing("np.PCG64", "np.random.PCG64(3)", "thing.random_raw()", _BIT),
    Thing("np.SeedSequence", "np.random.SeedSequence(3)", "thing.spawn(1 + n % 2)", "thing.n_children_spawned"),
    Thing("np.RandomState", "np.random.RandomState(3)", "thing.randn()", "zlib.crc32(repr(thing.get_state()).encode())", "import zlib"),
    Thing("np.random", "[0.0]", "thing[0] += float(np.random.rand()) * (n + 1)", "thing"),
)  # fmt: skip
