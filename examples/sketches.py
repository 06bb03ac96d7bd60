"""Three brokers send sketches of their subscriptions, and a fourth one looks up where to forward.

Run it from a checkout after ./dovetail has been started once:

    .venv/bin/python examples/sketches.py
"""

from dovetail.topics.bank import SketchBank
from dovetail.topics.sketches import (
    LinesSketch,
    delta_from_bytes,
    delta_to_bytes,
    sketch_from_bytes,
    sketch_to_bytes,
)
from dovetail.topics.trie import FilterTrie

SUBSCRIPTIONS = {
    "tokyo": ["building3/+/temperature", "alarm/#"],
    "osaka": ["building7/#"],
    "kyoto": ["+/lobby/+", "$SYS/#"],
}


def main() -> None:
    # Each broker keeps its own filters exactly, and a sketch of them for the others.
    tries = {name: FilterTrie[str]() for name in SUBSCRIPTIONS}
    # A lineage identifies the history of a sketch; a broker that restarts takes a new one.
    sketches = {
        name: LinesSketch.sized_for(10_000, 0.001, lineage=number)
        for number, name in enumerate(SUBSCRIPTIONS, start=1)
    }
    for name, filters in SUBSCRIPTIONS.items():
        for topic_filter in filters:
            tries[name][topic_filter] = topic_filter
            sketches[name].add(topic_filter)

    # A fourth broker receives the encoded sketches.
    peers = SketchBank[str]()
    for name, sketch in sketches.items():
        travelling = sketch_to_bytes(sketch)
        peers.put(name, sketch_from_bytes(travelling))
        print(f"{name}: a sketch of {sketch.elements} elements arrived as {len(travelling)} bytes")

    for topic in ("building3/room1/temperature", "building7/lobby/door", "alarm", "garage/light"):
        show(topic, peers, tries)

    # Osaka's clients change their subscriptions; a delta follows.
    osaka = sketches["osaka"]
    before = osaka.version
    osaka.discard("building7/#")
    osaka.add("garage/+")
    tries["osaka"]["garage/+"] = "garage/+"
    del tries["osaka"]["building7/#"]
    delta = delta_to_bytes(osaka.delta(before))
    peers.apply("osaka", delta_from_bytes(delta, peers.geometry_of("osaka")))
    print(f"osaka: a delta arrived as {len(delta)} bytes")
    for topic in ("building7/lobby/door", "garage/light"):
        show(topic, peers, tries)


def show(topic: str, peers: SketchBank[str], tries: dict[str, FilterTrie[str]]) -> None:
    """Print where a broker would forward a publication, and what matches there."""
    for name in sorted(peers.search(topic)) or ["nobody"]:
        found = tries[name].match(topic) if name in tries else []
        print(f"  {topic} -> {name} {', '.join(found)}")


if __name__ == "__main__":
    main()
