"""Load the Open Inference Protocol's ``/v2/models/{model}/infer`` with plain locust.

    locust -f loadtests/tensors.py --host http://127.0.0.1:8080 --headless -u 8 -t 10s

``--model`` chooses the model where several are served, ``--encoding binary`` sends binary tensors,
``--dim sequence=64`` sets a dynamic dim; the key is ``--api-key``, or ``MODELOPS_API_KEY`` in the
environment.
"""

from locust import events

from modelops_loadtests.options import add_options
from modelops_loadtests.users import TensorsUser

events.init_command_line_parser.add_listener(add_options)


class Tensors(TensorsUser):
    """Subclass it to change what is sent: see ``scenario_class`` and ``settings``."""
