"""The texts that are sent where the user gives none: three to about ninety words."""

from __future__ import annotations

_SHORT = (
    "Where is my parcel?",
    "Reset the password.",
    "The train was late again.",
    "Two tickets to Lisbon, please.",
    "Turn the heating down a little.",
    "She plays the cello.",
    "Rain is expected tonight.",
    "The invoice was paid twice.",
)
_MEDIUM = (
    "A refund usually reaches the account within five working days of the return being scanned.",
    "The committee postponed its vote because two of the seven members could not be present.",
    "To replace the filter, switch off the pump, loosen the ring and lift out the cartridge.",
    "Bees find their way home by the position of the sun and by landmarks they remember.",
    "Our flight was cancelled, and the airline offered a seat on the first one of the next day.",
    "The recipe asks for ripe tomatoes, but tinned ones do just as well in the middle of winter.",
    "Shares of the shipbuilder rose after it said that orders had doubled in the second quarter.",
    "The museum opens an hour later on Sundays and is closed to visitors on the first Monday.",
)
_LONG = (
    "When the lake freezes early, the fishermen walk out before dawn with sledge and auger, drill "
    "a line of holes along the old river bed, and set their lines at the depth where the water is "
    "warmest; by noon most of them have gone home again, and only the children stay to skate.",
    "The first version of the bridge was drawn with four piers, but the survey showed soft clay "
    "under the two in the middle, so the engineers moved them closer to the banks, made the deck "
    "of steel instead of concrete, and hung it from one arch that could be floated into place.",
    "If the printer shows a blinking amber light, open the rear cover and look for torn paper "
    "between the rollers. Pull any piece out slowly in the direction in which paper travels, close "
    "the cover, and hold the green button for three seconds. If the light returns, note the number "
    "on the display and call the service line: a sensor may have to be replaced.",
    "Patients were examined at the start of the study and again after six and twelve months. Those "
    "who had walked for at least half an hour a day slept longer, reported less pain, and needed "
    "fewer visits to their doctor than those who had not, although the two groups did not differ "
    "in age, weight or medication when the study began.",
)

SENTENCES: tuple[str, ...] = _SHORT + _MEDIUM + _LONG
