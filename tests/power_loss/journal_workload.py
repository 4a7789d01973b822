"""The workload of `tests.power_loss` on the journal of the built-in ZooKeeper."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from anabranch.controller.zk.journal import JournaledTree
from anabranch.controller.zk.session import ANY_VERSION, Create, Delete, Op, Set
from anabranch.controller.zk.tree import ZnodeTree
from tests.power_loss.recording import Recorder
from tests.power_loss.workloads import Fact

OWNER: Final = 7
Znodes = dict[str, tuple[object, ...]]


def persistent(tree: ZnodeTree) -> Znodes:
    """All of a tree that outlives the process."""
    return {
        path: (one.data, one.czxid, one.mzxid, one.version, one.created, one.pzxid, tuple(sorted(one.children)))
        for path, one in tree.nodes.items()
        if not one.owner
    } | {"ephemeral": tuple(sorted(path for path, one in tree.nodes.items() if one.owner))}


@dataclass
class JournalWorkload:
    """Random transactions; now and then a restart."""

    root: Path
    rng: random.Random
    recorder: Recorder
    facts: list[Fact] = field(default_factory=list)

    def run(self) -> None:
        """Perform all transactions."""
        tree = self._open(self.root)
        for _ in range(60):
            if self.rng.random() < 0.05:
                tree.close()
                tree = self._open(self.root)
            ops = [op for op in self._ops(tree) if op is not None]
            tree.transact(partial(tree.perform, OWNER, ops))
            self._note(tree)
        tree.close()

    def _open(self, root: Path) -> JournaledTree:
        tree = JournaledTree(root / "zookeeper" / "journal")
        if root == self.root:
            self._note(tree)
        return tree

    def _note(self, tree: ZnodeTree) -> None:
        znodes = persistent(tree)
        gone = znodes.pop("ephemeral")
        for path, row in znodes.items():  # their parents remain without them
            znodes[path] = (*row[:-1], tuple(name for name in row[-1] if f"{path.rstrip('/')}/{name}" not in gone))
        self.facts.append(Fact(len(self.recorder.operations), (znodes, tree.zxid)))

    def _ops(self, tree: ZnodeTree) -> list[Op | None]:
        """One operation, or several that are done together."""
        rng, paths = self.rng, sorted(path for path, one in tree.nodes.items() if path != "/" and not one.owner)
        number = len(self.facts)
        ops: list[Op | None] = [Create(f"/n{number}", rng.randbytes(rng.randint(0, 700)))]
        if paths:
            ops.append(Set(rng.choice(paths), rng.randbytes(rng.randint(0, 700)), ANY_VERSION))
            parent = rng.choice(paths)
            ops.append(Create(f"{parent}/c-", b"x", sequence=True))
            ops.append(Create(f"/e{number}", b"", ephemeral=True))
            leaves = [one for one in paths if not tree.nodes[one].children and one not in (parent, ops[1].path)]  # type: ignore[union-attr]
            ops.append(Delete(rng.choice(leaves), ANY_VERSION) if leaves else None)
        return rng.sample(ops, rng.randint(1, len(ops)))

    def recover(self, root: Path, before: tuple[Znodes, int], after: tuple[Znodes, int]) -> str:
        """Open the journal that is left; all of a transaction is there, or nothing of it."""
        (root / "zookeeper").mkdir(exist_ok=True)
        tree = JournaledTree(root / "zookeeper" / "journal")
        found = persistent(tree)
        found.pop("ephemeral")
        if found not in (before[0], after[0]):
            return f"another tree: {sorted(set(found.items()) ^ set(before[0].items()))[:3]}"
        if tree.zxid < max((row[2] for row in before[0].values()), default=0):  # type: ignore[type-var, operator]
            return f"zxid {tree.zxid} will be used again"
        tree.transact(partial(tree.create, "/after", b"", owner=0))
        tree.close()
        again = JournaledTree(root / "zookeeper" / "journal")
        again.close()
        return "" if "/after" in again.nodes else "what was written after the start is lost"
