"""A table of faults of stores: each is said in words, or changes nothing; no number is made up and none is lost."""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import sys
import tarfile
from collections.abc import Callable

import jax
import numpy as np
import pytest
from drivers import DRAW, HERE, arrays
from numcodecs.zstd import Zstd

import dimfree
from dimfree.studies import lock
from dimfree.studies.files import sealed

SMALL = {
    **DRAW,
    "axes": {
        "algorithm.learning_rate": {"from": 0.01, "to": 0.2, "points": 4},
        "problem.noise": {"from": 1.0, "to": 7.0, "points": 4, "scale": "log"},
    },
    "compute": {**DRAW["compute"], "settings": {}},
}
RATE, NOISE = SMALL["axes"]
ARRAYS = "results.zarr"


def run(store, study=SMALL, **options):
    return dimfree.Study(**study).run(store, cluster="inline", allow_code=True, progress=False, **options)


@pytest.fixture(scope="module", autouse=True)
def _functions():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HERE)
        yield


@pytest.fixture(scope="module")
def good(tmp_path_factory, _functions):
    path = tmp_path_factory.mktemp("good") / "store"
    assert run(path).computed == 4
    return path


@pytest.fixture(scope="module")
def expected(good):
    return numbers(good)


@pytest.fixture
def store(good, tmp_path):
    return shutil.copytree(good, tmp_path / "store")


# How files are damaged.

Damage = Callable[[pathlib.Path], object]


def removed(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def content(change: Callable[[bytes], bytes]) -> Damage:
    return lambda path: path.write_bytes(change(path.read_bytes()))


def instead(make: Damage) -> Damage:
    return lambda path: (removed(path), make(path))


def edited(*where, to) -> Damage:
    def damage(path):
        data = json.loads(path.read_text())
        inner = data
        for part in where[:-1]:
            inner = inner[part]
        inner[where[-1]] = to
        path.write_text(json.dumps(data))

    return damage


def flipped(at: int) -> Damage:
    return content(lambda old: old[:at] + bytes([old[at] ^ 1]) + old[at:][1:])


def swapped(one: str, other: str) -> Damage:
    def damage(store):
        (store / one).rename(store / "aside")
        (store / other).rename(store / one)
        (store / "aside").rename(store / other)

    return damage


BYTES = {
    "is missing": removed,
    "is cut": content(lambda old: old[:-3]),
    "is empty": content(lambda old: b""),
    "is written twice": content(lambda old: 2 * old),
    "has another first bit": flipped(0),
    "has another bit in the middle": flipped(12),
    "has another last bit": flipped(-1),
    "is zeros": content(lambda old: bytes(len(old))),
    "is still partial": lambda path: path.rename(path.with_name(f"{path.name}.{'0' * 32}.partial")),
    "is a pipe": instead(os.mkfifo),
    "is a link to nothing": instead(lambda path: path.symlink_to("nothing")),
    "is a device": instead(lambda path: path.symlink_to("/dev/zero")),
}
JSON = {
    "is missing": removed,
    "is cut": content(lambda old: old[:-3]),
    "is empty": content(lambda old: b""),
    "is a list": content(lambda old: b"[1]"),
    "is null": content(lambda old: b"null"),
    "is nested without end": content(lambda old: b"[" * 100_000),
    "is a pipe": instead(os.mkfifo),
}
METADATA = {
    "fill value": edited("fill_value", to=3.0),
    "names of chunks": edited("chunk_key_encoding", "configuration", "separator", to="."),
    "other names of chunks": edited("chunk_key_encoding", to={"name": "v2", "configuration": {"separator": "/"}}),
    "codec": edited("codecs", to=[{"name": "bytes", "configuration": {"endian": "little"}}]),
    "endianness": edited("codecs", 0, "configuration", "endian", to="big"),
    "imported codec": edited("codecs", to=[{"name": "os.system", "configuration": {}}]),
    "type": edited("data_type", to="int64"),
    "shape": edited("shape", to=[2, 2]),
    "huge shape": edited("shape", to=[10**12, 10**12]),
    "chunks": edited("chunk_grid", "configuration", "chunk_shape", to=[4, 1]),
    "dimensions": edited("dimension_names", to=[NOISE, RATE]),
    "format": edited("zarr_format", to=2),
}


@dataclasses.dataclass(frozen=True)
class Fault:
    """What is done to which file of a store, and what must come of it.

    - `outcome`: `repaired` (opening and running are refused, and `repair` gives the same bytes again), `refused` (also
      with `repair`), `missing` (a task counts as not done, and is computed again), `whole` (nothing changes).
    - `words`: of the refusal.
    """

    file: str
    damage: Damage
    outcome: str
    words: str = ""


FAULTS: dict[str, Fault] = {}
for array in ("mean", "status"):
    for name, damage in BYTES.items():
        FAULTS[f"chunk of {array} {name}"] = Fault(
            f"{ARRAYS}/{array}/c/0/1", damage, "repaired", rf"task 1: .*{array}/c/0/1"
        )
    FAULTS[f"all chunks of {array} are missing"] = Fault(
        f"{ARRAYS}/{array}/c", removed, "repaired", "task 3: .* is missing"
    )
for name, damage in METADATA.items():
    FAULTS[f"{name} of an array"] = Fault(f"{ARRAYS}/mean/zarr.json", damage, "repaired", "array mean: its ")
for name, damage in JSON.items():
    FAULTS[f"metadata of an array: file {name}"] = Fault(f"{ARRAYS}/mean/zarr.json", damage, "repaired", "array mean: ")
    FAULTS[f"record: file {name}"] = Fault(
        "done/2.json", damage, "missing" if damage is removed else "repaired", "task 2: .*2.json"
    )
    FAULTS[f"manifest: file {name}"] = Fault(
        "manifest.json", damage, "refused", "no study at|holds other files|not JSON|not a file|not a store|damaged"
    )
for name in ("is missing", "is cut", "is empty", "has another last bit", "is a pipe"):
    FAULTS[f"axis: file {name}"] = Fault(f"{ARRAYS}/{NOISE}/c/0", BYTES[name], "repaired", f"axis {NOISE}: its values")
FAULTS |= {
    "two chunks are exchanged": Fault(
        "",
        swapped(f"{ARRAYS}/mean/c/0/0", f"{ARRAYS}/mean/c/1/1"),
        "repaired",
        r"task [03]: .* bytes",
    ),
    "chunks of two arrays are exchanged": Fault(
        "", swapped(f"{ARRAYS}/mean/c/0/0", f"{ARRAYS}/largest/c/0/0"), "repaired", "task 0: "
    ),
    "two arrays are exchanged": Fault("", swapped(f"{ARRAYS}/mean", f"{ARRAYS}/largest"), "repaired", r"task \d: "),
    "axes are exchanged": Fault(
        "", swapped(f"{ARRAYS}/{RATE}/c", f"{ARRAYS}/{NOISE}/c"), "repaired", "not those of the study"
    ),
    "an axis has other metadata": Fault(
        f"{ARRAYS}/{RATE}/zarr.json", edited("shape", to=[3]), "repaired", f"axis {RATE}: its shape"
    ),
    "an axis has another type": Fault(
        f"{ARRAYS}/{RATE}/zarr.json", edited("data_type", to="int64"), "repaired", f"axis {RATE}: its "
    ),
    "all arrays are missing": Fault(ARRAYS, removed, "repaired", "zarr.json is missing"),
    "the group has no metadata": Fault(f"{ARRAYS}/zarr.json", removed, "repaired", "zarr.json is missing"),
    "a chunk and another task's record are missing": Fault(
        "",
        lambda store: (removed(store / "done/0.json"), removed(store / ARRAYS / "mean/c/1/1")),
        "repaired",
        "task 3: ",
    ),
    "a chunk is a directory": Fault(
        f"{ARRAYS}/mean/c/0/1", instead(lambda path: path.mkdir()), "refused", "task 1: .*missing|cannot be written"
    ),
    "a record is a directory": Fault("done/2.json", instead(lambda path: path.mkdir()), "refused", "task 2: |removed"),
    "two records are exchanged": Fault(
        "", swapped("done/0.json", "done/1.json"), "repaired", "task 0: .*not the record"
    ),
    "a record of no task": Fault(
        "done", lambda done: shutil.copy(done / "0.json", done / "99.json"), "repaired", "task 99: .*not the record"
    ),
    "a digest is edited": Fault(
        "done/2.json", edited("chunks", "mean", "sha256", to="0" * 64), "repaired", "task 2: .*not as it was written"
    ),
    "a size is edited": Fault("done/2.json", edited("chunks", "mean", "bytes", to=1), "repaired", "task 2: "),
    "a failure is made up": Fault("done/2.json", edited("failed", to={"9": "bad"}), "repaired", "task 2: "),
    "a record has another task": Fault("done/2.json", edited("task", to=1), "repaired", "task 2: .*not the record"),
    "a record lacks its digests": Fault(
        "done/2.json", lambda path: path.write_text(json.dumps(sealed({"task": 2}))), "repaired", "task 2: .*a digest"
    ),
    "a sealed record is malformed": Fault(
        "done/2.json",
        lambda path: path.write_text(
            json.dumps(sealed({"task": 2, "chunks": {"mean": 1, "largest": [], "status": 0}}))
        ),
        "repaired",
        "task 2: .*a digest",
    ),
    "a record is still partial": Fault(
        "done/2.json", lambda path: path.rename(path.with_name(f"2.json.{'0' * 32}.partial")), "missing"
    ),
    "all records are missing": Fault("done", removed, "missing"),
    "the study is edited": Fault(
        "manifest.json", edited("study", "seed", to=1), "refused", "another study|not as it was"
    ),
    "the axes are edited": Fault(
        "manifest.json", edited("study", "axes", NOISE, "to", to=8.0), "refused", "another study|not as it was"
    ),
    "the number of tasks is edited": Fault("manifest.json", edited("tasks", to=3), "refused", "not as it was written"),
    "the versions are edited": Fault(
        "manifest.json", edited("made_with", "jax", to="0.1"), "refused", "not as it was written"
    ),
    "an accepted change is made up": Fault(
        "manifest.json", edited("accepted", to=[{"at": "now", "changes": []}]), "refused", "not as it was written"
    ),
    "the format is called older": Fault(
        "manifest.json", edited("schema", to="dimfree.study/1"), "refused", "not as it was written"
    ),
    "the format is called newer": Fault(
        "manifest.json", edited("schema", to="dimfree.study/3"), "refused", "not a store"
    ),
    # What is not read.
    "the study for people is edited": Fault("study.yaml", content(lambda old: b"seed: 1"), "whole"),
    "the study for people is missing": Fault("study.yaml", removed, "whole"),
    "attributes would say what numbers mean": Fault(
        f"{ARRAYS}/mean/zarr.json", edited("attributes", to={"scale_factor": 2.0, "_FillValue": 1.0}), "whole"
    ),
    "attributes are a number": Fault(f"{ARRAYS}/mean/zarr.json", edited("attributes", to=3), "whole"),
    "the group is edited": Fault(f"{ARRAYS}/zarr.json", edited("attributes", to={"a": 1}), "whole"),
    "an array is added": Fault(ARRAYS, lambda path: shutil.copytree(path / "mean", path / "median"), "whole"),
    "a chunk is added": Fault(f"{ARRAYS}/mean/c/0/1", lambda path: shutil.copy(path, path.with_name("9")), "whole"),
    "a write was cut off": Fault(
        f"{ARRAYS}/mean/c/0", lambda path: (path / f"1.{'0' * 32}.partial").write_bytes(b"half"), "whole"
    ),
    "a cell is said to have taken too long": Fault(
        "", lambda path: ((path / "timeouts").mkdir(), (path / "timeouts/0-0.json").write_text("{}")), "whole"
    ),
    "names that are no tasks": Fault(
        "done", lambda path: [(path / f"{name}.json").write_text("{}") for name in ("x", "-1", "1e3", "²3")], "whole"
    ),
}


def numbers(store: pathlib.Path) -> dict[str, np.ndarray]:
    data = dimfree.open_study(store).load()
    return {str(name): data[name].values for name in data.variables}


@pytest.mark.timeout(300)  # a pipe must not keep it waiting
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_said_or_changes_nothing(name, store, good, expected):
    fault = FAULTS[name]
    fault.damage(store / fault.file)
    if fault.outcome in ("repaired", "refused"):
        with pytest.raises(dimfree.InvalidInput, match=fault.words):
            numbers(store)
        with pytest.raises(dimfree.InvalidInput, match=fault.words):
            run(store)
    if fault.outcome == "refused":
        with pytest.raises(dimfree.InvalidInput, match=fault.words):
            run(store, repair=True)
        return
    if fault.outcome == "repaired":
        report = run(store, repair=True)
        assert report.complete
        assert report.computed >= len(report.repaired) - 1  # a record of no task is not computed
    elif fault.outcome == "missing":
        data = dimfree.open_study(store)
        lost = 4 - data.attrs["tasks_done"]
        assert lost > 0
        assert int((data.status == 0).sum()) == int(data["mean"].isnull().sum()) == 4 * lost
        assert run(store).computed == lost
    else:
        assert run(store).computed == 0
    for quantity, values in numbers(store).items():
        np.testing.assert_array_equal(values, expected[quantity])
    if fault.outcome != "whole":
        assert arrays(store) == arrays(good)


def test_the_table_is_as_long_as_it_was():
    assert len(FAULTS) + len(LOCKS) + len(PLACES) + len(CHANGES) >= 120


FILES = [
    "zarr.json",
    "mean/zarr.json",
    "mean/c/0/1",
    "status/zarr.json",
    "status/c/0/1",
    f"{NOISE}/zarr.json",
    f"{NOISE}/c/0",
]


def test_no_changed_byte_of_any_file_is_another_number(good, store, expected):
    """One bit of a file of each kind, at places that cover it."""
    names = ["manifest.json", "study.yaml", "done/1.json", *(f"{ARRAYS}/{name}" for name in FILES)]
    for path in (good / name for name in names):
        old = path.read_bytes()
        for at in range(0, len(old), 1 + len(old) // 5):
            (store / path.relative_to(good)).write_bytes(old[:at] + bytes([old[at] ^ 4]) + old[at + 1 :])
            try:
                found = numbers(store)
            except dimfree.InvalidInput:
                continue
            for name, values in found.items():
                np.testing.assert_array_equal(values, expected[name])
        (store / path.relative_to(good)).write_bytes(old)


# The lock.

HOLDER = {"id": "0" * 32, "host": "elsewhere", "pid": 1}
LOCKS = {
    "a list": [1],
    "null": None,
    "nothing": {},
    "a path that would be made": HOLDER | {"id": "x/../../../victim/made"},
    "a path that would be removed": HOLDER | {"id": "/../../victim/lock"},
    "an id with a line end": HOLDER | {"id": "0" * 32 + "\n"},
    "an id that is a number": HOLDER | {"id": 3},
    "no process": {"id": "0" * 32, "host": "elsewhere"},
    "a process that is a word": HOLDER | {"pid": "1"},
    "a host that is a list": HOLDER | {"host": [1]},
}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_that_no_driver_wrote_is_refused_and_nothing_else_is_touched(name, store, tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "lock.json").write_text("{}")
    (store / "lock.json").write_text(json.dumps(LOCKS[name]))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(dimfree.InvalidInput, match=r"not the lock of a driver\. If no driver .* remove it"):
        run(store)
    assert sorted(tmp_path.rglob("*")) == before
    assert dimfree.open_study(store).attrs["tasks_done"] == 4
    (store / "lock.json").unlink()  # what the message says to do
    assert run(store).complete


@pytest.mark.timeout(300)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.write_bytes(b"")])
def test_a_lock_that_is_no_file_is_refused(make, store):
    make(store / "lock.json")
    with pytest.raises(dimfree.InvalidInput, match="not the lock of a driver"):
        run(store)


def test_a_driver_elsewhere_is_judged_by_what_it_does_and_not_by_clocks(store, monkeypatch, capsys):
    """A driver that gives signs of life keeps its lock, whatever its clock says and whatever its host is called."""
    import socket
    import threading

    monkeypatch.setattr(lock, "_WATCH", 1.5)
    monkeypatch.setattr(lock, "_LOOK", 0.1)
    for host in ("elsewhere", socket.gethostname()):
        holder = HOLDER | {"host": host, "pid": 2**22 + 1, "alive": 0.0, "machine": "another"}
        (store / "lock.json").write_text(json.dumps(holder))
        later = json.dumps(holder | {"beat": 2})
        timer = threading.Timer(0.5, (store / "lock.json").write_text, [later])
        timer.start()
        with pytest.raises(dimfree.InvalidInput, match=f"process {holder['pid']} on {host}"):
            run(store)
        timer.join()
    assert run(store).complete  # nothing changed while it watched
    assert "watching it" in capsys.readouterr().err
    assert not (store / "lock.json").exists()


# Places.

PLACES = {
    "http://127.0.0.1:9/store": "listed and written",
    "https://127.0.0.1:9/store": "listed and written",
    "zip://store.zip": "listed and written",
    "nosuch://store": "give a directory",
    "a::b": "listed and written",
    "zip://a::b": "listed and written",
    "": "give a directory",
    "/dev/null": "not a directory",
    "/dev/null/store": "cannot be written|not a directory",
    "/proc/store": "cannot be written",
    "a\0b": "cannot be|give a directory",
    f"{__file__}": "not a directory",
    f"{pathlib.Path(__file__).parent}": "holds other files",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_place_that_cannot_be_a_store_is_refused_in_words(place):
    with pytest.raises(dimfree.InvalidInput, match=PLACES[place]):
        run(place)
    with pytest.raises(dimfree.InvalidInput, match=rf"no study at|cannot be|{PLACES[place]}"):
        dimfree.open_study(place)


def test_memory_is_a_store_for_this_process_only():
    with pytest.raises(dimfree.InvalidInput, match="workers do not see"):
        dimfree.Study(**SMALL).run("memory://small", workers=1, allow_code=True, progress=False)
    assert run("memory://small").complete
    assert int(dimfree.open_study("memory://small").status.sum()) == 16


def test_a_directory_of_the_user_is_left_alone(tmp_path, monkeypatch):
    mine = {"study.yaml": "mine", "notes.partial": "mine too", "lock.json": "[]"}
    for number, (name, text) in enumerate(mine.items()):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / name).write_text(text)
        monkeypatch.chdir(tmp_path / str(number))
        with pytest.raises(dimfree.InvalidInput, match="holds other files"):
            run(".")
        assert {path.name: path.read_text() for path in pathlib.Path(".").iterdir()} == {name: text}


def test_a_store_that_cannot_be_written_is_said(good, tmp_path):
    import subprocess

    place = tmp_path / "read_only"
    place.mkdir()
    if subprocess.run(["mount", "--bind", "-o", "ro", str(good), str(place)], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        with pytest.raises(dimfree.InvalidInput, match=r"cannot be written \(Read-only file system\)"):
            run(place)
        assert dimfree.open_study(place).attrs["tasks_done"] == 4
    finally:
        subprocess.run(["umount", str(place)], check=True)


# Going on with something else.


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A study of a function that uses a helper module of the user's own, with half of its tasks done."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_helper.py").write_text("SCALE = 1.0\n\ndef scaled(x):\n    return SCALE * x\n")
    (tmp_path / "own_study.py").write_text(
        "import own_helper\n\ndef value(problem, algorithm, *, key):\n"
        "    return {'value': own_helper.scaled(float(problem.noise))}\n"
    )
    study = {
        **SMALL,
        "algorithm": {"name": "OnlineSGD", "learning_rate": 0.1},
        "axes": {"problem.noise": [1.0, 2.0, 3.0, 4.0]},
        "compute": {"name": "function", "function": "own_study:value", "quantities": ["value"]},
        "cells_per_task": 1,
    }
    run(tmp_path / "store", study)
    for task in (2, 3):
        (tmp_path / f"store/done/{task}.json").unlink()
    yield study, tmp_path
    for name in ("own_helper", "own_study"):
        sys.modules.pop(name, None)


def _edit_module(name, old, new):
    def change(directory, monkeypatch):
        path = directory / f"{name}.py"
        path.write_text(path.read_text().replace(old, new))
        for each in ("own_helper", "own_study"):
            sys.modules.pop(each, None)
        shutil.rmtree(directory / "__pycache__", ignore_errors=True)

    return change


def _version(distribution):
    def change(directory, monkeypatch):
        if distribution == "jax":
            monkeypatch.setattr("jax.__version__", "99.0")
        else:
            monkeypatch.setattr("dimfree.identity.installed_version", lambda name: "99.0")

    return change


CHANGES = {
    "a helper module": (_edit_module("own_helper", "SCALE = 1.0", "SCALE = -1000.0"), "module that it uses"),
    "the function": (_edit_module("own_study", "float(problem.noise)", "7.0"), "own function"),
    "the version of jax": (_version("jax"), "jax: '0.* in the store, '99.0' now"),
    "the version of dimfree": (_version("dimfree"), "dimfree: '0.* in the store, '99.0' now"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_computes_has_changed_and_going_on_is_recorded(name, own, monkeypatch):
    (study, directory), (change, words) = own, CHANGES[name]
    change(directory, monkeypatch)
    with pytest.raises(dimfree.InvalidInput, match=f"(?s){words}.*--accept-changes"):
        run(directory / "store", study)
    assert len(list((directory / "store/done").iterdir())) == 2
    assert run(directory / "store", study, accept_changes=True).complete
    said = dimfree.open_study(directory / "store").attrs["accepted_changes"]
    assert re.search(words, said)
    assert run(directory / "store", study).computed == 0  # once is enough
    made = [json.loads((directory / f"store/done/{task}.json").read_text())["made_with"] for task in range(4)]
    assert made[0] == made[1] != made[2] == made[3]


GENERATORS = {
    "another generator": (lambda: jax.default_prng_impl("rbg"), "'rbg'"),
    "threefry split otherwise": (lambda: jax.threefry_partitionable(False), "'threefry2x32, not partitionable'"),
}


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("says", [True, False], ids=["the store says which", "the store is older"])
def test_another_generator_of_random_numbers_is_refused(name, says, store, expected):
    """The same key gives other numbers with it: a store must not hold both."""
    other, generator = GENERATORS[name]
    words = f"random numbers: 'threefry2x32' in the store, {generator} now"
    manifest = json.loads((store / "manifest.json").read_text())
    assert manifest["made_with"]["random numbers"] == "threefry2x32"
    if not says:
        del manifest["made_with"]["random numbers"], manifest["sha256"]
        (store / "manifest.json").write_text(json.dumps(sealed(manifest)))
    np.testing.assert_array_equal(numbers(store)["mean"], expected["mean"])
    for task in (2, 3):
        (store / f"done/{task}.json").unlink()
    with other(), pytest.raises(dimfree.InvalidInput, match=f"(?s){words}.*--accept-changes"):
        run(store)
    assert dimfree.open_study(store).attrs["tasks_done"] == 2
    with other():
        assert run(store, accept_changes=True).complete
    mixed = numbers(store)["mean"]
    np.testing.assert_array_equal(mixed[:2], expected["mean"][:2])
    assert (mixed[2:] != expected["mean"][2:]).all()
    assert words in dimfree.open_study(store).attrs["accepted_changes"]


def test_an_older_store_goes_on_with_the_default_generator(store, good):
    manifest = json.loads((store / "manifest.json").read_text())
    del manifest["made_with"]["random numbers"], manifest["sha256"]
    (store / "manifest.json").write_text(json.dumps(sealed(manifest)))
    (store / "done/2.json").unlink()
    assert run(store).computed == 1
    assert arrays(store) == arrays(good)
    assert "accepted_changes" not in dimfree.open_study(store).attrs


def test_another_precision_is_refused(own):
    """In a process of its own, because JAX decides once."""
    import subprocess

    from drivers import environment

    study, directory = own
    code = f"import dimfree; dimfree.Study(**{study!r}).run('store', cluster='inline', allow_code=True, progress=False)"
    variables = environment() | {"JAX_ENABLE_X64": "0"}
    found = subprocess.run([sys.executable, "-c", code], cwd=directory, env=variables, capture_output=True, text=True)
    # In single precision nothing is computed, so that a store never holds both.
    assert "jax_enable_x64" in found.stderr


def test_a_worker_with_another_version_refuses(own):
    from dimfree.studies.cells import Layout
    from dimfree.studies.description import checked
    from dimfree.studies.store import made_with
    from dimfree.studies.tasks import run_task

    study, directory = own
    description = checked(study)
    wanted = made_with(description) | {"jax": "99.0"}
    with pytest.raises(dimfree.InvalidInput, match=r"worker on .* jax is 0\..* and not 99\.0"):
        run_task(
            json.dumps(description.to_dict()),
            str(directory / "store"),
            Layout(description).task(2),
            wanted,
            may_exit=True,
        )


# Finished studies open.


@pytest.mark.parametrize("value", ["nan", "inf", "0.0"])
def test_a_study_with_a_region_without_numbers_opens(value, tmp_path, monkeypatch):
    """Chunks in which every number is the fill value are there, and mean what they say."""
    monkeypatch.syspath_prepend(tmp_path)
    name = f"region_{value.replace('.', '_')}"
    (tmp_path / f"{name}.py").write_text(
        f"def f(problem, algorithm, *, key):\n    noise = float(problem.noise)\n"
        f"    return {{'value': noise if noise < 3 else float('{value}')}}\n"
    )
    compute = {"name": "function", "function": f"{name}:f", "quantities": ["value"]}
    study = {**SMALL, "compute": compute}
    assert run(tmp_path / "store", study).complete
    assert run(tmp_path / "store", study).computed == 0
    data = dimfree.open_study(tmp_path / "store")
    noise = data[NOISE].values
    np.testing.assert_array_equal(data.value, np.broadcast_to(np.where(noise < 3, noise, float(value)), (4, 4)))
    assert (data.status == 1).all()
    (tmp_path / f"store/{ARRAYS}/value/c/1/1").unlink()  # the same chunk, lost
    with pytest.raises(dimfree.InvalidInput, match=r"task 3: .*value/c/1/1 is missing"):
        dimfree.open_study(tmp_path / "store")


@pytest.fixture
def older(tmp_path):
    """A store of the format without digests: exit times, which its own version called damaged when it was done."""
    with tarfile.open(HERE / "data/store_without_digests.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "store"


LEFT = [[0, 0, 0, 0], [0, 0.25, 0.25, 0], [0.75, 0.75, 0.5, 0.75], [1, 1, 1, 1]]


def test_a_store_without_digests_opens_and_says_so(older):
    with pytest.warns(UserWarning, match="kept no digests"):
        data = dimfree.open_study(older)
    np.testing.assert_array_equal(data.left, LEFT)
    np.testing.assert_array_equal(data.exit_time.isnull(), np.array(LEFT) == 0)
    np.testing.assert_allclose(data.exit_time[3], [10.345, 14.61, 16.345, 16.855])
    assert (data.status == 1).all()
    assert data.attrs["tasks_done"] == data.attrs["tasks"] == 4
    shutil.rmtree(older / ARRAYS / "status/c/1")  # which no finished task is without
    with pytest.raises(dimfree.InvalidInput, match="status/c/1/0 is missing"):
        dimfree.open_study(older)


SHORTER = {
    "ends early": lambda old: Zstd(checksum=True).encode(np.zeros(3)),
    "goes on": lambda old: Zstd(checksum=True).encode(np.zeros(9)),
    "ends within a number": lambda old: Zstd(checksum=True).encode(b"abc"),
    "is cut": lambda old: old[:-3],
    "is empty": lambda old: b"",
}


@pytest.mark.filterwarnings("ignore:.*kept no digests")
@pytest.mark.parametrize("name", SHORTER)
def test_an_array_without_digests_that_ends_early_is_said(name, older):
    content(SHORTER[name])(older / ARRAYS / "left/c/1/1")
    data = dimfree.open_study(older)
    np.testing.assert_array_equal(data.left[:2], LEFT[:2])
    with pytest.raises(dimfree.InvalidInput, match=r"(?s)damaged.*task 3: .*left/c/1/1 is not a whole chunk"):
        data.left.load()


def test_a_store_without_digests_gets_them_when_changes_are_accepted(older):
    study = dimfree.Study(**json.loads((older / "manifest.json").read_text())["study"])
    with pytest.raises(dimfree.InvalidInput, match="without digests"):
        study.run(older, cluster="inline", progress=False)
    report = study.run(older, cluster="inline", progress=False, accept_changes=True)
    assert report.complete
    assert report.computed == len(report.repaired) == 2  # whose chunks of NaN were not written
    data = dimfree.open_study(older)
    # What is computed again has the random numbers of this version: another run of the four leaves, or does not.
    np.testing.assert_array_equal(data.left, [[0, 0, 0, 0], [0, 0.25, 0, 0], *LEFT[2:]])
    assert "without digests" in data.attrs["accepted_changes"]
    flipped(-1)(older / ARRAYS / "left/c/1/1")
    with pytest.raises(dimfree.InvalidInput, match="left/c/1/1 has other bytes"):
        dimfree.open_study(older).left.load()
