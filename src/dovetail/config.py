"""Every limit has its name here, with the reason for its value.

Nothing in this file reads anything: it is constants. What a deployment may want otherwise is an
argument wherever it counts, with the constant as its default.
"""

TOPIC_BYTES_MAX = 65_535
"""Length of a topic name or filter in UTF-8 [MQTT-4.7.3-3]: the wire has two bytes for it."""

SKETCH_FALSE_POSITIVE_RATE = 0.001
"""Per query; the wildcard paper's example (section IV-A)."""

SKETCH_PEER_RATE = 0.003
"""The same for the sketches that brokers send each other. A yes is looked at twice, so a search
errs less than once in ten thousand times (docs/cluster.md has what was measured)."""

SKETCH_ELEMENTS_START = 4_096
"""Room in a broker's sketch when it starts."""

SKETCH_GROWTH = 2**0.5
"""Times the room it had, when a sketch is full. All brokers go by the same steps, so sizes of peers
meet. Larger steps leave more room empty, smaller ones send the whole sketch more often."""

SKETCH_SHRINK = 0.25
"""Of its room: a sketch with fewer elements is rebuilt smaller."""

SKETCH_CHANGES_MAX = 65_536
"""Elements that came or went, as a broker remembers them for peers that have to catch up. Who is
further behind gets the whole sketch."""

SKETCH_PART_BYTES = 4_194_304
"""Of a whole sketch on its way to a peer, in one frame."""

SKETCH_BITS_MIN = 1_024
"""Planned at least: in fewer bits a key's hashes run into each other, and rates into the sky."""

SKETCH_BITS_MAX = 1 << 32
"""512 MiB a sketch. Bit positions are drawn by 32-bit multiplication."""

SKETCH_HASHES_MAX = 64
"""More than a false-positive rate of 1e-19 asks for."""

SKETCH_BYTES_MAX = SKETCH_BITS_MAX // 8 + (64 << 20)
"""A serialised sketch: its bits, and room for a header and for patterns."""

SKETCH_PATTERNS_MAX = 1_000_000
"""Wildcard patterns in one sketch of the BFP method."""

SEARCH_QUERIES_MAX = 4_096
"""Queries after which a search answers yes (a node is still asked to its end). Wildcards at every
level make every method exponential; a search that gives up forwards a message in vain, and never
loses one."""

BANK_LANES = 64
"""Sketches that lie bit-sliced in one word, and are searched together."""

BANK_PLAIN_MAX = 6
"""So many of one size lie side by side and are searched one by one: slices of whole bytes would
have lanes for nobody."""

BANK_FILL_BITS_MAX = 1 << 20
"""Of a peer's sketch, looked at to tell how full it is: a scrape must not walk through a hundred
megabytes of slices. Hashes choose the lines, so some stand for all: it is good to 0.0005."""

SEARCH_BLOCK_TOPICS = 16
"""Topics of a column that are searched in step, so that the cache misses of one overlap the work
on the others. 8 to 32 measured alike."""

BANK_BLOCK_TOPICS = 4
"""The same for a bank, whose every question reads up to eight cache lines: more topics at once
would push each other's out of the first-level cache."""

SEARCH_BLOCK_BYTES_MAX = 1_024
"""A column with longer topics is searched one at a time: scratch space is block x bytes."""

ROUTE_TOPIC_BYTES_MAX = 1_024
"""Routes of longer topics are not remembered: the cache is bounded by count, and so in bytes."""

ROUTES_RECHECKED_MAX = 8_192
"""When a peer's sketch changes, so many cached routes are looked at anew, at once. If there are
more, all are forgotten, and those that are needed again are found again, one at a time."""

ROUTE_IDENTIFIERS_MAX = 1_000
"""Nor are routes remembered by which a client gets more subscription identifiers than that."""

ROUTES_FREED_AT_ONCE = 256
"""Where more are forgotten together, they are freed bit by bit..."""

ROUTES_FREED_PER_ROUTE = 8
"""...so many with each that is found."""

WIDE_SHARE = 0.5
"""Of a dimension's bounds: a box with a wider range there is not placed along it. A narrower share
would leave some publications with fewer candidates, a wider one makes more copies."""

LOAD_WINDOW_SECONDS = 1.0
"""Over which a matcher takes its rates."""

LOAD_CHANGE = 0.1
"""A matcher tells its load when it has changed by this share (BlueDove IV)."""

BOX_KINDS_MAX = 256
"""Kinds of boxes that a broker tells others of. One that has more is not asked about: it looks
through its boxes itself."""

FEED_FRAME_BOXES_MAX = 2_048
"""Boxes in one frame of a feed: half a megabyte of them at most."""

FEED_FRAMES_MAX = 8
"""Of one feed, on their way: what changes meanwhile goes together into the next."""

FEED_NARROW_SECONDS = 10.0
"""A matcher keeps what is not its any more for so long: until gossip has told everybody, some still
ask it."""

FEED_WAIT_SECONDS_MAX = 0.05
"""A question about boxes that are still on their way to the matcher waits for them so long."""

FEED_RANGES_MAX = 64
"""Ranges of one dimension that a feed is complete for: few at any time."""

QUESTION_POINTS_MAX = 1_024
"""In one question to a matcher, which answers it in some milliseconds."""

MATCHER_ANSWER_SECONDS_MAX = 0.3
"""For a matcher to answer. Then it is passed over for a while, and another one is asked..."""

ASKING_SECONDS_MAX = 1.5
"""...until so long after the publication came: then it goes to every broker that may want it."""

PASSED_OVER_SECONDS = 5.0
"""For a matcher that did not answer. Gossip knows by then if it is dead."""

OPEN_POINTS_MAX = 65_536
"""Publications of one broker that wait for matchers. Further ones go to all that may want them."""

MATCHER_QUEUE_POINTS_MAX = 65_536
"""Points that wait at a matcher. Further questions are answered with "unsure" at once."""

MATCHING_POINTS_MAX = 1_024
"""Points that a matcher matches in one go, between looking at its connections."""

ANSWER_BOXES_MAX = 4_096
"""Numbers of boxes that an answer has for one broker and point. Where there are more, the broker
may as well look for itself."""

ANSWER_NUMBERS_MAX = 1_048_576
"""Numbers of boxes in one answer: four megabytes of them."""

MATCHER_SLICE_SECONDS = 0.005
"""A matcher matches for so long before it reads what has come in."""

MATCHER_JOIN_SECONDS_MAX = 10.0
"""For a new matcher to get what it will answer for. Then it begins with what it has."""

MATCHER_LEAVE_SECONDS_MAX = 10.0
"""For others to get what a matcher that leaves answers for."""

MATCHER_MOVE_SECONDS_MAX = 60.0
"""For a matcher to get what it will answer for in the place that a plan has for it, and then for
the others to be ready too. There is no hurry: it answers for its old place meanwhile."""

MATCHER_LINGER_SECONDS = 3.0
"""A matcher that has left answers for so long: gossip takes a moment."""

ORDER_WAITING_MAX = 1_024
"""Publications of one publisher that wait for an earlier one. Nothing more is read from it then."""

UNKNOWN_CONNECTIONS_MAX = 1_000
"""Connections above `mqtt.connections_max`, for clients that are not known yet and those that are
told that there is no room."""

FILE_DESCRIPTORS_RESERVED = 48
"""File descriptors that no connection from outside can take (descriptors.py). They are for files
that we open while we run, such as those of the archive, of passwords and of certificates, for
looking up names, and for dialing other nodes."""

LINK_DESCRIPTORS_RESERVED_SHARE = 0.125
LINK_DESCRIPTORS_RESERVED_MAX = 512
"""Those that only links of nodes can take besides: a share of all, and so many at most."""

HTTP_DESCRIPTORS_RESERVED = 16
"""Those that HTTP can take and MQTT clients cannot: who looks at health and metrics gets in."""

DESCRIPTORS_MIN = 256
"""What a node is told to have if it has too few: some hundred clients, and all that is reserved."""

CLIENTS_FEW = 1_000
"""If the limit of file descriptors leaves room for fewer, the log says so at the start."""

CONNECT_BYTES_MAX = 262_144
"""A CONNECT packet: nobody has to prove anything before sending one, so it is no large one."""

EARLY_BYTES_MAX = 2 * 65_535 + 1_024
"""What may come behind a CONNECT before we know who sent it: two long texts, and little more."""

USER_PROPERTIES_MAX = 1_000
"""Of a SUBSCRIBE or UNSUBSCRIBE, and of a publication that a space governs: there they may mean
something to us. Those of other packets are not counted."""

FILTERS_PER_PACKET_MAX = 10_000
"""Of one SUBSCRIBE, so that its client does not wait long for it; those beyond get reason 0x97."""

# Long work, in slices ----------------------------------------------------------------------------

SLICE_SECONDS = 0.004
"""In one turn of the loop, for the long work of all clients together (broker/slices.py). With what
else a turn does it stays below the twenty milliseconds that a client may keep others waiting."""

FLUSH_SECONDS = 0.005
"""In one turn, for writing to clients. Those who are left are the first in the next turn..."""

FLUSHED_MIN = 64
"""...but for so many clients nobody looks at the clock."""

TIMERS_PER_PIECE = 64
"""Of those that are due at the same time, as when many sessions expire..."""

FILTERS_PER_PIECE = 32
"""Topic filters of a SUBSCRIBE or UNSUBSCRIBE that are gone through before others have their turn:
about half a millisecond of them, as of all pieces here..."""

CLAUSE_CHARACTERS_PER_FILTER = 8
"""...where so many characters of a where-clause count as one filter more."""

ENTRIES_PER_PIECE = 64
"""Messages of a session that has ended. Those of a group may have to go to another member."""

GROUPS_PER_PIECE = 256
"""Groups of a session whose client has come or gone."""

REVIEWED_PER_PIECE = 64
"""Sessions, subscriptions and messages that are looked at after a change of access rules."""

SEARCH_STEPS_PER_PIECE = 2_048
"""Nodes of the tree of filters that the search for a topic looks at. Where it takes more, what was
published waits, and what comes behind it from its client..."""

SEARCH_STEPS_MAX = 8_192
"""...and for all topics of a read that are new so many at once."""

RECEIVERS_PER_PIECE = 256
"""Receivers of publications, or subscriptions by which one of them gets one. A single publication
goes to all its receivers in one piece: no client may see it half delivered."""

GREETING_LOOKS_PER_PIECE = 64
"""Retained messages that a new subscription may be for."""

CHANGES_PER_PIECE = 512
"""Subscriptions of a packet whose answer is on disk."""

TOLD_PER_PIECE = 128
"""Of those who wait for the same batch of the journal."""

EFFORT_PER_PIECE = 256
"""Of what one read brings: a receiver of a publication counts as one. What is behind it waits, and
its client is not read from meanwhile..."""

PACKET_EFFORT = 4
"""...and a packet counts as so many."""

RUNS_PER_PIECE = 256
"""Neighbouring publications that are passed on together are a run. So many are taken at once..."""

RUNS_ALONE_PER_PIECE = 64
"""...or so many, where a client may not publish to every topic..."""

RUN_PACKETS_MAX = 512
"""...of so many packets each: a receiver may need each one by itself."""

LONG_PACKET_BYTES = 4_096
"""A SUBSCRIBE or UNSUBSCRIBE that is longer is decoded in pieces, too..."""

FILTERS_DECODED_PER_PIECE = 512
"""...of so many filters."""

LOGINS_WAITING_MAX = 100
"""Passwords that wait to be checked. Each takes tens of milliseconds by design; who comes beyond is
told to try again, rather than to wait until its time is over."""

LOGIN_LANES_MAX = 10_000
"""Addresses, and known users at one, whose wrong passwords are remembered; the latest ones."""

KNOWN_LOGINS_FILE = "logins"
"""In a data folder: which users have logged in from where."""

KNOWN_LOGINS_MAX = 100_000
"""Pairs of user and address that have logged in before, on disk: 1.6 MB, and twice that at most
before the file is written anew."""

CALM_SECONDS_MIN = 0.000_05
"""After so long without a read, a message is sent on at once and not at the end of the turn."""

JOIN_READS_MIN = 2
"""With so many connections read in one turn of the loop, writing may wait for the next turn."""

JOIN_SECONDS_MAX = 0.000_3
"""For how long it may: a tenth of what anybody would notice."""

REST_READS_MIN = 16
"""With so many connections read in one turn the loop rests before the next one, as network cards
do: packets gather meanwhile, and a read costs the system as much for one as for ten."""

REST_SECONDS = 0.000_1
"""For how long it rests."""

REST_JOIN_SECONDS_MAX = 0.001
"""And how long writing may wait then, in all."""

WRITE_JOIN_BYTES_MAX = 65_536
"""Small pieces for one client are copied together up to here; larger ones go as they are."""

WRITE_HIGH_WATER_BYTES = 262_144
"""Unwritten bytes at which a transport says that its client does not keep up."""

JOURNAL_MESSAGES_MAX = 20_000
"""Messages that wait for the disk before publishers are not read from: TCP slows them down."""

JOURNAL_BYTES_MAX = 33_554_432
"""The same in bytes of payload."""

STORE_RETRY_SECONDS = 1.0
"""Between attempts to write to a disk that refused."""

# The engine of a space ---------------------------------------------------------------------------

ENGINE_SILENT_SECONDS = 10
"""Publications that wait for an engine, and none that asks, for so long: the log says so."""

ENGINE_LISTED_MAX = 10_000
"""Clauses in one answer to an engine: some tens of milliseconds of a broker's time."""

ENGINE_LOG_SPARE = 10_000
"""Changes of clauses that are remembered for an engine, beyond twice as many as there are clauses;
whoever is further behind gets all of them."""

ENGINE_HISTORIES_MAX = 1_024
"""Of engines and brokers whose publications they hand over: how far each has come is remembered."""

ENGINE_NOTES_MAX = 100_000
"""Publications of which a broker knows that somebody has them without a clause, until an engine has
dealt with them. What is beyond, such sessions may get twice."""

ENGINE_BODY_BYTES = 4 << 20
"""Of publications in one request of an engine to a broker."""

ENGINE_REQUEST_BYTES_MAX = (256 << 20) + (64 << 20)
"""Of such a request in all: one publication may be larger than all that go together, and has as
many ids as sessions want it."""

ENGINE_TURN_MATCHES = 500
"""Of an engine's request, so much is done in one turn of a broker's loop."""

# The archive -------------------------------------------------------------------------------------

ARCHIVE_ROW_BYTES = 200
"""What a publication that waits for the archive takes in memory besides its bytes, about."""

ARCHIVE_RETRY_SECONDS = 1.0
"""Between attempts to write to a folder of the archive that refused."""

ARCHIVE_STOP_SECONDS = 5.0
"""What waits is written when a broker stops, for at most so long. The rest is kept on its disk."""

ARCHIVE_NAME_BYTES_MAX = 200
"""Of a broker's name that is part of names of files: those have up to 255, and two numbers."""

ARCHIVE_WRITE_ROWS_MAX = 65_536
"""Rows that are handed to the thread which writes files at once."""

ARCHIVE_TURN_ROWS = 2_000
"""Rows that are in a file, and go in one turn of the loop: some milliseconds."""

ARCHIVE_CHUNK_ROWS = 2_048
"""Rows that become Arrow columns in one go: for so long Python does nothing else."""

ARCHIVE_READ_ROWS_MAX = 65_536
"""Rows that a broker answers one request for its archive with,"""

ARCHIVE_READ_BYTES_MAX = 16_777_216
"""and bytes of them, about. So much is in memory for each reader; who wants more asks again."""

ARCHIVE_RUNS_MAX = 1_000
"""Runs of sequences in a broker's answer to what is in its archive: one for each of its lives."""

ARCHIVE_SETTLED_SECONDS = 2.0
"""A folder of the archive that has changed within so long is listed again, whatever its time
says."""

ARCHIVE_LISTINGS_MAX = 100
"""Times that a reader lists the archive anew because a file that it was to read has gone."""

ARCHIVE_SUBSCRIPTIONS_KEPT = 24
"""Versions of a broker's table of subscriptions that are kept beside the archive."""

COMPACT_FILE_BYTES_MAX = 268_435_456
"""Of a file that is made of several: some tasks of Spark, and nothing that cannot be copied."""

COMPACT_ROW_GROUP_BYTES = 67_108_864
"""In memory, of a group of rows that readers take at once; so much is held while files are read."""

COMPACT_STALE_SECONDS = 3_600.0
"""A file of the archive that nobody has gone on with for so long, its writer was killed over."""

# Streams -----------------------------------------------------------------------------------------

STREAM_USER = "#stream"
"""As whom the stream of `up --pipeline` logs in at the brokers beside it, where they have no
administrators: no user of a password file has such a name."""

STREAM_BATCH_ROWS_MAX = 1_000_000
"""Rows that a stream reads of an archive in one batch, unless it is told otherwise."""

STREAM_TASK_ROWS_MAX = 100_000
"""Of these, in one task."""

STREAM_WAIT_SECONDS = 600.0
"""A batch that has to have rows of a broker which is away waits for it, unless it is told
otherwise."""

STREAM_SEND_WAIT_SECONDS = 30.0
"""A task that publishes waits so long for a server that is away, unless it is told otherwise."""

STREAM_ANSWER_SECONDS = 1.0
"""A stream that looks for new rows goes on without those of a broker that has not answered."""

STREAM_MEMBERS_SECONDS = 5.0
"""Between looks for brokers that have come."""

SERVE_BATCH_ROWS_MAX = 100_000
"""Publications that a stream which serves spaces looks at in one batch, unless it is told
otherwise."""

SERVE_BODY_MATCHES_MAX = 5_000
"""Of one request of it to a broker, publications and ids together: some tenths of a second's
work."""

SERVE_ANSWER_SECONDS = 10.0
"""For the answer to such a request: a broker that hangs holds up others so long, once."""

SERVE_WAIT_SECONDS = 10.0
"""A batch waits so long for a broker that is away, unless it is told otherwise, and goes on without
it: the broker gets its share when it is back."""

SERVE_BEAT_SECONDS = 1
"""Between two questions for clauses while nothing is published."""

SERVE_SPACES_SECONDS = 5.0
"""Between two looks at which spaces there are; a publication of one that is not known is a reason
to look as well."""

SERVE_CHANGES_MIN = 1_000
"""Clauses that have come or gone are shipped apart from the others while they are so few, or fewer
than a quarter of them."""

STREAM_READ_BYTES_MAX = 1_073_741_824
"""Of one answer with rows: above the largest packet that MQTT has."""

STREAM_TABLE_SECONDS = 10.0
"""Between batches that become files of a table, unless it is told otherwise: few files, and a table
that is not far behind."""

STREAM_PUBLISH_SECONDS = 1.0
"""The same where they are published."""

STREAM_COMMAND_TASK_ROWS = 25_000
"""Rows of one task of `dovetail stream`: matching them takes a core about a second."""

STREAM_SUBSCRIPTIONS_SECONDS = 10.0
"""A batch waits so long for a broker to say who subscribes there; then what it said last holds."""

STREAM_LOOK_SECONDS = 2.0
"""Between looks at how many rows wait for `dovetail stream`."""

STREAM_END_SECONDS = 30.0
"""A batch that is under way when a stream is ended is waited for, at most so long."""

STREAM_STOP_SECONDS = 10
"""Then Spark is waited for, so long; after that its Java is ended."""

# Handles -----------------------------------------------------------------------------------------

HANDLE_PREFIX = "handle:"
"""Of the client identifiers of handles. No MQTT client may have one that begins so."""

HANDLE_FILTERS_MAX = 100
"""Topic filters of one handle."""

HANDLE_EXPIRY_SECONDS = 3_600
"""A handle that nobody asks for so long is gone, unless it was ordered otherwise..."""

HANDLE_EXPIRY_SECONDS_MAX = 31_536_000
"""...for a year at most: a handle that was lost shall not stay for ever."""

HANDLE_WAIT_SECONDS_MAX = 60
"""For messages to come, in one request. Proxies give up soon after."""

HANDLE_MESSAGES = 100
"""In one answer, unless the request says otherwise..."""

HANDLE_MESSAGES_MAX = 1_000
"""...and at most, whatever it says."""

HANDLE_ANSWER_BYTES_MAX = 4_194_304
"""Of the messages in one answer: from here on no further one is added."""

HANDLE_IDS_MAX = 10_000
"""Messages that one request acknowledges."""

HTTP_BODY_BYTES_MAX = 262_144
"""Of a request over HTTP, as much as of a CONNECT packet: what is longer is not read."""

# Attributes --------------------------------------------------------------------------------------

WHERE_CHARACTERS_MAX = 4_096
"""Of a where-clause. It bounds everything that is done with one, the limits below being met."""

CLAUSE_CHARACTERS_MAX = 2 * 64 * WHERE_CHARACTERS_MAX
"""Of a where-clause as it is written down once it was read: parentheses are multiplied out."""

CLAUSES_UNINDEXED_MAX = 32
"""On one topic filter. So few are looked at one by one in less time than an index needs."""

WHERE_DEPTH_MAX = 32
"""Parentheses within parentheses."""

WHERE_CONJUNCTIONS_MAX = 64
"""Boxes that a where-clause may stand for: each is an entry in every index that holds it, and
parentheses multiply them."""

WHERE_MEMBERS_MAX = 256
"""Values in one `in (...)`. Texts are looked up as a set; numbers are a box each."""

WHERE_NUMBER_MAX = 1e308
"""Of numbers in where-clauses, sign aside. Ranges end below their high end, so that there has to be
a number above any that is written."""

SPACE_DIMENSIONS_MAX = 16
"""Numbers that a space knows: each is a column of every box and every point in it."""

SPACE_TEXTS_MAX = 16
"""Texts that a space knows."""

SPACE_BOUND_MAX = 1e300
"""Of a dimension's bounds, sign aside: how far they are apart has to be a number too."""

SPACES_MAX = 64
"""Of one broker. A topic that is published to for the first time is compared with all of them."""

WHERE_NAMES_MAX = SPACE_DIMENSIONS_MAX + SPACE_TEXTS_MAX
"""Attributes in one where-clause: no space knows more."""

ATTRIBUTE_NAME_CHARACTERS_MAX = 128
"""Of an attribute's or a space's name."""

# The cluster -------------------------------------------------------------------------------------

NODE_NAME_BYTES_MAX = 128
"""Of a node's name, in characters."""

MATCHERS_ADD_ABOVE = 0.6
"""Where matchers come and go by themselves: one is added while they are busier than this. Above it
queues grow quickly, and a matcher that joins takes some of the time of the others for it."""

MATCHERS_ADD_AFTER_SECONDS = 5.0
"""If that lasts for so long: a few reports of how busy they are."""

MATCHERS_REMOVE_BELOW = 0.3
"""One leaves while the others would be less busy than this without it: half of what adds one, so
that a load which rises a little does not bring it back."""

MATCHERS_REMOVE_AFTER_SECONDS = 60.0
"""If that lasts for so long. One more costs little while it has nothing to do."""

MATCHERS_LOOK_SECONDS = 1.0
"""How often it is asked whether one should come or go; how busy matchers are is told as often."""

WORKERS_MAX = 64
"""Brokers that one command starts: a slip of the keyboard shall not start thousands."""

RESTART_SECONDS_MIN = 0.5
"""Before a broker that has ended by itself is started again; it doubles each time..."""

RESTART_SECONDS_MAX = 30.0
"""...up to here."""

RESTART_STEADY_SECONDS = 30.0
"""One that was up for so long begins with the shortest pause again."""

STOP_SECONDS_MAX = 20.0
"""For a broker that was told to stop; then it is killed, which loses nothing that was promised."""

PIPELINE_BROKERS = 2
"""Of `up --pipeline`, if nothing is said: one alone would ask no matchers."""

PIPELINE_MATCHERS = 2
"""The same, if a space has work for them."""

CLUSTER_NODES_MAX = 1_000
"""Nodes that one table holds. Further ones are not taken in."""

NODE_RECORDS_MAX = 64
"""Different things that one node tells of itself by gossip."""

RECORD_KEY_BYTES_MAX = 64
"""Of a record's key, in characters."""

RECORD_BYTES_MAX = 16_384
"""Of a record's value. Larger things are announced by gossip, and fetched."""

GOSSIP_BYTES_MAX = 65_536
"""Records in one message, about. What does not fit comes with another; one record always fits."""

GOSSIP_INTERVAL_SECONDS = 1.0
"""Between two rounds of one node, and between its heartbeats."""

DETECTOR_WINDOW = 100
"""Intervals between signs of life that a node is judged by."""

PHI_DEAD = 8.0
"""Suspicion at which a node counts as dead: wrong once in a hundred million intervals."""

PHI_SUSPECT = 3.0
"""Suspicion at which people are shown that a node is late; nothing else follows from it."""

QUESTION_SECONDS_MAX = 1.0
"""For other brokers to answer what a person wants to know; then it is shown without them."""

DRAIN_SECONDS_MAX = 30.0
"""For a matcher that was told to leave to be gone, before `dovetail drain` says that it is not.
Longer than MATCHER_LEAVE_SECONDS_MAX, MATCHER_LINGER_SECONDS and what gossip takes."""

PLAN_SECONDS_MAX = 150.0
"""For matchers to be where a plan has them, before `dovetail plan --apply` says who is not. Longer
than MATCHER_MOVE_SECONDS_MAX twice, and what gossip takes."""

MATCHES_SHOWN_MAX = 100
"""Filters that match a topic and are listed; the others are counted."""

CLUSTER_JOIN_SECONDS_MAX = 5.0
"""For a broker that starts to learn from the others what is subscribed to there. Then it lets
clients in without: better a broker than none, and what the others are owed is kept."""

WILL_GRACE_SECONDS = 5.0
"""For clients of a broker that died to connect elsewhere, before their wills are published."""

WILLS_RESTORED_SECONDS = 15.0
"""A broker of a cluster that starts publishes wills of its last life after this, unless another one
has done so."""

WILLS_FRAME_BYTES = 262_144
"""Of wills that go to another broker in one frame, about."""

CLAIM_WAIT_SECONDS = 0.5
"""For other brokers to say whether they have a client's session, before it begins without. Who is
connected and may have it has as long as a session may take to come."""

MOVE_SECONDS_MAX = 5.0
"""For a session to come from another broker that has said that it does."""

INQUIRE_AGAIN_SECONDS = 1.0
"""After which a broker that has a session whose client has not come asks again where that is, if
that was not settled yet."""

INQUIRIES_MAX = 5
"""So often. Then it counts as settled."""

TOLD_CLIENTS_MAX = 100_000
"""For each broker that is down, clients that began anew without it and of whom it will be told what
was the last. It is not told of more."""

GHOSTS_PER_CLIENT_MAX = 2
"""Sessions of one client that have moved on from the same broker and still hand on what comes. When
there are more, because a broker is down and its client wanders, two become one."""

ROUND_SECONDS = 1.0
"""From one look at all sessions on their way between brokers to the next."""

ROUND_SESSIONS = 1_000
"""Sessions on their way that are looked at in one turn, so that no turn is long."""

HOLD_SECONDS_MAX = 2.0
"""What is published for a session that moves waits so long for what its last broker still has. The
session waits so long for other brokers to take what its client published at QoS 2."""

SETTLE_AGAIN_SECONDS = 5.0
"""After this brokers are asked once more to send straight to a session's new broker."""

SETTLES_WAITING_MAX = 100_000
"""Sessions at other brokers whose sketches we wait for. Who finds no room here asks again."""

LINEAGE_MAX = 1 << 48
"""Of a sketch: milliseconds, as a rule. What others say that they know of us and lies far above is
not believed."""

SECONDS_MAX = 0xFFFF_FFFF
"""The longest expiry or delay that a client can ask for: four bytes."""

STAMP_MAX = 1 << 62
"""All brokers' stamps are below: those of clocks up to the year 2109."""

STAMP_JUMP_MAX = STAMP_MAX - (1 << 58)
"""Up to here, the year 2100, another broker's stamp may lie ahead of ours by any time."""

STAMP_STEP_MAX = 1 << 50
"""And above by this, which takes brokers a trillion stamps. So nobody can use them up."""

FRESH_SESSION_SECONDS = 300
"""For a client to be let in to a session that has begun for what other brokers may have of it."""

FILTERS_ITEM_BYTES = 32_768
"""Of a session's filters that go to another broker in one piece, about."""

SUBACK_WAIT_SECONDS = 0.2
"""For other brokers to know of a subscription before it is acknowledged without them."""

GROUPS_MAX = 20_000
"""Shared subscriptions (groups with different names or filters) of one broker in a cluster: all
brokers know all of them. Who would begin one more is refused."""

GROUPS_BYTES_MAX = 4_194_304
"""Their names and filters together, so that one frame holds them."""

GROUP_HOPS_MAX = 8
"""Brokers that pass a publication on because the member that it was for has left meanwhile."""

REMOVALS_SECONDS = 86_400.0
"""For so long it is remembered that a retained message was taken away, as long as a broker that is
gone is known; then an older copy could bring it back."""

REMOVALS_MAX = 100_000
"""Topics of which that is remembered; the oldest give way."""

RETAINED_PAGE_BYTES = 262_144
"""Retained messages that a broker which is new gets in one frame, about."""

OUTBOX_MESSAGES_MAX = 100_000
"""QoS 1 and 2 publications that one peer is owed, in memory and, while it is down, on disk. Beyond,
the newest is dropped for it, and counted. What has to go in any case is not among them."""

OUTBOX_BYTES_MAX = 268_435_456
"""The same in bytes."""

COMPLAIN_SECONDS = 60.0
"""The log says the same of a peer once in this time."""

OUTBOX_WINDOW_MESSAGES = 2_000
"""Of those, sent to a peer and not acknowledged."""

OUTBOX_WAIT_SECONDS_MAX = 5.0
"""For a peer that is up to say that it has a publication. Then it is kept for the peer on disk, and
who published it waits no longer: as long as for a connection that is silent."""

HEARD_STREAMS_MAX = 10_000
"""Streams of which it is remembered how far they were taken, those of forgotten brokers included.
Beyond, the one that began its life first gives way: only a broker that comes back after so many
others have come and gone could have its last messages counted twice."""

RETAINED_AGAIN_SECONDS = 60.0
"""Between two looks for retained messages that found no room here, while there is some now."""

FORGET_SECONDS = 86_400.0
"""A node that has been dead, or has left, for so long is not known any more."""

LEFT_FORGET_SECONDS = 60.0
"""The same for one that has left and keeps nothing for anybody: time for the wills of its clients,
and to come back from a restart."""

CLUSTER_PORT = 7_883
"""Where nodes listen for each other: MQTT's port for TLS less a thousand."""

HTTP_URL = "http://127.0.0.1:8080"
"""Where `dovetail up` serves HTTP unless it is told otherwise, or the port is taken."""

PORTS_TRIED_MAX = 20
"""Where nobody chose a port and ours is taken: so many behind it are tried before any free one."""

SECRET_FILE = "cluster.secret"  # noqa: S105
"""In a data folder, where the settings name no other file."""

HOST_BYTES_MAX = 255
"""Of a host name (RFC 1035 section 2.3.4) or address that a node advertises."""

SECRET_BYTES_MIN = 16
"""Of a cluster's secret. As random bytes, or as many random letters, it cannot be guessed."""

SECRET_BYTES_MAX = 4_096
"""A file with more than that is another file."""

HANDSHAKE_BYTES_MAX = 4_096
"""Of a frame from a peer that has not proven itself: the largest HELLO is a quarter of it."""

HANDSHAKE_SECONDS_MAX = 5.0
"""From the opening of a connection between nodes, TLS included, to its last proof."""

MEMBER_HANDSHAKES_MAX = 64
"""Connections that have not proven themselves, from addresses where a member is. A handshake takes
milliseconds: half of them would have to arrive in that time before an honest one is evicted."""

STRANGER_HANDSHAKES_MAX = 64
"""The same from all other addresses together..."""

STRANGER_HANDSHAKES_PER_ADDRESS_MAX = 16
"""...and from one of them (of IPv6: one /64 prefix)."""

MEMBER_ADDRESSES_MAX = 4_000
"""Addresses of members that are remembered: four for each node of the largest cluster."""

REFUSAL_CHARACTERS_MAX = 300
"""Of the sentence in which a peer says why it refuses us; the rest is not read."""

PEER_FRAME_BYTES_MAX = 16_777_216
"""Of a frame between nodes that have proven themselves, its header included."""

PEER_FRAME_EXTRA_BYTES = 262_144
"""Of a publication in a frame, besides what its client sent: who that was, the groups that it is
for, and their frame. The longest text of MQTT has 65,535 bytes."""

MARK_BYTES_MAX = 131_072
"""Names and filters of the groups that one frame says a publication is for. Further ones go with
another frame; one always fits."""

PEER_BACKLOG_BYTES_MAX = 67_108_864
"""Bytes on their way to one peer that it has not taken; beyond, nothing more is taken for it."""

PEER_STALL_SECONDS_MAX = 30.0
"""A peer that takes no byte for so long, while bytes wait for it, is closed."""

LINK_PING_SECONDS = 0.25
"""Between two pings on a connection. A detector wants some of them before it calls a node dead,
and a node with a thousand peers has to answer four thousand a second."""

LINK_SILENCE_SECONDS_MAX = 5.0
"""A connection on which nothing was heard for so long is closed, and dialed anew."""

LINK_STEADY_SECONDS = 1.0
"""A connection that lived for so long was a good one: the next attempts begin quickly again."""

DIAL_SECONDS_MIN = 0.1
"""Before the second attempt to reach a peer, at most; it doubles with each one..."""

DIAL_SECONDS_MAX = 10.0
"""...up to here. A node that comes back also dials by itself, and wakes those who wait for it."""

DIAL_FAILURES_QUIET = 5
"""Attempts in vain, some three seconds of them, before the log says so: nodes that are started
together are not there at the same moment."""

LOG_REPEAT_SECONDS = 1.0
"""Of lines of a kind one is logged at once, and then one in so long, with their number."""

LOG_KINDS_MAX = 256
"""Kinds of lines that are told apart at a time; there are some hundred in the source, and those
about nodes have a kind for each node. Those beyond are one kind."""

GRIEVANCES_MAX = 1_000
"""Refusals that are remembered so that a peer's next attempt is not a line in the log again."""

GRIEVANCE_SECONDS = 60.0
"""After so long the same refusal is logged once more."""

BOX_DIMENSIONS_MAX = 32
"""Of a box: a sort key of 64 bits has room for two bits of each."""

BOXES_MAX = 100_000_000
"""In one index: slots are 32-bit numbers, and so many take some 15 GB."""

LEAF_BOXES_MIN = 16
"""A leaf of the index has room for 64 boxes. Neither half of a leaf that is split gets fewer than
this, and one that falls below joins a neighbour."""

LEAVES_MIN = 64
"""Leaves that an index has room for at least; one word of a row has a bit for each."""

LEAVES_GROWTH = 1.25
"""An index that is full gets room for so many times its leaves: copies cost little beside what
twice the memory would."""

LEAVES_SHRINK = 0.5
"""An index that uses less than this share of its leaves gives the rest back."""

MATCHES_ROOM_MIN = 4_096
"""Matches that a search has room for at first; it goes on in twice the room where they are more."""
