"""Random transactions on a mirrored table, random turns of its route: each tenant has exactly its rows."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from tests.logroutes import LogRoute
from tests.mirror import Mirror

STEPS = 30
SEED = os.environ.get("HEADWATER_SEED")
BIG = "repeat(md5({}::text), 150)"
IDENTITIES = {
    "FULL": ["ALTER TABLE orders REPLICA IDENTITY FULL"],
    "an index": [
        "CREATE UNIQUE INDEX by_tenant ON orders (id, tenant)",
        "ALTER TABLE orders REPLICA IDENTITY USING INDEX by_tenant",
    ],
}


class History:
    """What happens to the table and to the route's destinations; every choice comes from `dice`."""

    def __init__(self, route: LogRoute, dice: random.Random) -> None:
        self.route, self.mirror, self.dice = route, route.mirror, dice
        self.next_id, self.added = 0, 0
        self.steps: list[str] = []

    def tenant(self) -> str:
        return self.dice.choice(["'a'", "'b'", "'c'", "'d'"])  # the route knows three of them

    def some(self) -> str:
        return f"id IN ({', '.join(str(self.dice.randint(0, self.next_id)) for _ in range(4))})"

    def statements(self) -> Iterator[str]:
        for _ in range(self.dice.randint(1, 5)):
            match self.dice.randint(0, 6):
                case 0 | 1:
                    self.next_id += 1
                    body = BIG.format(self.next_id)
                    yield f"INSERT INTO orders (id, tenant, body) VALUES ({self.next_id}, {self.tenant()}, {body})"
                case 2:
                    yield f"UPDATE orders SET note = 'n{len(self.steps)}' WHERE {self.some()}"
                case 3:
                    yield f"UPDATE orders SET tenant = {self.tenant()} WHERE {self.some()}"
                case 4:
                    self.next_id += 1
                    yield f"UPDATE orders SET id = {self.next_id} WHERE id = {self.dice.randint(0, self.next_id)}"
                case 5:
                    yield f"UPDATE orders SET body = {BIG.format(len(self.steps))} WHERE {self.some()}"
                case 6:
                    yield f"DELETE FROM orders WHERE {self.some()}"

    def step(self) -> None:
        state = self.mirror.m.state
        match self.dice.randint(0, 19):
            case 0:
                self.mirror.execute("TRUNCATE orders")
            case 1:
                self.added += 1
                self.mirror.execute(f"ALTER TABLE orders ADD c{self.added} int DEFAULT {self.added}")
            case 2:
                state.pause_destinations("r", [f"={self.dice.choice('abc')}"])
            case 3:
                state.resume_destinations("r", ["=a", "=b", "=c"])
            case 4 | 5 | 6:
                self.mirror.settle()
            case 7 | 8 | 9:
                self.route.turn()
            case 10:
                self.route.open()
            case _:
                self.mirror.transaction(*self.noted())

    def noted(self) -> list[str]:
        found = list(self.statements())
        self.steps += found
        return found

    def quiet(self) -> None:
        self.mirror.m.state.resume_destinations("r", ["=a", "=b", "=c"])
        self.mirror.settle()
        self.route.settle()
        self.route.assert_equal()


@pytest.mark.parametrize("identity", IDENTITIES)
def test_each_tenant_has_its_rows_whatever_happens(mirror: Mirror, identity: str) -> None:
    seed = int(SEED) if SEED else random.randrange(10**6)
    mirror.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, tenant text NOT NULL, note text, body text)",
        "ALTER TABLE orders ALTER body SET STORAGE EXTERNAL",
        *IDENTITIES[identity],
    )
    mirror.start()
    mirror.sync()
    dice = random.Random(seed)
    inline = dice.choice(
        ["off", {"rows": 8}, "on"]
    )  # files only; rows in the catalog until these are eight; rows there
    route = LogRoute(mirror, "orders", keys=["id"], batch={"rows": 20}, inline=inline)
    route.settle()
    history = History(route, dice)
    try:
        for number in range(1, STEPS + 1):
            history.step()
            if number % 10 == 0:
                history.quiet()
    except BaseException as error:
        error.add_note(f"HEADWATER_SEED={seed}: {history.steps}")
        raise
