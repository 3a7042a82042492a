package suite

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// What failuresIn returns of a test: its last messages, and the beginning of each. What is logged at the end follows the errors: the output
// does not distinguish them.
const (
	lastMessages  = 8
	messageLength = 250
)

var (
	// runsLine is a line of go test -v before what a test prints.
	runsLine = regexp.MustCompile(`^=== (?:RUN|CONT|NAME) +(\S+)$`)
	// messageLine begins a message. The other lines of the message are indented more.
	messageLine = regexp.MustCompile(`^    \S+\.go:\d+: (.*)`)
	// logMessage begins a message with the log of a program.
	logMessage = regexp.MustCompile(`^(end of the )?log of `)
)

// failuresIn returns what the output of go test -v has about each test that failed, without the tests that failed because of one of
// their cases, and about a crash.
func failuresIn(output []byte) (out []string) {
	messages, open := map[string][]string{}, false
	var test string
	var failed []string
	for line := range bytes.Lines(output) {
		text := strings.TrimRight(string(line), "\n")
		name, isFailed := strings.CutPrefix(strings.TrimLeft(text, " "), "--- FAIL: ")
		switch now, found := runsLine.FindStringSubmatch(text), messageLine.FindStringSubmatch(text); {
		case now != nil:
			test, open = now[1], false
		case found != nil:
			if open = !logMessage.MatchString(found[1]); open {
				messages[test] = append(messages[test], strings.TrimSpace(text))
			}
		case open && strings.HasPrefix(text, "        "):
			last := messages[test]
			last[len(last)-1] += "\n" + text
		case isFailed:
			name, _, _ = strings.Cut(name, " ")
			failed, open = append(failed, name), false
		case strings.HasPrefix(text, "panic: "), strings.HasPrefix(text, "fatal error: "):
			out = append(out, test+": "+shortened(text))
		default:
			open = false
		}
	}
	for _, name := range failed {
		all := messages[name]
		if len(all) == 0 && slices.ContainsFunc(failed, func(other string) bool { return strings.HasPrefix(other, name+"/") }) {
			continue
		}
		out = append(out, name+" failed:")
		for _, message := range all[max(0, len(all)-lastMessages):] {
			out = append(out, "    "+shortened(message))
		}
	}
	return out
}

// shortened returns the beginning of a text.
func shortened(text string) string {
	if len(text) <= messageLength {
		return text
	}
	return strings.ToValidUTF8(text[:messageLength], "") + " […]"
}
