"""Stateful things of TensorFlow."""

from __future__ import annotations

from .things import Thing

_TF = "import tensorflow as tf"
_TABLE = f"""{_TF}
def entries(table):
    keys, values = table.export()
    return sorted(pair for pair in zip(keys.numpy().tolist(), values.numpy().tolist()) if pair[0] != -1)
"""
_COUNTED = f"""{_TF}
def counted_function():
    value = tf.Variable(0.0)
    @tf.function
    def step(n):
        value.assign(value * 0.5 + n)
        return value.read_value()
    step.value = value
    return step
"""
_MODULE = f"""{_TF}
class Module(tf.Module):
    def __init__(self):
        super().__init__()
        self.value = tf.Variable([0.0, 0.0])
        self.rows = []
"""
_RECORDS = f"""{_TF}
def records_in(path):
    return [one.numpy() for one in tf.data.TFRecordDataset(path)]
"""
_SUMMARY = f"""{_TF}
import glob
def log(writer, n):
    with writer.as_default(step=n):
        tf.summary.scalar("n", n)
    writer.flush()
def logged(writer):
    found = []
    for path in sorted(glob.glob("events/*")):
        for record in tf.data.TFRecordDataset(path):
            found += [one.step for one in [tf.compat.v1.Event.FromString(record.numpy())] if one.summary.value]
    return found
"""

_ALL = (
    Thing("tf.Variable", "tf.Variable([0.0, 0.0])", "thing.assign(thing * 0.5 + n)", "thing.numpy().tolist()", _TF),
    Thing("tf.Variable-list", "[tf.Variable(0.0), tf.Variable(1.0)]", "thing[n % 2].assign(thing[n % 2] * 0.5 + n)", "[float(one) for one in thing]", _TF),
    Thing("tf.Variable-dict", "{'a': tf.Variable(0.0)}", "thing['a'].assign_add(n + 1.0); thing.setdefault('b', tf.Variable(2.0)).assign_add(1.0)", "sorted((key, float(one)) for key, one in thing.items())", _TF),
    Thing("tf.Variable-text", "tf.Variable('a')", "thing.assign(tf.strings.join([tf.strings.substr(thing, 0, 9), str(n)]) if n % 4 else str(n))", "thing.numpy()", _TF),
    Thing("tf.Variable-bool", "tf.Variable([True, False])", "thing.assign([bool(thing.numpy()[1]), n % 2 == 0])", "thing.numpy().tolist()", _TF),
    Thing("tf.Variable-shape", "tf.Variable([0.0], shape=[None])", "thing.assign(tf.concat([thing[-4:], [float(n)]], 0))", "thing.numpy().tolist()", _TF),
    Thing("tf.Variable-bfloat16", "tf.Variable(tf.zeros(2, tf.bfloat16))", "thing.assign(thing * 0.5 + n)", "tf.cast(thing, tf.float32).numpy().tolist()", _TF),
    Thing("tf.Tensor", "tf.zeros(2)", "thing = thing * 0.5 + n", "thing.numpy().tolist()", _TF),
    Thing("tf.Tensor-text", "tf.constant(['a', 'b'])", "thing = tf.constant(['a', str(n) + thing.numpy()[1].decode()[:4]])", "thing.numpy().tolist()", _TF),
    Thing("tf.random.Generator", "tf.random.Generator.from_seed(3)", "thing.normal([])", "thing.state.numpy().tolist()", _TF),
    Thing("tf.random.Generator-philox", "[tf.random.Generator.from_seed(3, alg='philox'), 0.0]", "thing[1] += float(thing[0].normal([])) * (n + 1)", "thing[1]", _TF),
    Thing("tf.random.Generator-split", "tf.random.Generator.from_seed(3)", "thing.split(1 + n % 2)", "thing.state.numpy().tolist()", _TF),
    Thing("tf.random", "[0.0]", "thing[0] += float(tf.random.normal([])) * (n + 1)", "thing", _TF),
    Thing("tf.random-seeded-op", "[0.0]", "thing[0] += float(tf.random.normal([], seed=5)) * (n + 1)", "thing", _TF),
    Thing("tf.MutableHashTable", "tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)", "thing.insert([n % 4], thing.lookup([n % 4]) + n + 1)", "entries(thing)", _TABLE),
    Thing("tf.MutableHashTable-text", "tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)", "thing.insert([str(n % 4)], thing.lookup([str(n % 4)]) + n + 1)", "entries(thing)", _TABLE),
    Thing("tf.DenseHashTable", "tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, 0, -1, -2)", "thing.insert([n % 4], thing.lookup([n % 4]) + n + 1)", "entries(thing)", _TABLE),
    Thing("tf.StaticHashTable", "tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [2]), 0)", "thing = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [int(thing.lookup(tf.constant(1))) + n]), 0)", "int(thing.lookup(tf.constant(1)))", _TF),
    Thing("tf.TensorArray", "tf.TensorArray(tf.float32, 0, dynamic_size=True, clear_after_read=False)", "thing = thing.write(thing.size(), float(n))", "thing.stack().numpy().tolist()", _TF),
    Thing("tf.RaggedTensor", "tf.ragged.constant([[1.0]])", "thing = tf.concat([thing[-4:], tf.ragged.constant([[float(n)] * (n % 3)])], 0)", "thing.to_list()", _TF),
    Thing("tf.SparseTensor", "tf.sparse.from_dense([[0.0, 1.0]])", "thing = tf.sparse.add(thing, tf.sparse.from_dense([[n + 1.0, 0.0]]))", "tf.sparse.to_dense(thing).numpy().tolist()", _TF),
    Thing("tf.IndexedSlices", "tf.IndexedSlices(tf.zeros(2), tf.constant([0, 1]))", "thing = tf.IndexedSlices(thing.values * 0.5 + n, thing.indices)", "thing.values.numpy().tolist()", _TF),
    Thing("tf.queue.FIFOQueue", "tf.queue.FIFOQueue(999, tf.int32, ())", "thing.enqueue(n)", "int(thing.size())", _TF),
    Thing("tf.data-iterator", "[iter(tf.data.Dataset.range(999)), 0]", "thing[1] = thing[1] * 2 + int(next(thing[0]))", "thing[1]", _TF),
    Thing("tf.data-shuffled", "[iter(tf.data.Dataset.range(999).shuffle(50, seed=3)), 0]", "thing[1] = thing[1] * 2 + int(next(thing[0]))", "thing[1]", _TF),
    Thing("tf.data-repeat", "[iter(tf.data.Dataset.range(5).shuffle(5, seed=3).repeat()), 0]", "thing[1] = thing[1] * 2 + int(next(thing[0]))", "thing[1]", _TF),
    Thing("tf.data-generator", "[iter(tf.data.Dataset.from_generator(lambda: iter(range(99)), output_signature=tf.TensorSpec((), tf.int32))), 0]", "thing[1] = thing[1] * 2 + int(next(thing[0]))", "thing[1]", _TF),
    Thing("tf.Module", "Module()", "thing.value.assign(thing.value * 0.5 + n); thing.rows.append(n)", "[thing.value.numpy().tolist(), list(thing.rows)]", _MODULE),
    Thing("tf.function-variable", "counted_function()", "thing(tf.constant(float(n)))", "float(thing.value)", _COUNTED),
    Thing("tf.train.EMA", "(lambda value: [tf.train.ExponentialMovingAverage(0.5), value])(tf.Variable(1.0))", "thing[1].assign(thing[1] * 0.5 + n); thing[0].apply([thing[1]])", "float(thing[0].average(thing[1])) if thing[0].average(thing[1]) is not None else None", _TF),
    Thing("tf.train.Checkpoint", "tf.train.Checkpoint(value=tf.Variable(0.0))", "thing.value.assign(thing.value * 0.5 + n)", "float(thing.value)", _TF),
    Thing("tf.summary", "tf.summary.create_file_writer('events')", "log(thing, n)", "logged(thing)", _SUMMARY),
    Thing("tf.TFRecordWriter", "tf.io.TFRecordWriter('rows.tfrecord')", "thing.write(b'%d' % n); thing.flush()", "records_in('rows.tfrecord')", _RECORDS),
    Thing("tf.gfile", "tf.io.gfile.GFile('gfile.txt', 'w')", "thing.write('%d ' % n); thing.flush()", "open('gfile.txt', 'a+').close() or open('gfile.txt').read()", _TF),
    Thing("tf.CriticalSection", "[tf.CriticalSection(), tf.Variable(0.0)]", "thing[0].execute(lambda: thing[1].assign(thing[1] * 0.5 + n))", "float(thing[1])", _TF),
    Thing("tf.TensorShape", "tf.TensorShape([1])", "thing = tf.TensorShape([1, *thing.as_list()[-3:], n])", "thing.as_list()", _TF),
)  # fmt: skip

THINGS = tuple(one._replace(needs="tensorflow") for one in _ALL)
