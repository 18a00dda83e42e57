"""Every analyzer makes the terms that an independent definition makes, in every script and on every path."""

import random
import threading
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import nearcast as nc
from nearcast.text import analyzer_names, find_analyzer, highlights_of, stem_ids, term_ids, tokenize
from nearcast.text._kernels.words import is_ascii, next_word
from nearcast.text.encode import encode_column, encode_texts
from nearcast.text.word_break import _words_of_chunk, words_of
from oracle import stem_of, terms_of

STEMMED = ("english", "german", "french", "russian", "turkish", "arabic")

# Characters that the rules treat in different ways, from many scripts.
TRICKY = (
    "aAzZéßİñ09٣๒½²_ '’.:;,\"-#@\n\t\u00a0\u200b\u200c\u200d\u200e\u200f\u00ad\u2060\u0301\u0323"
    "שלאמגبcдЖकिन्ख़াํ้นกาไทຍດີខ្មែမြန်東京人々〇カフェーのでｶﾞﾟ한국어ㅎᄒ😀❤\ufe0f🇩🇪ᥐꓐᏣ·‧︓﹒…"
)
TEXTS = st.text(alphabet=TRICKY, max_size=30)
ASSIGNED = st.characters(exclude_categories=["Cn", "Cs"])  # libraries know different versions of Unicode
ASCII_TEXTS = st.text(alphabet="aBz09_ .,:;'\"-#\t\x1c", max_size=40)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("#Sale: 50% off T-Shirts!", ["sale", "50", "off", "t", "shirts"]),
        ("can't CAN’T rock 'n' roll'", ["can't", "can’t", "rock", "n", "roll"]),
        ("3.14 1,000;5 v2.0 a.b.c. 10:30 a:b", ["3.14", "1,000;5", "v2.0", "a.b.c", "10", "30", "a:b"]),
        ("snake_case __ _x", ["snake_case", "_x"]),
        ("हिन्दी की किताबें", ["हिन्दी", "की", "किताबें"]),
        ("বাংলা தமிழ்", ["বাংলা", "தமிழ்"]),
        ("東京のカフェでセール", ["東京", "京の", "のカ", "カフ", "フェ", "ェで", "でセ", "セー", "ール"]),
        ("ｶﾌｪ カ", ["カフ", "フェ", "カ"]),
        ("人々 ラーメン", ["人々", "ラー", "ーメ", "メン"]),
        ("北京, 上海!", ["北京", "上海"]),
        ("二〇二四", ["二〇", "〇二", "二四"]),
        ("iPhone買う2台", ["iphone", "買う", "2", "台"]),
        ("น้ำ ไทย ๒๕๖๐", ["น้ํา", "ไท", "ทย", "๒๕๖๐"]),
        ("ສະບາຍ", ["ສະ", "ະບ", "ບາ", "າຍ"]),
        ("ភាសាខ្មែរ", ["ភាសា", "សាខ្", "ខ្មែ", "មែរ"]),
        ("မြန်မာ", ["မြန်", "န်မာ"]),
        ("한국어 텍스트", ["한국어", "텍스트"]),
        ("צה\"ל ג'ירפה", ['צה"ל', "ג'ירפה"]),
        ("العَرَبِيَّة", ["العَرَبِيَّة"]),
        ("co\u00adop שלום\u200f", ["coop", "שלום"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("Straße Ｆｕｌｌ ﬁne", ["strasse", "full", "fine"]),
        ("e\u0301 É", ["é", "é"]),
        ("😀❤️ — … !", []),
        ("", []),
    ],
)
def test_unicode_divides_every_script(text, terms):
    assert nc.analyze(text, analyzer="unicode") == terms == terms_of(text, "unicode")


@pytest.mark.parametrize(
    ("analyzer", "text", "terms"),
    [
        ("english", "Running shoes, runner's RUNS", ["run", "shoe", "runner", "run"]),
        ("german", "Häuser und Straßen", ["haus", "und", "strass"]),
        ("french", "chevaux nationales", ["cheval", "national"]),
        ("russian", "книги книга", ["книг", "книг"]),
        ("english", "東京のカフェ sales", ["東京", "京の", "のカ", "カフ", "フェ", "sale"]),
    ],
)
def test_stemmers_follow_unicode(analyzer, text, terms):
    assert nc.analyze(text, analyzer=analyzer) == terms


@settings(max_examples=300)
@given(TEXTS)
@example("a\u200d😀 b")
@example("א'ב א\"ב א' ב")
@example("a'\u0301b")
def test_unicode_makes_the_terms_of_an_independent_definition(text):
    assert words_of(text) == terms_of(text, "unicode")
    assert tokenize(text) == terms_of(text, "simple")


@settings(max_examples=300)
@given(ASCII_TEXTS)
def test_the_fast_path_for_ascii_follows_the_same_rules(text):
    slow = [word for chunk in text.lower().split() for word in _words_of_chunk(chunk)]
    assert words_of(text) == slow == terms_of(text, "unicode")


@given(ASCII_TEXTS)
@example("__a_'b.c:1.2,3;4'5:6")
def test_the_kernel_finds_the_same_words(text):
    data, at, found = np.frombuffer(text.encode(), np.uint8), 0, []
    assert is_ascii(data, 0, len(data)) and not is_ascii(np.array([97, 195, 169], np.uint8), 0, 3)
    while (word := next_word(data, at, len(data)))[0] < len(data):
        found.append(text[word[0] : word[1]].lower())
        at = word[1]
    assert found == words_of(text)


@given(st.text(ASSIGNED), st.sampled_from(analyzer_names()))
def test_a_text_has_terms_if_it_holds_a_letter_or_a_digit(text, analyzer):
    assert bool(nc.analyze(text, analyzer=analyzer)) == bool(tokenize(text))


@pytest.mark.parametrize("language", STEMMED)
def test_stems_are_those_of_the_other_implementation(language):
    rng = random.Random(language)
    letters = {"russian": "абвдеиклностыья", "arabic": "ابتدكلمنوية"}.get(language, "abcdefilmnorstu'yäéß")
    drawn = ["".join(rng.choices(letters, k=rng.randint(1, 12))) for _ in range(300)]
    if language == "english":
        drawn += ["generously", "skies", "dying", "happily", "relational", "o'clock", "dogs'"]
    words = [word for word in drawn if words_of(word) == [word]]
    assert len(words) > 30
    assert [nc.analyze(word, analyzer=language) for word in words] == [[stem_of(word, language)] for word in words]


@pytest.mark.parametrize("analyzer", ["simple", "unicode", *STEMMED[:2]])
@settings(max_examples=40)
@given(
    st.lists(ASCII_TEXTS | TEXTS | st.just("Running runs"), min_size=64, max_size=80),
    st.binary(min_size=16, max_size=16),
)
def test_columns_encode_like_single_texts(analyzer, texts, hash_key):
    made = find_analyzer(analyzer)
    expected = [sorted(term_ids(made.terms(text), hash_key).tolist()) for text in texts]
    for rows in (
        encode_texts(texts, hash_key, analyzer=made),
        encode_column(pa.array(["skipped", *texts])[1:], hash_key, analyzer=made),
        encode_column(pa.array(texts, pa.large_string()), hash_key, analyzer=made),
    ):
        ids, counts = np.split(rows.ids, rows.indptr[1:-1]), np.split(rows.counts, rows.indptr[1:-1])
        assert [np.repeat(*row).tolist() for row in zip(ids, counts, strict=True)] == expected


@pytest.mark.parametrize("most", [1, 7, 64])
def test_a_small_cache_of_stems_gives_the_same_terms(monkeypatch, most):
    monkeypatch.setattr(stem_ids, "MOST_WORDS", most)
    monkeypatch.setattr(stem_ids, "_local", threading.local())
    rng, english = random.Random(most), find_analyzer("english")
    for _ in range(5):
        texts = [
            " ".join(rng.choices(["Running", "runs", "shoes", "é", *map(str, range(90))], k=5)) for _ in range(70)
        ]
        encoded, expected = encode_column(pa.array(texts), analyzer=english), encode_texts(texts, analyzer=english)
        assert [column.tolist() for column in encoded[:3]] == [column.tolist() for column in expected[:3]]
        assert all(len(table) <= most for table in stem_ids._tables().values())


def test_a_thread_caches_stems_for_few_languages_and_keys(monkeypatch):
    monkeypatch.setattr(stem_ids, "_local", threading.local())
    texts = ["running houses"] * 64
    for i, language in enumerate(STEMMED * 2):
        hash_key, analyzer = bytes([i] * 16), find_analyzer(language)
        encoded = encode_column(pa.array(texts), hash_key, analyzer=analyzer)
        assert encoded.ids[:2].tolist() == sorted(term_ids(analyzer.terms(texts[0]), hash_key).tolist())
    assert len(stem_ids._tables()) == 4


def test_threads_stem_side_by_side():
    rng, english, wrong = random.Random(3), find_analyzer("english"), []
    texts = [" ".join(rng.choices([f"{stem}{end}" for stem in ("walk", "talk", "bik") for end in ("s", "ing", "ed")], k=9))
             for _ in range(200)]  # fmt: skip
    expected = encode_texts(texts, analyzer=english).ids.tolist()

    def encode():
        for _ in range(20):
            if encode_column(pa.array(texts), analyzer=english).ids.tolist() != expected:
                wrong.append(threading.current_thread().name)

    threads = [threading.Thread(target=encode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_lists_are_taken_verbatim_by_every_analyzer():
    for analyzer in analyzer_names():
        assert nc.analyze(["Running", "", "New York", "カフェ"], analyzer=analyzer) == [
            "Running",
            "",
            "New York",
            "カフェ",
        ]
        column = pa.array([["Running", "カフェ"]] * 70)
        encoded = encode_column(column, analyzer=find_analyzer(analyzer))
        assert encoded.ids[:2].tolist() == sorted(term_ids(["Running", "カフェ"]).tolist())


@pytest.mark.parametrize("name", ["", "English", "klingon", "porter", None, 7, ["english"]])
def test_unknown_analyzers_are_refused(name):
    with pytest.raises(nc.InvalidInput, match=r"analyzer must be one of .*'simple', 'unicode', .*'english'.*; got"):
        nc.analyze("x", analyzer=name)
    with pytest.raises(nc.InvalidInput, match="analyzer must be one of"):
        nc.Vocabulary.with_weights({}).with_analyzer(name)


# -- vocabularies


def test_a_sample_is_counted_with_the_analyzer_of_the_engine_unless_it_has_its_own():
    texts = ["running", "runs fast", "カフェ"]
    late, own = nc.Vocabulary.from_texts(iter(texts)), nc.Vocabulary.from_texts(texts, analyzer="english")
    assert late.idf("run") == late.idf("never seen") != own.idf("run")
    counted = late.with_analyzer("english").with_key(bytes(16))
    for term in ("run", "fast", "カフ", "フェ", "running"):
        assert counted.idf(term) == own.idf(term)
    assert counted.analyzer == own.analyzer == find_analyzer("english")
    assert own.with_analyzer("english") is own
    assert late.with_analyzer("simple").idf("running") == late.idf("running")
    for vocabulary in (own, counted):
        with pytest.raises(
            nc.InvalidInput, match=r"vocabulary must be counted with the analyzer 'german'.*'english'"
        ):
            vocabulary.with_analyzer("german")


def test_weights_may_serve_any_analyzer():
    weights = nc.Vocabulary.with_weights({"run": 2.0, "walk": 1.0})
    english = weights.with_analyzer("english")
    assert english.idf("run") == 2.0 and english.with_analyzer("simple").analyzer == weights.analyzer
    assert english.encode(["Running"]).ids.tolist() == weights.encode(["run"]).ids.tolist()


# -- highlights


@pytest.mark.parametrize(
    ("analyzer", "text", "terms", "words"),
    [
        ("simple", "Coffee, COFFEE & tea", {"coffee"}, ["Coffee", "COFFEE"]),
        ("simple", "Ｆｕｌｌ straße", {"full", "strasse"}, ["Ｆｕｌｌ", "straße"]),
        ("english", "He was Running in SHOES", {"run", "shoe"}, ["Running", "SHOES"]),
        ("unicode", "東京のカフェでセール", {"カフ", "フェ", "セー"}, ["カフェ", "セー"]),
        ("unicode", "ｶﾞｰﾃﾞﾝ de\u0301ja\u0300", {"ガー", "ーデ", "デン", "déjà"}, ["ｶﾞｰﾃﾞﾝ", "de\u0301ja\u0300"]),
        ("unicode", "co\u00adop\u200f!", {"coop"}, ["co\u00adop"]),
        ("unicode", "nothing here", {"else"}, []),
        ("english", ["run", "Running"], {"run"}, ["run"]),
        ("simple", "", {"a"}, []),
    ],
)
def test_highlights_are_the_words_as_written(analyzer, text, terms, words):
    found = highlights_of(text, terms, analyzer=find_analyzer(analyzer))
    assert [highlight.word for highlight in found] == words
    assert all(text[h.start : h.stop] == (h.word if isinstance(text, str) else [h.word]) for h in found)


@settings(max_examples=200)
@given(TEXTS | st.text(max_size=20), st.sampled_from(["simple", "unicode", "english"]))
def test_every_term_of_a_text_can_be_highlighted(text, name):
    analyzer = find_analyzer(name)
    for term in set(analyzer.terms(text)):
        found = highlights_of(text, {term}, analyzer=analyzer)
        assert found and all(highlight.word == text[highlight.start : highlight.stop] for highlight in found)
        assert [h.stop for h in found[:-1]] <= [h.start for h in found[1:]]
        assert all(term in analyzer.terms(highlight.word) for highlight in found)
    assert highlights_of(text, {"no such term"}, analyzer=analyzer) == ()


def test_highlights_of_a_hostile_text_stay_right():
    text = "a" + "\u0301\uff9e" * 3000 + " coffee"
    assert unicodedata.normalize("NFKC", text) != text
    (found,) = highlights_of(text, {"coffee"}, analyzer=find_analyzer("unicode"))
    assert found.word == "coffee"
