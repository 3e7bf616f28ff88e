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

# Others than those above, which judge: what a graph is calibrated on must not also prove it.
CALIBRATION = (
    "Where can I find the invoice for last month?",
    "No, thank you.",
    "The museum is closed on Mondays and opens at ten on all other days.",
    "SELECT name, total FROM orders WHERE total > 100 ORDER BY total DESC;",
    "Bitte senden Sie mir die Unterlagen bis Freitag per E-Mail zu.",
    "La réunion de demain est reportée à jeudi prochain, à quatorze heures.",
    "Fold the egg whites into the batter with a spatula, pour it into a buttered tin, and bake "
    "for forty minutes, or until a needle comes out clean.",
    "great product, arrived two days late though :(",
    "El vuelo a Bogotá fue cancelado por mal tiempo.",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.",
    "Each party shall keep confidential all information that it receives from the other under "
    "this agreement, for as long as five years after the agreement has ended.",
    "Error 503: upstream connect error or disconnect before headers",
    "他昨天在图书馆借了三本书。",
    "She plays the cello in the city's youth orchestra.",
    "Blood samples were taken at baseline and after six and twelve weeks of treatment, and were "
    "analysed by a laboratory that did not know the groups.",
    "What is the difference between a list and a tuple in Python?",
    "3 * (4 + 5) = 27",
    "The old lighthouse keeper climbed the stairs slowly, lamp in hand, and counted each step.",
    "Сколько стоит билет до Казани?",
    "URGENT: please call me back",
    "Prices of copper fell for a third week as stocks in the warehouses grew.",
    "How far is the moon from the earth, and how long would it take to drive there?",
    "Der Hund schläft unter dem Tisch.",
    "Insert the battery with the plus sign up, close the lid, and hold the button for three "
    "seconds until the green light blinks twice.",
)


def texts(count: int) -> list[str]:
    """Return ``count`` texts of mixed lengths; the same for the same count."""
    return [SENTENCES[i % len(SENTENCES)] for i in range(count)]
