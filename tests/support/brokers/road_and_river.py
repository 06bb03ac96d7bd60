"""Messages and subscriptions of two spaces, drawn from a seed."""

from random import Random

from dovetail.attributes.space import Dimension, Space
from support.oracles.bulk_match import SentMessage, SubscriptionSpec

ROAD = Space(
    "road", "road/#", (Dimension("x", 0, 100), Dimension("y", 0, 100)), frozenset({"kind"})
)
RIVER = Space("river", "river/+", (Dimension("level", 0, 10),))
SPACES = (ROAD, RIVER)
COLUMNS = "id long, topic string, attributes map<string,double>, texts map<string,string>"


def drawn(
    messages: int, subscriptions: int, seed: int
) -> tuple[list[SentMessage], list[SubscriptionSpec]]:
    random = Random(seed)

    def clause() -> str:
        low = random.randint(0, 90)
        text = f"{low} <= x < {low + random.randint(1, 30)}"
        text += random.choice(["", f" and y > {random.randint(0, 99)}", " and kind == 'bus'"])
        return text + random.choice(["", f" or y == {random.randint(0, 99)}"])

    wanted = [
        SubscriptionSpec(random.choice(["road/#", "road/+", "road/a"]), clause())
        if number % 4
        else SubscriptionSpec(random.choice(["#", "+/a", "river/+", "road//b", "$own/#", "road/b"]))
        for number in range(subscriptions)
    ]
    wanted += [SubscriptionSpec("river/+", f"level >= {level}") for level in range(10)]
    sent = [
        SentMessage(
            random.choice(["road/a", "road/b", "road", "road//b", "river/a", "$own/a", "c", "a/a"]),
            {"x": random.uniform(-5, 105), "y": float(random.randint(0, 99)), "level": 4.0},
            random.choice([None, {"kind": "bus"}, {"kind": "car"}]),
        )
        for _ in range(messages)
    ]
    return sent, wanted
