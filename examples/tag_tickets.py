"""Suggest tags for support tickets with a `Tagger`.

python examples/tag_tickets.py
"""

from ripml import Tagger

TICKETS = [
    ("The app crashes when I log in with my phone", ["login", "mobile"]),
    ("Login page says wrong password although it is right", ["login"]),
    ("Reset password mail never arrives", ["login", "email"]),
    ("The invoice shows the wrong amount", ["billing"]),
    ("I was charged twice this month", ["billing"]),
    ("Invoice was sent to my old email address", ["billing", "email"]),
    ("The phone app drains my battery", ["mobile"]),
    ("Push messages do not arrive on my phone", ["mobile"]),
]


def main() -> None:
    """Train on eight tickets and suggest tags for three more."""
    texts, tags = zip(*TICKETS, strict=True)
    tagger = Tagger().fit(texts, tags)
    new = ["cannot log in, password refused", "charged for an invoice I paid", "app on my phone is slow"]
    for text, suggested in zip(new, tagger.suggest_many(new, n=2), strict=True):
        print(f"{text}: {', '.join(f'{name} {score:.2f}' for name, score in suggested)}")


if __name__ == "__main__":
    main()
