#!/usr/bin/env python3
"""A sample orders API that is not idempotent, on purpose: each POST makes an order.

    python3 examples/orders.py [PORT]

POST /v1/orders         makes an order: 201, Location, the order as JSON
GET  /v1/orders         all of them
GET  /v1/orders/ID      one
GET  /v1/orders/count   how many POSTs were executed since the start
"""
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

orders = []
lock = threading.Lock()


class Orders(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keep-alive

    def answer(self, status, document, **fields):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/v1/orders":
            return self.answer(404, {"error": "there is nothing here"})
        try:
            wanted = json.loads(body)
        except ValueError:
            wanted = None
        if not isinstance(wanted, dict):
            return self.answer(400, {"error": "an order is a JSON object"})
        with lock:
            order = {**wanted, "id": f"order-{len(orders) + 1}"}
            orders.append(order)
        return self.answer(201, order, Location=f"/v1/orders/{order['id']}")

    def do_GET(self):
        if self.path == "/v1/orders":
            return self.answer(200, orders)
        if self.path == "/v1/orders/count":
            return self.answer(200, {"executed": len(orders)})
        for order in orders:
            if self.path == f"/v1/orders/{order['id']}":
                return self.answer(200, order)
        return self.answer(404, {"error": "there is no such order"})


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 9000
    print(f"orders API on port {port}", flush=True)
    Server(("127.0.0.1", port), Orders).serve_forever()
