package main

import (
	"bytes"
	"io"
	"os"

	"golang.org/x/term"
)

// screen shows texts one after another. On a terminal each of them replaces the last one.
type screen struct {
	out           io.Writer
	width, height int // 0 if the output is not a terminal
}

// screen returns the standard output, with its present size. A document, as JSON, has none, so it is written whole.
func (a *app) screen(o output) screen {
	s := screen{out: a.stdout}
	if f, ok := a.stdout.(*os.File); ok && !o.isDocument() && term.IsTerminal(int(f.Fd())) {
		if width, height, err := term.GetSize(int(f.Fd())); err == nil {
			s.width, s.height = width, height
		}
	}
	return s
}

func (s screen) isTerminal() bool { return s.height > 0 }

// show writes a text. On a terminal it cuts what does not fit.
func (s screen) show(text []byte) error {
	if s.isTerminal() {
		const home, noWrap, wrap, eraseLine, eraseBelow = "\x1b[H", "\x1b[?7l", "\x1b[?7h", "\x1b[K", "\x1b[J"
		lines := bytes.SplitAfter(text, []byte("\n"))
		text = bytes.Join(lines[:min(len(lines), s.height-1)], nil)
		text = []byte(home + noWrap + string(bytes.ReplaceAll(text, []byte("\n"), []byte(eraseLine+"\n"))) + eraseBelow + wrap)
	}
	_, err := s.out.Write(text)
	return err
}
