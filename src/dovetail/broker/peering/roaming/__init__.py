"""Session migration: a persistent session follows its client to another broker. Pure.

A client that was connected to broker A connects to broker B; C is any other broker:

    client        B                          A                        C
      | CONNECT   |                          |                        |
      |---------->| CLAIM client, stamp      |                        |
      |           |------------------------->|----------------------->|   claim.py
      |           |<--- CLAIMED: it moves ---|                        |
      |           |<------------- CLAIMED: nothing here --------------|
      |           |<== Header, Filters, Entry, Ready ==|              |   handover_out.py (A)
      |  CONNACK  |                          |                        |   handover_in.py (B)
      |<----------|<== Entry ... ============|                        |   what waited at A
      |           |== Settle: route by my sketch =====================>|  reconcile.py
      |           |<== Note: from here on to B ==|<== Note ===========|
      |           |<== End ==================|                        |   redirect.py: A is done

`==` travels in the numbered streams between brokers, on disk and in order with publications.

1. **Claim.** B asks all live brokers. The connection with the highest stamp owns the session.
2. **Hand-over.** A ends its connection and puts the whole session into its outbox to B in one
   batch. B answers CONNACK at Ready.
3. **Redirect.** Until C routes by B's sketch, C's publications reach A. A keeps the subscriptions
   of the session (a ghost) and redirects what they get. B accepts nothing for the client straight
   from C meanwhile, so each publication comes once and in order.
4. **Reconcile.** C writes a Note into its streams to A and to B. What stands before it comes by way
   of A, what stands behind it comes straight. When A has all Notes it says End and forgets.
5. **A is down.** The directory (a trace in A's sketch) says that A may have a session. The client
   begins anew at B. When A returns, it hands over what waited there.

    session_move.py  all parts together
    claim.py         B waits for what others have of its client
    directory.py     which brokers may have a session, although they are down
    handover_out.py  A's side
    handover_in.py   B's side
    redirect.py      sessions that are arriving, and ghosts of those that moved on
    reconcile.py     Settle and Note; two sessions of one client become one
"""
