"""Load an OpenAI-style ``/v1/embeddings`` with plain locust.

    locust -f loadtests/embeddings.py --host http://127.0.0.1:8080 --headless -u 8 -t 10s

``--model`` chooses the model where several are served; the key is ``--api-key``, or
``MODELOPS_API_KEY`` in the environment.
"""

from locust import events

from modelops_loadtests.options import add_options
from modelops_loadtests.users import EmbeddingsUser

events.init_command_line_parser.add_listener(add_options)


class Embeddings(EmbeddingsUser):
    """Subclass it to change what is sent: see ``scenario_class`` and ``settings``."""
