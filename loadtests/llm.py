"""Load an OpenAI-style ``/v1/chat/completions`` with plain locust.

    locust -f loadtests/llm.py --host http://127.0.0.1:8080 --headless -u 8 -t 30s

Without ``--headless`` locust's web page shows it. Time to first token and time per output token
have rows of their own there, which are no requests and do not enter the totals. ``--model`` chooses
the model where several are served, ``--input-tokens 256`` and ``--output-tokens 16..128`` the
lengths. ``--rate 5`` makes it an open loop of five requests a second, whatever ``-u`` says. The key
is ``--api-key``, or ``MODELOPS_API_KEY`` in the environment.
"""

from locust import events

from modelops_loadtests.load import arriving
from modelops_loadtests.options import add_options
from modelops_loadtests.users import ChatUser

events.init_command_line_parser.add_listener(add_options)
events.init_command_line_parser.add_listener(arriving.add_options)
events.init.add_listener(arriving.open_if_asked)


class Chat(ChatUser):
    """Subclass it to change what is sent: see ``settings`` and ``next_request``."""
