"""The clients that are connected to any process: recorded by their processes, read by pages, closed by operators."""

from .closing import MOST_REASON, close_client
from .reading import MOST_CLIENTS, ClientRow, LinkRow, client, clients
from .recording import Recorder, recorder
