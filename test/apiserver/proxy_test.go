package apiserver

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy is the network between a program and the API server. It can be interrupted, and it counts.
type proxy struct {
	net.Listener
	received atomic.Int64 // bytes from the API server, with TLS

	mu    sync.Mutex // guards the fields below
	away  bool
	conns map[net.Conn]bool
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, conns: map[net.Conn]bool{}}
	t.Cleanup(func() {
		l.Close()
		p.interrupt()
	})
	go p.accept()
	return p
}

func (p *proxy) accept() {
	for {
		conn, err := p.Accept()
		if err != nil {
			return
		}
		if !p.add(conn) {
			conn.Close()
			continue
		}
		go p.serve(conn)
	}
}

func (p *proxy) serve(conn net.Conn) {
	defer conn.Close()
	var dialer net.Dialer
	to, err := dialer.Dial("tcp", server.address)
	if err != nil {
		return
	}
	defer to.Close()
	if !p.add(to) {
		return
	}
	go func() {
		_, _ = io.Copy(to, conn)
		to.Close()
	}()
	_, _ = io.Copy(conn, io.TeeReader(to, counter{&p.received}))
}

// counter counts what is written to it.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(data []byte) (int, error) {
	c.n.Add(int64(len(data)))
	return len(data), nil
}

// add returns false while the proxy is interrupted.
func (p *proxy) add(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		return false
	}
	p.conns[conn] = true
	return true
}

// interrupt ends all connections, and refuses new ones.
func (p *proxy) interrupt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = true
	for conn := range p.conns {
		conn.Close()
	}
	clear(p.conns)
}

// restore lets connections through again.
func (p *proxy) restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = false
}
