"""An application with a log inside: accounts whose balances are what was booked on them.

    with Ledger("data") as ledger:
        ledger.deposit("alice", 100)
        ledger.transfer("alice", "bob", 30)
        ledger.balance("bob")                   # 30
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import kafkalog


class NotEnough(Exception):
    """The account does not have so much."""


class Ledger:
    """All accounts of a data directory. A booking is on disk when its call returns; one process has the ledger open."""

    def __init__(self, directory: str | Path) -> None:
        self._log = kafkalog.open(Path(directory) / "bookings-0", "a", sync=True, retention_ms=-1)
        self._balances: Counter[str] = Counter()
        for record in self._log:
            self._apply(json.loads(record.value or b"{}"))

    def deposit(self, account: str, amount: int) -> int:
        """The number of the booking: its offset in the log."""
        return self._book([{"account": account, "amount": amount}])

    def transfer(self, giver: str, taker: str, amount: int) -> int:
        """The number of the first of the two bookings, which are written whole or not at all; NotEnough."""
        if self._balances[giver] < amount:
            raise NotEnough(f"{giver} has {self._balances[giver]}, not {amount}")
        return self._book([{"account": giver, "amount": -amount}, {"account": taker, "amount": amount}])

    def balance(self, account: str) -> int:
        """Return the balance of an account."""
        return self._balances[account]

    def _book(self, bookings: list[dict[str, Any]]) -> int:
        # one append is one batch, and a batch is read whole or not at all, also after a crash
        records = [(one["account"].encode(), json.dumps(one).encode()) for one in bookings]
        number = self._log.append(records).first_offset
        for one in bookings:
            self._apply(one)
        return number

    def _apply(self, booking: dict[str, Any]) -> None:
        self._balances[booking["account"]] += booking["amount"]

    def close(self) -> None:
        """Gives the directory back."""
        self._log.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
