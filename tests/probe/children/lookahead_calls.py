"""What happens around one call of the train function that somebody looks into; prints one line of JSON.

lookahead_calls.py CASE...
"""

import json
import sys
from importlib import import_module

import keras
import numpy as np

probe = sys.modules["_stallguard_probe"].probe
lookahead = import_module("_stallguard_probe.lookahead").Lookahead(probe.context)
x = np.random.RandomState(0).rand(70, 4).astype("float32")
y = x.sum(1, keepdims=True)


def network(**options):
    """Return a compiled model with its train function made."""
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(**{"optimizer": "sgd", "loss": "mse", **options})
    model.make_train_function()
    return model


def batches():
    """Return an iterator of seven batches."""
    import tensorflow as tf

    return iter(tf.data.Dataset.from_tensor_slices((x, y)).batch(10))


def weights(model):
    return [np.asarray(value).tolist() for value in model.get_weights()]


def drained(model, iterator):
    """Call the train function until the data end; return the weights and the calls that trained."""
    calls = 0
    while True:
        try:
            model.train_function(iterator)
        except Exception as end:
            if type(end).__name__ not in ("StopIteration", "OutOfRangeError"):
                raise
            return [weights(model), calls]
        calls += 1


def refuses_to_feed():
    """A torch loop draws by itself what it hands over: nothing can be fed to it."""
    model = network()
    before = dict(vars(model))
    return [lookahead.feed(model, [(x, y)]), vars(model)["train_function"] is before["train_function"]]


def fed(count, **options):
    """Draw `count` batches, feed them, and train all; beside a training of all from the iterator."""
    plain = drained(network(**options), batches())
    model, iterator = network(**options), batches()
    taken = lookahead.feed(model, [next(iterator) for _ in range(count)])
    return [taken, plain, drained(model, iterator)]


def twice():
    """Two looks at one call, and none at the next."""
    model, iterator, seen = network(), batches(), []
    for name in ("one", "other"):
        lookahead.arrange(model, lambda found, name=name: seen.append([name, len(found), found[0][0].shape[0]]))
    original = lookahead_of(model)
    model.train_function(iterator)
    back = vars(model)["train_function"] is original
    model.train_function(iterator)
    return {"seen": seen, "back": back}


def lookahead_of(model):
    """Return the function that the stand-in will put back."""
    return vars(model)["train_function"].original


def end_of_data():
    """A look at the call in which the data end sees nothing, and the end is seen as ever."""
    model, iterator, seen = network(), batches(), []
    for _ in range(7):
        model.train_function(iterator)
    lookahead.arrange(model, lambda found: seen.append(len(found)))
    return [drained(model, iterator)[1], seen]


def look_raises():
    """A look that fails is reported; the batch is trained."""
    plain = drained(network(), batches())
    model, before = network(), probe.patches.surprises
    lookahead.arrange(model, lambda _: 1 / 0)
    return [plain, drained(model, batches()), probe.patches.surprises - before]


class Wanted(Exception):
    """What the owner of the look lets pass."""


def look_passes():
    """What is named in `passes` leaves the fit."""
    model = network()

    class Arrange(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            lookahead.arrange(model, raising)

    def raising(_):
        raise Wanted

    lookahead.passes = (Wanted,)
    before = probe.patches.surprises
    try:
        model.fit(x, y, verbose=0, callbacks=[Arrange()])
    except Wanted:
        return {
            "raised": True,
            "updates": int(model.optimizer.iterations),
            "surprises": probe.patches.surprises - before,
        }
    finally:
        lookahead.passes = ()


def refused():
    """No train function yet, or a strategy that hands the batches out: nothing is changed."""
    import tensorflow as tf

    early = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    early.compile("sgd", "mse")
    with tf.distribute.MirroredStrategy(["cpu:0"]).scope():
        spread = network()
    found = []
    for model in (early, spread, object.__new__(type("Other", (), {}))):
        before = dict(vars(model))
        found.append(lookahead.arrange(model, print) or lookahead.feed(model, []) or dict(vars(model)) != before)
    return found


def strange_data():
    """A train function that is called with something unknown does what it does."""
    model, seen = network(), []
    lookahead.arrange(model, lambda found: seen.append(len(found)))
    model.train_function(((x[:10], y[:10]),))
    return [int(model.optimizer.iterations), seen]


def no_graph():
    """What draws in a graph fails; beside a training that nothing looks into."""
    module, context = import_module("_stallguard_probe.lookahead"), probe.context
    plain = drained(network(), batches())

    def fails(train):
        raise ValueError("an empty cell")

    surprises, usual, model, seen = [], module._graph_in, network(), []
    report, context.surprise = context.surprise, lambda what, error: surprises.append(str(error))
    module._graph_in = fails
    try:
        lookahead.arrange(model, lambda found: seen.append(len(found)))
        return [plain, drained(model, batches()), seen, surprises]
    finally:
        module._graph_in, context.surprise = usual, report


CASES = {
    "fed": lambda: fed(2),
    "fed_strides": lambda: fed(4, steps_per_execution=3),
    "refuses_to_feed": refuses_to_feed,
    "twice": twice,
    "end_of_data": end_of_data,
    "look_raises": look_raises,
    "look_passes": look_passes,
    "refused": refused,
    "strange_data": strange_data,
    "no_graph": no_graph,
}

if __name__ == "__main__":
    print(json.dumps({name: CASES[name]() for name in sys.argv[1:]}))
