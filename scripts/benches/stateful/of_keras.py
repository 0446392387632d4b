"""Stateful things of Keras that a script keeps beside the model that it trains, on any backend."""

from __future__ import annotations

from .things import Thing

_ARRAY = "def array_of(value):\n    return keras.ops.convert_to_numpy(value).ravel().tolist()\n"
_NET = (
    _ARRAY
    + """def other_net():
    net = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
    net.compile(keras.optimizers.SGD(0.01, momentum=0.5), "mse", jit_compile=False, run_eagerly=True)
    return net
"""
)
_OPTIMIZER = (
    _ARRAY
    + """def keras_stepped(name):
    value = keras.Variable(np.ones(2, "float32"))
    optimizer = keras.optimizers.get(name)
    optimizer.build([value])
    return [optimizer, value]
"""
)
_SCHEDULE = """class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self):
        self.calls = 0
    def __call__(self, step):
        self.calls += 1
        return 0.1 / self.calls
    def get_config(self):
        return {}
"""

_SCHEDULED = (
    _ARRAY
    + _SCHEDULE
    + """def with_schedule(wrapper=lambda optimizer: optimizer):
    value = keras.Variable(np.ones(2, "float32"))
    optimizer = wrapper(keras.optimizers.SGD(Schedule()))
    optimizer.build([value])
    return [optimizer, value]
"""
)

_COUNTING = """class Counting:
    def __init__(self):
        self.calls = 0
    def __call__(self, one, other=None, dtype=None):
        self.calls += 1
        return keras.ops.ones((2,)) * self.calls
"""
_REGULARIZED = """class Growing(keras.regularizers.Regularizer):
    def __init__(self):
        self.calls = 0
    def __call__(self, weights):
        self.calls += 1
        return keras.ops.sum(weights) * self.calls
def regularized():
    layer = keras.layers.Dense(1, kernel_regularizer=Growing())
    layer.build((None, 2))
    return layer
"""
_ACTIVATED = """def growing():
    calls = 0
    def function(values):
        nonlocal calls
        calls += 1
        return values * calls
    return function
def activated():
    layer = keras.layers.Dense(1, activation=growing())
    layer.build((None, 2))
    return layer
def lambda_layer():
    return keras.layers.Lambda(growing())
"""
_NOTED = """def noted():
    layer = keras.layers.Dense(1)
    layer.noted = 0
    return layer
"""

THINGS = (
    Thing("keras.Variable", "keras.Variable(np.zeros(3, 'float32'))", "thing.assign(keras.ops.convert_to_numpy(thing) * 0.5 + n)", "array_of(thing)", _ARRAY),
    Thing("keras.Variable-list", "[keras.Variable(0.0), keras.Variable(1.0)]", "thing[n % 2].assign(keras.ops.convert_to_numpy(thing[n % 2]) * 0.5 + n)", "[array_of(one) for one in thing]", _ARRAY),
    Thing("keras.Variable-late", "[]", "thing.append(keras.Variable(float(n))) if len(thing) < 3 else thing[1].assign(keras.ops.convert_to_numpy(thing[1]) * 0.5 + n)", "[array_of(one) for one in thing]", _ARRAY),
    Thing("keras.Variable-int", "keras.Variable(0, dtype='int32', trainable=False)", "thing.assign((keras.ops.convert_to_numpy(thing) * 2 + n) % 9999)", "array_of(thing)", _ARRAY),
    Thing("keras.tensor", "keras.ops.convert_to_tensor(np.zeros(2, 'float32'))", "thing = thing * 0.5 + n", "array_of(thing)", _ARRAY),
    Thing("keras.metrics.Mean", "keras.metrics.Mean()", "thing.update_state(float(n))", "float(thing.result())"),
    Thing("keras.metrics.AUC", "keras.metrics.AUC(num_thresholds=5)", "thing.update_state(np.array([n % 2]), np.array([n % 5 / 5]))", "float(thing.result())"),
    Thing("keras.random.SeedGenerator", "keras.random.SeedGenerator(3)", "thing.next()", "array_of(thing.state)", _ARRAY),
    Thing("keras.random.normal", "[keras.random.SeedGenerator(3), 0.0]", "thing[1] += float(keras.random.normal((), seed=thing[0])) * (n + 1)", "thing[1]"),
    Thing("keras.random-global", "[0.0]", "thing[0] += float(keras.random.normal(())) * (n + 1)", "thing"),
    Thing("keras.optimizers.SGD", "keras_stepped('sgd')", "thing[0].apply([keras.ops.convert_to_tensor(np.full(2, n, 'float32'))], [thing[1]])", "array_of(thing[1])", _OPTIMIZER),
    Thing("keras.optimizers.Adam", "keras_stepped('adam')", "thing[0].apply([keras.ops.convert_to_tensor(np.full(2, n + 1, 'float32'))], [thing[1]])", "array_of(thing[1])", _OPTIMIZER),
    Thing("keras.BatchNormalization", "(lambda layer: [layer, layer.build((None, 2))][0])(keras.layers.BatchNormalization(momentum=0.5))", "thing(np.full((2, 2), n, 'float32'), training=True)", "array_of(thing.moving_mean)", _ARRAY),
    Thing("keras.Dropout", "[keras.layers.Dropout(0.5, seed=3), 0.0]", "thing[1] += float(keras.ops.sum(thing[0](np.ones((2, 2), 'float32'), training=True))) * (n + 1)", "thing[1]"),
    Thing("keras.Model", "other_net()", "thing.train_on_batch(np.full((2, 2), n % 5, 'float32'), np.ones((2, 1), 'float32'))", "[array_of(one) for one in thing.get_weights()]", _NET),
    Thing("keras.Model-weights", "other_net()", "thing.set_weights([one * 0.5 + n for one in thing.get_weights()])", "[array_of(one) for one in thing.get_weights()]", _NET),
    Thing("keras.get_weights", "[[np.zeros(2), np.ones(1)]]", "thing[0] = [one * 0.5 + n for one in thing[0]]", "[one.tolist() for one in thing[0]]"),
    Thing("keras.schedule", "Schedule()", "thing(n)", "thing.calls", _SCHEDULE),
    Thing("keras.regularizer-of-layer", "regularized()", "thing(np.ones((1, 2), 'float32')); float(keras.ops.convert_to_numpy(thing.losses[0]))", "thing.kernel_regularizer.calls", _REGULARIZED),
    Thing("keras.activation-of-layer", "activated()", "thing(np.ones((1, 2), 'float32'))", "thing.activation.__closure__[0].cell_contents", _ACTIVATED),
    Thing("keras.function-of-Lambda", "lambda_layer()", "thing(np.ones((1, 2), 'float32'))", "thing.function.__closure__[0].cell_contents", _ACTIVATED),
    Thing("keras.function-of-metric", "keras.metrics.MeanMetricWrapper(Counting())", "thing.update_state(np.ones((1, 2)), np.full((1, 2), float(n)))", "(thing._fn.calls, float(thing.result()))", _COUNTING),
    Thing("keras.function-of-loss", "keras.losses.LossFunctionWrapper(Counting()) if hasattr(keras.losses, 'LossFunctionWrapper') else Counting()", "thing(np.ones((1, 2)), np.ones((1, 2)))", "getattr(thing, 'fn', thing).calls", _COUNTING),
    Thing("keras.function-of-callback", "keras.callbacks.LambdaCallback(on_epoch_end=Counting())", "thing.on_epoch_end(n, n)", "thing.on_epoch_end.calls", _COUNTING),
    Thing("keras.attribute-of-layer", "noted()", "thing.noted += n", "thing.noted", _NOTED),
    Thing("keras.initializer-of-layer", "keras.layers.Dense(1, kernel_initializer=Counting())", "thing.kernel_initializer(n, n)", "thing.kernel_initializer.calls", _COUNTING),
    Thing("keras.schedule-of-inner-optimizer", "with_schedule(keras.optimizers.LossScaleOptimizer)", "thing[0].apply([keras.ops.convert_to_tensor(np.full(2, n + 1, 'float32'))], [thing[1]])", "array_of(thing[1])", _SCHEDULED),
    Thing("keras.schedule-of-optimizer", "with_schedule()", "thing[0].apply([keras.ops.convert_to_tensor(np.full(2, n + 1, 'float32'))], [thing[1]])", "array_of(thing[1])", _SCHEDULED),
    Thing("keras.History", "keras.callbacks.History()", "thing.history.setdefault('n', []).append(n)", "thing.history"),
    Thing("keras.Progbar", "keras.utils.Progbar(None, verbose=0)", "thing.add(1, [('n', n)])", "thing._values"),
    Thing("keras.LambdaCallback", "keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs, rows=[]: rows.append(epoch))", "thing.on_epoch_end(n, None)", "thing.on_epoch_end.__defaults__[0]"),
    Thing("keras.Layer-own", "Counts()", "thing.count(n)", "thing.total", "class Counts(keras.layers.Layer):\n    def __init__(self):\n        super().__init__()\n        self.total = 0\n    def count(self, n):\n        self.total += n + 1\n    def call(self, x):\n        return x\n"),
)  # fmt: skip
