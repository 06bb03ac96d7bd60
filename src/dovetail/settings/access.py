"""`[access]`: who may come in, and what they may do there."""

from typing import Annotated, Literal

from msgspec import Struct

from dovetail.settings.field import about, number


class Rule(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What some clients may do.

    Of the rules that apply to a client, in their order, the first filter that matches a topic
    decides. In a rule, those that deny come first. What none matches is denied.
    """

    user: Annotated[
        str,
        about(
            "Applies to users whose name fits this pattern: * is any text, ? one character. "
            "An empty text is who did not log in; * is everyone, them included."
        ),
    ] = "*"
    client: Annotated[
        str,
        about("Applies to client identifiers that fit this pattern. Both patterns have to fit."),
    ] = "*"
    publish: Annotated[
        tuple[str, ...],
        about(
            "Topics that they may publish to: topic filters, with + and #. %u stands for the user "
            "name and %c for the client identifier; where these are empty or hold /, + or #, the "
            "filter allows nothing. Topics that begin with $ have to be named: # is not enough."
        ),
    ] = ()
    subscribe: Annotated[
        tuple[str, ...],
        about(
            "Filters that they may subscribe to: everything that a subscription could match has to "
            "lie within one of these. A shared subscription is judged by the filter in it."
        ),
    ] = ()
    deny: Annotated[
        tuple[str, ...],
        about(
            "Topics that they may neither publish nor subscribe to, unless a rule before this one "
            "allows it. A subscription that could match a single one of them is refused."
        ),
    ] = ()
    deny_publish: Annotated[
        tuple[str, ...],
        about("The same for publications alone."),
    ] = ()
    deny_subscribe: Annotated[
        tuple[str, ...],
        about("The same for subscriptions alone."),
    ] = ()


class Access(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who may come in, and what they may do there."""

    anonymous: Annotated[
        Literal["loopback", "always", "never"],
        about(
            "Who may connect without logging in: clients on this machine, everyone, or nobody. "
            "Without a password file no name can be proven, and who gives one counts as anonymous."
        ),
    ] = "loopback"
    password_file: Annotated[
        str,
        about(
            "User names and hashed passwords, as `dovetail passwd` writes them. With it, a client "
            "that gives a name has to give its password too. Empty: no user can log in."
        ),
    ] = ""
    failed_logins_per_minute_max: Annotated[
        int,
        number(
            0,
            1_000_000,
            "Wrong passwords from one address (of IPv6: one /64 prefix); further logins from there "
            "are refused for a while. A user who has logged in from that address before is counted "
            "apart from the others there. 0: as many as they like, which is for a proxy or a "
            "translation of addresses behind which everybody has one address.",
        ),
    ] = 60
    administrators: Annotated[
        tuple[str, ...],
        about(
            "Users who may change the cluster over HTTP (`dovetail drain`), read its archive, and "
            "see what clients have subscribed to, from anywhere. Empty: programs on this machine "
            "may, as long as there are no users, rules or client certificates, and then nobody."
        ),
    ] = ()
    session_takeover: Annotated[
        bool,
        about(
            "A session belongs to its user: another user who connects with its client identifier "
            "is refused. With true, that ends the session and all messages in it, and the other "
            "user gets a new one."
        ),
    ] = False
    rules: Annotated[
        tuple[Rule, ...],
        about(
            "Without a rule every client may publish and subscribe to everything. From the first "
            "rule on only what a rule allows is allowed."
        ),
    ] = ()
