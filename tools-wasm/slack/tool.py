"""Tools for Slack. The host inserts the token, so the tools never see it."""

from typing import Annotated
from urllib.parse import urlencode

import starling

API = "https://slack.com/api"
MOST_PAGES = 20  # of a list that is searched for a name
Base = Annotated[str, "Address of the API"]
HINTS = {
    "invalid_auth": "store a valid bot token as the secret SLACK_TOKEN", "not_authed": "store a bot token as the secret SLACK_TOKEN",
    "token_revoked": "store a new bot token as the secret SLACK_TOKEN", "account_inactive": "store a new bot token as the secret SLACK_TOKEN",
    "missing_scope": "add the scope to the app, and install it again", "not_in_channel": "invite the app to the channel",
    "channel_not_found": "use the id that slack_find_channel returns, and invite the app to a private channel",
    "is_archived": "choose a channel that is not archived", "msg_too_long": "shorten the text to 40,000 characters",
    "no_text": "give the message a text", "invalid_cursor": "use next_cursor of the last result unchanged",
    "users_not_found": "search by name", "thread_not_found": "use the ts of the message that begins the thread",
}
REFUSED = ("invalid_auth", "not_authed", "token_revoked", "token_expired", "account_inactive", "missing_scope", "not_in_channel",
           "access_denied", "no_permission", "restricted_action", "team_access_not_granted", "ekm_access_denied")
PASSING = ("internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org")


def _reads(function):
    return starling.tool(effects=["slack.com"], idempotent=True)(function)


@starling.tool(effects=["slack.com"], idempotent=False)
def slack_post_message(channel: str, text: str, thread: str = "", base_url: Base = API) -> dict:
    """Posts a message to a channel, or a reply to a thread. Returns its channel and ts, which names the message.

    channel: Id of a channel or of a user
    text: Text in Slack's form of Markdown
    thread: ts of the message to reply to
    """
    made = _call("POST", base_url, "chat.postMessage", channel=channel, text=text, thread_ts=thread)
    return {"channel": made["channel"], "ts": made["ts"]}


@_reads
def slack_read_channel(channel: str, limit: Annotated[int, {"minimum": 1, "maximum": 50}] = 20, oldest: str = "", cursor: str = "",
                       base_url: Base = API) -> dict:
    """Reads the messages of a channel, newest first.

    channel: Id of the channel
    limit: Most messages
    oldest: Only messages after this ts
    cursor: next_cursor of the last result, to continue it
    """
    found = _call("GET", base_url, "conversations.history", channel=channel, limit=limit, oldest=oldest, cursor=cursor)
    return _more({"messages": [
        {"ts": message["ts"], "user": message.get("user") or message.get("bot_id", ""), "text": _cut(message.get("text", "")),
         "replies": message.get("reply_count", 0)} for message in found["messages"]]}, _next(found))


@_reads
def slack_find_channel(name: str, base_url: Base = API) -> dict:
    """Finds public channels whose name has a text in it. Returns id, name, topic, and whether the app is a member.

    name: Text, with or without #
    """
    wanted = name.lstrip("#").lower()
    return _find(base_url, "conversations.list", "channels", lambda channel: wanted in channel["name"].lower(), lambda channel: {
        "id": channel["id"], "name": channel["name"], "topic": channel.get("topic", {}).get("value", ""),
        "member": channel.get("is_member", False)}, exclude_archived="true", types="public_channel")


@_reads
def slack_find_user(name: str, base_url: Base = API) -> dict:
    """Finds people by a part of their name, or one person by the exact e-mail address. Returns id, name and real name.

    name: Part of a name, or an e-mail address
    """
    if "@" in name.lstrip("@"):
        return {"users": [_user(_call("GET", base_url, "users.lookupByEmail", email=name)["user"])]}
    wanted = name.lstrip("@").lower()
    return _find(base_url, "users.list", "users", lambda user: not user.get("deleted") and any(
        wanted in text.lower() for text in (user["name"], _user(user)["real_name"])), _user, key="members")


def _user(user):
    return {"id": user["id"], "name": user["name"], "real_name": user.get("real_name") or user.get("profile", {}).get("real_name", "")}


def _find(base_url, method, kind, wanted, shown, key=None, **query):
    """The entries of a list that are wanted. The result is not complete if the list has more than MOST_PAGES pages."""
    found, cursor = [], ""
    for _ in range(MOST_PAGES):
        answer = _call("GET", base_url, method, limit=200, cursor=cursor, **query)
        found += [shown(entry) for entry in answer[key or kind] if wanted(entry)]
        cursor = _next(answer)
        if not cursor:
            break
    return {kind: found, "complete": not cursor}


def _call(method, base_url, name, **values):
    """The answer of a method of the API."""
    if not base_url.startswith(("https://", "http://")):
        raise starling.discard(f"base_url is {base_url!r}: it begins with https://")
    values = {key: value for key, value in values.items() if value != ""}
    url, head = f"{base_url.rstrip('/')}/{name}", {"Authorization": "Bearer {{secret:SLACK_TOKEN}}"}
    if method == "GET":
        response = starling.request(method, f"{url}?{urlencode(values)}", headers=head)
    else:
        response = starling.request(method, url, headers=head, json=values)
    try:
        answer = response.json()
        error = None if answer["ok"] else answer["error"]
    except (ValueError, KeyError, TypeError):
        answer, error = {}, f"status {response.status}"
    if response.status == 429 or error in ("ratelimited", "rate_limited"):
        after = response.headers.get("retry-after", "")
        wait = max(1, int(after)) if after.isdigit() else 30
        raise starling.snooze(wait, f"Slack's rate limit for {name} is used up: try again in {wait} seconds")
    if response.status >= 500 or error in PASSING:
        raise starling.transient(f"{name}: Slack answers {error or response.status}, which may pass")
    if error:
        needed = f" {answer['needed']}" if "needed" in answer else ""
        hint = f": {HINTS[error]}" if error in HINTS else ""
        raise (starling.cancel if error in REFUSED else starling.discard)(f"{name}: Slack answers {error}{needed}{hint}")
    return answer


def _next(answer):
    return (answer.get("response_metadata") or {}).get("next_cursor", "")


def _more(result, cursor):
    return {**result, "next_cursor": cursor} if cursor else result


def _cut(text, most=4000):
    return text if len(text) <= most else f"{text[:most]}... [{len(text) - most} more characters]"
