"""Session migration: a persistent session follows its client to another broker. Pure.

A client that was connected to broker A connects to broker B; C is any other broker:

    client        B                          A                        C
      | CONNECT   |                          |                        |
      |---------->| CLAIM client, stamp      |                        |
      |           |------------------------->|----------------------->|   claimant.py (B)
      |           |<--- CLAIMED: it moves ---|                        |
      |           |<------------- CLAIMED: nothing here --------------|   claim_responder.py
      |           |<== header, filters, messages, ready ==|           |   handover_out.py (A)
      |  CONNACK  |                          |                        |   handover_in.py (B)
      |<----------|<== queued messages ======|                        |
      |           |== reroute request: route by my sketch ===========>|   reconciliation.py
      |           |<== marker: from here on to B |<== marker =========|
      |           |<== redirect end =========|                        |   redirect.py: A is done

`==` travels in the numbered streams between brokers, on disk and in order with publications
(control_messages.py).

1. **Claim.** B asks all live brokers. The connection with the highest stamp owns the session.
2. **Hand-over.** A ends its connection and puts the whole session into its outbox to B in one
   batch. B answers CONNACK when the session is ready.
3. **Redirect.** Until C routes by B's sketch, C's publications reach A. A keeps the subscriptions
   of the session (a ghost) and redirects what they get. B accepts nothing for the client directly
   from C meanwhile, so each publication comes once and in order.
4. **Reconcile.** C writes a marker into its streams to A and to B. Publications before it come
   through A, those behind it come directly. When A has all markers, it ends the redirect.
5. **A is down.** The directory (a trace in A's sketch) says that A may have a session. The client
   begins anew at B. When A returns, it hands over the messages that waited there.

    session_move.py     all parts together
    claim.py            the state of one claim
    claimant.py         B waits for the other brokers' answers about its client
    claim_responder.py  A and C answer
    inquiry.py          a session arrived without its client: B asks where the client is
    directory.py        which brokers may have a session, even while they are down
    handover_out.py     A's side of the hand-over
    handover_in.py      B's side of the hand-over
    redirect.py         arriving sessions, and ghosts of those that have moved on
    reconciliation.py   reroute requests and markers; two sessions of one client become one
"""
