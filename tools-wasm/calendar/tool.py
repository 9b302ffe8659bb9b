"""Dates, time zones, recurring dates and iCalendar files."""

import difflib
import re
from datetime import date, datetime, time, timedelta, timezone
from typing import Annotated, TypedDict
from zoneinfo import ZoneInfo, available_timezones

import starling
from dateutil.relativedelta import relativedelta
from dateutil.rrule import rrulestr

MOST_TEXT, MOST_EVENTS, MOST_STEPS = 1_000_000, 5_000, 20_000
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
# The names that calendars of Windows give to zones.
WINDOWS = {
    "W. Europe Standard Time": "Europe/Berlin", "Central Europe Standard Time": "Europe/Budapest", "Romance Standard Time": "Europe/Paris",
    "Central European Standard Time": "Europe/Warsaw", "GMT Standard Time": "Europe/London", "Greenwich Standard Time": "Atlantic/Reykjavik",
    "E. Europe Standard Time": "Europe/Chisinau", "FLE Standard Time": "Europe/Kiev", "GTB Standard Time": "Europe/Bucharest",
    "Turkey Standard Time": "Europe/Istanbul", "Russian Standard Time": "Europe/Moscow", "Israel Standard Time": "Asia/Jerusalem",
    "Arabian Standard Time": "Asia/Dubai", "India Standard Time": "Asia/Kolkata", "China Standard Time": "Asia/Shanghai",
    "Singapore Standard Time": "Asia/Singapore", "Tokyo Standard Time": "Asia/Tokyo", "Korea Standard Time": "Asia/Seoul",
    "AUS Eastern Standard Time": "Australia/Sydney", "New Zealand Standard Time": "Pacific/Auckland", "Eastern Standard Time": "America/New_York",
    "Central Standard Time": "America/Chicago", "Mountain Standard Time": "America/Denver", "Pacific Standard Time": "America/Los_Angeles",
    "E. South America Standard Time": "America/Sao_Paulo", "South Africa Standard Time": "Africa/Johannesburg",
}

Amount = Annotated[int, {"minimum": -1_000_000, "maximum": 1_000_000}]
Limit = Annotated[int, {"minimum": 1, "maximum": 500}]


class Moment(TypedDict):
    zone: str
    time: str
    weekday: str
    offset: str
    abbreviation: str
    daylight_saving: bool


class Moments(TypedDict):
    unix: int
    iso_week: str
    day_of_year: int
    times: list[Moment]
    note: str


class Sum(TypedDict):
    time: str
    weekday: str
    note: str


class Span(TypedDict):
    days: int
    seconds: int
    weekdays: int
    calendar: str


class Occurrences(TypedDict):
    times: list[str]
    more: bool


class Event(TypedDict):
    start: str
    end: str
    all_day: bool
    summary: str
    location: str
    description: str
    status: str
    recurs: bool
    uid: str


class Agenda(TypedDict):
    events: list[Event]
    more: bool
    notes: list[str]


def show_time(when: str = "now", zone: str = "UTC", zones: list[str] = []) -> Moments:
    """Shows a moment in time zones, with weekday, offset, daylight saving time and ISO week. Use it for the present time, too.

    when: now, an ISO date or time such as 2026-03-29T02:30 or 2026-03-29T02:30+01:00, or seconds since 1970
    zone: The zone of `when` if it has no offset: an IANA name such as Europe/Berlin, or UTC
    zones: Further zones to show, at most 50
    """
    if len(zones) > 50:
        raise starling.discard(f"zones: {len(zones)} zones; the limit is 50")
    home = find_zone("zone", zone)
    moment, note = read_time("when", when, home)
    local = moment.astimezone(home)
    year, week, day = local.isocalendar()
    times = []
    for name, place in [(zone, home)] + [(name, find_zone("zones", name)) for name in zones]:
        t = moment.astimezone(place)
        times.append({"zone": name, "time": t.isoformat(), "weekday": WEEKDAYS[t.weekday()], "offset": t.isoformat()[-6:],
                      "abbreviation": t.tzname() or "", "daylight_saving": bool(t.dst())})
    return {"unix": int(moment.timestamp() // 1), "iso_week": f"{year}-W{week:02}-{day}", "day_of_year": local.timetuple().tm_yday, "times": times, "note": note}


def add_time(when: str, zone: str = "UTC", years: Amount = 0, months: Amount = 0, weeks: Amount = 0, days: Amount = 0, weekdays: Amount = 0,
             hours: Amount = 0, minutes: Amount = 0, seconds: Amount = 0) -> Sum:
    """Adds a duration to a date or time, or subtracts it if it is negative.

    Years to weekdays move the date and keep the local time of day; the last day of a shorter month is taken (31 January + 1 month is
    28 February). Hours, minutes and seconds are then added as real time, across changes of the clock. A date without a time stays a date
    unless hours, minutes or seconds are added.

    when: now, an ISO date or time, or seconds since 1970
    zone: The zone of the calendar, such as America/New_York
    weekdays: Days from Monday to Friday; public holidays are not known
    """
    home = find_zone("zone", zone)
    moment, note = read_time("when", when, home)
    local = moment.astimezone(home)
    if abs(weekdays) > MOST_STEPS:
        raise starling.discard(f"weekdays: {weekdays}; the limit is {MOST_STEPS}")
    try:
        naive = local.replace(tzinfo=None) + relativedelta(years=years, months=months, weeks=weeks, days=days)
        step = 1 if weekdays > 0 else -1
        left = abs(weekdays)
        while left:
            naive += timedelta(days=step)
            left -= naive.weekday() < 5
        if is_date(when) and not (hours or minutes or seconds):
            return {"time": naive.date().isoformat(), "weekday": WEEKDAYS[naive.weekday()], "note": note}
        result, gap = place(naive, home)
        result = (result.astimezone(timezone.utc) + timedelta(hours=hours, minutes=minutes, seconds=seconds)).astimezone(home)
    except (OverflowError, ValueError):
        raise starling.discard(f"{when}: the result is outside of the years 1 to 9999") from None
    return {"time": result.isoformat(), "weekday": WEEKDAYS[result.weekday()], "note": "; ".join(filter(None, (note, gap)))}


def time_between(start: str, end: str, zone: str = "UTC") -> Span:
    """Computes the time from start to end: real seconds, whole days of the calendar, days from Monday to Friday, and years, months and days.

    `days` and `weekdays` count the dates from the start, without the end. If the end is before the start, the numbers are negative.

    start: now, an ISO date or time, or seconds since 1970
    zone: The zone of times without an offset, and of the calendar
    """
    home = find_zone("zone", zone)
    a, b = read_time("start", start, home)[0].astimezone(home), read_time("end", end, home)[0].astimezone(home)
    sign = -1 if b < a else 1
    first, last = sorted((a.date(), b.date()))
    days = (last - first).days
    weekdays = days // 7 * 5 + sum((first.weekday() + i) % 7 < 5 for i in range(days % 7))
    delta = relativedelta(max(a, b).replace(tzinfo=None), min(a, b).replace(tzinfo=None))
    parts = [f"{n} {name if n != 1 else name[:-1]}" for name in ("years", "months", "days", "hours", "minutes", "seconds") if (n := getattr(delta, name))]
    seconds = (b.astimezone(timezone.utc) - a.astimezone(timezone.utc)) // timedelta(seconds=1)
    return {"days": sign * days, "seconds": seconds, "weekdays": sign * weekdays, "calendar": ("-" if sign < 0 else "") + (", ".join(parts) or "0 seconds")}


def expand_rule(rule: str, start: str, zone: str = "UTC", after: str | None = None, before: str | None = None, limit: Limit = 20) -> Occurrences:
    """Lists the times of a recurrence rule of iCalendar (RFC 5545).

    Each time keeps the local time of day when the clock changes. `more` is true if there are further times.

    rule: For example FREQ=MONTHLY;BYDAY=-1FR (last Friday of each month) or FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE;COUNT=10
    start: The first time: an ISO date or time
    after: Only times at or after this one
    before: Only times before this one
    """
    home = find_zone("zone", zone)
    first = read_time("start", start, home)[0].astimezone(home)
    low = read_time("after", after, home)[0] if after else None
    high = read_time("before", before, home)[0] if before else None
    found, more = recur("rule", rule, first.replace(tzinfo=None), home, low, high, limit)
    day = is_date(start) and not re.search("HOURLY|MINUTELY|SECONDLY|BYHOUR|BYMINUTE|BYSECOND", rule.upper())
    return {"times": [(t.date() if day else t).isoformat() for t in found], "more": more}


def read_icalendar(text: str, after: str | None = None, before: str | None = None, zone: str = "UTC", limit: Limit = 50, search: str = "") -> Agenda:
    """Lists the events of an iCalendar file (.ics) in order of time, with recurring events expanded.

    Understands time zones, all-day events, RRULE, RDATE, EXDATE, changed occurrences and durations. `more` is true if there are further
    events. Give after and before for a day or a week.

    text: The content of the file, which begins with BEGIN:VCALENDAR
    after: Only events that end after this time: an ISO date or time, or now
    before: Only events that start before this time
    zone: The zone of the result, and of times without a zone
    search: Only events with this text in summary, location or description
    """
    home = find_zone("zone", zone)
    low = read_time("after", after, home)[0] if after else None
    high = read_time("before", before, home)[0] if before else None
    notes, events, more = [], [], False
    entries = read_entries(text)
    changed = {(e["UID"][0][1], moment_of(e["RECURRENCE-ID"][0], home, notes)[0].timestamp()) for e in entries if "UID" in e and "RECURRENCE-ID" in e}
    for e in entries:
        get = lambda name: clean(e[name][0][1]) if name in e else ""
        words = (get("SUMMARY"), get("LOCATION"), get("DESCRIPTION")[:2_000])
        if search.lower() not in " ".join(words).lower():
            continue
        if "DTSTART" not in e:
            notes.append(f"line {e['line']}: the event has no DTSTART and is left out")
            continue
        start, all_day = moment_of(e["DTSTART"][0], home, notes)
        length = timedelta(days=1) if all_day else timedelta(0)
        if "DTEND" in e:
            length = moment_of(e["DTEND"][0], home, notes)[0].replace(tzinfo=None) - start.replace(tzinfo=None) if all_day else \
                moment_of(e["DTEND"][0], home, notes)[0].astimezone(timezone.utc) - start.astimezone(timezone.utc)
        elif "DURATION" in e:
            length = duration(e["DURATION"][0][1], e["line"])
        starts = [start]
        if "RRULE" in e:
            floor = low - length - timedelta(days=1) if low else None
            starts, further = recur(f"text: line {e['line']}", e["RRULE"][0][1], start.replace(tzinfo=None), start.tzinfo, floor, high, limit + 1)
            more = more or further
        for parameters, value in e.get("RDATE", []):
            starts += (moment_of((parameters, v), home, notes)[0] for v in value.split(","))
        left = {moment_of((parameters, v), home, notes)[0].timestamp() for parameters, value in e.get("EXDATE", []) for v in value.split(",")}
        for s in starts:
            key = get("UID"), s.timestamp()
            end = s.replace(tzinfo=None) + length if all_day else (s.astimezone(timezone.utc) + length)
            if s.timestamp() in left or ("RECURRENCE-ID" not in e and key in changed):
                continue
            zoned = end.replace(tzinfo=s.tzinfo) if all_day else end
            if low and zoned <= low and not (s == zoned == low) or high and s >= high:
                continue
            written = (s.date().isoformat(), end.date().isoformat()) if all_day else (s.astimezone(home).isoformat(), end.astimezone(home).isoformat())
            events.append((s.timestamp(), {"start": written[0], "end": written[1], "all_day": all_day, "summary": words[0], "location": words[1], "description": words[2],
                                           "status": get("STATUS").lower(), "recurs": "RRULE" in e or "RECURRENCE-ID" in e, "uid": get("UID")}))
    events.sort(key=lambda pair: pair[0])
    return {"events": [event for _, event in events[:limit]], "more": more or len(events) > limit, "notes": list(dict.fromkeys(notes))[:20]}


def find_zone(field, name):
    try:
        return ZoneInfo(WINDOWS.get(name, name))
    except (KeyError, ValueError, OSError):
        names = available_timezones()
        near = [n for n in names if n.rpartition("/")[2].lower() == name.rpartition("/")[2].lower().replace(" ", "_")]
        near = near or difflib.get_close_matches(name.replace(" ", "_"), names, 4, 0.5) or ["UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo"]
        raise starling.discard(f"{field}: there is no time zone {name!r}; hint: near names are {', '.join(sorted(near)[:5])}") from None


def is_date(text):
    return re.fullmatch(r"\s*\d{4}-\d\d-\d\d\s*", text) is not None


# read_time returns the moment with a zone, and a note if the local time does not exist or exists twice.
def read_time(field, text, zone):
    text = text.strip()
    try:
        if text.lower() == "now":
            return datetime.now(timezone.utc).replace(microsecond=0), ""
        if re.fullmatch(r"-?\d{1,11}(\.\d+)?", text):
            return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=float(text)), ""
        moment = datetime.fromisoformat(text)
        if moment.tzinfo:
            moment.astimezone(timezone.utc)
            return moment, ""
        return place(moment, zone)
    except (ValueError, OverflowError) as error:
        why = f" ({error})" if re.match(r"\d{4}-\d\d-\d\d", text) else ""
        raise starling.discard(f"{field}: {text[:60]!r} is not a time{why}; hint: write 2026-03-29, 2026-03-29T14:30 or 2026-03-29T14:30+02:00") from None


# place puts a local time into its zone.
def place(naive, zone):
    early, late = naive.replace(tzinfo=zone, fold=0), naive.replace(tzinfo=zone, fold=1)
    if early.utcoffset() == late.utcoffset():
        return early, ""
    real = early.astimezone(timezone.utc).astimezone(zone)
    if real.replace(tzinfo=None) != naive:
        return real, f"{naive.isoformat()} does not exist in {zone.key}, because the clock is put forward: {real.isoformat()} is taken"
    return early, f"{naive.isoformat()} exists twice in {zone.key}: the first, {early.isoformat()}, is taken; the second is {late.isoformat()}"


# recur returns the times of a rule as moments, and whether there are more.
def recur(field, rule, first, zone, low, high, limit):
    text = rule.strip()
    if len(text) > 1_000 or "\n" in text:
        raise starling.discard(f"{field}: a rule is one line of at most 1,000 characters; hint: write FREQ=DAILY;COUNT=10")
    text = text.removeprefix("RRULE:").upper()

    def until(match):
        moment = datetime.strptime(match[1], "%Y%m%dT%H%M%S").replace(tzinfo=timezone.utc)
        return "UNTIL=" + moment.astimezone(zone).strftime("%Y%m%dT%H%M%S")

    try:
        text = re.sub(r"UNTIL=(\d{8}T\d{6})Z", until, text)
        text = re.sub(r"UNTIL=(\d{8})(?=;|$)", r"UNTIL=\1T235959", text)
        parsed = rrulestr(text, dtstart=first)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise starling.discard(f"{field}: {rule[:100]!r} is not a recurrence rule ({error}); hint: write FREQ=WEEKLY;BYDAY=MO,TH;COUNT=10") from None
    found = []
    for i, naive in enumerate(parsed):
        if i == MOST_STEPS:
            raise starling.discard(f"{field}: more than {MOST_STEPS:,} times before `after`; hint: move `start` closer to it")
        moment = place(naive, zone)[0]
        if high and moment >= high:
            break
        if low and moment < low:
            continue
        if len(found) == limit:
            return found, True
        found.append(moment)
    return found, False


# read_entries returns the events of an iCalendar text: the properties by name, each a list of (parameters, value).
def read_entries(text):
    if len(text) > MOST_TEXT:
        raise starling.discard(f"text: {len(text)} characters; the limit is {MOST_TEXT}")
    if "BEGIN:VCALENDAR" not in text[:1_000].upper():
        raise starling.discard("text: it does not begin with BEGIN:VCALENDAR; hint: give the whole content of an .ics file")
    entries, above, entry = [], [], None
    lines = re.sub(r"\r?\n[ \t]", "", text).splitlines()
    for number, line in enumerate(lines, 1):
        head, colon, value = split_line(line)
        name, *parameters = head.split(";")
        name = name.upper()
        if name == "BEGIN":
            above.append(value.strip().upper())
            if above[-1] == "VEVENT":
                entry = {"line": number}
        elif name == "END":
            if not above or above.pop() != value.strip().upper():
                raise starling.discard(f"text: line {number} (with folded lines joined): {line[:60]!r} closes nothing; hint: the file may be cut off")
            if value.strip().upper() == "VEVENT" and entry:
                entries.append(entry)
                entry = None
                if len(entries) > MOST_EVENTS:
                    raise starling.discard(f"text: more than {MOST_EVENTS:,} events; hint: give a part of the file")
        elif entry is not None and above[-1] == "VEVENT" and colon:
            pairs = dict(p.upper().partition("=")[::2] if "TZID" not in p.upper() else ("TZID", p.partition("=")[2].strip('"')) for p in parameters)
            entry.setdefault(name, []).append((pairs, value))
    if above:
        raise starling.discard(f"text: {above[-1]} is not closed at its end; hint: the file may be cut off")
    return entries


def split_line(line):
    quoted = False
    for i, c in enumerate(line):
        if c == '"':
            quoted = not quoted
        if c == ":" and not quoted:
            return line[:i], ":", line[i + 1:]
    return line, "", ""


# moment_of returns the moment of a property, and whether it is a date.
def moment_of(entry, home, notes):
    parameters, value = entry
    value, zone = value.strip(), home
    if name := parameters.get("TZID"):
        try:
            zone = ZoneInfo(WINDOWS.get(name, name.removeprefix("/")))
        except (KeyError, ValueError, OSError):
            notes.append(f"the time zone {name!r} is not known: its times are read as of {home.key}")
    try:
        if len(value) == 8:
            return datetime.combine(date.fromisoformat(value), time(), home), True
        moment = datetime.strptime(value.rstrip("Z"), "%Y%m%dT%H%M%S")
    except ValueError:
        raise starling.discard(f"text: {value[:40]!r} is not a time of iCalendar; hint: write 20260329T143000Z") from None
    return (moment.replace(tzinfo=timezone.utc), False) if value.endswith("Z") else (place(moment, zone)[0], False)


def duration(text, line):
    m = re.fullmatch(r"([+-]?)P(?:(\d{1,6})W)?(?:(\d{1,6})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,8})S)?)?", text.strip().upper())
    if not m:
        raise starling.discard(f"text: the event at line {line}: {text[:40]!r} is not a duration; hint: write PT1H30M")
    weeks, days, hours, minutes, seconds = (int(n or 0) for n in m.groups()[1:])
    return timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds) * (-1 if m[1] == "-" else 1)


def clean(text):
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] in "nN" else m[1], text).strip()
