"""Several corpora from which a training draws by weight.

    <folder>/manifest.json    version, kind "mixture", tokenizer, and of each member its weight, tokens and manifest
    <folder>/<member>/        the member's token shards, as the stage encode wrote them

The endless order of windows is dealt out to the members so that, after any number of windows, each has had its share
to within two windows (within half a window where there are two members). Every member then goes through its own
windows in its own order and epochs: a small one is repeated. All of it is a function of (seed, step).

An epoch of a mixture is as many windows as its members have together; with weights that follow the members' sizes
each is then read once.
"""

from __future__ import annotations

import heapq
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.data.permutation import fold
from lexmill.data.shards import VERSION, TokenShards, read_manifest
from lexmill.data.windows import Ids, WindowBatches, positions

KIND = "mixture"
_BITS = 30  # of a share: exact to one window in 2 ** 31


@dataclass(frozen=True)
class MixedShards:
    """The train split of a mixture.

    Attributes:
        folder: where it lies.
        members: each member's split, by name.
        weights: each member's weight, by name; the sum is taken as 1.
    """

    folder: Path
    members: dict[str, TokenShards]
    weights: dict[str, float]

    @property
    def vocab_size(self) -> int:
        return next(iter(self.members.values())).vocab_size

    @property
    def tokenizer_fingerprint(self) -> str:
        return next(iter(self.members.values())).tokenizer_fingerprint


def write_mixture(folder: Path, members: Mapping[str, tuple[Path, float]]) -> dict[str, Any]:
    """Make a mixture in an existing folder: the members' files linked (copied where that is not possible).

    Args:
        folder: an empty folder.
        members: the folder of token shards and the weight of each corpus.

    Returns:
        The manifest.

    Raises:
        UserError: a member is no folder of running text, or the members have different tokenizers.
    """
    manifest: dict[str, Any] = {"version": VERSION, "kind": KIND, "members": {}}
    for name, (source, weight) in members.items():
        found = read_manifest(source)
        if found["kind"] != "text":
            raise UserError(f"a {found['kind']} folder cannot be part of a mixture, only encoded running text", source)
        for key in ("tokenizer_fingerprint", "vocab_size"):
            if manifest.setdefault(key, found[key]) != found[key]:
                raise UserError("encoded with another tokenizer than the mixture's other members", source)
        (folder / name).mkdir()
        for path in sorted(source.iterdir()):
            _link(path.resolve(), folder / name / path.name)
        tokens = found["splits"].get("train", {}).get("text", {}).get("tokens", 0)
        sha256 = storage.sha256_file(source / "manifest.json")
        manifest["members"][name] = {
            "weight": weight,
            "train_tokens": tokens,
            "manifest_sha256": sha256,
            "corpus_fingerprint": found["corpus_fingerprint"],
        }
    storage.write_json(folder / "manifest.json", manifest)
    return manifest


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk, or a file system without links
        shutil.copyfile(source, target)


def open_train(folder: str | Path) -> TokenShards | MixedShards:
    """What a language model learns from: the train split of a corpus, or of all members of a mixture."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    if manifest["kind"] != KIND:
        return TokenShards(folder, "train")
    members = {name: TokenShards(folder / name, "train") for name in manifest["members"]}
    return MixedShards(folder, members, {name: entry["weight"] for name, entry in manifest["members"].items()})


def open_valid(folder: str | Path, corpus: str) -> TokenShards:
    """The valid split of a corpus, alone or as a member of a mixture; raises `UserError` where it is no member."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    if manifest["kind"] != KIND:
        return TokenShards(folder, "valid")
    if corpus not in manifest["members"]:
        raise UserError(f"'{corpus}' is no member of the mixture; there are: {', '.join(manifest['members'])}", folder)
    return TokenShards(folder / corpus, "valid")


class Shares:
    """Deals the numbers 0, 1, 2, ... out by weight, each member's share exact at every moment to within 2.

    A binary tree is built as Huffman (1952) builds one, and each of its forks deals out what reaches it: of its first
    n numbers round(n * share) go left. A fork errs by at most 1/2 and passes on its share of the error of the fork
    above it; a fork that is no leaf has at most 2/3 of the one above, which bounds the sum by 2.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.names = list(weights)
        heap: list[tuple[float, int, Any]] = [(weight, i, i) for i, weight in enumerate(weights.values())]
        heapq.heapify(heap)
        for number in range(len(heap), 2 * len(heap) - 1):
            left, right = heapq.heappop(heap), heapq.heappop(heap)
            share = round((1 << _BITS) * left[0] / (left[0] + right[0]))
            heapq.heappush(heap, (left[0] + right[0], number, (share, left[2], right[2])))
        self._tree = heap[0][2]

    def deal(self, numbers: Ids) -> tuple[Ids, Ids]:
        """For each number which member gets it, and how many the member had before."""
        member, place = np.empty_like(numbers), np.empty_like(numbers)

        def visit(tree: Any, rows: Ids, at: Ids) -> None:
            if isinstance(tree, int):
                member[rows], place[rows] = tree, at
                return
            share, left, right = tree
            before = _left(at, share)
            goes_left = _left(at + 1, share) > before
            visit(left, rows[goes_left], before[goes_left])
            visit(right, rows[~goes_left], (at - before)[~goes_left])

        visit(self._tree, np.arange(len(numbers)), numbers)
        return member, place

    def counts(self, total: int) -> dict[str, int]:
        """How many of the first `total` numbers each member gets."""
        found = {}

        def visit(tree: Any, count: int) -> None:
            if isinstance(tree, int):
                found[self.names[tree]] = count
                return
            share, left, right = tree
            of_left = int(_left(np.array([count]), share)[0])
            visit(left, of_left)
            visit(right, count - of_left)

        visit(self._tree, total)
        return {name: found[name] for name in self.names}


def _left(count: Ids, share: int) -> Ids:
    """round(count * share / 2 ** _BITS), in whole numbers: the same on every machine."""
    return (count * share + (1 << (_BITS - 1))) >> _BITS


class MixtureBatches:
    """The global batch of each step, as `WindowBatches` gives it, its windows drawn from several corpora.

    Args:
        shards: the train split of the mixture.
        context: T, targets in a window.
        batch_tokens: targets in a global batch.
        seed: the data seed.

    Raises:
        UserError: a member's split is empty, or batch_tokens holds no window.
    """

    def __init__(self, shards: MixedShards, context: int, batch_tokens: int, seed: int) -> None:
        self.shards, self.context = shards, context
        self.members = {
            name: WindowBatches(member, context, batch_tokens, fold(seed, "member", name))
            for name, member in shards.members.items()
        }
        self.size = batch_tokens // context
        self.windows = sum(member.windows for member in self.members.values())
        self.shares = Shares(shards.weights)

    @property
    def steps_per_epoch(self) -> int:
        """Steps after which as many windows were seen as all members have together (rounded up)."""
        return -(-self.windows // self.size)

    def epoch(self, step: int) -> float:
        """Passes over as many windows as all members have together, when `step` (from 0) begins."""
        return step * self.size / self.windows

    def epochs(self, step: int) -> dict[str, float]:
        """Passes over each member that are behind when `step` (from 0) begins."""
        counts = self.shares.counts(step * self.size)
        return {name: counts[name] / member.windows for name, member in self.members.items()}

    def batch(self, step: int) -> tuple[Ids, Ids]:
        """Inputs (B, T) and targets (B, T) of the global batch of a step, counted from 0."""
        return self.rows(step, 0, 1)

    def rows(self, step: int, rank: int, world: int) -> tuple[Ids, Ids]:
        """The rows rank, rank + world, ... of the global batch; only these are read.

        Raises:
            UserError: there are more ranks than rows, so that one would have no work.
        """
        numbers = positions(step, self.size, rank, world)
        inputs = np.empty((len(numbers), self.context), dtype=np.int64)
        targets = np.empty_like(inputs)
        for member, here, place in self._dealt(numbers):
            inputs[here], targets[here] = member.windows_at(place)
        return inputs, targets

    def documents(self, step: int, rank: int, world: int) -> Ids:
        """(B, T): which document each target of `rows` belongs to, numbered from 0 within its row."""
        numbers = positions(step, self.size, rank, world)
        found = np.empty((len(numbers), self.context), dtype=np.int64)
        for member, here, place in self._dealt(numbers):
            found[here] = member.documents_at(place)
        return found

    def _dealt(self, numbers: Ids) -> list[tuple[WindowBatches, Ids, Ids]]:
        """Each member with the rows it fills and its own positions for them."""
        member, place = self.shares.deal(numbers)
        dealt = []
        for i, batches in enumerate(self.members.values()):
            here = np.flatnonzero(member == i)
            dealt.append((batches, here, place[here]))
        return dealt


def training_batches(
    train: TokenShards | MixedShards, context: int, batch_tokens: int, seed: int
) -> WindowBatches | MixtureBatches:
    """The batches of what `open_train` gave."""
    if isinstance(train, MixedShards):
        return MixtureBatches(train, context, batch_tokens, seed)
    return WindowBatches(train, context, batch_tokens, seed)
