"""Stateful things of libraries that are used beside a training: tables, models, images, files, records."""

from __future__ import annotations

from .things import Thing

_PD, _PL, _SP = "import pandas as pd", "import polars as pl", "import scipy.sparse"
_PYDANTIC = """class Record(pydantic.BaseModel):
    total: int = 0
    rows: list[int] = []
    _hidden: int = pydantic.PrivateAttr(0)
"""
_PYDANTIC_ROOT = """class Whole(pydantic.RootModel[list[int]]):
    pass
"""
_ATTRS = """@attrs.define
class Slotted:
    total: int = 0
    rows: list = attrs.field(factory=list)
@attrs.define(slots=False)
class Open:
    total: int = 0
    rows: list = attrs.field(factory=list)
@attrs.frozen
class Still:
    total: int = 0
"""
_MSGSPEC = """class Struct(msgspec.Struct):
    total: int = 0
    rows: list = []
"""
_ROW = "np.array([[n % 5, 1.0, n % 3]])"
_H5 = """def resizable(file):
    file.require_dataset("rows", (0,), "f4", maxshape=(None,), chunks=(8,))
    return file
def add(rows, n):
    rows.resize(len(rows) + 1, axis=0)
    rows[-1] = n
"""

THINGS = (
    # Tables
    Thing("pd.DataFrame", "pd.DataFrame({'n': [0], 'x': [0.5]})", "thing.loc[len(thing)] = [n, n * 0.5]", "thing.values.tolist()", _PD, "pandas"),
    Thing("pd.DataFrame-empty", "pd.DataFrame(columns=['n', 'x'])", "thing.loc[len(thing)] = [n, n * 0.5]", "thing.values.tolist()", _PD, "pandas"),
    Thing("pd.DataFrame-concat", "pd.DataFrame({'n': [0]})", "thing = pd.concat([thing, pd.DataFrame({'n': [n]})], ignore_index=True)", "thing.n.tolist()", _PD, "pandas"),
    Thing("pd.DataFrame-cell", "pd.DataFrame({'n': [0, 0, 0], 'x': ['a', 'b', 'c']})", "thing.at[n % 3, 'n'] += n + 1; thing.at[n % 3, 'x'] = str(n)", "thing.values.tolist()", _PD, "pandas"),
    Thing("pd.DataFrame-column", "pd.DataFrame({'n': [1, 2]})", "thing['c%d' % (n % 4)] = thing.n * n; thing['n'] += 1", "sorted(thing.to_dict('list').items())", _PD, "pandas"),
    Thing("pd.DataFrame-attrs", "pd.DataFrame({'n': [1, 2]})", "thing.attrs['n'] = thing.attrs.get('n', 0) + n + 1", "thing.attrs", _PD, "pandas"),
    Thing("pd.DataFrame-list", "[]", "thing.append(pd.DataFrame({'n': [n]}))", "[one.n.tolist() for one in thing]", _PD, "pandas"),
    Thing("pd.Series", "pd.Series([0.0, 0.0, 0.0])", "thing.iloc[n % 3] += n + 1", "thing.tolist()", _PD, "pandas"),
    Thing("pd.Series-text", "pd.Series(['a', 'b'])", "thing.iloc[n % 2] = thing.iloc[n % 2][-5:] + str(n)", "thing.tolist()", _PD, "pandas"),
    Thing("pd.Index", "pd.Index([0])", "thing = thing.append(pd.Index([n]))", "thing.tolist()", _PD, "pandas"),
    Thing("pd.MultiIndex", "pd.MultiIndex.from_tuples([(0, 'a')])", "thing = thing.append(pd.MultiIndex.from_tuples([(n, 'b')]))", "thing.tolist()", _PD, "pandas"),
    Thing("pd.Categorical", "pd.Categorical(['a', 'b', 'a'])", "thing[n % 3] = 'ab'[(thing.codes[n % 3] + 1) % 2]", "thing.tolist()", _PD, "pandas"),
    Thing("pd.Timestamp", "pd.Timestamp('2026-01-01', tz='UTC')", "thing = thing + pd.Timedelta(n + 1, 's')", "thing.isoformat()", _PD, "pandas"),
    Thing("pd.to_csv", "'table.csv'", "pd.DataFrame({'n': [n]}).to_csv(thing, mode='a', header=False)", "open(thing, 'a+').close() or open(thing).read()", _PD, "pandas"),
    Thing("pl.DataFrame", "pl.DataFrame({'n': [0]})", "thing = thing.vstack(pl.DataFrame({'n': [n]}))", "thing['n'].to_list()", _PL, "polars"),
    Thing("pl.DataFrame-in-place", "pl.DataFrame({'n': [0]})", "thing.extend(pl.DataFrame({'n': [n]}))", "thing['n'].to_list()", _PL, "polars"),
    Thing("pl.Series", "pl.Series('n', [0, 0, 0])", "thing[n % 3] = thing[n % 3] + n + 1", "thing.to_list()", _PL, "polars"),
    Thing("pl.LazyFrame", "pl.LazyFrame({'n': [1, 2]})", "thing = thing.with_columns(pl.col('n') + n)", "thing.collect()['n'].to_list()", _PL, "polars"),
    Thing("pa.Table", "pa.table({'n': [0]})", "thing = pa.concat_tables([thing, pa.table({'n': [n]})])", "thing['n'].to_pylist()", "import pyarrow as pa", "pyarrow"),
    Thing("pa.BufferOutputStream", "pa.BufferOutputStream()", "thing.write(b'%d ' % n)", "thing.tell()", "import pyarrow as pa", "pyarrow"),
    # scipy
    Thing("scipy.csr_array", "scipy.sparse.csr_array((4, 4))", "thing = thing + scipy.sparse.csr_array(([n + 1.0], ([n % 4], [1])), (4, 4))", "thing.toarray().tolist()", _SP, "scipy"),
    Thing("scipy.csr-data", "scipy.sparse.csr_matrix(np.eye(4))", "thing.data[n % 4] += n + 1", "thing.toarray().tolist()", _SP, "scipy"),
    Thing("scipy.lil_matrix", "scipy.sparse.lil_matrix((4, 4))", "thing[n % 4, 1] += n + 1", "thing.toarray().tolist()", _SP, "scipy"),
    Thing("scipy.dok_matrix", "scipy.sparse.dok_matrix((4, 4))", "thing[n % 4, 1] += n + 1", "thing.toarray().tolist()", _SP, "scipy"),
    Thing("scipy.coo_array", "scipy.sparse.coo_array(np.eye(3))", "thing.data[n % 3] += n + 1", "thing.toarray().tolist()", _SP, "scipy"),
    Thing("scipy.stats.frozen", "[scipy.stats.norm(), 0.0]", "thing[1] += float(thing[0].rvs(random_state=n)) + n", "thing[1]", "import scipy.stats", "scipy"),
    Thing("scipy.stats.random_state", "[scipy.stats.norm(), 0.0]", "thing[0].random_state = thing[0].random_state or 3; thing[1] += float(thing[0].rvs()) * (n + 1)", "thing[1]", "import scipy.stats", "scipy"),
    Thing("scipy.qmc.Sobol", "scipy.stats.qmc.Sobol(2, seed=3)", "thing.random(2)", "thing.num_generated", "import scipy.stats", "scipy"),
    Thing("scipy.qmc.Halton-drawn", "[scipy.stats.qmc.Halton(2, seed=3), 0.0]", "thing[1] += float(thing[0].random(1)[0, 0]) * (n + 1)", "thing[1]", "import scipy.stats", "scipy"),
    Thing("scipy.integrate.RK45", "scipy.integrate.RK45(growth, 0.0, [1.0], 1e9)", "thing.step()", "[thing.t, thing.y.tolist()]", "import scipy.integrate\ndef growth(t, y):\n    return -0.1 * y\n", "scipy"),
    Thing("scipy.CubicSpline", "scipy.interpolate.CubicSpline([0, 1, 2], [0, 1, 0])", "thing.c[n % 4, 0] += n + 1", "thing.c.tolist()", "import scipy.interpolate", "scipy"),
    Thing("scipy.Rotation", "scipy.spatial.transform.Rotation.identity()", "thing = thing * scipy.spatial.transform.Rotation.from_euler('x', n + 1, degrees=True)", "thing.as_quat().tolist()", "import scipy.spatial.transform", "scipy"),
    # scikit-learn
    Thing("sklearn.StandardScaler", "sklearn.preprocessing.StandardScaler()", f"thing.partial_fit({_ROW})", "thing.mean_.tolist() if hasattr(thing, 'mean_') else 0", "import sklearn.preprocessing", "sklearn"),
    Thing("sklearn.SGDRegressor", "sklearn.linear_model.SGDRegressor(random_state=3)", f"thing.partial_fit({_ROW}, [n % 7])", "thing.coef_.tolist() if hasattr(thing, 'coef_') else 0", "import sklearn.linear_model", "sklearn"),
    Thing("sklearn.SGDClassifier-rng", "sklearn.linear_model.SGDClassifier(random_state=np.random.RandomState(3))", f"thing.partial_fit({_ROW}, [n % 2], [0, 1])", "thing.coef_.tolist() if hasattr(thing, 'coef_') else 0", "import sklearn.linear_model", "sklearn"),
    Thing("sklearn.GaussianNB", "sklearn.naive_bayes.GaussianNB()", f"thing.partial_fit({_ROW}, [n % 2], [0, 1])", "thing.theta_.tolist() if hasattr(thing, 'theta_') else 0", "import sklearn.naive_bayes", "sklearn"),
    Thing("sklearn.MLPRegressor", "sklearn.neural_network.MLPRegressor(hidden_layer_sizes=(2,), random_state=3)", f"thing.partial_fit({_ROW}, [n % 7])", "thing.coefs_[0].tolist() if hasattr(thing, 'coefs_') else 0", "import sklearn.neural_network", "sklearn"),
    Thing("sklearn.LabelEncoder", "sklearn.preprocessing.LabelEncoder()", "thing.fit([*getattr(thing, 'classes_', [])[-4:], n])", "[int(one) for one in getattr(thing, 'classes_', [])]", "import sklearn.preprocessing", "sklearn"),
    Thing("sklearn.IsotonicRegression", "sklearn.isotonic.IsotonicRegression()", "thing.fit([0, 1, 2], [n, 1, getattr(thing, 'X_min_', 0) + n])", "thing.predict([0.5]).tolist() if hasattr(thing, 'X_min_') else 0", "import sklearn.isotonic", "sklearn"),
    Thing("sklearn.DecisionTree", "sklearn.tree.DecisionTreeRegressor(random_state=3)", "thing.fit(np.arange(6.0).reshape(3, 2), [n % 5, n % 3, 1.0])", "thing.predict([[1.0, 1.0]]).tolist() if hasattr(thing, 'tree_') else 0", "import sklearn.tree", "sklearn"),
    Thing("sklearn.ShuffleSplit", "[sklearn.model_selection.ShuffleSplit(400, random_state=3).split(range(9)), 0]", "thing[1] = thing[1] * 2 + int(next(thing[0])[0][0])", "thing[1]", "import sklearn.model_selection", "sklearn"),
    # Images and files
    Thing("PIL.Image", "PIL.Image.new('L', (4, 4))", "thing.putpixel((n % 4, 1), (thing.getpixel((n % 4, 1)) + n + 1) % 256)", "thing.tobytes()", "import PIL.Image", "PIL"),
    Thing("PIL.Image-rebound", "PIL.Image.new('L', (4, 4), 7)", "thing = thing.point(lambda one: (one + n + 1) % 256)", "thing.tobytes()", "import PIL.Image", "PIL"),
    Thing("PIL.ImageDraw", "PIL.ImageDraw.Draw(PIL.Image.new('RGB', (4, 4)))", "thing.point((n % 4, 2), fill=(n % 256, len(set(thing._image.tobytes())), 3))", "thing._image.tobytes()", "import PIL.Image, PIL.ImageDraw", "PIL"),
    Thing("h5py.File-w", "resizable(h5py.File('rows.h5', 'w'))", "add(thing['rows'], n); thing.flush()", "thing['rows'][:].tolist()", f"import h5py\n{_H5}", "h5py"),
    Thing("h5py.File-a", "resizable(h5py.File('rows-a.h5', 'a'))", "add(thing['rows'], n); thing.flush()", "thing['rows'][:].tolist()", f"import h5py\n{_H5}", "h5py"),
    Thing("h5py.Dataset", "resizable(h5py.File('data.h5', 'w'))['rows']", "add(thing, n)", "thing[:].tolist()", f"import h5py\n{_H5}", "h5py"),
    Thing("h5py.memory", "resizable(h5py.File('memory.h5', 'w', driver='core', backing_store=False))", "add(thing['rows'], n)", "thing['rows'][:].tolist()", f"import h5py\n{_H5}", "h5py"),
    Thing("h5py.attrs", "h5py.File('attrs.h5', 'w').attrs", "thing['n'] = int(thing.get('n', 0)) + n + 1", "int(thing.get('n', 0))", "import h5py", "h5py"),
    # Records
    Thing("pydantic.BaseModel", "Record()", "thing.total += n + 1; thing.rows.append(n)", "[thing.total, thing.rows]", f"import pydantic\n{_PYDANTIC}", "pydantic"),
    Thing("pydantic-private", "Record()", "thing._hidden += n + 1", "thing._hidden", f"import pydantic\n{_PYDANTIC}", "pydantic"),
    Thing("pydantic-copied", "Record()", "thing = thing.model_copy(update={'total': thing.total + n + 1})", "thing.total", f"import pydantic\n{_PYDANTIC}", "pydantic"),
    Thing("pydantic.RootModel", "Whole([])", "thing.root.append(n)", "thing.root", f"import pydantic\n{_PYDANTIC_ROOT}", "pydantic"),
    Thing("attrs.define", "Slotted()", "thing.total += n + 1; thing.rows.append(n)", "[thing.total, thing.rows]", f"import attrs\n{_ATTRS}", "attrs"),
    Thing("attrs-no-slots", "Open()", "thing.total += n + 1; thing.rows.append(n)", "[thing.total, thing.rows]", f"import attrs\n{_ATTRS}", "attrs"),
    Thing("attrs.frozen", "Still()", "thing = attrs.evolve(thing, total=thing.total + n + 1)", "thing.total", f"import attrs\n{_ATTRS}", "attrs"),
    Thing("msgspec.Struct", "Struct()", "thing.total += n + 1; thing.rows.append(n)", "[thing.total, thing.rows]", f"import msgspec\n{_MSGSPEC}", "msgspec"),
    Thing("sortedcontainers.SortedList", "sortedcontainers.SortedList()", "thing.add(n * 7 % 11)", "list(thing)", "import sortedcontainers", "sortedcontainers"),
    Thing("networkx.Graph", "networkx.Graph()", "thing.add_edge(n, n + 1, weight=thing.number_of_edges() + n)", "sorted(map(repr, thing.edges.data()))", "import networkx", "networkx"),
    Thing("sympy.Expr", "sympy.Symbol('x')", "thing = sympy.Symbol('x') * (n + 1) + thing.subs('x', 2)", "str(thing)", "import sympy", "sympy"),
    Thing("multidict", "multidict.MultiDict()", "thing.add('n', str(n))", "list(thing.items())", "import multidict", "multidict"),
    Thing("wrapt.ObjectProxy", "wrapt.ObjectProxy([])", "thing.append(n)", "list(thing)", "import wrapt", "wrapt"),
    Thing("protobuf", "google.protobuf.struct_pb2.ListValue()", "thing.append(n)", "list(thing)", "import google.protobuf.struct_pb2", "google.protobuf"),
    Thing("xxhash", "xxhash.xxh64()", "thing.update(b'%d' % n)", "thing.hexdigest()", "import xxhash", "xxhash"),
    Thing("toolz.memoize", "remembered", "thing(n % 3).append(n)", "[thing(0), thing(1), thing(2)]", "import toolz\n@toolz.memoize\ndef remembered(key):\n    return []\n", "toolz"),
    Thing("ml_dtypes.bfloat16", "np.zeros(4, ml_dtypes.bfloat16)", "thing[n % 4] += n + 1", "thing.astype(float).tolist()", "import ml_dtypes", "ml_dtypes"),
    Thing("structlog", "structlog.get_logger().bind(n=0)", "thing = thing.bind(n=structlog.get_context(thing)['n'] + n + 1)", "structlog.get_context(thing)['n']", "import structlog", "structlog"),
    Thing("rich.Progress", "rich.progress.Progress(disable=True)", "thing.add_task('n', total=n) if not thing.tasks else thing.advance(0, n + 1)", "[one.completed for one in thing.tasks]", "import rich.progress", "rich"),
    Thing("optree", "optree.tree_map(abs, {'a': [0, -1]})", "thing = optree.tree_map(lambda one: one * 2 + n, thing)", "thing", "import optree", "optree"),
)  # fmt: skip
