"""`[access]`: which clients may connect, and what they may do."""

from typing import Annotated, Literal

from msgspec import Struct

from dovetail.settings.field import bounded, describe


class AccessRule(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What some clients may do.

    The first filter that matches a topic decides, in the order of the rules that apply to the
    client. Within a rule, filters that deny come first. A topic that no filter matches is denied.
    """

    user: Annotated[
        str,
        describe(
            "Applies to users whose name fits this pattern: * is any text, ? one character. "
            "An empty text is an anonymous client; * is everyone, including anonymous clients."
        ),
    ] = "*"
    client: Annotated[
        str,
        describe("Applies to client identifiers that fit this pattern. Both patterns have to fit."),
    ] = "*"
    publish: Annotated[
        tuple[str, ...],
        describe(
            "Topics that they may publish to: topic filters, with + and #. %u stands for the user "
            "name and %c for the client identifier; where these are empty or hold /, + or #, the "
            "filter allows nothing. Topics that begin with $ have to be named: # is not enough."
        ),
    ] = ()
    subscribe: Annotated[
        tuple[str, ...],
        describe(
            "Filters that they may subscribe to: one of these has to cover every topic that a "
            "subscription could match. A shared subscription is judged by the filter in it."
        ),
    ] = ()
    deny: Annotated[
        tuple[str, ...],
        describe(
            "Topics that they may neither publish nor subscribe to, unless a rule before this one "
            "allows it. A subscription that could match a single one of them is refused."
        ),
    ] = ()
    deny_publish: Annotated[
        tuple[str, ...],
        describe("The same for publications alone."),
    ] = ()
    deny_subscribe: Annotated[
        tuple[str, ...],
        describe("The same for subscriptions alone."),
    ] = ()


class AccessSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which clients may connect, and what they may do."""

    anonymous: Annotated[
        Literal["loopback", "always", "never"],
        describe(
            "Who may connect without logging in: clients on this machine, everyone, or nobody. "
            "Without a password file no client can prove a name, and one that gives a name counts "
            "as anonymous."
        ),
    ] = "loopback"
    password_file: Annotated[
        str,
        describe(
            "User names and hashed passwords, as `dovetail passwd` writes them. With it, a client "
            "that gives a name has to give its password too. Empty: no user can log in."
        ),
    ] = ""
    failed_logins_per_minute_max: Annotated[
        int,
        bounded(
            0,
            1_000_000,
            "Wrong passwords from one address (of IPv6: one /64 prefix); further logins from there "
            "are refused for a while. A user who has logged in from that address before is counted "
            "apart from the others there. 0: no limit, for a proxy or an address translation "
            "behind which all clients have one address.",
        ),
    ] = 60
    administrators: Annotated[
        tuple[str, ...],
        describe(
            "Users who may change the cluster over HTTP (`dovetail drain`), read its archive, and "
            "see the subscriptions of clients, from anywhere. Empty: programs on this machine may, "
            "as long as there are no users, rules or client certificates; otherwise nobody may."
        ),
    ] = ()
    session_takeover: Annotated[
        bool,
        describe(
            "A session belongs to its user: another user who connects with its client identifier "
            "is refused. With true, that ends the session and all messages in it, and the other "
            "user gets a new one."
        ),
    ] = False
    rules: Annotated[
        tuple[AccessRule, ...],
        describe(
            "Without rules every client may publish and subscribe to everything. With any rule, "
            "clients may do only what a rule allows."
        ),
    ] = ()
