"""A loop that counts its own batches; at AT it searches for a sample that does not exist."""

import time

import stallguard

AT, BATCHES, PACE = 80, 200, 0.05


def draw():
    return sum(range(2000))


def fits(sample):
    return sum(range(500)) > sample


def search():
    while True:
        sample = draw()
        if fits(sample):
            return sample


for batch in range(BATCHES):
    time.sleep(PACE)
    if batch == AT:
        search()
    stallguard.beat()
