// A proxy between a client and Redis: it answers in two small writes, after it has asked Redis fifty times at once over one
// connection. Arguments: where Redis is, where to listen, and which hops (front, back) have TCP_NODELAY.
package main

import (
	"bufio"
	"net"
	"os"
	"strings"
	"sync"
)

type redis struct {
	sync.Mutex
	conn    net.Conn
	waiting chan chan struct{}
}

func (r *redis) get() chan struct{} {
	done := make(chan struct{}, 1)
	r.Lock()
	r.waiting <- done
	r.conn.Write([]byte("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"))
	r.Unlock()
	return done
}

func (r *redis) read() {
	in := bufio.NewReader(r.conn)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			os.Exit(1)
		}
		if !strings.HasPrefix(line, "$-1") && strings.HasPrefix(line, "$") {
			in.ReadString('\n')
		}
		(<-r.waiting) <- struct{}{}
	}
}

func hasNoDelay(hop string) bool {
	for _, one := range os.Args[3:] {
		if one == hop {
			return true
		}
	}
	return false
}

func serve(c net.Conn, r *redis) {
	c.(*net.TCPConn).SetNoDelay(hasNoDelay("front"))
	in := bufio.NewReader(c)
	for {
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				c.Close()
				return
			}
			if strings.TrimSpace(line) == "" {
				break
			}
		}
		var all []chan struct{}
		for i := 0; i < 50; i++ {
			all = append(all, r.get())
		}
		for _, one := range all {
			<-one
		}
		c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"))
		c.Write([]byte("hello"))
	}
}

func main() {
	conn, err := net.Dial("tcp", os.Args[1])
	if err != nil {
		panic(err)
	}
	conn.(*net.TCPConn).SetNoDelay(hasNoDelay("back"))
	r := &redis{conn: conn, waiting: make(chan chan struct{}, 100000)}
	go r.read()
	l, err := net.Listen("tcp4", os.Args[2])
	if err != nil {
		panic(err)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go serve(c, r)
	}
}
