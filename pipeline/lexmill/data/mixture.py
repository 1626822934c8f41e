"""Mixtures: several corpora from which a training draws by weight.

    <folder>/manifest.json    version, kind "mixture", tokenizer, and the weight, tokens and manifest of each member;
                              how many documents of its train other members hold out, if any
    <folder>/<member>/        the member's token shards, as the stage encode wrote them

Windows of running text, or pairs of sentences, are assigned to the members so that, after any number of them, each has
had its share to within two (half a one for two members). Every member goes through its own in its own order and epochs:
a small one is repeated. Everything is a function of (seed, step).

An epoch of a mixture has as many windows as its members together; with weights proportional to the members' sizes it
reads each once.
"""

from __future__ import annotations

import heapq
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.base.outside import parsing
from lexmill.base.ranks import is_first_process
from lexmill.data.overlap import held_out_in_train
from lexmill.data.permutation import fold
from lexmill.data.shards import VERSION, Side, TokenShards, read_manifest
from lexmill.data.windows import Batches, Ids, WindowBatches, positions

KIND = "mixture"
_BITS = 30  # of a share: exact to one window in 2 ** 31


@dataclass(frozen=True)
class MixedShards:
    """The train split of a mixture, or one side of it; its documents are numbered through all members.

    Attributes:
        folder: the mixture's folder.
        members, weights: each member's split and weight, by name; weights are relative.
    """

    folder: Path
    members: dict[str, TokenShards]
    weights: dict[str, float]

    @property
    def first(self) -> TokenShards:
        """Any member: they share the tokenizer."""
        return next(iter(self.members.values()))

    @property
    def vocab_size(self) -> int:
        return self.first.vocab_size

    @property
    def tokenizer_fingerprint(self) -> str:
        return self.first.tokenizer_fingerprint

    @property
    def pad_id(self) -> int:
        return self.first.pad_id

    @property
    def bos_id(self) -> int:
        return self.first.bos_id

    @property
    def split(self) -> str:
        return self.first.split

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of each document, as `TokenShards.lengths`."""
        return np.concatenate([member.lengths for member in self.members.values()])

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """The number of the first document of each member, and that of all documents: (members + 1,)."""
        return np.cumsum([0, *map(len, self.members.values())])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def document(self, i: int) -> npt.NDArray[Any]:
        """The ids of document i, as `TokenShards.document`."""
        member = int(np.searchsorted(self.starts, i, side="right")) - 1
        return list(self.members.values())[member].document(i - int(self.starts[member]))

    def verify(self) -> None:
        """Check the sha256 of every file, as `TokenShards.verify`."""
        for shards in self.members.values():
            shards.verify()


def verify_once(*shards: TokenShards | MixedShards) -> None:
    """Read every byte of the shards in a training's first process: a flipped bit would silently train on other text.

    Cost: a second for each GB, which also brings them into the page cache.
    """
    if is_first_process():
        for one in shards:
            one.verify()


def write_mixture(folder: Path, members: Mapping[str, tuple[Path, float]]) -> dict[str, Any]:
    """Link the members' files into a mixture (or copy them where links are impossible); return the manifest.

    Args:
        folder: an empty folder.
        members: the folder of token shards and the weight of each corpus.

    Raises:
        UserError: members of two kinds, or with different tokenizers.
    """
    manifest: dict[str, Any] = {"version": VERSION, "kind": KIND, "members": {}}
    kind = ""
    for name, (source, weight) in members.items():
        found = read_manifest(source)
        kind = kind or found["kind"]
        if found["kind"] != kind:
            raise UserError(f"a {found['kind']} corpus cannot be mixed with a {kind} one", source)
        for key in ("tokenizer_fingerprint", "vocab_size"):
            if manifest.setdefault(key, found[key]) != found[key]:
                raise UserError("encoded with another tokenizer than the mixture's other members", source)
        (folder / name).mkdir()
        for path in sorted(source.iterdir()):
            _link(path.resolve(), folder / name / path.name)
        manifest["members"][name] = {
            "weight": weight,
            "train_tokens": sum(side["tokens"] for side in found["splits"].get("train", {}).values()),
            "manifest_sha256": storage.sha256_file(source / "manifest.json"),
            "corpus_fingerprint": found["corpus_fingerprint"],
        }
    for name, others in held_out_in_train({name: folder / name for name in members}).items():
        manifest["members"][name]["held_out_by"] = others
    storage.write_json(folder / "manifest.json", manifest)
    return manifest


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk, or a file system without links
        shutil.copyfile(source, target)


def open_train(folder: str | Path, side: Side = "text") -> TokenShards | MixedShards:
    """Open the train split of a corpus, or of all members of a mixture; of pairs one side."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    if manifest.get("kind") != KIND:
        return TokenShards(folder, "train", side)
    with parsing("not what the mix stage writes; run it again", folder / "manifest.json"):
        weights = {str(name): float(entry["weight"]) for name, entry in manifest["members"].items()}
    return MixedShards(folder, {name: TokenShards(folder / name, "train", side) for name in weights}, weights)


def open_valid(folder: str | Path, corpus: str) -> TokenShards:
    """Open the valid split of a corpus, alone or in a mixture; raise `UserError` if it is not a member."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    if manifest.get("kind") != KIND:
        return TokenShards(folder, "valid")
    if corpus not in manifest["members"]:
        raise UserError(f"'{corpus}' is not in the mixture; there are: {', '.join(manifest['members'])}", folder)
    return TokenShards(folder / corpus, "valid")


class Shares:
    """Assigns the numbers 0, 1, 2, ... to members by weight; each share is exact at any time to within 2.

    Each fork of a Huffman tree (1952) splits its numbers: of the first n, round(n * share) go left. A fork errs by at
    most 1/2 and passes on its share of the error of the fork above it; a fork that is not a leaf has at most 2/3 of
    the weight of the one above, which bounds the sum by 2.
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
        """Return the member of each number, and how many numbers the member has before it."""
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
        """Return how many of the first `total` numbers each member gets."""
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
    """round(count * share / 2 ** _BITS) in integers: the same on every machine."""
    return (count * share + (1 << (_BITS - 1))) >> _BITS


class MixtureBatches(Batches):
    """The batches of several corpora; an epoch has as many windows as all members together.

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

    def epochs(self, step: int) -> dict[str, float]:
        """The epochs of each member completed when `step` (from 0) begins."""
        counts = self.shares.counts(step * self.size)
        return {name: counts[name] / member.windows for name, member in self.members.items()}

    def rows(self, step: int, rank: int, world: int) -> tuple[Ids, Ids]:
        """See `Batches.rows`."""
        numbers = positions(step, self.size, rank, world)
        inputs = np.empty((len(numbers), self.context), dtype=np.int64)
        targets = np.empty_like(inputs)
        for member, here, place in self._dealt(numbers):
            inputs[here], targets[here] = member.windows_at(place)
        return inputs, targets

    def documents(self, step: int, rank: int, world: int) -> Ids:
        """(B, T): the document of each target of `rows`, numbered from 0 within its row."""
        numbers = positions(step, self.size, rank, world)
        found = np.empty((len(numbers), self.context), dtype=np.int64)
        for member, here, place in self._dealt(numbers):
            found[here] = member.documents_at(place)
        return found

    def _dealt(self, numbers: Ids) -> list[tuple[WindowBatches, Ids, Ids]]:
        """Each member with the rows it fills and its own positions for them."""
        member, place = self.shares.deal(numbers)
        rows = [np.flatnonzero(member == i) for i in range(len(self.members))]
        return [(batches, here, place[here]) for batches, here in zip(self.members.values(), rows, strict=True)]


def training_batches(
    train: TokenShards | MixedShards, context: int, batch_tokens: int, seed: int
) -> WindowBatches | MixtureBatches:
    """The batches of a split from `open_train`."""
    if isinstance(train, MixedShards):
        return MixtureBatches(train, context, batch_tokens, seed)
    return WindowBatches(train, context, batch_tokens, seed)
