package nodereport

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var at = time.Date(2026, 11, 28, 1, 2, 3, 4, time.FixedZone("", 3600))

// TestFormat verifies the names of the fields, the order of problems, and that pods with several problems count once.
func TestFormat(t *testing.T) {
	r := New("v1", at, 5, []Problem{
		{"prod", "db-0", "BlkioRefused", "b <c>\x1b"}, {"", "", Disconnected, "d"}, {"prod", "db-0", "BlkioNotInForce", "a"},
		{"prod", "db-0", "BlkioNotInForce", "a"}, {"batch", "db-0", "BlkioNotInForce", "a"},
	})
	want := `{"version":1,"program":"v1","at":"2026-11-28T00:02:03Z","pods":5,"inForce":3,"problems":[` +
		`{"reason":"Disconnected","text":"d"},{"namespace":"batch","pod":"db-0","reason":"BlkioNotInForce","text":"a"},` +
		`{"namespace":"prod","pod":"db-0","reason":"BlkioNotInForce","text":"a"},{"namespace":"prod","pod":"db-0","reason":"BlkioRefused","text":"b <c>\\x1b"}],"leftOut":0}`
	if d := cmp.Diff(want, string(r.Encode())); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	again, err := Decode(r.Encode())
	if d := cmp.Diff(r, again); err != nil || d != "" {
		t.Errorf("%v, -want +got:\n%s", err, d)
	}
	empty := New("v1", at.Add(time.Hour), 0, nil)
	if got := string(empty.Encode()); !strings.Contains(got, `"inForce":0,"problems":[]`) {
		t.Error(got)
	}
}

// TestBounds verifies that a report with the largest texts keeps to its size, and has a problem of each namespace, whatever
// one of them has.
func TestBounds(t *testing.T) {
	var problems []Problem
	for i := range 500 {
		problems = append(problems, Problem{"a-tenant", fmt.Sprintf("%0250d", i), "BlkioNotInForce", strings.Repeat(`"`, 2000)})
	}
	for i := range 10 {
		problems = append(problems, Problem{fmt.Sprintf("b%d", i), "db-0", "BlkioRefused", "x"})
	}
	r := New(strings.Repeat("v", 1000), at, 600, problems)
	data := r.Encode()
	if len(data) > MaxSize || len(data) < MaxSize*9/10 || len(r.Problems)+r.LeftOut != len(problems) || r.InForce != 90 {
		t.Errorf("%d bytes, %d problems, %d left out, %d in force", len(data), len(r.Problems), r.LeftOut, r.InForce)
	}
	if n := podsWith(r.Problems[len(r.Problems)-10:]); n != 10 || r.Problems[len(r.Problems)-10].Namespace != "b0" {
		t.Errorf("%d pods of other namespaces", n)
	}
	if _, err := Decode(data); err != nil {
		t.Error(err)
	}
	for i := range problems {
		problems[i].Pod, problems[i].Text = fmt.Sprint(i), "x"
	}
	if r := New("v1", at, 1, problems); len(r.Problems) != MaxProblems || r.LeftOut != len(problems)-MaxProblems || r.InForce != 0 {
		t.Errorf("%d problems, %d left out, %d in force", len(r.Problems), r.LeftOut, r.InForce)
	}
}

// TestDecode verifies that what no node of this version writes is an error.
func TestDecode(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "read a report",
		`{"version":2}`:                "a report of version 2 (known is 1)",
		strings.Repeat(" ", MaxSize+1): "a report of 32769 bytes",
		`{"version":1,"problems":[` + strings.Repeat("{},", MaxProblems) + `{}]}`: "a report of 101 problems",
	} {
		if _, err := Decode([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: error %v, want %s", in, err, want)
		}
	}
}

func TestEqual(t *testing.T) {
	a, b := New("v1", at, 1, nil), New("v1", at.Add(time.Hour), 1, nil)
	if !a.Equal(b) || a.At.Equal(b.At) {
		t.Error("a report of another time differs")
	}
	if b.Pods++; a.Equal(b) {
		t.Error("a report with another pod does not differ")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"version":1,"program":"v1","at":"2026-11-28T00:02:03Z","pods":5,"inForce":3,"problems":[{"reason":"a","text":"b"}],"leftOut":0}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := Decode(in)
		if err != nil {
			return
		}
		if again := New(r.Program, r.At, r.Pods, r.Problems); len(again.Encode()) > MaxSize {
			t.Errorf("%d bytes", len(again.Encode()))
		}
	})
}
