"""The tales: that they are what they claim (known probabilities, invertible), and good reading."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter, defaultdict
from hashlib import sha256

import numpy as np
import pytest

from yuriiformer.data.tales import grammar as tales
from yuriiformer.data.tales import tree as tales_tree
from yuriiformer.data.tales.tree import POOLS, Choice, Draw, Use
from yuriiformer.errors import YuriiError

COUNT, FEW = 10_000, 2_000  # stories told, and of them those that are looked into
END = "<|endoftext|>"
THINGS = ("hero", "friend", "thing", "gift", "dish", "young", "crop", "project", "racer", "prize")


@pytest.fixture(scope="module")
def told():
    return [tales.story_and_nats(0, index) for index in range(COUNT)]


@pytest.fixture(scope="module")
def readers(told):
    return [tales._read(text) for text, _ in told[:FEW]]


@pytest.fixture(scope="module")
def read(readers):
    return [reader.picks for reader in readers]


def words_of(text):
    return re.findall(r"[A-Za-z'-]+", text)


def cast(picks):
    """The word of each slot of a story."""
    return {pick.of: pick.word for pick in picks if pick.word}


# The writer


def test_a_story_depends_on_seed_and_index_alone():
    first = tales.story(3, 7)
    assert list(itertools.islice(tales.stories(3, 5), 4))[2] == first
    assert tales.story_and_nats(3, 7)[0] == first
    assert len({tales.story(seed, 7) for seed in range(50)}) == 50
    assert tales.story(1, 11) != tales.story(11, 1) != tales.story(-1, 11)


def test_golden():
    digest = sha256()
    for index in range(1000):
        digest.update(tales.story(0, index).encode() + b"\0")
    assert digest.hexdigest() == "0c6404f714c5beef408c60203b7e40a04667aefd36b6654a89c218b017d80eca"
    assert tales.story(0, 116) == (
        "Oscar was a cheerful boy who lived in a little house by the sea. He liked counting "
        "the stars best of all. In spring Oscar dug a garden bed behind the little house and "
        'planted peas. "I want to give them to Grandma," he said. But each morning hungry '
        "crows came and pulled at the leaves.\n"
        "Oscar wrote a note and pinned it to a tree: help wanted. The next day Jack stood at "
        "the gate and asked about the peas. Oscar brought a broom, Jack brought a hat, and "
        "together they made a scarecrow. They called it Mister Straw, and the crows stayed "
        "away.\n"
        'At last the peas were ready. "Did you do this alone?" asked Grandma. "No," said '
        'Oscar, "half of it was Jack." From that day on, Oscar and Jack were the best of '
        "friends."
    )


# The text determines the choices


def heads(parts, bound, pool_of):
    """What may come first in ``parts``: its text, the parts known after it, and what it binds."""
    part, *rest = parts
    if isinstance(part, str):
        yield part, rest, bound
    elif isinstance(part, Choice):
        for way in part.options:
            yield from heads(way, bound, pool_of)
    elif isinstance(part, Draw):
        yield from ((word[part.form], [], bound) for word in part.words)
    elif part.slot in bound:
        yield bound[part.slot][part.form], rest, bound
    else:
        pool = pool_of[part.slot]
        taken = [word for slot, word in bound.items() if pool_of[slot] == pool]
        for word in POOLS[pool].words:
            if word not in taken:
                yield word[part.form], rest, {**bound, part.slot: word}


def clash(a, b, bound, pool_of, said_a="", said_b=""):
    """Whether some story may continue along ``a`` and ``b`` alike until one of them is unknown."""
    if not said_a:
        said_a, said_b, a, b = said_b, said_a, b, a  # now b is the one to be asked for more
    common = min(len(said_a), len(said_b))
    if said_a[:common] != said_b[:common]:
        return False
    said_a, said_b = said_a[common:], said_b[common:]
    if said_b:
        said_a, said_b, a, b = said_b, said_a, b, a
    if not b:
        return True
    return any(
        clash(a, rest, now, pool_of, said_a, text) for text, rest, now in heads(b, bound, pool_of)
    )


def every_choice(part, seen):
    if id(part) not in seen:
        seen[id(part)] = part
        for way in part.options:
            for inner in way:
                if isinstance(inner, Choice):
                    every_choice(inner, seen)
    return seen.values()


def test_no_way_begins_as_another_does():
    """For every choice of the grammar and all words there may be: so a reader is never in doubt."""
    pool_of = tales_tree._Compiler(tales_tree._text("grammar.txt")).pool_of
    found = every_choice(tales_tree.root(), {})
    assert len(found) > 100
    for choice in found:
        for a, b in itertools.combinations(choice.options, 2):
            assert not clash(a, b, {}, pool_of), (choice.name, a, b)
        for draw in (part for way in choice.options for part in way if isinstance(part, Draw)):
            for v, w in itertools.permutations(draw.words, 2):
                assert not w[draw.form].startswith(v[draw.form]), (draw.name, v, w)


@pytest.mark.parametrize(
    ("a", "b", "doubt"),
    [
        (("One day",), ("One night",), False),
        (("One",), ("One night",), True),
        ((Use("hero", 0), " ran"), (Use("friend", 0), " ran"), False),  # their names differ
        ((Use("hero", 1), " ran"), (Use("friend", 1), " ran"), True),  # he ran
        ((Use("hero", 0), " ran"), (Use("hero", 0), " sat"), False),
        (("a", Draw("hue", "hues", 0, ())), ("ared",), True),
    ],
)
def test_the_proof_sees_doubt(a, b, doubt):
    pool_of = {"hero": "names", "friend": "names", "hue": "hues"}
    assert clash(a, b, {}, pool_of) is doubt
    assert clash(b, a, {}, pool_of) is doubt


def test_slots_are_drawn_once_before_use_and_apart_from_their_pool():
    pool_of = tales_tree._Compiler(tales_tree._text("grammar.txt")).pool_of

    def after(parts, surely, perhaps):
        for part in parts:
            if isinstance(part, Use):
                assert part.slot in surely, part
            elif isinstance(part, Draw):
                assert part.name not in perhaps, part.name
                drawn = {slot for slot in perhaps if pool_of[slot] == part.pool}
                assert drawn == set(part.apart) <= surely, part.name
                surely, perhaps = surely | {part.name}, perhaps | {part.name}
            elif isinstance(part, Choice):
                ends = [after(way, surely, perhaps) for way in part.options]
                surely = frozenset.intersection(*(end[0] for end in ends))
                perhaps = frozenset.union(*(end[1] for end in ends))
        return surely, perhaps

    after((tales_tree.root(),), frozenset(), frozenset())
    drawn = re.findall(r"\{\+(\w+)=(\w+)", tales_tree._text("grammar.txt"))
    assert all(pool_of[slot] == pool for slot, pool in drawn)


def test_reading_gives_back_the_choices_and_nats(told, readers):
    for index, ((_, cost), reader) in enumerate(zip(told[:FEW], readers, strict=True)):
        made = []
        tales.story_and_nats(0, index, made)
        assert reader.picks == made
        assert abs(math.fsum(reader.costs) - cost) < 1e-9
    for (text, cost), reader in zip(told[:300], readers, strict=False):
        assert tales.choices(text) == reader.picks
        assert abs(tales.nats(text) - cost) < 1e-9
    assert len({text for text, _ in told[:FEW]}) == len({tuple(reader.picks) for reader in readers})


@pytest.mark.parametrize("text", ["", "some other text", tales.story(0, 0) + " ", END])
def test_other_texts_are_refused(text):
    with pytest.raises(YuriiError, match=r"^no tale: [^\n]+$"):
        tales.nats(text)


def test_a_changed_name_is_refused():
    text = tales.story(0, 0)
    hero = cast(tales.choices(text))["hero"]
    head, last, tail = text.rpartition(hero)
    assert last
    with pytest.raises(YuriiError):
        tales.nats(head + "Nemo" + tail)


# Entropy


def test_the_mean_of_the_nats_is_the_entropy(told):
    costs = [cost for _, cost in told]
    mean = math.fsum(costs) / COUNT
    error = np.std(costs) / math.sqrt(COUNT)
    assert error < 0.1
    assert abs(mean - tales.entropy_per_story()) < 4 * error


def test_entropy_of_a_draw_apart_is_that_of_pairs():
    """Against the longhand sum over ordered pairs of different names."""
    chances = tales_tree.Weighted(len(POOLS["names"].words)).chances
    pairs = [p * q / (1 - p) for p, q in itertools.permutations(chances, 2)]
    assert math.fsum(pairs) == pytest.approx(1)
    both = -math.fsum(pair * math.log(pair) for pair in pairs)
    single = tales._entropy_of_draw("names", 0)
    assert single + tales._entropy_of_draw("names", 1) == pytest.approx(both, rel=1e-12)


# Near-duplicates: stories whose sets of word 5-grams have a Jaccard similarity of 0.7 or more


def near_duplicates(texts, least=0.7):
    """Which texts have such a sibling. Two of them share a gram among the rarest of each."""
    sets = []
    for text in texts:
        words = words_of(text.lower())
        sets.append({hash(tuple(words[i : i + 5])) for i in range(len(words) - 4)})
    often = Counter(itertools.chain.from_iterable(sets))
    index, found = defaultdict(list), set()
    for i, grams in enumerate(sets):
        rare = sorted(grams, key=lambda gram: (often[gram], gram))
        near = set()
        for gram in rare[: len(rare) - math.ceil(least * len(rare)) + 1]:
            if often[gram] > 1:
                near.update(index[gram])
                index[gram].append(i)
        for j in near:
            shared = len(grams & sets[j])
            if shared >= least * (len(grams) + len(sets[j]) - shared):
                found |= {i, j}
    return found


def test_few_near_duplicates(told):
    share = len(near_duplicates([text for text, _ in told[:FEW]])) / FEW
    print(f"near-duplicates: {share:.2%} of {FEW}")
    assert share < 0.002  # 1% of 10,000, for with more stories there are more alike


def test_planted_near_duplicates_are_found():
    texts = [tales.story(5, index) for index in range(300)]
    clean = near_duplicates(texts)
    planted = []
    for index in (3, 50, 120):
        words = texts[index].split(" ")
        words[20] = words[90] = "zebra"  # ten 5-grams of some 160
        planted.append(" ".join(words))
    assert near_duplicates(texts + planted) == clean | {3, 50, 120, 300, 301, 302}


# Good reading


def test_the_vocabulary_is_several_hundred_words(told):
    words = Counter(itertools.chain.from_iterable(words_of(text.lower()) for text, _ in told))
    print(f"{len(words)} different words")
    assert 500 < len(words) < 1500


def test_the_text_is_plain(told):
    lengths = [len(text) for text, _ in told]
    print(f"{np.mean(lengths):.0f} characters a story, {min(lengths)} to {max(lengths)}")
    assert 600 < np.mean(lengths) < 1000
    for text, _ in told:
        assert text.isascii()
        assert text.replace("\n", " ").isprintable()
        assert END not in text
        assert not re.search(r"  | \n|\n |[][{}<>|/]|\.\.|(?<![.!?\"])$|\n\n", text)
        assert text.count('"') % 2 == 0


def test_articles_fit(told):
    for text, _ in told:
        assert not re.search(r"\b[Aa] (?!unicycle)[aeiou]|\b[Aa]n [^aeiou]|\b[Aa]n? [Aa]n? ", text)


def test_sentences_begin_with_capitals(told):
    for text, _ in told:
        assert not re.search(r"[.?!]\"? [a-z]", re.sub(r"[?!]\" (\w+ )?\w+", "", text))


def test_only_the_cast_is_named(told, read):
    """Names are remembered: no other child or relative turns up."""
    names = {word[0] for word in POOLS["names"].words}
    kin = {word[0].split()[-1] for word in POOLS["kin"].words}
    for (text, _), picks in zip(told[:FEW], read, strict=True):
        who = cast(picks)
        assert who["hero"] != who["friend"]
        said = {word.removesuffix("'s") for word in words_of(text)}
        assert said & names == {who["hero"], who["friend"]}
        assert said & kin == {who[slot].split()[-1] for slot in ("kin",) if slot in who}


def test_things_are_mentioned_again(told, read):
    """What a story introduces matters later: it comes up at least twice."""
    for (text, _), picks in zip(told[:FEW], read, strict=True):
        who = cast(picks)
        for slot in THINGS:
            if slot in who:
                assert text.count(who[slot]) >= 2, (slot, text)
