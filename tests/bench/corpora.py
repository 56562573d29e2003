"""Data of the benchmarks: Reuters R8 as it is, and sentence pairs of MRPC's lengths cut out of it."""

from __future__ import annotations

import csv
import random
import statistics
from pathlib import Path

from transformers import AutoTokenizer

DEMO = Path(__file__).parents[2] / ".cache" / "demo"
# MRPC: 3,668 training and 408 validation pairs, two sentences of about 22 words each; no package carries it.
MRPC_PAIRS = {"train": 3668, "test": 408}
WORDS_MEAN, WORDS_SPREAD = 21.5, 5.5
FEWEST_WORDS, MOST_WORDS = 7, 35


def write_pairs(folder: Path) -> None:
    """Write train.csv and test.csv of pairs: label 1 if both spans are of one document, 0 if of two."""
    rng = random.Random(17)  # noqa: S311 - no secrets here
    for split, count in MRPC_PAIRS.items():
        with (DEMO / "reuters-r8" / f"{split}.csv").open(encoding="utf-8", newline="") as source:
            texts = [row["text"].split() for row in csv.DictReader(source)]
        texts = [words for words in texts if len(words) > 2 * MOST_WORDS]
        with (folder / f"{split}.csv").open("w", encoding="utf-8", newline="") as target:
            writer = csv.writer(target)
            writer.writerow(("label", "sentence1", "sentence2"))
            for _ in range(count):
                label = rng.random() < 0.67  # the share of paraphrases in MRPC
                one = rng.choice(texts)
                other = one if label else rng.choice(texts)
                writer.writerow((int(label), span(one, 0, rng), span(other, MOST_WORDS, rng)))


def mean_tokens(folder: Path, text: tuple[str, ...], max_length: int) -> float:
    """Tokens of a mean training sample, cut at `max_length`."""
    tokenizer = AutoTokenizer.from_pretrained(str(DEMO / "minilm"))
    with (folder / "train.csv").open(encoding="utf-8", newline="") as source:
        rows = list(csv.DictReader(source))
    columns = [[row[column] for row in rows] for column in text]
    return statistics.fmean(
        len(tokens) for tokens in tokenizer(*columns, truncation=True, max_length=max_length)["input_ids"]
    )


def span(words: list[str], start: int, rng: random.Random) -> str:
    """Cut a sentence-long span out of a document."""
    length = round(min(MOST_WORDS, max(FEWEST_WORDS, rng.gauss(WORDS_MEAN, WORDS_SPREAD))))
    return " ".join(words[start : start + length])
