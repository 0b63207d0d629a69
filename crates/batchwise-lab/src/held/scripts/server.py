# Python's own HTTP server: the header is a write, the body another, and Nagle's algorithm is on.
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b"x" * 100)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("", int(sys.argv[1])), Handler).serve_forever()
