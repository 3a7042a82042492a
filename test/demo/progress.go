package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progress passes on what is printed. In a silence it prints the last step, and for how long the demo has run.
type progress struct {
	stdout, stderr io.Writer

	mu   sync.Mutex // guards what follows, and the order of writes
	last time.Time  // of a write
	step string     // the last line of steps
}

// start begins to look for silences. stop ends that.
func (p *progress) start(longest time.Duration) (stop func()) {
	began, done := time.Now(), make(chan struct{})
	p.last = began
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case now := <-tick.C:
				p.mu.Lock()
				if now.Sub(p.last) >= longest {
					fmt.Fprintf(p.stderr, "demo: %v: still at: %s\n", now.Sub(began).Round(time.Second), p.step)
					p.last = now
				}
				p.mu.Unlock()
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}

// text writes what the demo is for to stdout.
func (p *progress) text() io.Writer {
	return writerFunc(func(data []byte) (int, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.last = time.Now()
		return p.stdout.Write(data)
	})
}

// steps writes steps to stderr, one a line.
func (p *progress) steps() io.Writer {
	return writerFunc(func(data []byte) (int, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		p.last, p.step = time.Now(), lines[len(lines)-1]
		return p.stderr.Write(data)
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(data []byte) (int, error) { return f(data) }
