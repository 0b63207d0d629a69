// A reverse proxy that hands on at once what it is given, and has Nagle's algorithm on towards its clients: what its
// server writes in two it sends in two.
package main

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetNoDelay(false)
	}
	return c, err
}

func main() {
	behind, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go http.Serve(behind, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "200")
		w.Write(make([]byte, 100))
		w.(http.Flusher).Flush()
		w.Write(make([]byte, 100))
	}))
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: behind.Addr().String()})
	proxy.FlushInterval = -1
	front, err := net.Listen("tcp4", ":"+os.Args[1])
	if err != nil {
		panic(err)
	}
	panic(http.Serve(listener{front}, proxy))
}
