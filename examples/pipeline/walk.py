"""From messages to a plan: archives a city's traffic, matches and plots it, and plans from it.

    .venv/bin/python examples/pipeline/walk.py            # leaves a folder `walk`

It is written as a notebook: editors that know `# %%` run it cell by cell. docs/pipeline.md has the
same as commands. The city is examples/traffic: sensors publish their readings, and four drivers
subscribe, each with a where-clause.
"""

# %% Choose a folder
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

from dovetail.process.extras import Extra, require

require(Extra.SPARK)  # a checkout installs it on first use

import pyarrow.parquet as pq
from pyspark.sql import functions as sql

from dovetail.archive.files import files_of, subscriptions_of
from dovetail.pipeline.match.bulk import match, spaces_of
from dovetail.pipeline.report.line_chart import Series, legend_key, line_chart
from dovetail.pipeline.report.page import page
from dovetail.pipeline.spark.spark_session import open_session
from dovetail.pipeline.spark.table_files import read_messages, read_subscriptions

TRAFFIC = Path(__file__).parents[1] / "traffic"
sys.path.insert(0, str(TRAFFIC))
import city

READINGS = 4_000
BAND = 20
"""The width of the bands in which speeds are counted."""
WAIT_SECONDS = 60

walk = Path(sys.argv[1] if len(sys.argv) > 1 else "walk").absolute()
if walk.exists():
    sys.exit(f"{walk} is there already: name another folder, or remove it.")
archive, config = walk / "archive", walk / "dovetail.toml"
walk.mkdir()
config.write_text(
    (TRAFFIC / "dovetail.toml").read_text()
    + '\n[archive]\ntopics = ["traffic/#"]\nfolder = "archive"\nsubscriptions_seconds = 0.2\n'
)


# %% Archive: a broker with `[archive]` in its configuration writes publications to files
def archived() -> tuple[int, int]:
    """Return the numbers of messages and subscriptions in files."""
    rows = sum(pq.read_metadata(file).num_rows for file in files_of(archive))
    return rows, sum(pq.read_metadata(file).num_rows for file in subscriptions_of(archive))


readings = [*city.measure(random.Random(7), READINGS)]
with city.running_broker(config) as port:
    for driver in city.DRIVERS:
        driver.subscribe(port)
    city.publish(readings, port)
    for driver in city.DRIVERS:
        driver.watch()
    deadline = time.monotonic() + WAIT_SECONDS
    # Each driver has a clause, and a second subscription for the end.
    while archived() != (READINGS, 2 * len(city.DRIVERS)):
        if time.monotonic() > deadline:
            sys.exit(f"The archive has not got everything: {archived()}.")
        time.sleep(0.05)
for driver in city.DRIVERS:
    driver.leave()
print(f"archived   {READINGS:,} readings in {len(files_of(archive))} files, {archive}")

# %% Match: which driver would have got which reading? The same kernels as in the broker, on Spark
with open_session() as spark:
    messages = read_messages(spark, str(archive))
    subscriptions = read_subscriptions(spark, str(archive))
    found = match(messages, subscriptions, spaces=spaces_of(config), as_pairs=True)

    # Joined with both tables, for comparisons and the plot.
    got = (
        found.join(messages.withColumnRenamed("id", "message"), "message")
        .join(subscriptions.select(sql.col("id").alias("subscription"), "where"), "subscription")
        .where("`where` is not null")
        .select("where", sql.col("payload").cast("string").alias("text"), "attributes.speed")
        .toArrow()
        .to_pylist()
    )

# %% Compare with what the drivers saw, reading by reading
texts: dict[str, list[str]] = defaultdict(list)
for row in got:
    texts[row["where"]].append(row["text"])
clause_of = {}
for driver in city.DRIVERS:
    # A broker writes clauses in its own way, so readings tell which clause is whose.
    same = [where for where, seen in texts.items() if sorted(seen) == sorted(driver.seen)]
    if not same:
        sys.exit(f"{driver.name} saw {len(driver.seen):,} readings, and Spark found others.")
    clause_of[driver.name.rstrip(",")] = same[0]
    print(f"matched    {driver.name} {len(driver.seen):,} readings, as the broker has sent them")

# %% Plot: at which speeds do drivers get readings?
bands = [*range(0, 140, BAND)]
lines = []
for name, where in clause_of.items():
    speeds = Counter(row["speed"] // BAND * BAND for row in got if row["where"] == where)
    notes = [f"{name}: {speeds[low]} from {low} to {low + BAND}" for low in bands]
    lines.append(Series(name, [speeds[low] for low in bands], notes))
chart = line_chart("Readings by speed", "km/h", "readings", bands, lines)
keys = "".join(f"<li>{legend_key(place)} {line.name}</li>" for place, line in enumerate(lines))
body = f'<h1>What drivers heard of</h1><ul class="legend">{keys}</ul>'
(walk / "speeds.html").write_text(page("Speeds", f'{body}<figure class="panel">{chart}</figure>'))
print(f"plotted    {walk / 'speeds.html'}")

# %% Plan: where should the borders of four matchers' segments be?
plan = walk / "plan.html"
command = ["plan", "--messages", archive, "--config", config, "--matchers", "4", "--out", plan]
done = subprocess.run(
    [sys.executable, "-m", "dovetail", *map(str, command)],
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,  # its progress
    text=True,
    check=False,
)
if done.returncode:
    sys.exit("The plan could not be made: dovetail " + " ".join(map(str, command)))
print(f"planned    {plan}")
print(done.stdout, end="")
