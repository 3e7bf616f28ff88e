"""Sentences such as users send, for realistic inputs."""

from __future__ import annotations

SENTENCES = (
    "How do I reset my password?",
    "The train to Lisbon leaves at 07:45 from platform 3.",
    "Yes.",
    "Our quarterly revenue rose by 12.4 %, mostly from renewals in the public sector.",
    "def add(a, b):\n    return a + b",
    "Die Lieferung kommt am Donnerstag zwischen acht und zwölf Uhr.",
    "¿Dónde puedo cambiar la dirección de envío de mi pedido?",
    "Patients with a history of hypertension were excluded from the second arm of the trial, "
    "since the drug under study is known to raise blood pressure in the first days of use.",
    "東京の天気は明日から雨になるでしょう。",
    "ok thx!!",
    "A recipe for four: boil the lentils, fry an onion in plenty of oil, add cumin, salt and a "
    "spoon of vinegar, and let everything rest under a lid for ten minutes before serving.",
    "The quick brown fox jumps over the lazy dog near the old stone bridge.",
    "Order #48213 was refunded to the card ending in 0042 on 3 March.",
    "Why is the sky blue, and why are sunsets red?",
    "In the event of a breach of clause 7 the tenant shall be given thirty days' notice in "
    "writing, after which the landlord may enter the premises in the presence of a witness.",
    "Соберите чемодан заранее: рейс отправляется рано утром.",
)


def texts(count: int) -> list[str]:
    """Return ``count`` texts of mixed lengths; the same for the same count."""
    return [SENTENCES[i % len(SENTENCES)] for i in range(count)]
