"""Asks a running attentiond and prints what it found, for a reader in a terminal.

Used by audit_numpy.py and audit_torch.py.  Start reading at show().
"""
import json
import urllib.error
import urllib.request

MARKS = {"correct": "ok", "wrong_here": "WRONG", "inherited": "follows", "not_given": "-"}


def ask(url, path, body):
    """POSTs JSON; an error of the service is told in its own words."""
    request = urllib.request.Request(url + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refused:
        problem = json.load(refused)
        raise SystemExit("%s: %s (%s)" % (problem["title"], problem["detail"],
                                          problem.get("pointer", path)))
    except urllib.error.URLError as error:
        raise SystemExit("%s does not answer (%s): start it with `make run`"
                         % (url, error.reason))


def number(x):
    if x is None or isinstance(x, (str, bool)):
        return "" if x is None else str(x)
    return "%.4g" % x


def show(answer, title="your implementation"):
    """One audited candidate; then its companions, a line each."""
    print("%s: %s" % (title, answer["verdict"].upper()))
    print("  %-9s %-9s %12s %12s" % ("object", "", "global", "local"))
    for name, row in answer["objects"].items():
        if row["state"] != "not_given":
            print("  %-9s %-9s %12s %12s" % (name, MARKS[row["state"]],
                                             number(row["global_error"]),
                                             number(row["local_error"])))
    first = answer["first_difference"]
    if first:
        print("first wrong object: %s, at %s: expected %s, observed %s" % (
            answer["first_incorrect"], first["index"], number(first["expected"]),
            number(first["observed"])))
    for cause in answer["diagnoses"][:3]:
        print("cause: %s (%s)\n  %s\n  fix: %s" % (cause["fault"], cause["object"],
                                                 cause["explanation"], cause["fix"]))
        if cause["indistinguishable_from"]:
            print("  the same here as: %s" % ", ".join(cause["indistinguishable_from"]))
    for form in answer["accepted_forms"]:
        print("another right form: %s. %s" % (form["form"], form["says"]))
    for note in answer["notes"]:
        print("note: %s" % note)
    for companion in answer.get("companions", []):
        alike = companion["rows_alike"]
        line = "%-20s %s" % (companion["name"], companion["verdict"])
        if companion["first_incorrect"]:
            causes = [cause["fault"] for cause in companion["diagnoses"][:1]]
            line += " at %s %s" % (companion["first_incorrect"], " ".join(causes))
        if alike["rows_compared"]:
            line += "; %d rows must be alike, %d differ" % (alike["rows_compared"],
                                                            alike["rows_that_differ"])
        print(line)


def exit_code(answer):
    verdicts = [answer["verdict"]] + [c["verdict"] for c in answer.get("companions", [])]
    return 0 if set(verdicts) == {"correct"} else 1
