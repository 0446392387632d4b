"""Trains while it writes files in many ways, and prints nothing: the files are compared.

    files.py WAY...

KILL="fit,epoch,batch" ends the process there.
"""

# ruff: noqa: PTH123, PTH110, SIM115 - what scripts do

import csv
import gzip
import json
import os
import signal
import sqlite3
import subprocess
import sys

import h5py
import keras
import numpy as np

keras.utils.set_random_seed(1)
x = np.random.RandomState(0).rand(24, 4).astype("float32")
WAYS = {}


def way(make):
    """Register a function that opens what it needs before the fit, and returns what a batch calls."""
    WAYS[make.__name__] = make
    return make


@way
def descriptor():
    """os.open before the fit."""
    number = os.open("descriptor.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    return lambda line: os.write(number, line.encode())


@way
def descriptor_anew():
    """os.open before the fit, of a file that it empties."""
    number = os.open("descriptor_anew.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    return lambda line: os.write(number, line.encode())


@way
def descriptor_of_batch():
    """os.open in each batch."""

    def write(line):
        number = os.open("descriptor_of_batch.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(number, line.encode())
        os.close(number)

    return write


@way
def rows():
    """A csv.writer, whose file nothing else holds."""
    writer = csv.writer(open("rows.csv", "w", newline=""))
    return lambda line: writer.writerow([line])


@way
def method():
    """No more than the method `write` of a file."""
    return open("method.txt", "a").write


@way
def held():
    """A file that the first batch opens; what a batch writes stays in its buffer."""
    method = None

    def write(line):
        nonlocal method
        method = method or open("held.txt", "a").write
        method(line)

    return write


@way
def file_of_epoch():
    """A new file for each epoch."""

    def write(line):
        with open(f"file_of_epoch_{line.split()[0]}.txt", "a") as file:
            file.write(line)

    return write


@way
def gzip_of_batch():
    """Another member of a gzip file for each batch."""

    def write(line):
        with gzip.GzipFile("gzip_of_batch.gz", "ab", mtime=0) as file:
            file.write(line.encode())

    return write


@way
def anew():
    """A file that each batch writes anew."""
    lines = []

    def write(line):
        lines.append(line)
        np.save("anew.npy", np.array([len(line) for line in lines]))

    return write


@way
def database():
    """Rows of a database that is open all the time."""
    connection = sqlite3.connect("database.db")
    connection.execute("create table if not exists rows (line text)")

    def write(line):
        connection.execute("insert into rows values (?)", (line,))
        connection.commit()

    return write


@way
def database_of_batch():
    """Rows of a database that each batch opens."""

    def write(line):
        connection = sqlite3.connect("database_of_batch.db")
        connection.execute("create table if not exists rows (line text)")
        connection.execute("insert into rows values (?)", (line,))
        connection.commit()
        connection.close()

    return write


@way
def hdf5():
    """A data set that grows."""
    file = h5py.File("hdf5.h5", "a")
    data = file.require_dataset("rows", (0,), "f4", maxshape=(None,), exact=False)

    def write(line):
        data.resize((data.shape[0] + 1,))
        file.flush()

    return write


@way
def hdf5_of_batch():
    """A data set that grows, in a file that each batch opens."""

    def write(line):
        with h5py.File("hdf5_of_batch.h5", "a") as file:
            file.require_group("rows").create_group(str(len(file["rows"])))

    return write


@way
def in_place():
    """A number that is counted up in a file."""
    with open("in_place.bin", "wb") as file:
        file.write(bytes(4))

    def write(line):
        with open("in_place.bin", "r+b") as file:
            count = file.read(1)[0]
            file.seek(0)
            file.write(bytes([count + 1]))

    return write


@way
def reread():
    """A list that is read, extended and written."""

    def write(line):
        lines = json.load(open("reread.json")) if os.path.exists("reread.json") else []
        with open("reread.json", "w") as file:
            json.dump([*lines, line], file)

    return write


@way
def gzip_stream():
    """A gzip file that is open all the time."""
    file = gzip.open("gzip_stream.gz", "at")

    def write(line):
        file.write(line)
        file.flush()

    return write


@way
def shared():
    """A log that another process writes to as well."""
    file = open("shared.txt", "a")

    def write(line):
        file.write(line)
        file.flush()
        subprocess.run(["sh", "-c", "echo another >> shared.txt"], check=True)

    return write


class Writes(keras.callbacks.Callback):
    """Writes a line for each batch in each way."""

    def __init__(self, writes):
        super().__init__()
        self.epoch, self.writes = 0, writes

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        for write in self.writes:
            write(f"{self.epoch} {batch} {logs['loss']!r}\n")
        if os.environ.get("KILL") == f"0,{self.epoch},{batch}":
            os.kill(os.getpid(), signal.SIGKILL)


writes = [WAYS[name]() for name in sys.argv[1:]]
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, x.sum(1), 4, epochs=4, verbose=0, callbacks=[Writes(writes)])
