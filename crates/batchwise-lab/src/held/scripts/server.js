// Node with Nagle's algorithm on, as before version 18: what is written in two turns of the loop is two writes.
const http = require("http");
const serve = (_, response) => {
  response.setHeader("Content-Length", 200);
  response.write("x".repeat(100));
  setImmediate(() => response.end("y".repeat(100)));
};
http.createServer({ noDelay: false }, serve).listen(Number(process.argv[2]));
