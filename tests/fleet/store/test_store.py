"""Stores keep their promises, and the probe finds one that does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallguard.fleet.store import StoreError
from stallguard.fleet.store.opening import open_store

ROOT = Path(__file__).parents[3]


def test_a_creation_that_is_repeated_finds_its_own_data(url):
    store = open_store(url)
    assert store.create("jobs/a/log/1", b"mine")
    assert store.create("jobs/a/log/1", b"mine")
    assert not store.create("jobs/a/log/1", b"another's")
    assert store.read("jobs/a/log/1") == b"mine"


def test_a_listing_shows_which_keys_were_replaced(url):
    store = open_store(url)
    assert store.versions("beats") == {}
    store.replace("beats/a@1", b"1")
    store.replace("beats/b@1", b"1")
    first = store.versions("beats")
    assert set(first) == {"a@1", "b@1"}
    assert store.versions("beats") == first
    store.replace("beats/a@1", b"2")
    store.remove("beats/b@1")
    second = store.versions("beats")
    assert set(second) == {"a@1"}
    assert second["a@1"] != first["a@1"]


def test_a_server_that_is_away_is_an_error(bucket, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StoreError):
        open_store(bucket).read("jobs/a/log/1")
