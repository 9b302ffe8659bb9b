"""Tools for GitHub and GitHub Enterprise. The host inserts the token, so the tools never see it."""

import base64
import re
from typing import Annotated, Literal
from urllib.parse import quote, urlencode

import starling

API = "https://api.github.com"
MOST_TEXT = 20_000  # characters of an issue; a comment has a quarter of it, and a file ten times as many
REPO = re.compile(r"[A-Za-z0-9_-]+/(?!\.\.?$)[A-Za-z0-9._-]+")

Repo = Annotated[str, "Repository as OWNER/NAME"]
Number = Annotated[int, {"description": "Number of the issue or pull request", "minimum": 1}]
Limit = Annotated[int, {"description": "Most results of a page", "minimum": 1, "maximum": 50}]
Page = Annotated[int, {"description": "Page, from 1; next_page of the last result continues it", "minimum": 1}]
Base = Annotated[str, "Address of the API: https://HOST/api/v3 for GitHub Enterprise"]


def _reads(function):
    return starling.tool(effects=["api.github.com"], idempotent=True)(function)


def _writes(function):
    return starling.tool(effects=["api.github.com"], idempotent=False)(function)


@_reads
def github_search_issues(query: str, limit: Limit = 20, page: Page = 1, base_url: Base = API) -> dict:
    """Searches issues and pull requests. Returns their repository, number, title, state and the beginning of their text.

    query: GitHub's search syntax, such as "repo:octo/app is:issue is:open label:bug crash"
    """
    found, more = _get(base_url, "/search/issues", q=query, per_page=limit, page=page)
    return _page({"total": found["total_count"], "complete": not found.get("incomplete_results", False), "issues": [
        {"repo": item["repository_url"].split("/repos/", 1)[-1], **_issue(item), "text": _cut(item.get("body"), 300)}
        for item in found["items"]]}, more, page)


@_reads
def github_search_code(query: str, limit: Limit = 20, page: Page = 1, base_url: Base = API) -> dict:
    """Searches code on default branches. Returns repository, path and the lines around each match.

    query: GitHub's search syntax, such as "repo:octo/app language:go handleLogin"
    """
    found, more = _get(base_url, "/search/code", "application/vnd.github.text-match+json", q=query, per_page=limit, page=page)
    return _page({"total": found["total_count"], "complete": not found.get("incomplete_results", False), "files": [
        {"repo": item["repository"]["full_name"], "path": item["path"], "url": item["html_url"],
         "matches": [match["fragment"] for match in item.get("text_matches", ())]} for item in found["items"]]}, more, page)


@_reads
def github_read_issue(repo: Repo, number: Number, limit: Limit = 30, page: Page = 1, base_url: Base = API) -> dict:
    """Reads an issue or a pull request with a page of its comments, oldest first."""
    path = f"{_repo(repo)}/issues/{number}"
    issue, _ = _get(base_url, path)
    comments, more = _get(base_url, f"{path}/comments", per_page=limit, page=page) if issue.get("comments") else ([], False)
    return _page({**_issue(issue), "text": _cut(issue.get("body"), MOST_TEXT), "comments": [
        {"author": _login(comment), "created": comment["created_at"], "text": _cut(comment.get("body"), MOST_TEXT // 4)}
        for comment in comments]}, more, page)


@_reads
def github_list_pull_requests(repo: Repo, state: Literal["open", "closed", "all"] = "open", base: str = "", limit: Limit = 20,
                              page: Page = 1, base_url: Base = API) -> dict:
    """Lists pull requests, newest first.

    base: Only those into this branch
    """
    pulls, more = _get(base_url, f"{_repo(repo)}/pulls", state=state, base=base, per_page=limit, page=page)
    return _page({"pull_requests": [
        {**_issue(pull), "draft": pull.get("draft", False), "merged": pull.get("merged_at"), "head": pull["head"]["ref"],
         "base": pull["base"]["ref"]} for pull in pulls]}, more, page)


@_reads
def github_read_file(repo: Repo, path: str, ref: str = "", first_line: Annotated[int, {"minimum": 1}] = 1,
                     lines: Annotated[int, {"minimum": 1, "maximum": 2000}] = 500, base_url: Base = API) -> dict:
    """Reads lines of a text file of at most 1 MB, or lists a folder.

    path: Path in the repository; empty for its root
    ref: Branch, tag or commit; the default branch if it is empty
    first_line: Line to begin with
    lines: Most lines to return
    """
    parts = [part for part in path.split("/") if part]
    if any(part in (".", "..") for part in parts):
        raise starling.discard(f"the path {path!r} has a . or .. in it: give the path from the root of the repository")
    found, _ = _get(base_url, f"{_repo(repo)}/contents/{'/'.join(quote(part, safe='') for part in parts)}", ref=ref)
    if isinstance(found, list):
        return {"path": path, "entries": [{"name": entry["name"], "type": entry["type"], "size": entry["size"]} for entry in found]}
    if found["type"] != "file" or found.get("encoding") != "base64":
        why = "larger than 1 MB" if found["type"] == "file" else f"a {found['type']}"
        raise starling.discard(f"{path} cannot be read, because it is {why}")
    try:
        text = base64.b64decode(found["content"]).decode("utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise starling.discard(f"{path} is not a text in UTF-8") from None
    if text[-1] == "":
        text.pop()
    shown = text[first_line - 1:first_line - 1 + lines]
    rest = first_line + len(shown)
    return {"path": found["path"], "sha": found["sha"], "text": _cut("\n".join(shown), 10 * MOST_TEXT), "total_lines": len(text),
            **({"next_line": rest} if shown and rest <= len(text) else {})}


@_writes
def github_create_issue(repo: Repo, title: str, text: str = "", labels: list[str] = [], base_url: Base = API) -> dict:
    """Creates an issue. Returns its number and address.

    text: Text of the issue, in Markdown
    """
    made = _send(base_url, f"{_repo(repo)}/issues", {"title": title, "body": text, **({"labels": labels} if labels else {})})
    return {"number": made["number"], "url": made["html_url"]}


@_writes
def github_comment(repo: Repo, number: Number, text: str, base_url: Base = API) -> dict:
    """Comments on an issue or a pull request. Returns the comment's id and address.

    text: Text of the comment, in Markdown
    """
    made = _send(base_url, f"{_repo(repo)}/issues/{number}/comments", {"body": text})
    return {"id": made["id"], "url": made["html_url"]}


def _repo(name):
    if not REPO.fullmatch(name):
        raise starling.discard(f"{name!r} is not a repository: write it as OWNER/NAME")
    return f"/repos/{name}"


def _get(base_url, path, accept="application/vnd.github+json", **query):
    """The value at a path, and whether another page follows."""
    query = {key: value for key, value in query.items() if value != ""}
    response = _request("GET", base_url, path + ("?" + urlencode(query) if query else ""), accept)
    return response.json(), 'rel="next"' in response.headers.get("link", "")


def _send(base_url, path, value):
    return _request("POST", base_url, path, "application/vnd.github+json", value).json()


def _request(method, base_url, path, accept, value=None):
    if not base_url.startswith(("https://", "http://")):
        raise starling.discard(f"base_url is {base_url!r}: it begins with https://")
    response = starling.request(method, base_url.rstrip("/") + path, json=value, headers={
        "Accept": accept, "Authorization": "Bearer {{secret:GITHUB_TOKEN}}", "User-Agent": "starling-host",
        "X-GitHub-Api-Version": "2022-11-28"})
    if response.status in (200, 201):
        return response
    raise _failure(response, path.split("?")[0])


def _failure(response, path):
    """The failure of a response without a result."""
    status, headers = response.status, response.headers
    try:
        answer = response.json()
        reason = answer["message"]
        reason += "".join(f"; {_detail(error)}" for error in answer.get("errors", ()))
    except (ValueError, KeyError, TypeError, AttributeError):
        reason = response.text[:200].strip() or "no reason given"
    if status == 429 or status == 403 and ("retry-after" in headers or headers.get("x-ratelimit-remaining") == "0" or "rate limit" in reason.lower()):
        wait = _seconds(headers)
        return starling.snooze(wait, f"GitHub's rate limit is used up: try again in {wait} seconds ({reason})")
    if status == 401:
        return starling.cancel(f"GitHub does not accept the token: store a valid one as the secret GITHUB_TOKEN ({reason})")
    if status == 403:
        return starling.cancel(f"the token may not do this on {path} ({reason})")
    if status == 404:
        return starling.discard(f"there is no {path}, or the token may not see it")
    if status >= 500:
        return starling.transient(f"GitHub answers {status}: {reason}")
    if status in (301, 302, 307, 308):
        return starling.discard(f"{path} has moved: use the repository's new name")
    return starling.discard(f"GitHub answers {status}: {reason}")


def _detail(error):
    if not isinstance(error, dict):
        return error
    return error.get("message") or f"{error.get('field')}: {error.get('code')}"


def _seconds(headers):
    """How long GitHub asks to wait. It asks for a minute where it names no time."""
    if headers.get("retry-after", "").isdigit():
        return max(1, int(headers["retry-after"]))
    if headers.get("x-ratelimit-remaining") == "0" and headers.get("x-ratelimit-reset", "").isdigit():
        return max(1, int(headers["x-ratelimit-reset"]) - starling.now() // 10**9 + 1)
    return 60


def _issue(item):
    return {"number": item["number"], "title": item["title"], "state": item["state"], "author": _login(item),
            "labels": [label["name"] for label in item.get("labels", ())], "pull_request": "pull_request" in item or "head" in item,
            "created": item["created_at"], "url": item["html_url"]}


def _login(item):
    return (item.get("user") or {}).get("login", "ghost")  # the account may be gone


def _cut(text, most):
    text = text or ""
    return text if len(text) <= most else f"{text[:most]}... [{len(text) - most} more characters]"


def _page(result, more, page):
    return {**result, "next_page": page + 1} if more else result
