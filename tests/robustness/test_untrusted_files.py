"""Files from a stranger: whatever they hold, they are read or refused in words, and nothing in them is run."""

import ast
import contextlib
import copy
import pathlib
import sys
import time

import pytest
import yaml
from fuzzing import fuzz
from hypothesis import given
from hypothesis import strategies as st

import dimfree
from dimfree import InvalidInput
from dimfree.cli import problem_options
from dimfree.studies.description import checked
from dimfree.yaml_files import read

ROOT = pathlib.Path(__file__).parent.parent.parent
STUDY = (ROOT / "docs/data/phase_retrieval_study.yaml").read_bytes()
READERS = (lambda path: read(path, what="a study"), dimfree.Study.load, problem_options._read)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.dates()
    | st.binary(max_size=3)
    | st.sampled_from(["1e400", "../../x", "erf", "OnlineSGD", "os.system", 10**30, -1, 1e308, ""])
)
STRUCTURES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3), max_leaves=8
)


def assert_read_or_refused(path: pathlib.Path) -> None:
    for reader in READERS:
        with contextlib.suppress(InvalidInput):
            reader(path)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("untrusted") / "study.yaml"


def _structure(path, structure):
    path.write_text(yaml.safe_dump(structure, allow_unicode=True), encoding="utf-8")
    assert_read_or_refused(path)


EDITS = st.lists(
    st.tuples(st.integers(0, len(STUDY) - 1), st.sampled_from(["over", "in", "out", "end"]), st.binary(max_size=4)),
    min_size=1,
    max_size=4,
)


def _bytes(path, edits):
    content = bytearray(STUDY)
    for at, kind, new in edits:
        match kind:
            case "over":
                content[at : at + len(new)] = new
            case "in":
                content[at:at] = new
            case "out":
                del content[at : at + 7 * len(new)]
            case "end":
                del content[at:]
    path.write_bytes(content)
    assert_read_or_refused(path)


SIGNS = st.text(alphabet="ab:-[]{}#&*!|>'\"%@`, \n\t?019<=~.eE+xo_TZ", max_size=40)


def _signs(path, text):
    path.write_text(text)
    assert_read_or_refused(path)


def _places(value, place=()):
    if place:
        yield place
    for name in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from _places(value[name], (*place, name))


FIELDS = yaml.safe_load(STUDY)


def _fields(place, value):
    fields = copy.deepcopy(FIELDS)
    inner = fields
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    with contextlib.suppress(InvalidInput):
        checked(fields)


FUZZED = {
    "structures": (_structure, (STRUCTURES,)),
    "bytes": (_bytes, (EDITS,)),
    "signs": (_signs, (SIGNS,)),
}


@pytest.mark.parametrize("kind", FUZZED)
def test_any_file_is_read_or_refused(kind, path):
    function, strategies = FUZZED[kind]
    fuzz(100)(given(*strategies)(lambda drawn: function(path, drawn)))()


@pytest.mark.slow
@pytest.mark.parametrize("kind", FUZZED)
def test_very_many_files_are_read_or_refused(kind, path):
    function, strategies = FUZZED[kind]
    fuzz(5_000)(given(*strategies)(lambda drawn: function(path, drawn)))()


@fuzz(300)
@given(st.sampled_from(list(_places(FIELDS))), STRUCTURES)
def test_any_field_of_a_study_is_taken_or_refused(place, value):
    _fields(place, value)


NOT_YAML = [
    "[" * 5_000,
    "{a: " * 3_000,
    "- " * 3_000,
    "x: 2024-13-45",
    "x: 2024-02-30T25:61:00",
    "x: " + "9" * 5_000,
    "!!int abc",
    '!!int ""',
    "!!float abc",
    "!!bool foo",
    "!!map [1]",
    "!!timestamp abc",
    '"\\UFFFFFFFF"',
    "a: &a [*a]",
    "a: 1\na: 2",
    "!!python/object/apply:os.system ['exit 3']",
    "!!python/name:os.system",
]


@pytest.mark.parametrize("text", NOT_YAML, ids=[text[:12] for text in NOT_YAML])
def test_what_pyyaml_trips_over_is_refused_in_words(text, path):
    path.write_text(text)
    for reader in READERS:
        with pytest.raises(InvalidInput, match=r"is no YAML that a (study|problem) can be read from"):
            reader(path)


@pytest.mark.parametrize("text", ["- 1", "3", "a word"])
def test_what_names_nothing_is_refused_in_words(text, path):
    path.write_text(text)
    for reader, words in ((dimfree.Study.load, "names and values"), (READERS[2], "does not state a problem")):
        with pytest.raises(InvalidInput, match=words):
            reader(path)


def test_a_bomb_of_aliases_is_refused_at_once(path):
    levels = "".join(f"l{i + 1}: &l{i + 1} [{', '.join([f'*l{i}'] * 9)}]\n" for i in range(9))
    path.write_text("l0: &l0 [boom, boom, boom]\n" + levels)
    began = time.perf_counter()
    with pytest.raises(InvalidInput, match="aliases are not read"):
        read(path, what="a study")
    assert time.perf_counter() - began < 2


def test_a_file_without_end_is_refused():
    with pytest.raises(InvalidInput, match="more than 1,048,576 bytes"):
        read("/dev/zero", what="a study")


@pytest.mark.parametrize("name", ["no\x00file", ".", "/proc/self/mem"])
def test_what_is_no_file_is_refused(name):
    with pytest.raises(InvalidInput, match="cannot be read"):
        read(name, what="a study")


def test_a_file_is_unicode_whatever_the_locale(path):
    for encoding in ("utf-8", "utf-16"):
        path.write_bytes("title: é → σ".encode(encoding))
        assert read(path, what="a study") == {"title": "é → σ"}


# Names that become those of files or arrays.


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/x", "a/b", "", ".", "..", "a b", "a\x00", "$x", "__class__", "x" * 300]
)
@pytest.mark.parametrize("home", [{"name": "analysis", "of": "plateau"}, {"name": "function", "function": "os:getcwd"}])
def test_a_quantity_cannot_be_called_what_is_no_name(home, name):
    with pytest.raises(InvalidInput, match="quantities"):
        checked({**FIELDS, "compute": {**home, "quantities": [name]}})


@pytest.mark.parametrize("name", ["problem.../x", "problem.a/b", "../x", "problem.__x y", "os.system", "problem.name"])
def test_an_axis_cannot_be_called_what_is_no_argument(name):
    with pytest.raises(InvalidInput, match="axis"):
        checked({**FIELDS, "axes": {name: [1.0, 2.0]}})


@pytest.mark.parametrize("name", ["os.system", "problems.os", "__class__", "TwoLayer.__init__", "../x", "Mixture.mro"])
@pytest.mark.parametrize("home", ["problem", "algorithm"])
def test_a_problem_is_one_of_a_list(home, name, path):
    path.write_text(yaml.safe_dump({"problem": {"name": "TwoLayer"}} | {home: {"name": name}}))
    with pytest.raises(InvalidInput, match=r"There is no|there are|is called"):
        problem_options.stated({"file": path})


@pytest.mark.parametrize("name", ["../../x", "os", "..", "arnaboldi2023/../x", "report", "claims"])
def test_a_paper_is_one_of_a_list(name):
    with pytest.raises(InvalidInput, match="There is no paper"):
        dimfree.claims(name)
    with pytest.raises(InvalidInput, match="There is no paper"):
        dimfree.reproduce(name, "fig1")


@pytest.mark.parametrize("name", ["../../x", "fig1/../../x", ""])
def test_a_figure_is_one_of_a_list(name):
    with pytest.raises(InvalidInput, match="here; it has fig"):
        dimfree.reproduce("arnaboldi2023", name)


# Code.


def test_a_study_with_code_of_its_own_needs_permission(tmp_path, monkeypatch):
    (tmp_path / "stranger.py").write_text("open('it_ran', 'w').close()\ndef number(*a, **k): return {'n': 1.0}\n")
    monkeypatch.chdir(tmp_path)
    compute = {"name": "function", "function": "stranger:number", "quantities": ["n"]}
    sgd, axes = {"name": "OnlineSGD", "learning_rate": 0.1}, {"problem.noise": [0.0]}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump({**FIELDS, "algorithm": sgd, "compute": compute, "axes": axes}))
    study = dimfree.Study.load("study.yaml")
    for attempt in (study.plan, lambda: study.run("store", cluster="inline", progress=False)):
        with pytest.raises(InvalidInput, match="allow"):
            attempt()
    assert not (tmp_path / "it_ran").exists()
    assert not (tmp_path / "store").exists()
    study = dimfree.Study.load("study.yaml")
    study.run("store", cluster="inline", progress=False, allow_code=True)
    assert (tmp_path / "it_ran").exists()
    # Reading what it has computed runs nothing, also where the module is one that nobody has imported yet.
    (tmp_path / "it_ran").unlink()
    sys.modules.pop("stranger")
    assert dimfree.open_study("store").n.values.tolist() == [1.0]
    assert "stranger" not in sys.modules


_WAYS_TO_RUN_CODE = {"eval", "exec", "compile", "__import__", "import_module", "run_path", "run_module", "find_spec"}
_MODULES_THAT_LOAD_CODE = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "runpy", "imp"}
# Where modules are imported by a name that is not written there, and why that is safe.
_ALLOWED = {
    ("__init__.py", "import_module"),  # the version
    ("registry.py", "import_module"),  # names of the library's own table
    ("identity.py", "import_module"),  # what a user's own function, already loaded, imports when it is called
    ("identity.py", "find_spec"),  # whether such a module is installed
    ("functions.py", "import_module"),  # where a function of a pickle is: who reads a pickle runs what it names anyway
    ("papers/shelf.py", "import_module"),  # packages that are installed as papers
    ("papers/shelf.py", "find_spec"),  # where such a package is, without importing it
    ("symbolic/__init__.py", "import_module"),  # names of a list
    ("analysis/protocols.py", "compile"),  # a program of the library by JAX, to ask for its memory
    ("studies/functions.py", "import_module"),  # a user's own function, which needs --allow-code
}


def _calls(tree: ast.AST):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            yield name, node


def test_nothing_in_the_library_runs_what_it_reads():
    found, wrong = set(), []
    for file in sorted((ROOT / "src/dimfree").rglob("*.py")):
        name, tree = str(file.relative_to(ROOT / "src/dimfree")), ast.parse(file.read_text())
        for node in ast.walk(tree):
            modules = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            wrong += [f"{name}: {module}" for module in modules if module.split(".")[0] in _MODULES_THAT_LOAD_CODE]
        for call, node in _calls(tree):
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if call in _WAYS_TO_RUN_CODE and ast.unparse(node.func) != "re.compile":
                found.add((name, call))
            if call in ("load", "load_all", "unsafe_load", "full_load") and "yaml" in ast.unparse(node.func):
                wrong += [] if given.get("Loader") == "_PlainLoader" else [f"{name}: {ast.unparse(node)}"]
            if given.get("allow_pickle", "False") != "False" or given.get("shell", "False") != "False":
                wrong.append(f"{name}: {ast.unparse(node)}")
            if ast.unparse(node.func) in ("os.system", "os.popen"):
                wrong.append(f"{name}: {ast.unparse(node)}")
    assert not wrong
    assert found == _ALLOWED
