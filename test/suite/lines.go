package suite

import (
	"bytes"
	"io"
	"os"
	"sync"
)

// lineWriter writes whole lines, each after a prefix, so that those of two nodes do not mix.
type lineWriter struct {
	to     io.Writer
	mu     *sync.Mutex // of all that write to it
	prefix string
	rest   []byte // a line that has not ended
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		i := bytes.IndexByte(w.rest, '\n')
		if i < 0 {
			return len(p), nil
		}
		if err := w.line(w.rest[:i+1]); err != nil {
			return 0, err
		}
		w.rest = w.rest[i+1:]
	}
}

func (w *lineWriter) line(line []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := io.WriteString(w.to, w.prefix+string(line))
	return err
}

// stdout guards the standard output of all nodes.
var stdout sync.Mutex

// printer returns a writer for what a part of the tests prints.
func printer(part string) io.Writer {
	if part == "" {
		return os.Stdout
	}
	return &lineWriter{to: os.Stdout, mu: &stdout, prefix: part + "  "}
}
