"""Several have to take something before it is acknowledged. Pure."""

from dovetail.broker.peering.outbox import Done


class Ticket:
    """A publication that several have to take before it is acknowledged."""

    __slots__ = ("_act", "_refused", "_waiting")

    def __init__(self) -> None:
        self._waiting = 1
        self._refused = False
        self._act: Done | None = None

    def expect(self) -> Done:
        self._waiting += 1
        return self._one

    def close(self, act: Done) -> None:
        """No more are expected. Acts when all have answered, maybe now."""
        self._act = act
        self._one(True)

    def _one(self, taken: bool) -> None:
        self._waiting -= 1
        self._refused = self._refused or not taken
        if not self._waiting and self._act is not None:
            self._act(not self._refused)
