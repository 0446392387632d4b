"""Drives kernels as a front end does; run by the interpreter of the environment `jupyter`.

Standard input is a JSON list of steps, [kernel, what, text]: execute a cell, restart, kill, or sleep.  Standard output
is the JSON list of what each showed.
"""

import json
import os
import signal
import sys
import time

from jupyter_client.manager import start_new_kernel

kernels = {}


def kernel(name):
    if name not in kernels:
        kernels[name] = start_new_kernel(kernel_name="python3")
    return kernels[name]


def executed(client, code):
    shown = []

    def take(message):
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            shown.append(content["text"])
        elif kind in ("display_data", "update_display_data"):
            shown.append(f"[{kind}] {content['data'].get('text/plain', '')}")
        elif kind == "error":
            shown.append(f"{content['ename']}: {content['evalue']}")

    client.execute_interactive(code, timeout=120, output_hook=take)
    return "\n".join(shown)


found = []
try:
    for name, what, text in json.load(sys.stdin):
        manager, client = kernel(name)
        shown = ""
        if what == "cell":
            shown = executed(client, text)
        elif what == "begin":  # and do not wait for its end
            client.execute(text)
        elif what == "restart":
            manager.restart_kernel()
            client.wait_for_ready(timeout=60)
        elif what == "kill":
            os.kill(manager.provisioner.pid, signal.SIGKILL)
        elif what == "sleep":
            time.sleep(float(text))
        found.append(shown)
finally:
    for manager, client in kernels.values():
        client.stop_channels()
        manager.shutdown_kernel(now=not manager.is_alive())
print(json.dumps(found))
