"""The inputs of a job besides its streams: vocabulary, social graph and routing.

A learned vocabulary is stored beside the checkpoint: scores mean the same as long as the job lives. Only learning
needs Spark, so a client of the job can read the same inputs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import nlargest
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from nearcast.errors import FormatError, InvalidInput, StateError, require
from nearcast.jobs.folder import Folder
from nearcast.jobs.job_file import JobFile
from nearcast.partition import Routing, serialization
from nearcast.social import SocialGraph
from nearcast.text import DEFAULT_HASH_KEY, HashKey, Vocabulary, new_hash_key

_LEARNED = "vocabulary.arrow"
_HASH_KEY = "hash.key"
_FORMATS = {"csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json", "parquet": "parquet"}
"""Suffix of a file of edges to its Arrow format."""
_FEW = 0.1  # share of all texts
_EDGES = pa.schema([("user", pa.string()), ("place", pa.string())])


def vocabulary_of(job_file: JobFile, learn: Callable[[JobFile], Vocabulary] | None = None) -> Vocabulary | None:
    """Return the term weights of a job; if they are to be learned and are not yet, `learn` is called first."""
    table = job_file.vocabulary
    if table is None:
        return None
    if table.file is not None:
        return _spelled(job_file, table.file)
    checkpoint = Folder(job_file.resolve(job_file.run.checkpoint))
    if checkpoint.size(_LEARNED) is None:
        if learn is None:
            raise StateError(f"{job_file.file} must have run once, to learn its vocabulary; it has not")
        checkpoint.write(_LEARNED, _packed(learn(job_file)))
    return _unpacked(checkpoint.read(_LEARNED))


def hash_key_of(job_file: JobFile, *, draw: bool = False) -> HashKey | None:
    """Return the key under which a job hashes terms and ids: that of its routing, or its own, which is drawn once."""
    packed = _packed_routing(job_file)
    if packed is not None and (shared := serialization.hash_key_of(packed)) is not None:
        return shared
    checkpoint = Folder(job_file.resolve(job_file.run.checkpoint))
    if checkpoint.size(_HASH_KEY) is None:
        if not draw:
            return None
        checkpoint.write(_HASH_KEY, new_hash_key())
    return checkpoint.read(_HASH_KEY)


def common_terms(job_file: JobFile, n: int) -> list[str]:
    """Return the most frequent informative terms of a job, if its vocabulary spells them."""
    if job_file.vocabulary is None or job_file.vocabulary.file is None:
        return []
    content = _content(job_file, job_file.vocabulary.file)
    counted, most = content.get("frequencies", {}), _FEW * content.get("documents", 0)
    return nlargest(
        n, (term for term in counted if term.isalpha() and counted[term] <= most), key=counted.__getitem__
    )


def social_of(job_file: JobFile) -> SocialGraph | None:
    """Return the social graph of a job."""
    if job_file.social is None:
        return None
    file, subject = job_file.social.file, "[social]"
    ending = file.rpartition(".")[2]
    require(ending in _FORMATS, "file", f"must end in one of {sorted(_FORMATS)}", file, subject=subject)
    folder, rule = Folder(job_file.resolve(file)), "must hold the columns user and place"
    where = {"source": folder.path, "filesystem": folder.files, "format": _FORMATS[ending]}
    try:
        names = ds.dataset(**where).schema.names
        require(set(_EDGES.names) <= set(names), "file", f"{rule}; it has {names}", file, subject=subject)
        edges = ds.dataset(**where, schema=_EDGES).to_table()
        edges.validate(full=True)  # texts that are not UTF-8
    except InvalidInput:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InvalidInput("file", f"{rule} ({_first_line(error)})", file, subject=subject) from None
    with _about(subject):
        return SocialGraph(zip(edges["user"].to_pylist(), edges["place"].to_pylist(), strict=True))


def routing_of(job_file: JobFile) -> Routing | None:
    """Return the fitted routing of a job, if it names one."""
    packed = _packed_routing(job_file)
    return None if packed is None else serialization.unpack(packed)


def _packed_routing(job_file: JobFile) -> bytes | None:
    """Return the routing file of a job, which is one."""
    file = job_file.match.routing
    if file is None:
        return None
    folder, _, name = job_file.resolve(file).rpartition("/")
    try:
        packed = Folder(folder).read(name)
        serialization.unpack(packed)
        return packed
    except (OSError, FormatError) as error:
        rule = f"must be a file that `nearcast advise --save` wrote ({error})"
        raise InvalidInput("routing", rule, file, subject="[match]") from None


def _spelled(job_file: JobFile, file: str) -> Vocabulary:
    """Return the vocabulary of a JSON file."""
    content = _content(job_file, file)
    with _about("[vocabulary]"):
        return vocabulary_from(content)


def _content(job_file: JobFile, file: str) -> Any:
    folder, _, name = job_file.resolve(file).rpartition("/")
    try:
        return json.loads(Folder(folder).read(name))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput("file", f"must be a file of JSON ({error})", file, subject="[vocabulary]") from None


def vocabulary_from(content: Any) -> Vocabulary:
    """Return the vocabulary of counts or weights.

    >>> vocabulary_from({"weights": {"jazz": 2.0}}).idf("jazz")
    2.0
    """
    keys = sorted(content) if isinstance(content, dict) else content
    rule = "must be a table of documents and frequencies, or of weights"
    require(keys in (["documents", "frequencies"], ["weights"]), "file", rule, keys)
    for name in ("frequencies", "weights"):
        table = content.get(name, {})
        require(isinstance(table, dict), name, "must map terms to numbers", table)
    if keys == ["weights"]:
        return Vocabulary.with_weights(content["weights"])
    return Vocabulary(content["documents"], content["frequencies"])


def _packed(vocabulary: Vocabulary) -> bytes:
    state = vocabulary.state()
    default = json.dumps(state["default"])
    table = pa.table({"term": state["terms"], "idf": state["idfs"]}).replace_schema_metadata({"default": default})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _unpacked(data: bytes) -> Vocabulary:
    table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
    default = json.loads(table.schema.metadata[b"default"])
    terms, idfs = table["term"].combine_chunks(), table["idf"].to_numpy()
    return Vocabulary.from_state(terms=terms, idfs=idfs, default=default, hash_key=DEFAULT_HASH_KEY)


@contextmanager
def _about(subject: str) -> Iterator[None]:
    try:
        yield
    except InvalidInput as error:
        raise error.about(subject) from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
