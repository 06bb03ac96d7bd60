"""Authentication and authorisation: who a client is, and what it may do.

Authentication. Start with authenticator.py; to add a way to log in, add a file and a link of
the chain:

    authenticator.py              the protocol: what an authenticator gets and answers
    chain.py                      asks one authenticator after the other
    certificate_authenticator.py  a TLS certificate names its client
    password_authenticator.py     a name and a password
    anonymous_authenticator.py    clients that prove no name

Passwords:

    passwords.py         the password file
    password_checker.py  checks passwords in a thread, in the order of the queue
    login_queue.py       the order of checks, and the logins that are refused (pure)
    known_logins.py      the users that logged in before: they get a lane of their own

Authorisation:

    access.py            which topics a client may publish and subscribe to (pure)
    session_owner.py     a session belongs to the user who began it (pure)
"""
