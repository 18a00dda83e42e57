"""The analyzer is an option of an engine: for messages, keywords and vocabulary, in every form, and part of its state."""

import random

import numpy as np
import pyarrow as pa
import pytest

import nearcast as nc
from nearcast.engine import EngineConfig
from nearcast.engine.shard_engine import ShardEngine
from nearcast.model import KINDS, MessageBatch
from nearcast.testing import strategies
from nearcast.text import analyzer_names

SPACE = strategies.PLANE
WORDS = [
    "Running",
    "runs",
    "shoes",
    "SHOE",
    "カフェ",
    "セール",
    "東京のカフェでセール",
    "किताबें",
    "naïve",
    "don't",
    "ร้านกาแฟ",
    "Häuser",
]
FIELDS = {
    "boolean": {"region": nc.Box(0, 0, 8, 8)},
    "similarity": {"location": (2, 4), "delta": 0.9, "tau": 0.5},
    "topk": {"location": (2, 4), "k": 3, "alpha": 0.25},
    "nearest": {"location": (2, 4), "k": 3},
    "social": {"location": (2, 4), "k": 3, "user": "u0"},
}


def engine_of(analyzer, **options):
    options = {"space": SPACE, "window": nc.CountWindow(50), "social": strategies.social_graph(), **options}
    return nc.Engine(analyzer=analyzer, **options)


def subscription(kind, keywords, id_=None):
    (known,) = (one for one in KINDS if one.kind == kind)
    return known(id=id_ or kind, keywords=keywords, **FIELDS[kind])


@pytest.mark.parametrize("kind", FIELDS)
@pytest.mark.parametrize(
    ("analyzer", "keywords", "text", "matches"),
    [
        ("unicode", "カフェ", "東京のカフェでセール", True),
        ("simple", "カフェ", "東京のカフェでセール", False),
        ("unicode", "カメラ", "東京のカフェでセール", False),
        ("unicode", "หนังสือ", "ร้านหนังสือ", True),
        ("unicode", "किताब", "किताबें", False),
        ("unicode", "run", "Running", False),
        ("english", "run", "He was Running", True),
        ("english", "カフェ", "東京のカフェでセール", True),
        ("german", "Haus", "viele HÄUSER", True),
        ("english", ["running"], "running", False),
        ("english", ["run"], "running", True),
    ],
)
def test_keywords_and_texts_are_analyzed_alike(kind, analyzer, keywords, text, matches):
    engine = engine_of(analyzer)
    engine.subscribe([subscription(kind, keywords)])
    updates = engine.publish([nc.Message("m", (2, 4), text)])
    if kind == "social":  # its results need no shared term
        matched = engine.explain(kind, nc.Message("x", (2, 4), text)).parts
        assert any(part.shared_terms for part in matched) == matches
    else:
        assert [update.message for update in updates] == ["m"] * matches


@pytest.mark.parametrize("analyzer", ["unicode", "english", "german"])
@pytest.mark.parametrize("kind", FIELDS)
def test_fast_indexes_and_tables_give_what_scan_and_objects_give(kind, analyzer):
    rng, sample = random.Random(f"{kind} {analyzer}"), [" ".join(WORDS[i:]) for i in range(len(WORDS))]
    options = {"vocabulary": nc.Vocabulary.from_texts(sample)}
    engines = [
        engine_of(analyzer, **options),
        engine_of(analyzer, **options),
        engine_of(analyzer, index="scan", **options),
    ]
    joined = [" ", " AND ", " OR "] if kind == "boolean" else [" "]
    subscribed = [
        subscription(kind, rng.choice(joined).join(rng.choices(WORDS, k=rng.randint(1, 3))), f"s{i}")
        for i in range(60)
    ]
    rows = [{**one.to_row(), "op": "subscribe"} for one in subscribed]
    for engine, given in zip(engines, (subscribed, pa.Table.from_pylist(rows), subscribed), strict=True):
        engine.subscribe(given)
    assert len(engines[1]) == 60
    n_updates = 0
    for start in range(0, 300, 75):
        messages = [
            {
                "id": f"m{start + i}",
                "x": rng.choice([0.0, 2.0, 4.0]),
                "y": 4.0,
                "text": " ".join(rng.choices(WORDS, k=3)),
            }
            for i in range(75)
        ]
        objects = [nc.Message(m["id"], (m["x"], m["y"]), m["text"]) for m in messages]
        fast, slow = (
            sorted(engines[i].publish(objects), key=lambda u: (u.seq, u.subscription, u.message)) for i in (0, 2)
        )
        assert fast == slow
        by_table = (
            engines[1]
            .publish(pa.Table.from_pylist(messages))
            .sort_by([("seq", "ascending"), ("subscription", "ascending"), ("message", "ascending")])
        )
        assert [(u.seq, u.subscription, u.message, u.change, u.score) for u in fast] == [
            (row["seq"], row["subscription"], row["message"], row["change"], row["score"])
            for row in by_table.to_pylist()
        ]
        n_updates += len(fast)
    assert n_updates > 50


def test_bigrams_of_a_keyword_stand_side_by_side():
    engine = engine_of("unicode")
    engine.subscribe([subscription("boolean", "カフェオレ OR 紅茶", "b")])
    texts = {"whole": "冷たいカフェオレ", "part": "カフェ", "apart": "オレのカフェオ、フェオレ", "other": "紅茶"}
    updates = engine.publish([nc.Message(id_, (2, 4), text) for id_, text in texts.items()])
    assert {update.message for update in updates} == {"whole", "other"}


@pytest.mark.parametrize("analyzer", ["unicode", "english"])
def test_a_loaded_engine_keeps_its_analyzer(tmp_path, analyzer):
    engine = engine_of(analyzer, vocabulary=nc.Vocabulary.from_texts(WORDS))
    engine.subscribe([subscription(kind, "Running shoes カフェ") for kind in FIELDS])
    engine.publish([nc.Message("before", (2, 4), "running SHOES")])
    engine.save(tmp_path / "saved")
    loaded = nc.Engine.load(tmp_path / "saved", workers=3)
    message = nc.Message("after", (2, 4), "東京のカフェでセール, shoe runs")
    key = lambda update: (update.subscription, update.message)  # noqa: E731
    assert sorted(loaded.publish([message]), key=key) == sorted(engine.publish([message]), key=key)
    assert loaded.results("topk") == engine.results("topk") and len(engine.results("topk")) == 2


def test_explanations_show_terms_and_the_words_that_gave_them():
    engine = engine_of("english")
    engine.subscribe([subscription(kind, "shoe runner カフェ run") for kind in FIELDS])
    engine.subscribe([subscription("boolean", "(running AND shoes) OR (カフェ AND tea) OR bike")])
    message = nc.Message("m", (2, 4), "Running to the カフェ for new SHOES")
    for kind in FIELDS:
        explained = engine.explain(kind, message)
        expected = ["Running", "SHOES"] if kind == "boolean" else ["Running", "カフェ", "SHOES"]
        assert [found.word for found in explained.highlights] == expected
        assert all(message.text[start:stop] == word for start, stop, word in explained.highlights)
        assert "'Running'" in str(explained)
    engine.publish([message])
    assert engine.explain("topk", "m").highlights is None
    missing = engine.explain("boolean", nc.Message("x", (2, 4), "Tea, please"))
    assert [part.missing_terms for part in missing.parts if part.missing_terms] == [("bike",)]
    assert missing.highlights == ()
    assert [
        w.word for w in engine.score(subscription("nearest", "teas"), nc.Message("x", (2, 4), "Tea!")).highlights
    ] == ["Tea"]


def test_limits_count_the_terms_of_the_analyzer():
    with_limit = {"limits": nc.Limits(terms=3)}
    for kind in FIELDS:
        engine_of("simple", **with_limit).subscribe([subscription(kind, "カフェオレ")])
        with pytest.raises(nc.InvalidInput, match="keywords must hold at most 3 terms; got 4"):
            engine_of("unicode", **with_limit).subscribe([subscription(kind, "カフェオレ")])


@pytest.mark.parametrize("name", ["klingon", "", 5, None])
def test_unknown_analyzers_are_refused(name):
    if name is None:
        assert engine_of(None)._config.analyzer == "simple"
        return
    with pytest.raises(nc.InvalidInput, match=r"analyzer must be one of .*engine"):
        engine_of(name)


def test_a_vocabulary_of_another_analyzer_is_refused():
    vocabulary = nc.Vocabulary.from_texts(WORDS, analyzer="unicode")
    with pytest.raises(nc.InvalidInput, match="vocabulary must be counted with the analyzer 'english'"):
        engine_of("english", vocabulary=vocabulary)


def test_terms_of_another_analyzer_are_refused():
    engine, other = engine_of("english"), engine_of("unicode")
    batch = MessageBatch.from_messages([nc.Message("m", (2, 4), "running")], vocabulary=other._scoring.vocabulary)
    _ = batch.terms
    assert len(engine.publish(batch)) == 0 and engine.stats().messages == 1
    with pytest.raises(
        nc.InvalidInput, match="messages must hold terms of the engine's analyzer 'english'; got 'unicode'"
    ):
        engine.publish(batch.take(np.arange(1)))
    assert engine.stats().messages == 1


def test_a_sealed_engine_is_continued_with_its_analyzer(tmp_path):
    config = EngineConfig.of({"space": SPACE, "window": nc.CountWindow(9), "analyzer": "english"})
    engine = ShardEngine.create(config, folder=str(tmp_path / "shard"))
    engine.subscribe([nc.BooleanSubscription("b", region=nc.Box(0, 0, 8, 8), keywords="running")])
    engine.seal("now")
    engine.close()
    attached = ShardEngine.attach(str(tmp_path / "shard"), "now", config)
    assert [update.message for update in attached.publish([nc.Message("m", (2, 4), "She RUNS")])] == ["m"]
    attached.close()


def test_every_analyzer_runs_an_engine():
    for name in analyzer_names():
        engine = engine_of(name)
        engine.subscribe([subscription("boolean", "jazz")])
        assert len(engine.publish([nc.Message("m", (2, 4), "Jazz!")])) == 1, name
