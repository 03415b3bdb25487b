"""The order of training data: every property that it promises, and golden values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import yuriiformer as yf
from tests.drawn import examples
from yuriiformer.data.order import hash_words, permute, uniform, validation_starts
from yuriiformer.errors import DataError

ORDERS = st.builds(
    lambda context, extra, sequences, seed: yf.BatchOrder(
        n_tokens=context + 1 + extra, context=context, sequences=sequences, seed=seed
    ),
    st.integers(1, 12),
    st.integers(0, 120),
    st.integers(1, 17),
    st.integers(0, 2**64 - 1),
)


def places(order: yf.BatchOrder, first: int, count: int) -> np.ndarray:
    """The starts of sequences first, first + 1, … of the whole run."""
    steps = range(first // order.sequences, (first + count - 1) // order.sequences + 1)
    whole = np.concatenate([order.starts(step) for step in steps])
    skip = first - steps[0] * order.sequences
    return whole[skip : skip + count]


@given(ORDERS)
def test_each_block_exactly_once_an_epoch(order):
    behind = 0
    for epoch in range(4):
        size = int(order.sizes(np.array([epoch]))[0])
        offset = int(order.offsets(np.array([epoch]))[0])
        assert 0 <= offset < order.context
        assert size == (order.n_tokens - 1 - offset) // order.context >= 1
        assert epoch > 0 or offset == 0
        starts = places(order, behind, size)
        expected = offset + order.context * np.arange(size)
        assert np.array_equal(np.sort(starts), expected)
        assert starts.max() + order.context + 1 <= order.n_tokens  # the last target is there
        behind += size


@given(ORDERS, st.integers(0, 400), st.integers(1, 6), st.integers(1, 9))
def test_the_same_for_any_processes_micro_batches_and_restarts(order, step, processes, micro):
    whole = order.starts(step)
    assert whole.dtype == np.int64
    assert whole.shape == (order.sequences,)
    fresh = yf.BatchOrder(order.n_tokens, order.context, order.sequences, order.seed)
    assert np.array_equal(fresh.starts(step), whole)  # asked for at once, or after other steps
    if order.sequences % processes:
        return
    parts = [
        batch
        for process in range(processes)
        for batch in fresh.micro_batches(
            step, process=process, processes=processes, micro_batch=micro
        )
    ]
    assert np.array_equal(np.concatenate(parts), whole)
    assert all(len(part) <= micro for part in parts)


def test_a_batch_crosses_the_end_of_an_epoch():
    order = yf.BatchOrder(n_tokens=10 * 8 + 1, context=8, sequences=7, seed=3)
    first_epoch = set((8 * np.arange(10)).tolist())
    assert set(order.starts(0).tolist()) < first_epoch
    crossing = order.starts(1)
    assert set(crossing[:3].tolist()) == first_epoch - set(order.starts(0).tolist())
    offset = int(order.offsets(np.array([1]))[0])
    assert set((crossing[3:] % 8).tolist()) == {offset}


def test_seeds_and_epochs_differ():
    orders = [yf.BatchOrder(n_tokens=64_001, context=64, sequences=1000, seed=s) for s in range(3)]
    first = [order.starts(0) for order in orders]
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[1], first[2])
    sizes = orders[0].sizes(np.arange(2))
    second = places(orders[0], int(sizes[0]), int(sizes[1]))
    shift = int(orders[0].offsets(np.array([1]))[0])
    same = (first[0][: len(second)] == second - shift).mean()
    assert same < 0.02  # the second epoch is another shuffle, not the first one shifted
    offsets = orders[0].offsets(np.arange(1, 2000))
    assert len(set(offsets.tolist())) == 64


def test_the_shuffle_is_even():
    """All 24 orders of four blocks come up alike (chi-squared with 23 degrees of freedom)."""
    counts: dict[tuple[int, ...], int] = {}
    four = np.arange(4, dtype=np.uint64)
    epochs = np.arange(100, dtype=np.uint64)
    for seed in range(48):
        orders = permute(
            np.tile(four, 100), np.full(400, 4, np.uint64), seed, np.repeat(epochs, 4), 32
        )
        for key in map(tuple, orders.reshape(100, 4).tolist()):
            counts[key] = counts.get(key, 0) + 1
    assert len(counts) == 24
    chi_squared = sum((n - 200) ** 2 / 200 for n in counts.values())
    assert chi_squared < 49.7  # exceeded once in a thousand times by chance


def test_neighbours_do_not_stay_neighbours():
    starts = places(yf.BatchOrder(n_tokens=100_001, context=1, seed=5), 0, 100_000)
    correlation = np.corrcoef(starts[:-1], starts[1:])[0, 1]
    assert abs(correlation) < 0.015
    assert abs(np.corrcoef(np.arange(100_000), starts)[0, 1]) < 0.015


@pytest.mark.parametrize(("tokens", "steps"), [(471_600_000, 959.5), (8_620_000_000, 17_537.4)])
def test_the_papers_steps_an_epoch(tokens, steps):
    assert yf.BatchOrder(n_tokens=tokens, context=1024).steps_per_epoch == pytest.approx(
        steps, 1e-4
    )


def test_golden_values():
    """The order of every run depends on these: they never change."""
    order = yf.BatchOrder(n_tokens=8_620_000_000, context=1024, sequences=480, seed=0)
    assert order.starts(0)[:4].tolist() == GOLDEN["first"]
    assert order.starts(17_537)[-2:].tolist() == GOLDEN["second epoch"]
    assert order.starts(29_999)[:2].tolist() == GOLDEN["last"]
    small = yf.BatchOrder(n_tokens=100, context=7, sequences=5, seed=1)
    assert small.starts(0).tolist() == GOLDEN["small"]
    assert [int(hash_words(7, 1, 2)), int(hash_words(2**63, 0))] == GOLDEN["hash"]


GOLDEN = {
    "first": [7990897664, 3601513472, 3629438976, 5662274560],
    "second epoch": [8041055203, 3472663523],
    "last": [3757811683, 7256110051],
    "small": [91, 14, 0, 21, 77],
    "hash": [17454042800205077828, 6600752032320735575],
}


def test_integers_of_numpy_are_integers():
    plain = yf.BatchOrder(n_tokens=1000, context=4, sequences=6, seed=3)
    numpy = yf.BatchOrder(*(np.int64(n) for n in (1000, 4, 6, 3)))
    assert np.array_equal(plain.starts(7), numpy.starts(np.int32(7)))
    assert len(yf.BatchOrder(n_tokens=1000, context=4, seed=-1).starts(0)) == 480


def test_a_tiny_corpus_has_many_epochs_a_step():
    order = yf.BatchOrder(n_tokens=9, context=8, sequences=480, seed=0)
    assert order.starts(1_000).tolist() == [0] * 480  # a shift would leave no block


@examples(100)
@given(st.integers(1, 50), st.integers(1, 2000), st.integers(1, 300))
def test_validation_goes_through_the_file_again_and_again(context, extra, sequences):
    starts = validation_starts(context + extra, context, sequences)
    blocks = (context + extra - 1) // context
    assert starts.tolist() == [context * (i % blocks) for i in range(sequences)]


@examples(100)
@given(st.integers(1, 50), st.integers(1, 2000), st.integers(1, 300))
def test_validation_spread_over_the_file(context, extra, sequences):
    """Even distances: no block more than once where there are enough, the whole file covered."""
    starts = validation_starts(context + extra, context, sequences, spread=True)
    blocks = (context + extra - 1) // context
    assert starts[0] == 0
    assert (starts % context == 0).all()
    steps = np.diff(starts // context)
    assert steps.size == 0 or steps.max() - steps.min() <= 1
    assert blocks - 1 - starts[-1] // context <= -(-blocks // sequences)
    counts = np.bincount(starts // context, minlength=blocks)
    if sequences >= blocks:
        assert counts.max() - counts.min() <= 1
    else:
        assert counts.max() == 1


def test_uniform_hashes():
    values = uniform(hash_words(3, np.arange(100_000)))
    assert 0 <= values.min() < values.max() < 1
    counts = np.histogram(values, 20, (0, 1))[0]
    assert ((counts - 5000) ** 2 / 5000).sum() < 43.8  # chi-squared, 19 degrees, one in a thousand


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"n_tokens": 1024, "context": 1024}, "1024 tokens are shorter than one block of 1024"),
        ({"n_tokens": 0, "context": 4}, "n_tokens must be at least 1, not 0"),
        ({"n_tokens": 10.0, "context": 4}, "n_tokens must be a whole number"),
        ({"n_tokens": 10, "context": 4, "sequences": 0}, "sequences must be at least 1"),
    ],
)
def test_orders_that_cannot_be(options, reason):
    with pytest.raises(DataError, match=reason):
        yf.BatchOrder(**options)


def test_steps_and_shares_that_cannot_be():
    order = yf.BatchOrder(n_tokens=100, context=4, sequences=6)
    with pytest.raises(DataError, match="step must be at least 0, not -1"):
        order.starts(-1)
    for step in (1.5, True, "1", np.True_):
        with pytest.raises(DataError, match="step must be a whole number"):
            order.starts(step)
    assert (order.starts(np.int32(3)) == order.starts(3)).all()
    with pytest.raises(DataError, match="epochs ahead"):
        order.starts(2**62)
    for options in ({"micro_batch": 0}, {"micro_batch": -1}, {"processes": 0}, {"process": -1}):
        with pytest.raises(DataError, match=r"must be at least [01]"):
            order.micro_batches(0, **options)
    for seed in (1.5, None, "x"):
        with pytest.raises(DataError, match="seed must be a whole number"):
            yf.BatchOrder(n_tokens=100, context=4, seed=seed)
    with pytest.raises(DataError, match="each of up to 6 processes needs at least one"):
        order.micro_batches(0, processes=7)
    with pytest.raises(DataError, match="process 2 of 2"):
        order.micro_batches(0, process=2, processes=2)
