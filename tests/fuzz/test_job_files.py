"""Files that operators write: job files, vocabularies, social graphs and tokens are read, or refused with their rule."""

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import nearcast as nc
from effort import search
from fuzz.test_spark_stages import damaged
from nearcast.jobs.inputs import common_terms, routing_of, social_of, vocabulary_from, vocabulary_of
from nearcast.jobs.job_file import JobFile, make_job_file, read_job_file
from nearcast.partition.hash import HashRouting
from nearcast.partition.serialization import pack, unpack
from nearcast.service.api.access import TokenFile, new_token
from nearcast.service.config import ServiceConfig
from nearcast.service.push.webhooks.address_guard import AddressGuard, parse_networks

EXAMPLE = (Path(__file__).parents[2] / "examples" / "job.toml").read_bytes()
JOB = {
    "space": {"bounds": [0, 0, 1, 1], "metric": "euclidean", "max_distance": 0.5},
    "vocabulary": {"file": "vocabulary.json"},
    "window": {"count": 100},
    "social": {"file": "edges.csv"},
    "match": {
        "shards": 2,
        "partitioner": "hash",
        "text_similarity": "containment",
        "analyzer": "simple",
        "index": "auto",
        "attributes": {"price": "float"},
    },
    "messages": {"format": "json", "path": "messages", "options": {"maxFilesPerTrigger": 3}, "select": ["lon AS x"]},
    "subscriptions": {"format": "json", "path": "subscriptions", "schema": "id string"},
    "updates": {"format": "json", "path": "updates"},
    "rejected": {"format": "parquet", "path": "rejected"},
    "run": {"checkpoint": "checkpoint", "state": "state", "trigger": "1 second"},
}
SCALARS = st.one_of(
    st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.datetimes(), st.dates(), st.times(),
    st.sampled_from([0, -1, 1 << 31, 1 << 63, 10**400, -(10**400), 1e308, "available now", "5 seconds", "0 seconds", "json", "arrow",
                     "kafka", "haversine", "..", "/", "\0", "s3a://x", "x:/", "~", "", "a" * 5000, 1e-320]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def jobs(draw):
    """Draw the content of a job file with some tables or keys replaced, removed or added."""
    made = json.loads(json.dumps(JOB))
    for _ in range(draw(st.integers(0, 4))):
        name = draw(st.sampled_from([*JOB, "other"]))
        table = made.get(name)
        how = draw(st.sampled_from(["key", "key", "key", "table", "remove"]))
        if how == "remove" or (how == "table" and not isinstance(table, dict)):
            made.pop(name, None)
        elif how == "table":
            made[name] = draw(VALUES)
        elif isinstance(table, dict):
            key = draw(
                st.sampled_from([*table, *sorted({key for one in JOB.values() for key in one})]) | st.text(max_size=4)
            )
            made[name] = {**table, key: draw(VALUES)}
    return made


def is_refused(call):
    """Return whether a call is refused by an error of the project, which does not repeat long input."""
    try:
        call()
    except nc.NearcastError as error:
        assert len(str(error)) < 3_000
        return True
    return False


@search(usual=150)
@given(jobs())
def test_any_content_of_a_job_file_is_a_job_or_refused(content):
    try:
        made = make_job_file(content, file=Path("job.toml"))
    except nc.NearcastError as error:
        assert len(str(error)) < 3_000
        return
    assert isinstance(made, JobFile)
    assert made.job().shards >= 1
    with made.job().new_engine() as engine:
        box = made.config().space.bounds
        engine.publish(
            [nc.Message("m", (box.xmin, box.ymin), "a", at=1.0), nc.Message("n", (box.xmax, box.ymax), "b", at=2.0)]
        )
        assert engine.stats().messages == 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("jobs")
    (made / "job.toml").write_bytes(EXAMPLE)
    return made


def toml(value):
    """Return a value as TOML; none of the names needs quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)


WRITTEN = "\n".join(f"{name} = {toml(table)}" for name, table in JOB.items()).encode()
TEXTS = st.one_of(
    damaged(EXAMPLE), damaged(WRITTEN), st.binary(max_size=60), st.text(max_size=60).map(str.encode),
    st.builds(lambda piece, n: b"a = " + piece * n, st.sampled_from([b"[", b"{a = ", b"a."]), st.integers(1, 3000)),
)  # fmt: skip


@search(usual=100)
@given(text=TEXTS)
@example(text=b"a = " + b"[" * 3000)
def test_any_bytes_are_a_job_file_or_refused(folder, text):
    (folder / "any.toml").write_bytes(text)
    is_refused(lambda: read_job_file(folder / "any.toml"))
    is_refused(lambda: ServiceConfig.of_job(folder / "any.toml"))


ENTRY = (new_token("ann", ["publish"])[1] + new_token("bob", ["subscribe", "admin"])[1]).encode()
TOKENS = st.one_of(
    damaged(ENTRY), st.binary(max_size=60), st.builds(lambda n: b"token = " + b"[" * n, st.integers(1, 3000)),
    st.lists(st.dictionaries(st.sampled_from(["sha256", "subscriber", "scopes"]), VALUES, min_size=2), max_size=2).map(
        lambda rows: "".join("[[token]]\n" + "".join(f"{k} = {toml_of(v)}\n" for k, v in row.items()) for row in rows).encode(
            errors="surrogatepass")),
)  # fmt: skip


def toml_of(value):
    try:
        return toml(value)
    except (TypeError, ValueError):
        return "1979-05-27T07:32:00Z"


@search(usual=100)
@given(text=TOKENS)
@example(text=b"token = " + b"[" * 3000)
@example(text=b'[[token]]\nsha256 = "' + b"0" * 64 + b'"\nsubscriber = "ann"\nscopes = [["publish"]]\n')
def test_any_bytes_are_tokens_or_refused(folder, text):
    """A service that runs keeps its last tokens, whatever the file becomes."""
    file = folder / "tokens.toml"
    file.write_bytes(text)
    if not is_refused(lambda: TokenFile(file)):
        rows = tomllib.loads(text.decode())["token"]
        assert all(set(row["scopes"]) <= {"publish", "subscribe", "admin"} for row in rows)
    _, entry = new_token("eve", ["admin"])
    file.write_text(entry)
    access = TokenFile(file)
    file.write_bytes(text)
    try:
        access.caller("unknown", "admin", headers={})
    except Exception as error:
        assert type(error).__name__ == "Problem" and error.status == 401
    else:
        raise AssertionError("an unknown token is accepted")


VOCABULARIES = st.one_of(
    VALUES,
    st.fixed_dictionaries(
        {"documents": VALUES | st.integers(0, 9), "frequencies": VALUES | st.dictionaries(st.text(), SCALARS)}
    ),
    st.fixed_dictionaries({"weights": VALUES | st.dictionaries(st.text(), SCALARS)}),
)


@search(usual=100)
@given(content=VOCABULARIES)
def test_any_vocabulary_is_read_or_refused(folder, content):
    is_refused(lambda: vocabulary_from(content))
    try:
        text = json.dumps(content)
    except (TypeError, ValueError):
        return
    check_vocabulary(folder, text.encode())


@search(usual=60)
@given(
    text=damaged(b'{"documents": 3, "frequencies": {"jazz": 2, "coffee": 1}}')
    | st.integers(1, 20_000).map(lambda n: b"[" * n)
)
@example(text=b"[" * 20_000)
def test_any_bytes_are_a_vocabulary_or_refused(folder, text):
    check_vocabulary(folder, text)


def check_vocabulary(folder, text):
    (folder / "vocabulary.json").write_bytes(text)
    job_file = make_job_file({**JOB, "vocabulary": {"file": "vocabulary.json"}}, file=folder / "job.toml")
    if not is_refused(lambda: vocabulary_of(job_file)):
        assert all(isinstance(term, str) for term in common_terms(job_file, 3))


EDGES = {
    "csv": b"user,place\nu0,p0\nu1,p1\n",
    "ndjson": b'{"user": "u0", "place": "p0"}\n{"user": "u1", "place": "p1"}\n',
}


@search(usual=60)
@given(data=st.data())
def test_any_bytes_are_a_social_graph_or_refused(folder, data):
    ending = data.draw(st.sampled_from(["csv", "ndjson", "parquet"]))
    text = data.draw(damaged(EDGES.get(ending, b"PAR1")) | st.binary(max_size=40))
    (folder / f"edges.{ending}").write_bytes(text)
    job_file = make_job_file({**JOB, "social": {"file": f"edges.{ending}"}}, file=folder / "job.toml")
    is_refused(lambda: social_of(job_file))


ROUTING = pack(HashRouting(3))


@search(usual=60)
@given(data=damaged(ROUTING) | st.binary(max_size=40))
def test_any_bytes_are_a_routing_or_refused(folder, data):
    if not is_refused(lambda: unpack(data)):
        assert unpack(data).n_shards is not None
    (folder / "routing.bin").write_bytes(data)
    job_file = make_job_file({**JOB, "match": {"routing": "routing.bin"}}, file=folder / "job.toml")
    is_refused(lambda: routing_of(job_file))


NETWORKS = st.lists(
    st.text(max_size=12) | st.sampled_from(["10.0.0.0/8", "10.0.0.1/8", "::1", "::/0", "0.0.0.0/0", "1", "1/33"]),
    max_size=3,
)
URLS = st.one_of(
    st.text(max_size=30),
    st.builds("{}://{}:{}/{}".format, st.sampled_from(["http", "https", "HTTP", "ftp", "file", ""]),
        st.sampled_from(["127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[fe80::1%25eth0]",
                         "[fe80::1%eth0]", "localhost", "a" * 300, "x..y", "example.org", "u:p@example.org", "[", "[1]", "[::1", "10.0.0.1",
                         "169.254.169.254", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::]", "0", "xn--a", "-", "%31", "1.2.3.4.5"]),
        st.sampled_from(["", "0", "80", "65536", "-1", "x", "99999999999999999999"]) | st.integers(), st.text(max_size=4)),
)  # fmt: skip
PRIVATE = (
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "10.0.0.1",
    "169.254.169.254",
    "localhost:",
)


@search(usual=150)
@given(URLS, NETWORKS)
def test_any_url_of_a_webhook_is_allowed_or_refused(url, networks):
    is_refused(lambda: parse_networks(networks))
    is_allowed = not is_refused(lambda: AddressGuard().check(url))
    if is_allowed:
        assert url.isascii() and url.lower().startswith(("http://", "https://"))
        assert not any(f"//{host}:" in url for host in PRIVATE[:-1])
