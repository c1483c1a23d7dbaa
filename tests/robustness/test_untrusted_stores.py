"""Stores from a stranger, or from a failing disk: read, or refused in words; no code is run, no number made up."""

import json
import os
import pathlib
import pickle
import shutil

import numcodecs
import numpy as np
import pytest
from fuzzing import fuzz
from hypothesis import given
from hypothesis import strategies as st

import dimfree
from commands import call
from dimfree import InvalidInput
from dimfree.explorer import views
from dimfree.explorer.settings import Settings
from dimfree.studies.files import sealed
from dimfree.studies.opening import loaded

ARRAYS = "results.zarr"
STUDY = dimfree.Study(
    problem={"name": "PhaseRetrieval"},
    algorithm={"name": "OnlineSGD", "sphere": True},
    axes={"algorithm.learning_rate": {"from": 0.02, "to": 0.2, "points": 4}, "problem.noise": [0.0, 1.0, 2.0]},
    compute={"name": "solve", "alpha": 5.0, "overlap": 0.1},
    cells_per_task=4,
)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "store"
    STUDY.run(path, cluster="inline", progress=False)
    return path


@pytest.fixture
def store(good, tmp_path):
    return shutil.copytree(good, tmp_path / "store")


def read(store: pathlib.Path):
    return loaded(dimfree.open_study(store), store)


def edit(store: pathlib.Path, name: str, **changes) -> None:
    path = store / name
    data = json.loads(path.read_text())
    for place, value in changes.items():
        *outer, last = place.split("__")
        inner = data
        for part in outer:
            inner = inner[part]
        inner[last] = value
    # A stranger seals what they write.
    path.write_text(json.dumps(sealed(data) if "sha256" in data else data))


METADATA = {
    "smaller": {"shape": [2, 2]},
    "one axis": {"shape": [12]},
    "negative": {"shape": [-1, 3]},
    "words": {"shape": "many"},
    "huge": {"shape": [10**9, 10**9]},
    "beyond integers": {"shape": [10**30, 10**30]},
    "other chunks": {"chunk_grid__configuration__chunk_shape": [4, 3]},
    "huge chunks": {"chunk_grid__configuration__chunk_shape": [10**6, 10**6]},
    "empty chunks": {"chunk_grid__configuration__chunk_shape": [0, 0]},
    "strings": {"data_type": "string", "fill_value": ""},
    "objects": {"data_type": "object", "fill_value": None},
    "records": {"data_type": {"name": "struct", "configuration": {"fields": [["a", "<f8"]]}}},
    "complex": {"data_type": "complex64", "fill_value": [0, 0]},  # as many bytes as a float64: read as other numbers
    "times": {
        "data_type": {"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}},
        "fill_value": 0,
    },
    "integers": {"data_type": "int64", "fill_value": 0},
    "no codecs": {"codecs": []},
    "pickled": {"codecs": [{"name": "numcodecs.pickle", "configuration": {}}]},
    "imported codec": {"codecs": [{"name": "os.system", "configuration": {}}]},
    "no dimensions": {"dimension_names": None},
    "other dimensions": {"dimension_names": ["x", "y"]},
    "one dimension": {"dimension_names": ["x"]},
    "older format": {"zarr_format": 2},
    "a group": {"node_type": "group"},
}


@pytest.mark.parametrize("name", METADATA)
def test_an_array_that_is_not_the_study_s_is_refused(name, store):
    edit(store, f"{ARRAYS}/risk/zarr.json", **METADATA[name])
    with pytest.raises(InvalidInput, match=r"store .* is damaged"):
        dimfree.open_study(store)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"null", b"\xff\xfe", b'{"a": 1}', b"[" * 100_000])
@pytest.mark.parametrize("name", ["manifest.json", f"{ARRAYS}/risk/zarr.json"])
def test_what_is_no_metadata_is_refused(name, content, store):
    (store / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=r"damaged|not a store"):
        dimfree.open_study(store)


@pytest.mark.parametrize(
    "name",
    ["manifest.json", ARRAYS, f"{ARRAYS}/zarr.json", f"{ARRAYS}/risk", f"{ARRAYS}/risk/zarr.json", f"{ARRAYS}/status",
     f"{ARRAYS}/risk/c/1/0"],
)  # fmt: skip
def test_what_is_missing_is_said(name, store):
    shutil.rmtree(store / name) if (store / name).is_dir() else (store / name).unlink()
    with pytest.raises(InvalidInput, match=r"damaged|There is no study"):
        dimfree.open_study(store)


def test_a_lost_chunk_is_not_taken_for_done(store):
    (store / ARRAYS / "risk/c/1/0").unlink()
    with pytest.raises(InvalidInput, match=r"task 2: results.zarr/risk/c/1/0 is missing\n.*--repair"):
        STUDY.run(store, cluster="inline", progress=False)
    report = STUDY.run(store, cluster="inline", progress=False, repair=True)  # what the message says to do
    assert (report.complete, report.computed, report.repaired) == (True, 1, [2])
    assert np.isfinite(read(store).risk).all()


MANIFESTS = {
    "no study": {"study": 3},
    "accepted changes": {"accepted": 3},
    "malformed changes": {"accepted": [3]},
    "versions": {"made_by": 3},
    "another schema": {"schema": "other/1"},
    "other axes": {"study__axes": {"problem.noise": [0.0]}},
    "huge axes": {"study__axes": {"problem.noise": {"from": 0, "to": 1, "points": 10**9}}},
    "huge problem": {"study__problem": {"name": "PhaseRetrieval", "width": 10**13}},
    "a title of a book": {"study__title": "x" * 10_000},
    "no such problem": {"study__problem": {"name": "os.system"}},
    "other quantities": {"study__compute": {"name": "function", "function": "os:system", "quantities": ["echo"]}},
    "refined": {"study__refine": {"quantity": "risk"}, "study__axes": {"problem.noise": {"from": 0, "to": 1}}},
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_that_does_not_fit_is_refused(name, store):
    edit(store, "manifest.json", **MANIFESTS[name])
    with pytest.raises(InvalidInput):
        dimfree.open_study(store)


CHUNK = f"{ARRAYS}/risk/c/0/0"


CHUNKS = {
    "cut": lambda content: content[:-3],
    "empty": lambda content: b"",
    "garbage": lambda content: bytes(byte ^ 255 for byte in content),
    "doubled": lambda content: 2 * content,
    "of another size": lambda content: bytes(numcodecs.Zstd().encode(np.zeros(10**6))),
}


@pytest.mark.parametrize("name", CHUNKS)
def test_a_damaged_chunk_is_said_by_every_face(name, store):
    (store / CHUNK).write_bytes(CHUNKS[name]((store / CHUNK).read_bytes()))
    with pytest.raises(InvalidInput, match=r"task 0: results\.zarr/risk/c/0/0"):
        read(store)
    shown = call("study", "show", str(store), "--plot", str(store / "picture.png"))
    assert shown.exit_code == 2
    assert "task 0: results.zarr/risk/c/0/0" in shown.stderr
    with pytest.raises(InvalidInput, match="is damaged"):
        views._study(Settings(), {"store": str(store), "quantity": "", "level": ""})


def test_no_changed_byte_of_a_chunk_is_another_number(good, store):
    content, expected = (good / CHUNK).read_bytes(), read(good).risk.values
    for at in range(len(content)):
        for change in (1, 16, 128):
            (store / CHUNK).write_bytes(content[:at] + bytes([content[at] ^ change]) + content[at + 1 :])
            try:
                found = read(store).risk.values
            except InvalidInput:
                continue
            np.testing.assert_array_equal(found, expected)


@fuzz(60)
@given(
    st.sampled_from(["manifest.json", f"{ARRAYS}/zarr.json", f"{ARRAYS}/risk/zarr.json", f"{ARRAYS}/status/zarr.json"]),
    st.integers(0, 10_000),
    st.binary(min_size=1, max_size=3),
)
def test_any_edit_of_metadata_gives_the_numbers_or_words(good, tmp_path_factory, name, at, new):
    store = shutil.copytree(good, tmp_path_factory.mktemp("edited") / "store")
    content = (store / name).read_bytes()
    at %= len(content)
    (store / name).write_bytes(content[:at] + new + content[at + len(new) :])
    try:
        found = read(store)
    except InvalidInput:
        return
    np.testing.assert_array_equal(found.risk.values, read(good).risk.values)
    assert (found.status.values == 1).all()


def test_an_older_format_that_can_hold_pickles_is_not_read(store, tmp_path):
    class Stranger:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "it_ran"),)

    shutil.rmtree(store / ARRAYS)
    (store / ARRAYS / "risk").mkdir(parents=True)
    (store / ARRAYS / ".zgroup").write_text('{"zarr_format": 2}')
    metadata = {"shape": [1], "chunks": [1], "dtype": "|O", "filters": [{"id": "pickle"}], "compressor": None}
    metadata |= {"zarr_format": 2, "fill_value": None, "order": "C"}
    (store / ARRAYS / "risk/.zarray").write_text(json.dumps(metadata))
    (store / ARRAYS / "risk/.zattrs").write_text('{"_ARRAY_DIMENSIONS": ["x"]}')
    (store / ARRAYS / "risk/0").write_bytes(pickle.dumps(np.array([Stranger()], object)))
    with pytest.raises(InvalidInput):
        read(store)
    assert not (tmp_path / "it_ran").exists()


@pytest.mark.parametrize("title", [r"$\frac{$", "5 $ a piece", "$$", r"\input{/etc/passwd}", "<script>"])
def test_any_title_is_drawn(title, store, tmp_path):
    edit(store, "manifest.json", study__title=title)
    shown = call("study", "show", str(store), "--plot", str(tmp_path / "picture.png"))
    assert shown.exit_code == 0, shown.stderr


def test_names_that_are_no_tasks_are_not_counted(store):
    for name in ("x.json", "-1.json", "1e3.json", "²3.json"):
        (store / "done" / name).write_text("{}")
    assert dimfree.open_study(store).attrs["tasks_done"] == 4


def test_more_than_memory_holds_is_refused(store, monkeypatch):
    import psutil

    data = dimfree.open_study(store)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 100}))
    with pytest.raises(InvalidInput, match="memory are free"):
        loaded(data, store)
