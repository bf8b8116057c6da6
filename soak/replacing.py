"""Random migrations that replace tables under their names: by a filled copy, by a new one, or by each other."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import psycopg

__all__ = ["Replacing"]

KEYS = 30


class Replacing:
    """Writes to tables that are always there under these names, whichever tables those are.

    `pause` is called where a migration of several transactions may be seen half done.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        chance: random.Random,
        names: Iterable[str],
        pause: Callable[[], object] = lambda: None,
    ) -> None:
        self._connection, self._chance, self._pause = connection, chance, pause
        self._names = list(names)
        self.said: list[str] = []
        self._made = 0
        self._steps = (self.replace, self.recreate, self.swap, self.circle)

    def create(self) -> None:
        """The first tables."""
        for name in self._names:
            self._do([self._definition(name), *(self._change(name) for _ in range(5))])

    def step(self) -> None:
        """Rows, mostly; a migration now and then."""
        if self._chance.random() < 0.25:
            self._chance.choice(self._steps)()
        else:
            self.rows()

    def rows(self) -> None:
        """A transaction of ordinary changes."""
        self._do([self._change(self._chance.choice(self._names)) for _ in range(self._chance.randint(1, 4))])

    def replace(self) -> None:
        """A filled copy with one more column takes a table's name; the old one is renamed away, or dropped."""
        name, new = self._chance.choice(self._names), self._new()
        self._do(
            [
                f"CREATE TABLE {new} (LIKE {name} INCLUDING ALL)",
                f"ALTER TABLE {new} ADD {new}_ int DEFAULT {self._made}",
                f"INSERT INTO {new} SELECT * FROM {name}",
                self._change(new),
            ]
        )
        away = self._chance.choice((f"DROP TABLE {name}", f"ALTER TABLE {name} RENAME TO {new}_old"))
        self._together([self._change(name), away, f"ALTER TABLE {new} RENAME TO {name}", self._change(name)])
        if "RENAME" in away:
            self._do([self._change(f"{new}_old")])

    def recreate(self) -> None:
        """A table is dropped, and another one is created under its name."""
        name = self._chance.choice(self._names)
        self._together([self._change(name), f"DROP TABLE {name}", self._definition(name), self._change(name)])

    def swap(self) -> None:
        """Two tables swap names."""
        self._rotate(self._chance.sample(self._names, 2))

    def circle(self) -> None:
        """All tables take each other's names in a circle."""
        self._rotate(self._chance.sample(self._names, len(self._names)))

    def _rotate(self, names: list[str]) -> None:
        spare = self._new()
        places = [spare, *names]
        renames = [f"ALTER TABLE {old} RENAME TO {new}" for new, old in zip(places, [*names, spare], strict=True)]
        self._do([*renames, self._change(names[0])])

    def _new(self) -> str:
        self._made += 1
        return f"n{self._made}"

    def _definition(self, name: str) -> str:
        return f"CREATE TABLE {name} (id int PRIMARY KEY, v text, {self._new()}_ int)"

    def _change(self, name: str) -> str:
        first = self._chance.randrange(KEYS)
        return self._chance.choice(
            (
                f"INSERT INTO {name} (id, v) VALUES ({first}, '{first}') ON CONFLICT (id) DO UPDATE SET v = excluded.v",
                f"INSERT INTO {name} (id, v) SELECT i, 'many' FROM generate_series({first}, {first} + 5) i"
                " ON CONFLICT DO NOTHING",
                f"UPDATE {name} SET v = v || '+' WHERE id % 3 = {first % 3}",
                f"DELETE FROM {name} WHERE id = {first}",
            )
        )

    def _together(self, statements: list[str]) -> None:
        """In one transaction, or each in its own, with pauses between."""
        if self._chance.random() < 0.5:
            self._do(statements)
            return
        for statement in statements:
            self._do([statement])
            self._pause()

    def _do(self, statements: list[str]) -> None:
        self.said += ["BEGIN;", *(f"{each};" for each in statements), "COMMIT;"]
        with self._connection.transaction():
            for each in statements:
                self._connection.execute(each.encode())
