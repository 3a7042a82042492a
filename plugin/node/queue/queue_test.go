package queue

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// queueScript is a queue of groups that are known by their names, and a clock.
type queueScript struct {
	Queue[string]
	entries map[string]*Entry[string]
	began   time.Time
}

func newQueueScript(places int) *queueScript {
	s := &queueScript{Queue: New[string](places, time.Second), entries: map[string]*Entry[string]{}, began: time.Now()}
	for _, name := range []string{"a", "b", "c", "d"} {
		s.entries[name] = &Entry[string]{Of: name}
	}
	return s
}

// at returns the time that is some seconds after the begin.
func (s *queueScript) at(seconds int) time.Time {
	return s.began.Add(time.Duration(seconds) * time.Second)
}

// takeAll returns the names of all groups that workers get at a time, those that the pass waits for with a "*".
func (s *queueScript) takeAll(seconds int) string {
	var names []string
	for e := s.First(s.at(seconds)); e != nil; e = s.First(s.at(seconds)) {
		name := e.Of
		if s.Take(e, s.at(seconds)) {
			name += "*"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// do does one step, such as "add a 3", "pass 3", "done a" or "take 3", and returns its result.
func (s *queueScript) do(step string) string {
	words := strings.Fields(step)
	seconds := 0
	if last := words[len(words)-1]; last[0] >= '0' && last[0] <= '9' {
		seconds = int(last[0] - '0')
	}
	e := s.entries[words[min(1, len(words)-1)]]
	switch words[0] {
	case "add":
		s.Add(e, s.at(seconds))
	case "hasten":
		s.Hasten(e, s.at(seconds))
	case "done":
		s.Done(e)
	case "drop":
		s.Drop(e)
	case "pass":
		s.BeginPass(s.at(seconds))
		for _, name := range []string{"a", "b", "c", "d"} {
			s.AddToPass(s.entries[name], s.at(seconds))
		}
	case "take":
		return s.takeAll(seconds)
	case "next":
		if at, waits := s.Next(); waits {
			return at.Sub(s.began).String()
		}
		return "never"
	case "end":
		if began, ended := s.EndPass(); ended {
			return "began " + began.Sub(s.began).String()
		}
		return "no"
	}
	return ""
}

// TestQueue verifies the order in which workers get groups, by scripts of steps with times in seconds and of results.
func TestQueue(t *testing.T) {
	for name, script := range map[string]string{
		"due ones in their order":                     "add b 0, add a 0, add c 1, take 0 = b a, next = 1s, take 1 = c, next = never",
		"the earlier of two times counts":             "add a 5, add b 4, add a 3, next = 3s, add a 9, take 3 = a, take 4 = b, done a, done b, take 9 =",
		"a retry waits for its time":                  "add a 2, take 1 =, next = 2s, take 2 = a",
		"a change hastens a retry":                    "add a 5, add b 0, add a 0, take 0 = b a",
		"only a later time is hastened":               "hasten a 1, take 9 =, add a 5, hasten a 1, take 1 = a",
		"one worker for a group":                      "add a 0, take 0 = a, add a 0, take 0 =, next = never, done a, next = 0s, take 0 = a",
		"added twice while a worker has it":           "add a 0, take 0 = a, add a 5, add a 1, done a, next = 1s, take 1 = a",
		"as many as there are places":                 "add a 0, add b 0, add c 0, add d 0, take 0 = a b, done b, take 0 = c, done a, done c, take 0 = d",
		"a slow one leaves its place":                 "add a 0, add b 0, add c 0, add d 0, take 0 = a b, next = 1s, take 1 = c d, done a, done b, add a 1, add b 1, take 1 =, next = 2s, take 2 = a b",
		"a slow one alone leaves its place":           "add a 0, take 0 = a, add b 0, add c 0, add d 0, take 1 = b c, done b, take 1 = d",
		"a slow one is done after all":                "add a 0, add b 0, add c 0, take 0 = a b, done a, take 0 = c, next = never, done b, done c, add b 1, add c 1, add d 1, take 1 = b c",
		"dropped":                                     "add a 0, add b 2, drop a, drop b, take 9 =, next = never",
		"dropped while a worker has it":               "add a 0, take 0 = a, add a 0, drop a, done a, take 9 =",
		"a pass":                                      "add b 0, pass 1, end = no, take 1 = b* a*, done b, done a, take 1 = c* d*, done c, end = no, done d, end = began 1s, end = no",
		"what follows from a pass is no part of it":   "pass 0, take 0 = a* b*, add a 0, done a, done b, take 0 = c* d*, done c, done d, end = began 0s, take 0 = a",
		"two passes at a time are one":                "pass 1, take 1 = a* b*, pass 2, done a, done b, take 2 = c* d*, done c, done d, end = no, take 2 = a* b*, done a, done b, end = began 1s",
		"a pass does not wait for a dropped one":      "pass 0, take 0 = a* b*, drop a, drop c, done a, done b, take 0 = d*, end = no, done d, end = began 0s",
		"a pass hastens a retry, and needs no second": "add c 5, pass 1, take 1 = a* b*, done a, done b, take 1 = c* d*, done c, done d, take 9 =",
	} {
		t.Run(name, func(t *testing.T) {
			s := newQueueScript(2)
			for step := range strings.SplitSeq(script, ", ") {
				do, want, _ := strings.Cut(step, " =")
				if got := s.do(do); got != strings.TrimSpace(want) {
					t.Fatalf("%s: got %q", step, got)
				}
			}
		})
	}
}

// TestQueueTakesAll verifies by random steps that no group is lost or taken twice, that no more workers have a place than there are
// places, and that the pass ends.
func TestQueueTakesAll(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := newQueueScript(1 + rng.IntN(3))
		names := []string{"a", "b", "c", "d"}
		busy, due, now := map[string]bool{}, map[string]bool{}, 0
		take := func() {
			fast := 0
			for taken := range strings.FieldsSeq(s.takeAll(now)) {
				name := strings.TrimSuffix(taken, "*")
				if busy[name] || !due[name] {
					t.Fatalf("seed %d: %s is taken, busy %v, due %v", seed, name, busy[name], due[name])
				}
				busy[name], due[name] = true, false
				fast++
			}
			if fast > s.places || len(s.placed) > s.places {
				t.Fatalf("seed %d: %d groups at a time, %d places", seed, fast, s.places)
			}
		}
		end := func(name string) {
			if busy[name] {
				s.Done(s.entries[name])
				busy[name] = false
			}
		}
		for range 200 {
			name := names[rng.IntN(len(names))]
			e := s.entries[name]
			switch rng.IntN(6) {
			case 0:
				s.Add(e, s.at(now+rng.IntN(3)))
				due[name] = true
			case 1:
				s.BeginPass(s.at(now))
				s.AddToPass(e, s.at(now))
				due[name] = true
			case 2:
				end(name)
			case 3:
				s.Drop(e)
				due[name] = false
			case 4:
				now += rng.IntN(2)
			}
			take()
		}
		for range 2 * len(names) {
			for name := range busy {
				end(name)
			}
			now += 3
			take()
		}
		s.BeginPass(s.at(now))
		_, ended := s.EndPass()
		if slices.Contains([]bool{due["a"], due["b"], due["c"], due["d"]}, true) || !ended || len(s.waiting)+len(s.placed) > 0 {
			t.Fatalf("seed %d: left %v, pass ended %v, %d groups left", seed, due, ended, s.pass.left)
		}
	}
}
