"""Publishers that wait for room, called one by one in the order in which they came."""

import trio


class WaitingPublishers:
    __slots__ = ("_called", "lot")

    def __init__(self) -> None:
        self.lot = trio.lowlevel.ParkingLot()
        """Those who wait and were not called."""
        self._called = False
        """Somebody was called and has not got up yet: two at once would race."""

    async def wait(self, seconds: float) -> bool:
        """Until called; False: not in time. Who was called must see that the next one is."""
        with trio.move_on_after(seconds):
            await self.lot.park()
            self._called = False
            return True
        return False

    def call(self) -> None:
        """The next one, if there is one and nobody is on the way."""
        if self.lot and not self._called:
            self._called = True
            self.lot.unpark()

    def dismiss(self) -> None:
        """Everybody: there is nothing more to wait for."""
        self.lot.unpark_all()
