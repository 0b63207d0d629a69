// Answers with two writes, the second in the next round of the event loop.
require('http').createServer((request, response) => {
  response.socket.setNoDelay(true);
  response.writeHead(200, { 'Content-Length': 20 });
  response.write('0123456789');
  setImmediate(() => response.end('0123456789'));
}).listen(8082, '0.0.0.0');
