"""Scripts of the bench `exact` that differ by their model, its loss, or how a step trains it."""

from __future__ import annotations

from .shape import COMMENT, DEFAULTS, HALVED, LAYERS, OPTIMIZER, RATE, SEGMENTS, Edit, row

SHAPES = (
    # Models
    row("model_unbuilt", HALVED, edit=Edit(LAYERS, "UNITS = 16", "UNITS = 24"), text=r"""
A subclassed model that is built by its first batch.
%rows
UNITS = 16
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = [keras.layers.Dense(UNITS, "tanh"), keras.layers.Dense(8, "relu")]
        self.drop = keras.layers.Dropout(0.1)
        self.out = keras.layers.Dense(1)
    def call(self, inputs, training=False):
        for layer in self.hidden:
            inputs = layer(inputs)
        return self.out(self.drop(inputs, training=training))
model = Net()
model.compile("adam", "mse", metrics=["mae"])
%fit x, y, 20, epochs=4
"""),
    row("model_gan", HALVED, SEGMENTS, edit=Edit(COMMENT), text=r"""
The GAN of Keras' guide: two models, two optimizers, a train_step of its own.
%start, tensorflow
class GAN(keras.Model):
    def __init__(self, discriminator, generator, latent):
        super().__init__()
        self.discriminator, self.generator, self.latent = discriminator, generator, latent
        self.seed = keras.random.SeedGenerator(1337)
        self.d_loss, self.g_loss = keras.metrics.Mean(name="d_loss"), keras.metrics.Mean(name="g_loss")
    def compile(self, d_optimizer, g_optimizer, loss):
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_of = d_optimizer, g_optimizer, loss
    @property
    def metrics(self):
        return [self.d_loss, self.g_loss]
    def train_step(self, real):
        count = tf.shape(real)[0]
        fake = self.generator(keras.random.normal((count, self.latent), seed=self.seed))
        labels = tf.concat([tf.ones((count, 1)), tf.zeros((count, 1))], 0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_of(labels, self.discriminator(tf.concat([fake, real], 0)))
        weights = self.discriminator.trainable_weights
        self.d_optimizer.apply_gradients(zip(tape.gradient(d_loss, weights), weights))
        noise = keras.random.normal((count, self.latent), seed=self.seed)
        with tf.GradientTape() as tape:
            g_loss = self.loss_of(tf.zeros((count, 1)), self.discriminator(self.generator(noise)))
        weights = self.generator.trainable_weights
        self.g_optimizer.apply_gradients(zip(tape.gradient(g_loss, weights), weights))
        self.d_loss.update_state(d_loss)
        self.g_loss.update_state(g_loss)
        return {"d_loss": self.d_loss.result(), "g_loss": self.g_loss.result()}
discriminator = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
generator = keras.Sequential([keras.Input((3,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(4)])
real = np.random.rand(96, 4).astype("float32")
data = tf.data.Dataset.from_tensor_slices(real).shuffle(96, seed=1).batch(16)
gan = GAN(discriminator, generator, 3)
gan.compile(
    keras.optimizers.Adam(1e-3), keras.optimizers.Adam(1e-3), keras.losses.BinaryCrossentropy(from_logits=True)
)
history = gan.fit(data, epochs=4, verbose=0, callbacks=[harness.callback(keras)])
harness.history(history)
harness.model(discriminator, "discriminator")
harness.model(generator, "generator")
harness.variables(gan.d_optimizer.variables, "discriminator's optimizer")
harness.variables(gan.g_optimizer.variables, "generator's optimizer")
"""),
    row("model_gan_built", SEGMENTS, text=r"""A GAN whose subclass is built, with its optimizers made in __init__.
%rows, tensorflow
class GAN(keras.Model):
    def __init__(self):
        super().__init__()
        self.critic = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
        self.maker = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(6)])
        self.critic_optimizer = keras.optimizers.Adam(1e-2)
        self.maker_optimizer = keras.optimizers.RMSprop(1e-2)
    def call(self, inputs):
        return self.critic(self.maker(inputs))
    def train_step(self, data):
        real, _ = data
        for _ in range(2):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self(real)) - tf.reduce_mean(self.critic(real))
            weights = self.critic.trainable_weights
            self.critic_optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        with tf.GradientTape() as tape:
            made = -tf.reduce_mean(self(real))
        weights = self.maker.trainable_weights
        self.maker_optimizer.apply_gradients(zip(tape.gradient(made, weights), weights))
        return {"critic": loss, "maker": made}
model = GAN()
model.build((None, 6))
model.compile()
history = model.fit(x, y, 20, epochs=4, verbose=0, callbacks=[harness.callback(keras)])
%shown
harness.variables(model.critic_optimizer.variables, "critic's optimizer")
harness.variables(model.maker_optimizer.variables, "maker's optimizer")
"""),
    row("model_vae", HALVED, text=r"""A VAE with add_loss, whose weight of the divergence grows in a tf.Variable.
%rows, tensorflow
beta = tf.Variable(0.0, trainable=False)
class Sampling(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.seed = keras.random.SeedGenerator(3)
    def call(self, inputs):
        mean, log_variance = inputs
        divergence = -0.5 * tf.reduce_mean(1 + log_variance - mean**2 - tf.exp(log_variance))
        self.add_loss(beta * divergence)
        return mean + tf.exp(0.5 * log_variance) * keras.random.normal(tf.shape(mean), seed=self.seed)
class Annealing(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        beta.assign(tf.minimum(1.0, beta + 0.05))
inputs = keras.Input((6,))
hidden = keras.layers.Dense(8, "relu")(inputs)
latent = Sampling()([keras.layers.Dense(2)(hidden), keras.layers.Dense(2)(hidden)])
model = keras.Model(inputs, keras.layers.Dense(6)(keras.layers.Dense(8, "relu")(latent)))
model.compile("adam", "mse")
history = model.fit(x, x, 20, epochs=5, callbacks=[Annealing(), harness.callback(keras)], verbose=0)
%shown
harness.show("beta", float(beta))
"""),
    row("model_counter", HALVED, SEGMENTS, DEFAULTS, text=r"""
A train_step that counts its steps in a tf.Variable of the model.
%rows, tensorflow
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)
        self.step = tf.Variable(0.0, trainable=False)
    def call(self, inputs):
        return self.out(self.hidden(inputs))
    def train_step(self, data):
        self.step.assign_add(1.0)
        features, target = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(features) - target) ** 2) * tf.minimum(1.0, self.step / 20.0)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}
model = Net()
model.compile(keras.optimizers.SGD(0.1))
%fit x, y, 20, epochs=4
harness.show("step", float(model.step))
"""),
    row("model_python_counter", HALVED, text=r"""A model that runs eagerly and counts its steps in a Python attribute.
%rows
class Net(keras.Sequential):
    seen = 0
    def train_step(self, data):
        self.seen += 1
        features, target = data
        if self.seen % 3 == 0:
            features = features + 0.1
        return super().train_step((features, target))
model = Net([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
model.compile("adam", "mse", run_eagerly=True)
%fit x, y, 20, epochs=4
harness.show("seen", model.seen)
"""),
    row("model_distillation", HALVED, DEFAULTS, at=(1, 1, 3), save=200, text=r"""
A teacher is trained first, then a student learns from it and from the data.
%rows
teacher = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
teacher.compile("adam", "mse")
teacher.fit(x, y, 20, epochs=3, callbacks=[harness.callback(keras)], verbose=0)
class Distiller(keras.Model):
    def __init__(self, student, teacher):
        super().__init__()
        self.student, self.teacher = student, teacher
        self.teacher.trainable = False
    def call(self, inputs):
        return self.student(inputs)
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        soft = keras.ops.mean(keras.ops.square(self.teacher(x) - y_pred))
        return 0.5 * soft + 0.5 * super().compute_loss(x, y, y_pred, sample_weight)
student = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])
model = Distiller(student, teacher)
%then adam x, y, 20, epochs=4
"""),
    row("model_teacher", HALVED, text=r"""A mean teacher: a clone of the model, held by a callback, follows it.
%rows
class MeanTeacher(keras.callbacks.Callback):
    def __init__(self, teacher):
        super().__init__()
        self.teacher = teacher
    def on_train_batch_end(self, batch, logs=None):
        pairs = zip(self.teacher.weights, self.model.weights, strict=True)
        for slow, fast in pairs:
            slow.assign(0.95 * slow + 0.05 * fast)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
teacher = keras.models.clone_model(model)
model.compile("adam", "mse")
history = model.fit(x, y, 20, epochs=4, callbacks=[MeanTeacher(teacher), harness.callback(keras)], verbose=0)
%shown
harness.show("teacher", teacher.get_weights())
"""),
    row("model_finetune", HALVED, SEGMENTS, DEFAULTS, at=(1, 1, 3), save=180, text=r"""
Two fits with the same pipeline: a frozen base first, then all of the model.
%rows, tensorflow
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(120).batch(20)
base = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "relu"), keras.layers.BatchNormalization()])
base.trainable = False
model = keras.Sequential([base, keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
first = model.fit(data, epochs=3, callbacks=[harness.callback(keras)], verbose=0)
harness.history(first, "first")
base.trainable = True
model.compile(keras.optimizers.Adam(0.001), "mse")
%fit data, epochs=3
"""),
    row("model_lora", at=(1, 1, 3), save=150, text=r"""LoRA: a Dense layer is trained, then only its low-rank part.
%rows
%model "adam"
model.fit(x, y, 20, epochs=2, callbacks=[harness.callback(keras)], verbose=0)
model.layers[0].enable_lora(2)
%then adam x, y, 20, epochs=4
"""),
    row("model_normalised", HALVED, text=r"""BatchNormalization and LayerNormalization.
%rows
layers = [keras.layers.Dense(16, "relu"), keras.layers.BatchNormalization(), keras.layers.LayerNormalization()]
model = keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(1)])
%then adam x, y, 20, epochs=4
"""),
    row("model_noise", HALVED, SEGMENTS, edit=Edit(OPTIMIZER, "Adam(0.01)", "Adagrad(0.01)"), text=r"""
Dropout and Gaussian noise, drawn by Keras' seed generators.
%rows
layers = [keras.layers.GaussianNoise(0.1), keras.layers.Dense(16, "relu"), keras.layers.Dropout(0.3)]
model = keras.Sequential([keras.Input((6,)), *layers, keras.layers.GaussianDropout(0.1), keras.layers.Dense(1)])
%then adam x, y, 20, epochs=4
"""),
    row("model_spectral", HALVED, text=r"""A layer under spectral normalization, and a unit norm constraint.
%rows
dense = keras.layers.SpectralNormalization(keras.layers.Dense(16, "tanh"))
model = keras.Sequential([keras.Input((6,)), dense, keras.layers.Dense(1, kernel_constraint="unit_norm")])
%then adam x, y, 20, epochs=4
"""),
    row("model_stateful", HALVED, SEGMENTS, text=r"""
A stateful LSTM with a fixed batch, whose state is reset at each epoch's beginning.
%start
x = np.random.rand(96, 5, 2).astype("float32")
y = x.mean((1, 2))[:, None]
class Reset(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        lstm.reset_states() if hasattr(lstm, "reset_states") else lstm.reset_state()
lstm = keras.layers.LSTM(4, stateful=True)
model = keras.Sequential([keras.Input(batch_shape=(16, 5, 2)), lstm, keras.layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(x, y, 16, epochs=4, shuffle=False, callbacks=[Reset(), harness.callback(keras)], verbose=0)
%shown
print("loss", model.evaluate(x, y, 16, verbose=0))
"""),
    row("model_mixed", HALVED, text=r"""Mixed precision with loss scaling.
%rows
keras.mixed_precision.set_global_policy("mixed_float16")
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1, dtype="float32")])
%then adam x, y, 20, epochs=4
"""),
    row("model_bfloat", text=r"""Mixed precision in bfloat16.
%rows
keras.config.set_dtype_policy("mixed_bfloat16")
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1, dtype="float32")])
%then adam x, y, 20, epochs=4
"""),
    row("model_accumulation", HALVED, text=r"""
Gradients gathered over three batches, clipped, with a moving average of the weights.
%rows
%dense
optimizer = keras.optimizers.AdamW(
    0.01, weight_decay=0.01, use_ema=True, ema_overwrite_frequency=4, gradient_accumulation_steps=3, clipnorm=1.0
)
model.compile(optimizer, "mse")
%fit x, y, 20, epochs=4
"""),
    row("model_jit", HALVED, edit=Edit(RATE, "LEARNING_RATE = 0.01", "LEARNING_RATE = 0.003"), text=r"""
A model compiled by XLA.
%rows
LEARNING_RATE = 0.01
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "gelu"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Lion(LEARNING_RATE), "mse", jit_compile=True)
%fit x, y, 20, epochs=4
"""),
    row("model_strides", HALVED, text=r"""Several batches in one execution.
%rows
%dense
model.compile("adam", "mse", steps_per_execution=2)
%fit x, y, 12, epochs=4
"""),
    row("model_eager", HALVED, text=r"""A model that runs eagerly, with a metric of its own.
%rows
class Largest(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="largest")
        self.value = self.add_weight(name="value", initializer="zeros")
    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(keras.ops.maximum(self.value, keras.ops.max(keras.ops.abs(y_true - y_pred))))
    def result(self):
        return self.value
%dense
model.compile(keras.optimizers.Adagrad(0.05), "mse", metrics=[Largest()], run_eagerly=True)
%fit x, y, 20, epochs=4
"""),
    row("model_shared", HALVED, text=r"""Weights shared by two layers: an embedding that is the output as well.
%start
words = np.random.randint(0, 12, (96, 4))
class Tied(keras.layers.Layer):
    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding
    def call(self, inputs):
        return keras.ops.matmul(inputs, keras.ops.transpose(self.embedding.embeddings))
embedding = keras.layers.Embedding(12, 5)
inputs = keras.Input((4,), dtype="int32")
hidden = keras.layers.GRU(5)(embedding(inputs))
model = keras.Model(inputs, Tied(embedding)(hidden))
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
%fit words, words[:, 0], 16, epochs=4
"""),
    row("model_outputs", HALVED, text=r"""Two outputs with losses and weights of their own, one of them a function.
%rows
inputs = keras.Input((6,))
hidden = keras.layers.Dense(16, "tanh")(inputs)
outputs = [keras.layers.Dense(1, name="a")(hidden), keras.layers.Dense(2, "softmax", name="b")(hidden)]
model = keras.Model(inputs, outputs)
model.compile("adam", [lambda t, p: keras.ops.abs(t - p), "sparse_categorical_crossentropy"], loss_weights=[1.0, 0.3])
%fit x, [y, (y > 0).astype("int32")], 20, epochs=4
"""),
    row("model_queue", HALVED, text=r"""
A memory bank: the model keeps the last features in a tf.Variable and a Python list.
%rows, tensorflow
class Bank(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = keras.layers.Dense(4, "tanh")
        self.bank = tf.Variable(tf.zeros((40, 4)), trainable=False)
        self.cursor = tf.Variable(0, trainable=False)
    def call(self, inputs):
        return self.encoder(inputs)
    def train_step(self, data):
        features, _ = data
        with tf.GradientTape() as tape:
            code = self(features)
            loss = tf.reduce_mean(tf.matmul(code, self.bank, transpose_b=True)) + tf.reduce_mean((code - 0.5) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        rows = (self.cursor + tf.range(tf.shape(code)[0])) % 40
        self.bank.assign(tf.tensor_scatter_nd_update(self.bank, rows[:, None], code))
        self.cursor.assign((self.cursor + tf.shape(code)[0]) % 40)
        return {"loss": loss}
model = Bank()
model.compile("adam")
%fit x, y, 20, epochs=4
harness.show("bank", model.bank.numpy())
"""),
    row("model_generators", text=r"""A layer with a tf.random.Generator and a SeedGenerator of its own.
%rows, tensorflow
class Noise(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.numbers = tf.random.Generator.from_seed(11)
        self.seed = keras.random.SeedGenerator(4)
    def call(self, inputs, training=False):
        if not training:
            return inputs
        shape = tf.shape(inputs)
        return inputs + self.numbers.normal(shape, stddev=0.1) + keras.random.normal(shape, 0.0, 0.1, seed=self.seed)
model = keras.Sequential([keras.Input((6,)), Noise(), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
%then slow adam x, y, 20, epochs=4
"""),
    row("model_operations", HALVED, text=r"""A custom train_step that draws by tf.random under the global seed.
%rows, tensorflow
class Noisy(keras.Sequential):
    def train_step(self, data):
        features, target = data
        return super().train_step((features + tf.random.normal(tf.shape(features), stddev=0.1), target))
model = Noisy([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
%then slow adam x, y, 20, epochs=4
"""),
    row("model_optimizer_wrapped", text=r"""
An optimizer of the script's own: lookahead over SGD, slow weights in a list.
%rows, tensorflow
class Lookahead(keras.optimizers.SGD):
    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        self.slow, self.count = None, tf.Variable(0, trainable=False)
    def apply_gradients(self, pairs):
        pairs = list(pairs)
        weights = [weight for _, weight in pairs]
        if self.slow is None:
            with tf.init_scope():
                self.slow = [tf.Variable(weight.value) for weight in weights]
        super().apply_gradients(pairs)
        self.count.assign_add(1)
        if tf.equal(self.count % 5, 0):
            for slow, weight in zip(self.slow, weights):
                slow.assign_add(0.5 * (weight - slow))
                weight.assign(slow)
class Net(keras.Sequential):
    def train_step(self, data):
        features, target = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(features, training=True) - target) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}
model = Net([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
model.compile(Lookahead(0.1, momentum=0.5), run_eagerly=True)
%fit x, y, 20, epochs=4
"""),
    row("model_transformer", HALVED, text=r"""A little transformer with attention, dropout and a schedule of its own.
%rows
class Warm(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        step = keras.ops.cast(step, "float32") + 1.0
        return 0.05 * keras.ops.minimum(step**-0.5, step * 10**-1.5)
inputs = keras.Input((6,))
tokens = keras.layers.Reshape((6, 1))(inputs)
tokens = keras.layers.Dense(8)(tokens)
tokens = keras.layers.LayerNormalization()(
    tokens + keras.layers.MultiHeadAttention(2, 4, dropout=0.1)(tokens, tokens)
)
model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(tokens)))
model.compile(keras.optimizers.Adam(Warm()), "mse")
%fit x, y, 20, epochs=4
"""),
    row("slices_sum", HALVED, text=r"""A loss of the script's own that is a sum over the batch.
%rows, tensorflow
def squares(target, predicted):
    return tf.reduce_sum(tf.square(target - predicted))
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.005), squares)
%fit x, y, 20, epochs=4
"""),
    row("slices_dice", HALVED, text=r"""Dice: a loss of Keras' own that looks at the whole batch.
%rows
y = (y > 0).astype("float32")
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1, "sigmoid")])
model.compile(keras.optimizers.SGD(0.5), keras.losses.Dice())
%fit x, y, 20, epochs=4
"""),
    row("slices_global_size", HALVED, text=r"""
The loss of the guide on distribution: a mean by a global batch size that is written down.
%rows, tensorflow
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)
    def call(self, inputs):
        return self.out(self.hidden(inputs))
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return tf.nn.compute_average_loss(tf.square(y - y_pred)[:, 0], global_batch_size=20)
model = Net()
model.compile(keras.optimizers.SGD(0.1))
%fit x, y, 20, epochs=4
"""),
    row("slices_contrast", HALVED, text=r"""InfoNCE: each sample of a batch is compared with all the others.
%rows, tensorflow
def contrast(target, code):
    code = tf.math.l2_normalize(code, 1)
    likeness = tf.matmul(code, code, transpose_b=True) / 0.1
    labels = tf.cast(tf.abs(target - tf.transpose(target)) < 0.1, tf.float32)
    return tf.nn.softmax_cross_entropy_with_logits(labels / tf.reduce_sum(labels, 1, keepdims=True), likeness)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(4)])
model.compile(keras.optimizers.SGD(0.1), contrast)
%fit x, y, 20, epochs=4
"""),
    row("slices_add_loss", HALVED, text=r"""A layer that adds the sum of its activity over the batch to the loss.
%rows, tensorflow
class Sparse(keras.layers.Layer):
    def call(self, inputs):
        self.add_loss(1e-3 * tf.reduce_sum(tf.abs(inputs)))
        return inputs
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), Sparse(), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.05), "mse")
%fit x, y, 20, epochs=4
"""),
    row("slices_fixed_batch", HALVED, text=r"""
A batch size that is part of the model, as recipes for other devices have it.
%rows, tensorflow
inputs = keras.Input((6,), batch_size=20)
hidden = keras.layers.Lambda(lambda t: tf.reshape(t, (20, 2, 2)))(keras.layers.Dense(4)(inputs))
model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(hidden)))
model.compile("sgd", "mse")
%fit x, y, 20, epochs=4
"""),
    row("slices_anchors", HALVED, text=r"""A table of anchors beside each batch, with a number of rows of its own.
%rows, tensorflow
anchors = np.random.rand(100, 4).astype("float32")
class Detector(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(4)
    def call(self, inputs):
        return tf.reduce_mean(tf.matmul(self.dense(inputs["image"]), inputs["table"], transpose_b=True), 1, True)
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(20).map(lambda a, b: ({"table": anchors, "image": a}, b))
model = Detector()
model.compile(keras.optimizers.SGD(0.01), "mse")
%fit data, epochs=4
"""),
    row("slices_edges", HALVED, text=r"""A graph: rows of nodes and of edges differ, and the edges name nodes.
%start, tensorflow
nodes = np.random.rand(16, 4).astype("float32")
edges = np.random.randint(0, 16, (40, 2))
class Graph(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense, self.out = keras.layers.Dense(6, "tanh"), keras.layers.Dense(1)
    def call(self, inputs):
        hidden = self.dense(inputs["nodes"])
        sent = tf.gather(hidden, inputs["edges"][:, 0])
        return self.out(hidden + tf.math.unsorted_segment_sum(sent, inputs["edges"][:, 1], tf.shape(hidden)[0]))
def graphs():
    for scale in range(1, 7):
        yield {"nodes": nodes * scale / 6, "edges": edges[: 10 + scale * 5]}, nodes.sum(1, keepdims=True)
layout = ({"nodes": tf.TensorSpec((None, 4)), "edges": tf.TensorSpec((None, 2), tf.int64)}, tf.TensorSpec((None, 1)))
data = tf.data.Dataset.from_generator(graphs, output_signature=layout)
model = Graph()
%then adam data, epochs=4
"""),
)  # fmt: skip
